//! Background work: whose it is, what it is, how it stands, and the way to stop it. Knows nothing of what the work does.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use open_agent_model::{
    BackgroundEnd, BackgroundId, BackgroundOutcome, BackgroundOwner, BackgroundWork, BoxFuture, OutputRef,
};
use open_agent_tool::{Background, BackgroundJob, BackgroundSpec, BackgroundStatus, Clock, PortError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The background work of one or more agents, each of which sees its own. Work lives on the runtime that the call which
/// started it ran on. Dropping the set asks all work to stop; [`Background::stop_all`] waits for it as well.
pub struct BackgroundSet {
    clock: Arc<dyn Clock>,
    folder: Option<PathBuf>,
    known: Mutex<Known>,
    /// Counts ends.
    ends: watch::Sender<u64>,
}

#[derive(Default)]
struct Known {
    closed: HashSet<BackgroundOwner>,
    entries: Vec<Entry>,
}

impl Known {
    fn of<'a>(&'a self, owner: &'a BackgroundOwner) -> impl Iterator<Item = &'a Entry> {
        self.entries.iter().filter(move |entry| entry.owner == *owner)
    }

    fn find(&self, owner: &BackgroundOwner, id: &BackgroundId) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.owner == *owner && entry.work.id == *id)
    }
}

#[derive(Clone)]
struct Entry {
    owner: BackgroundOwner,
    work: BackgroundWork,
    output_path: Option<PathBuf>,
    end: watch::Receiver<Option<BackgroundEnd>>,
    stop: CancellationToken,
}

impl Entry {
    fn status(&self) -> BackgroundStatus {
        let (work, output_path) = (self.work.clone(), self.output_path.clone());
        BackgroundStatus { work, output_path, end: self.end.borrow().clone() }
    }

    async fn ended(mut self) -> BackgroundStatus {
        // An error would mean that its work is gone without a word; `Ending` says one.
        let _ = self.end.wait_for(Option::is_some).await;
        self.status()
    }
}

impl BackgroundSet {
    /// No work yet.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, folder: None, known: Mutex::default(), ends: watch::Sender::default() }
    }

    /// Stores outputs that lie below `folder`, the session's own, relative to it.
    #[must_use]
    pub fn with_folder(mut self, folder: Option<PathBuf>) -> Self {
        self.folder = folder;
        self
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Background for BackgroundSet {
    fn start(&self, spec: BackgroundSpec, job: BackgroundJob) -> Result<BackgroundWork, PortError> {
        let BackgroundSpec { owner, kind, description, call, output } = spec;
        let mut known = self.known();
        if known.closed.contains(&owner) {
            return Err(PortError::Closed);
        }
        let first = BackgroundId::of(kind, call);
        let mut id = first.clone();
        let mut n = 1;
        while known.find(&owner, &id).is_some() {
            n += 1;
            id = BackgroundId(format!("{first}_{n}"));
        }
        let work = BackgroundWork {
            id,
            kind: kind.into(),
            description,
            call,
            output: output.as_ref().map(|path| OutputRef::new(path, self.folder.as_deref())),
            started: self.clock.now(),
        };
        let (tell, end) = watch::channel(None);
        let stop = CancellationToken::new();
        let token = stop.clone();
        let ends = self.ends.clone();
        tracing::debug!(work = %work.id, %call, "background work starts");
        tokio::spawn(async move {
            let ending = Ending { tell, ends };
            let end = job(token).await;
            ending.tell.send_replace(Some(end));
        });
        known.entries.push(Entry { owner, work: work.clone(), output_path: output, end, stop });
        Ok(work)
    }

    fn list(&self, owner: &BackgroundOwner) -> Vec<BackgroundStatus> {
        self.known().of(owner).map(Entry::status).collect()
    }

    fn find(&self, owner: &BackgroundOwner, id: &BackgroundId) -> Option<BackgroundStatus> {
        self.known().find(owner, id).map(Entry::status)
    }

    fn stop(&self, owner: &BackgroundOwner, id: &BackgroundId) -> BoxFuture<'_, Option<BackgroundStatus>> {
        let entry = self.known().find(owner, id).cloned();
        entry.iter().for_each(|entry| entry.stop.cancel());
        Box::pin(async move { Some(entry?.ended().await) })
    }

    fn stop_all(&self, owner: &BackgroundOwner) -> BoxFuture<'_, ()> {
        let mut known = self.known();
        known.closed.insert(owner.clone());
        let all: Vec<Entry> = known.of(owner).cloned().collect();
        all.iter().for_each(|entry| entry.stop.cancel());
        Box::pin(async move {
            for entry in all {
                entry.ended().await;
            }
        })
    }

    fn next_end(&self) -> BoxFuture<'static, ()> {
        let mut ends = self.ends.subscribe();
        // An error means that the set and all its work are gone.
        Box::pin(async move { _ = ends.changed().await })
    }
}

impl Drop for BackgroundSet {
    fn drop(&mut self) {
        self.known().entries.iter().for_each(|entry| entry.stop.cancel());
    }
}

/// Says that work is over, also if it panics or its runtime goes away: whoever waits must not wait for ever.
struct Ending {
    tell: watch::Sender<Option<BackgroundEnd>>,
    ends: watch::Sender<u64>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.tell.send_if_modified(|end| {
            let is_unknown = end.is_none();
            end.get_or_insert_with(without_a_word);
            is_unknown
        });
        // Whoever wakes now finds the end.
        self.ends.send_modify(|ends| *ends += 1);
    }
}

fn without_a_word() -> BackgroundEnd {
    BackgroundEnd::with_detail(BackgroundOutcome::Failed, "ended, how is not known")
}

