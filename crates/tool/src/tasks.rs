//! The port for work that goes on after the call that started it.

use std::path::PathBuf;

use open_agent_model::{BoxFuture, CallId, Task, TaskEnd, TaskId, TaskKind};
use tokio_util::sync::CancellationToken;

use crate::PortError;
use crate::ports::Absent;

/// Background work, whoever started it. Each agent has its own.
pub trait Tasks: Send + Sync {
    /// Takes work in and lets it go on by itself. Refused once the agent is being closed; `work` is dropped then.
    fn start(&self, spec: TaskSpec, work: TaskWork) -> Result<Task, PortError>;

    /// All of it, also what has ended, in the order in which it was started.
    fn list(&self) -> Vec<TaskStatus>;

    /// One piece.
    fn find(&self, id: &TaskId) -> Option<TaskStatus>;

    /// Stops it and waits for its end. `None` if there is no such task. For one that has ended it does nothing.
    fn stop<'a>(&'a self, id: &'a TaskId) -> BoxFuture<'a, Option<TaskStatus>>;

    /// Stops all and waits for their ends. Nothing can be started from then on.
    fn stop_all(&self) -> BoxFuture<'_, ()>;

    /// Returns a future that is ready once some work has ended since this call, or the port is gone. It may be ready
    /// without such a reason, too. It keeps nothing alive.
    fn next_end(&self) -> BoxFuture<'static, ()>;
}

/// Background work to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskSpec {
    /// What kind of work.
    pub kind: TaskKind,
    /// What it does, for people.
    pub description: String,
    /// The call that starts it.
    pub call: CallId,
    /// The file that holds what it writes.
    pub output_file: PathBuf,
}

/// The work itself: it gets a token that is cancelled when it has to stop, and says how it ended. It must not keep its
/// call's [`ToolCx`](crate::ToolCx), for that keeps the agent's ports alive and so what has to end with them. Dropping it
/// has to end whatever it had started.
pub type TaskWork = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, TaskEnd> + Send>;

/// Background work and how it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskStatus {
    /// What it is.
    pub task: Task,
    /// The file that holds what it writes, by its absolute path.
    pub output_file: PathBuf,
    /// How it ended; `None` while it goes on.
    pub end: Option<TaskEnd>,
}

impl TaskStatus {
    /// Whether it goes on.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.end.is_none()
    }
}

impl Tasks for Absent {
    fn start(&self, _: TaskSpec, _: TaskWork) -> Result<Task, PortError> {
        Err(PortError::Absent("background work"))
    }
    fn list(&self) -> Vec<TaskStatus> {
        Vec::new()
    }
    fn find(&self, _: &TaskId) -> Option<TaskStatus> {
        None
    }
    fn stop<'a>(&'a self, _: &'a TaskId) -> BoxFuture<'a, Option<TaskStatus>> {
        Box::pin(async { None })
    }
    fn stop_all(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
    fn next_end(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}
