//! The port for work that goes on after the call that started it.

use std::path::PathBuf;

use open_agent_model::{
    BackgroundEnd, BackgroundId, BackgroundKind, BackgroundOwner, BackgroundWork, BoxFuture, CallId,
};
use tokio_util::sync::CancellationToken;

use crate::PortError;
use crate::ports::Absent;

/// Background work of one or more agents. Each agent sees its own only.
pub trait Background: Send + Sync {
    /// Takes work in and lets it go on by itself. Refused once the owner's work was ended with [`Background::stop_all`];
    /// `job` is dropped then.
    fn start(&self, spec: BackgroundSpec, job: BackgroundJob) -> Result<BackgroundWork, PortError>;

    /// Returns all work of `owner`, also what has ended, in the order in which it was started.
    fn list(&self, owner: &BackgroundOwner) -> Vec<BackgroundStatus>;

    /// Returns one piece of the owner's work.
    fn find(&self, owner: &BackgroundOwner, id: &BackgroundId) -> Option<BackgroundStatus>;

    /// Asks work to stop, at once. The future waits for its end; `None` if `owner` has no such work. Work that has ended
    /// stays as it is.
    fn stop(&self, owner: &BackgroundOwner, id: &BackgroundId) -> BoxFuture<'_, Option<BackgroundStatus>>;

    /// Stops all work of `owner` and waits for its end. `owner` can start nothing from then on.
    fn stop_all(&self, owner: &BackgroundOwner) -> BoxFuture<'_, ()>;

    /// Returns a future that is ready once some work has ended since this call, or the port is gone. It may be ready
    /// without such a reason, too. It keeps nothing alive.
    fn next_end(&self) -> BoxFuture<'static, ()>;
}

/// Background work to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackgroundSpec {
    /// Whose work it is: see [`ToolCx::owner`](crate::ToolCx::owner).
    pub owner: BackgroundOwner,
    /// What kind of work.
    pub kind: BackgroundKind,
    /// What it does, for people.
    pub description: String,
    /// The call that starts it.
    pub call: CallId,
    /// The file that its output goes to, by its absolute path, if it has one. It is stored relative to the session's own
    /// folder if it lies there.
    pub output: Option<PathBuf>,
}

/// The work itself: it gets a token that is cancelled when it has to stop, and says how it ended. It must not keep its
/// call's [`ToolCx`](crate::ToolCx), for that keeps the agent's ports alive and so what has to end with them. Dropping it
/// has to end whatever it had started.
pub type BackgroundJob = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, BackgroundEnd> + Send>;

/// Background work and how it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackgroundStatus {
    /// What it is.
    pub work: BackgroundWork,
    /// The file that its output goes to, by its absolute path, if it has one.
    pub output_path: Option<PathBuf>,
    /// How it ended; `None` while it goes on.
    pub end: Option<BackgroundEnd>,
}

impl BackgroundStatus {
    /// Whether it goes on.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.end.is_none()
    }
}

impl Background for Absent {
    fn start(&self, _: BackgroundSpec, _: BackgroundJob) -> Result<BackgroundWork, PortError> {
        Err(PortError::Absent("background work"))
    }
    fn list(&self, _: &BackgroundOwner) -> Vec<BackgroundStatus> {
        Vec::new()
    }
    fn find(&self, _: &BackgroundOwner, _: &BackgroundId) -> Option<BackgroundStatus> {
        None
    }
    fn stop(&self, _: &BackgroundOwner, _: &BackgroundId) -> BoxFuture<'_, Option<BackgroundStatus>> {
        Box::pin(async { None })
    }
    fn stop_all(&self, _: &BackgroundOwner) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
    fn next_end(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}