#[cfg(test)]
mod tests {
    use open_agent_model::{AgentId, BackgroundKind, CallId, SessionId};

    use super::*;
    use crate::SystemClock;

    fn set() -> BackgroundSet {
        BackgroundSet::new(Arc::new(SystemClock))
    }

    fn owner(session: &str, agent: AgentId) -> BackgroundOwner {
        BackgroundOwner { session: SessionId::new(session).unwrap(), agent }
    }

    fn me() -> BackgroundOwner {
        owner("s", AgentId::main())
    }

    fn spec(turn: u32) -> BackgroundSpec {
        spec_of(me(), turn)
    }

    fn spec_of(owner: BackgroundOwner, turn: u32) -> BackgroundSpec {
        let call = CallId { turn, index: 0 };
        BackgroundSpec { owner, kind: BackgroundKind::Bash, description: "work".into(), call, output: None }
    }

    fn until_stopped() -> BackgroundJob {
        Box::new(|stop| {
            Box::pin(async move {
                stop.cancelled().await;
                BackgroundEnd::of(BackgroundOutcome::Stopped)
            })
        })
    }

    fn ending(end: BackgroundEnd) -> BackgroundJob {
        Box::new(move |_| Box::pin(async move { end }))
    }

    #[tokio::test]
    async fn names_follow_from_the_call_and_are_unique() {
        let set = set();
        let mut ids = Vec::new();
        for turn in [0, 7, 7, 7] {
            ids.push(set.start(spec(turn), until_stopped()).unwrap().id.0);
        }
        assert_eq!(ids, ["bash_0_0", "bash_7_0", "bash_7_0_2", "bash_7_0_3"]);
        let listed: Vec<String> = set.list(&me()).into_iter().map(|s| s.work.id.0).collect();
        assert_eq!(listed, ids);
    }

    #[tokio::test]
    async fn stopping_waits_for_the_end_and_is_no_error_twice() {
        let set = set();
        let id = set.start(spec(0), until_stopped()).unwrap().id;
        assert!(set.find(&me(), &id).unwrap().is_running());
        for _ in 0..2 {
            assert_eq!(
                set.stop(&me(), &id).await.unwrap().end,
                Some(BackgroundEnd::of(BackgroundOutcome::Stopped))
            );
        }
        assert_eq!(set.stop(&me(), &BackgroundId("bash_9_9".into())).await, None);
        let done = BackgroundEnd::with_detail(BackgroundOutcome::Failed, "ended with exit code 3");
        let id = set.start(spec(1), ending(done.clone())).unwrap().id;
        assert_eq!(set.stop(&me(), &id).await.unwrap().end, Some(done), "what ended by itself stays so");
    }

    #[tokio::test]
    async fn work_that_panics_is_over() {
        let set = set();
        let id = set.start(spec(0), Box::new(|_| Box::pin(async { panic!("boom") }))).unwrap().id;
        let end = set.stop(&me(), &id).await.unwrap().end;
        assert_eq!(end, Some(without_a_word()));
    }

    #[tokio::test]
    async fn the_next_end_is_told_also_of_work_that_panics_and_when_the_set_is_gone() {
        let set = set();
        let end = set.next_end();
        let id = set.start(spec(0), ending(BackgroundEnd::of(BackgroundOutcome::Completed))).unwrap().id;
        end.await;
        assert!(!set.find(&me(), &id).unwrap().is_running());
        let end = set.next_end();
        set.start(spec(1), Box::new(|_| Box::pin(async { panic!("boom") }))).unwrap();
        end.await;
        let end = set.next_end();
        drop(set);
        end.await;
    }

    #[tokio::test]
    async fn after_the_end_nothing_starts() {
        let set = set();
        let id = set.start(spec(0), until_stopped()).unwrap().id;
        set.stop_all(&me()).await;
        assert_eq!(set.find(&me(), &id).unwrap().end, Some(BackgroundEnd::of(BackgroundOutcome::Stopped)));
        assert!(matches!(set.start(spec(1), until_stopped()), Err(PortError::Closed)));
    }

    #[tokio::test]
    async fn each_agent_of_each_session_has_its_own_work() {
        let set = set();
        let owners = [me(), owner("other", AgentId::main()), owner("s", AgentId::new("helper"))];
        for owner in &owners {
            let work = set.start(spec_of(owner.clone(), 0), until_stopped()).unwrap();
            assert_eq!(work.id.as_str(), "bash_0_0", "names are unique within the owner's work");
        }
        let id = BackgroundId("bash_0_0".into());
        set.stop(&owners[0], &id).await.unwrap();
        let running = |owner: &BackgroundOwner| {
            let all = set.list(owner);
            assert_eq!(all.len(), 1);
            assert_eq!(set.find(owner, &id).as_ref(), all.first());
            all[0].is_running()
        };
        assert_eq!(owners.each_ref().map(running), [false, true, true]);
        set.stop_all(&owners[1]).await;
        assert_eq!(owners.each_ref().map(running), [false, false, true]);
        assert!(matches!(set.start(spec_of(owners[1].clone(), 1), until_stopped()), Err(PortError::Closed)));
        assert!(set.start(spec_of(owners[2].clone(), 1), until_stopped()).is_ok(), "the others go on");
    }

    #[tokio::test]
    async fn dropping_the_set_stops_its_work() {
        let set = set();
        set.start(spec(0), until_stopped()).unwrap();
        let mut end = set.known().entries[0].end.clone();
        drop(set);
        assert_eq!(
            *end.wait_for(Option::is_some).await.unwrap(),
            Some(BackgroundEnd::of(BackgroundOutcome::Stopped))
        );
    }
}
