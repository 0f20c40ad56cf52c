//! The way from a run to one reader. Owns its guarantees: durable events are never dropped, deltas for a slow reader are
//! joined, and a reader that goes away does not end the run.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use tokio::sync::Notify;

use crate::{AgentEvent, Envelope};

/// How many durable events wait for a slow reader before the run waits, too.
const MAX_WAITING: usize = 1_024;

/// Where a run's events go.
#[derive(Clone, Default)]
pub struct EventSink(Option<Arc<Shared>>);

/// A run's events, as they come.
pub struct EventStream(Arc<Shared>);

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    room: Notify,
    live: bool,
}

#[derive(Default)]
struct Queue {
    events: VecDeque<Envelope>,
    durable: usize,
    reader: Option<Waker>,
    reader_gone: bool,
    /// There is always room.
    hurried: bool,
    over: bool,
}

impl EventSink {
    /// A sink that nobody reads.
    #[must_use]
    pub fn none() -> Self {
        Self(None)
    }

    /// A sink and its reader, for durable events only.
    #[must_use]
    pub fn durable() -> (Self, EventStream) {
        Self::pair(Shared::default())
    }

    /// A sink and its reader, for durable and live events.
    #[must_use]
    pub fn live() -> (Self, EventStream) {
        Self::pair(Shared { live: true, ..Shared::default() })
    }

    fn pair(shared: Shared) -> (Self, EventStream) {
        let shared = Arc::new(shared);
        (Self(Some(Arc::clone(&shared))), EventStream(shared))
    }

    /// Whether somebody reads live events. If not, none need be made.
    #[must_use]
    pub fn wants_live(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| shared.live && !shared.queue().reader_gone)
    }

    /// Whether somebody reads.
    #[must_use]
    pub fn wants_durable(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| !shared.queue().reader_gone)
    }

    /// Hands over a durable event; waits while the reader is far behind.
    pub async fn durable_event(&self, event: Envelope) {
        let Some(shared) = &self.0 else { return };
        loop {
            let room = shared.room.notified();
            {
                let mut queue = shared.queue();
                if queue.reader_gone {
                    return;
                }
                if queue.durable < MAX_WAITING || queue.hurried {
                    queue.durable += 1;
                    queue.events.push_back(event);
                    queue.wake();
                    return;
                }
            }
            room.await;
        }
    }

    /// Hands over a live event. Never waits: text for a block joins what waits already.
    pub fn live_event(&self, event: Envelope) {
        let Some(shared) = self.0.as_ref().filter(|s| s.live) else { return };
        let mut queue = shared.queue();
        if queue.reader_gone {
            return;
        }
        if let (AgentEvent::BlockDelta(new), Some(last)) = (&event.event, queue.events.back_mut())
            && let AgentEvent::BlockDelta(waiting) = &mut last.event
            && waiting.index == new.index
            && waiting.kind == new.kind
        {
            waiting.text.push_str(&new.text);
            return;
        }
        if let AgentEvent::ToolProgress(new) = &event.event {
            // Several calls tell in turn; each has one line waiting at most.
            let live = queue.events.iter_mut().rev().take_while(|e| e.seq.is_none());
            for waiting in live {
                if let AgentEvent::ToolProgress(old) = &mut waiting.event
                    && old.call == new.call
                {
                    old.line.clone_from(&new.line);
                    return;
                }
            }
        }
        queue.events.push_back(event);
        queue.wake();
    }

    /// Waits for no reader any more: whoever ends a run must not wait for one who waits for that end. What comes is kept
    /// for the reader all the same.
    pub fn hurry(&self) {
        if let Some(shared) = &self.0 {
            shared.queue().hurried = true;
            shared.room.notify_waiters();
        }
    }

    /// Says that nothing more comes.
    pub fn finish(&self) {
        if let Some(shared) = &self.0 {
            let mut queue = shared.queue();
            queue.over = true;
            queue.wake();
        }
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl Stream for EventStream {
    type Item = Envelope;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Envelope>> {
        let mut queue = self.0.queue();
        match queue.events.pop_front() {
            Some(event) => {
                if event.seq.is_some() {
                    queue.durable -= 1;
                    self.0.room.notify_waiters();
                }
                Poll::Ready(Some(event))
            }
            None if queue.over => Poll::Ready(None),
            None => {
                queue.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        queue.reader_gone = true;
        queue.events.clear();
        drop(queue);
        self.0.room.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use open_agent_model::{Seq, SessionId, Timestamp};

    use super::*;
    use crate::{BlockDelta, DeltaKind, EVENT_VERSION};

    fn envelope(seq: Option<u64>, event: AgentEvent) -> Envelope {
        Envelope {
            v: EVENT_VERSION,
            seq: seq.map(Seq),
            at: Timestamp(0),
            session: SessionId::new("s").unwrap(),
            run: None,
            agent: open_agent_model::AgentId::main(),
            parent: None,
            turn: 0,
            event,
        }
    }

    fn delta(offset: usize, text: &str) -> AgentEvent {
        AgentEvent::BlockDelta(BlockDelta { index: 0, offset, kind: DeltaKind::Text, text: text.into() })
    }

    async fn next(stream: &mut EventStream) -> Option<Envelope> {
        poll_fn(|cx| Pin::new(&mut *stream).poll_next(cx)).await
    }

    #[tokio::test]
    async fn waiting_deltas_are_joined_and_durable_events_kept() {
        let (sink, mut stream) = EventSink::live();
        sink.live_event(envelope(None, delta(0, "a")));
        sink.live_event(envelope(None, delta(1, "b")));
        sink.durable_event(envelope(Some(1), AgentEvent::Interrupted)).await;
        sink.live_event(envelope(None, delta(2, "c")));
        sink.finish();
        assert_eq!(next(&mut stream).await.unwrap().event, delta(0, "ab"));
        assert_eq!(next(&mut stream).await.unwrap().event, AgentEvent::Interrupted);
        assert_eq!(next(&mut stream).await.unwrap().event, delta(2, "c"));
        assert!(next(&mut stream).await.is_none());
    }

    #[tokio::test]
    async fn the_run_waits_for_a_slow_reader_and_not_for_one_that_left() {
        let (sink, mut stream) = EventSink::durable();
        let writer = tokio::spawn({
            let sink = sink.clone();
            async move {
                for seq in 0..MAX_WAITING as u64 * 2 {
                    sink.durable_event(envelope(Some(seq), AgentEvent::Interrupted)).await;
                }
                sink.finish();
            }
        });
        for want in 0..10 {
            assert_eq!(next(&mut stream).await.unwrap().seq, Some(Seq(want)));
        }
        assert!(!writer.is_finished());
        drop(stream);
        writer.await.unwrap();
    }
}
