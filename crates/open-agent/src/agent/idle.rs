//! Background work that ends while no run goes on: it is written down and told, and may wake the agent. Owns the task that
//! waits for it, which keeps neither the agent nor its files open.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use open_agent_engine::{Driver, EngineError, EventSink};
use open_agent_model::BoxFuture;
use open_agent_session::StoreError;

use super::{Inner, Task};

impl Inner {
    /// Puts the driver in its place at the end of a run, tells of background work that has ended by now, and has the rest of
    /// it waited for.
    pub(super) async fn leave(self: &Arc<Self>, mut driver: Box<Driver>, place: &mut Option<Box<Driver>>) {
        driver.set_sink(EventSink::of(&self.subscribers));
        // Before it is looked what has ended, so that no end is missed.
        let next_end = self.next_end();
        let wakes = self.is_to_wake(&driver);
        if !wakes
            && !self.closed.is_cancelled()
            && let Err(error) = driver.tell_background().await
        {
            // The log failed: the next prompt opens the session anew.
            return tracing::warn!(%error, "the end of background work could not be written down");
        }
        let has_more = wakes || driver.has_background();
        // An idle agent keeps no file open; thousands of them fit into one process.
        driver.park().await;
        *place = Some(driver);
        if has_more && !self.closed.is_cancelled() && !self.is_watched.swap(true, Ordering::Relaxed) {
            self.watch(next_end, wakes);
        }
    }

    /// Whether background work that has ended starts a run now.
    fn is_to_wake(&self, driver: &Driver) -> bool {
        self.wiring.options.wake_on_task_end && !self.closed.is_cancelled() && driver.is_woken()
    }

    fn next_end(&self) -> BoxFuture<'static, ()> {
        match self.live.get() {
            Some(live) => live.host.ports.background.next_end(),
            None => Box::pin(std::future::pending()),
        }
    }

    /// Waits for the ends of background work as long as there is any, on a task of its own. It does not keep the agent
    /// alive.
    fn watch(self: &Arc<Self>, mut next_end: BoxFuture<'static, ()>, mut is_due: bool) {
        let (agent, closed) = (Arc::downgrade(self), self.closed.clone());
        tokio::spawn(async move {
            loop {
                if !std::mem::take(&mut is_due) {
                    tokio::select! {
                        () = closed.cancelled() => return,
                        () = &mut next_end => {}
                    }
                }
                let Some(inner) = agent.upgrade() else { return };
                next_end = inner.next_end();
                if !inner.on_background_end().await {
                    return;
                }
            }
        });
    }

    /// Tells of background work that has ended, and begins a run if the agent is to be woken. Returns false if nothing is
    /// left to wait for.
    async fn on_background_end(self: &Arc<Self>) -> bool {
        let mut place = self.driver.lock().await;
        // As for other runs: registered before it is looked whether the agent is closed.
        let reach = self.register(self.closed.child_token(), EventSink::of(&self.subscribers));
        // A run that came first has told it already.
        let driver = place.take().filter(|_| !self.closed.is_cancelled());
        let Some(mut driver) = driver else {
            return self.end_watch();
        };
        if !driver.has_ended_background() {
            let has_more = driver.has_background();
            *place = Some(driver);
            return has_more || self.end_watch();
        }
        match driver.unpark().await {
            Ok(()) => {}
            Err(EngineError::Store(StoreError::Fenced { .. })) => {
                // Its log says by now that the work is lost to it. The next prompt reads the session anew.
                tracing::info!(session = %driver.id(), "another process went on with the session; nothing is told in it");
                return self.end_watch();
            }
            Err(error) => {
                tracing::warn!(%error, "the end of background work could not be told; the next run tells it");
                *place = Some(driver);
                return true;
            }
        }
        self.is_watched.store(false, Ordering::Relaxed);
        if self.is_to_wake(&driver) {
            tracing::info!(session = %driver.id(), "background work has ended; a run begins");
            let woken = self.drive_all(driver, &mut place, Task::Wake, reach).await;
            if let Err(error) = woken {
                tracing::warn!(%error, "the run that background work began has failed");
            }
        } else {
            drop(reach);
            self.leave(driver, &mut place).await;
        }
        // Whoever left the driver has it watched again.
        false
    }

    fn end_watch(&self) -> bool {
        self.is_watched.store(false, Ordering::Relaxed);
        false
    }
}
