//! Background work of one agent: what it is, how it stands, and the way to stop it. Knows nothing of what the work does.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use open_agent_model::{BoxFuture, OutputRef, Task, TaskEnd, TaskId};
use open_agent_tool::{Clock, PortError, TaskSpec, TaskStatus, TaskWork, Tasks};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The background work of an agent. Work lives on the runtime that the call which started it ran on. Dropping the set asks
/// all work to stop; [`Tasks::stop_all`] waits for it as well.
pub struct TaskSet {
    clock: Arc<dyn Clock>,
    folder: Option<PathBuf>,
    known: Mutex<Known>,
    /// Counts ends.
    ends: watch::Sender<u64>,
}

#[derive(Default)]
struct Known {
    closed: bool,
    tasks: Vec<Entry>,
}

#[derive(Clone)]
struct Entry {
    task: Task,
    output_file: PathBuf,
    end: watch::Receiver<Option<TaskEnd>>,
    stop: CancellationToken,
}

impl Entry {
    fn status(&self) -> TaskStatus {
        let (task, output_file) = (self.task.clone(), self.output_file.clone());
        TaskStatus { task, output_file, end: self.end.borrow().clone() }
    }

    async fn stopped(mut self) -> TaskStatus {
        self.stop.cancel();
        // An error would mean that its work is gone without a word; `Ending` says one.
        let _ = self.end.wait_for(Option::is_some).await;
        self.status()
    }
}

impl TaskSet {
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

    fn entry(&self, id: &TaskId) -> Option<Entry> {
        self.known().tasks.iter().find(|entry| entry.task.id == *id).cloned()
    }
}

impl Tasks for TaskSet {
    fn start(&self, spec: TaskSpec, work: TaskWork) -> Result<Task, PortError> {
        let mut known = self.known();
        if known.closed {
            return Err(PortError::Closed);
        }
        let first = TaskId::of(spec.kind, spec.call);
        let mut id = first.clone();
        let mut n = 1;
        while known.tasks.iter().any(|entry| entry.task.id == id) {
            n += 1;
            id = TaskId(format!("{first}_{n}"));
        }
        let TaskSpec { kind, description, call, output_file } = spec;
        let output = Some(OutputRef::new(&output_file, self.folder.as_deref()));
        let task = Task { id, kind: kind.into(), description, call, output, started: self.clock.now() };
        let (tell, end) = watch::channel(None);
        let stop = CancellationToken::new();
        let token = stop.clone();
        let ends = self.ends.clone();
        tracing::debug!(task = %task.id, %call, "background work starts");
        tokio::spawn(async move {
            let ending = Ending { tell, ends };
            let end = work(token).await;
            ending.tell.send_replace(Some(end));
        });
        known.tasks.push(Entry { task: task.clone(), output_file, end, stop });
        Ok(task)
    }

    fn list(&self) -> Vec<TaskStatus> {
        self.known().tasks.iter().map(Entry::status).collect()
    }

    fn find(&self, id: &TaskId) -> Option<TaskStatus> {
        self.entry(id).map(|entry| entry.status())
    }

    fn stop<'a>(&'a self, id: &'a TaskId) -> BoxFuture<'a, Option<TaskStatus>> {
        let entry = self.entry(id);
        Box::pin(async move { Some(entry?.stopped().await) })
    }

    fn stop_all(&self) -> BoxFuture<'_, ()> {
        let mut known = self.known();
        known.closed = true;
        let all = known.tasks.clone();
        all.iter().for_each(|entry| entry.stop.cancel());
        Box::pin(async move {
            for entry in all {
                entry.stopped().await;
            }
        })
    }

    fn next_end(&self) -> BoxFuture<'static, ()> {
        let mut ends = self.ends.subscribe();
        // An error means that the set and all its work are gone.
        Box::pin(async move { _ = ends.changed().await })
    }
}

impl Drop for TaskSet {
    fn drop(&mut self) {
        self.known().tasks.iter().for_each(|entry| entry.stop.cancel());
    }
}

/// Says that work is over, also if it panics or its runtime goes away: whoever waits must not wait for ever.
struct Ending {
    tell: watch::Sender<Option<TaskEnd>>,
    ends: watch::Sender<u64>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.tell.send_if_modified(|end| {
            let unknown = end.is_none();
            end.get_or_insert(TaskEnd::of_process(None, None));
            unknown
        });
        // Whoever wakes now finds the end.
        self.ends.send_modify(|ends| *ends += 1);
    }
}

#[cfg(test)]
mod tests {
    use open_agent_model::{CallId, TaskKind, TaskOutcome};

    use super::*;
    use crate::SystemClock;

    fn set() -> TaskSet {
        TaskSet::new(Arc::new(SystemClock))
    }

    fn spec(turn: u32) -> TaskSpec {
        let call = CallId { turn, index: 0 };
        TaskSpec { kind: TaskKind::Bash, description: "work".into(), call, output_file: PathBuf::new() }
    }

    fn until_stopped() -> TaskWork {
        Box::new(|stop| {
            Box::pin(async move {
                stop.cancelled().await;
                TaskEnd::of(TaskOutcome::Stopped)
            })
        })
    }

    fn ending(end: TaskEnd) -> TaskWork {
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
        let listed: Vec<String> = set.list().into_iter().map(|s| s.task.id.0).collect();
        assert_eq!(listed, ids);
    }

    #[tokio::test]
    async fn stopping_waits_for_the_end_and_is_no_error_twice() {
        let set = set();
        let id = set.start(spec(0), until_stopped()).unwrap().id;
        assert!(set.find(&id).unwrap().is_running());
        for _ in 0..2 {
            assert_eq!(set.stop(&id).await.unwrap().end, Some(TaskEnd::of(TaskOutcome::Stopped)));
        }
        assert_eq!(set.stop(&TaskId("bash_9_9".into())).await, None);
        let done = TaskEnd::of_process(Some(3), None);
        let id = set.start(spec(1), ending(done.clone())).unwrap().id;
        assert_eq!(set.stop(&id).await.unwrap().end, Some(done), "what ended by itself stays so");
    }

    #[tokio::test]
    async fn work_that_panics_is_over() {
        let set = set();
        let id = set.start(spec(0), Box::new(|_| Box::pin(async { panic!("boom") }))).unwrap().id;
        let end = set.stop(&id).await.unwrap().end;
        assert_eq!(end, Some(TaskEnd::of_process(None, None)));
    }

    #[tokio::test]
    async fn the_next_end_is_told_also_of_work_that_panics_and_when_the_set_is_gone() {
        let set = set();
        let end = set.next_end();
        let id = set.start(spec(0), ending(TaskEnd::of_process(Some(0), None))).unwrap().id;
        end.await;
        assert!(!set.find(&id).unwrap().is_running());
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
        set.stop_all().await;
        assert_eq!(set.find(&id).unwrap().end, Some(TaskEnd::of(TaskOutcome::Stopped)));
        assert!(matches!(set.start(spec(1), until_stopped()), Err(PortError::Closed)));
    }

    #[tokio::test]
    async fn dropping_the_set_stops_its_work() {
        let set = set();
        set.start(spec(0), until_stopped()).unwrap();
        let mut end = set.known().tasks[0].end.clone();
        drop(set);
        assert_eq!(*end.wait_for(Option::is_some).await.unwrap(), Some(TaskEnd::of(TaskOutcome::Stopped)));
    }
}
