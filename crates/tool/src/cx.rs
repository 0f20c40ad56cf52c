//! What a call knows of the world. Owns `ToolCx` and the session state that calls see. A call changes nothing through it
//! but what the ports do: session state changes are returned in its output.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};

use open_agent_model::{
    AgentId, Answer, BackgroundOwner, CallId, FileStamp, Question, RawJson, RunId, SessionId, Slot,
};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::{Background, Blobs, CommandRunner, Files, Ports, Suspended};

/// Session state as a call sees it: a fold of the log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionState {
    /// The shell's folder.
    pub cwd: PathBuf,
    /// Pieces of state that tools keep.
    pub slots: BTreeMap<Slot, RawJson>,
    /// Files as they were when last seen.
    pub seen: HashMap<PathBuf, FileStamp>,
}

/// Where a call's progress goes.
pub type ProgressSink = Arc<dyn Fn(CallId, &str) + Send + Sync>;

/// What a [`ToolCx`] is made of.
#[derive(Clone)]
pub struct CxParts {
    /// The call.
    pub call: CallId,
    /// The session.
    pub session: SessionId,
    /// The run.
    pub run: Option<RunId>,
    /// The agent that makes the call.
    pub agent: AgentId,
    /// The session of the agent that started this one as its sub-agent.
    pub parent: Option<SessionId>,
    /// The project's folder, to which a lost working folder falls back.
    pub root: PathBuf,
    /// Session state at the call's start.
    pub state: Arc<SessionState>,
    /// Answers to the call's earlier questions.
    pub answers: Vec<Answer>,
    /// Cancelled when the call has to stop.
    pub cancel: CancellationToken,
    /// Where progress goes.
    pub progress: ProgressSink,
    /// The session's blobs.
    pub blobs: Arc<dyn Blobs>,
    /// The ports.
    pub ports: Ports,
}

/// A call's context. Owned and cheap to clone.
#[derive(Clone)]
pub struct ToolCx(Arc<Inner>);

struct Inner {
    parts: CxParts,
    asked: AtomicU16,
    pending: Mutex<Option<(u16, Question)>>,
}

impl ToolCx {
    /// Puts a context together; the loop's business, and tests'.
    #[must_use]
    pub fn new(parts: CxParts) -> Self {
        Self(Arc::new(Inner { parts, asked: AtomicU16::new(0), pending: Mutex::new(None) }))
    }

    /// Returns the call's identity within its session. It stays the same if the call has to run again.
    #[must_use]
    pub fn call(&self) -> CallId {
        self.0.parts.call
    }

    /// Returns a key that is the same each time this call runs, also in another process, and that no other call of any
    /// session has. Pass it to services that make a repeated request harmless by such a key.
    #[must_use]
    pub fn idempotency_key(&self) -> String {
        format!("{}-{}", self.0.parts.session, self.call())
    }

    /// Returns the session in which the call runs.
    #[must_use]
    pub fn session(&self) -> &SessionId {
        &self.0.parts.session
    }

    /// Returns the run in which the call runs.
    #[must_use]
    pub fn run(&self) -> Option<RunId> {
        self.0.parts.run
    }

    /// Returns the agent that makes the call.
    #[must_use]
    pub fn agent(&self) -> &AgentId {
        &self.0.parts.agent
    }

    /// Returns the session of the agent that started this one as its sub-agent.
    #[must_use]
    pub fn parent(&self) -> Option<&SessionId> {
        self.0.parts.parent.as_ref()
    }

    /// Returns whose background work the call starts and sees.
    #[must_use]
    pub fn owner(&self) -> BackgroundOwner {
        BackgroundOwner { session: self.session().clone(), agent: self.agent().clone() }
    }

    /// The working folder at the call's start.
    #[must_use]
    pub fn cwd(&self) -> &Path {
        &self.0.parts.state.cwd
    }

    /// The project's folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.0.parts.root
    }

    /// Cancelled when the call has to stop. A call that goes on for long is aborted.
    #[must_use]
    pub fn cancel(&self) -> &CancellationToken {
        &self.0.parts.cancel
    }

    /// Says how far the call is; people see the newest line.
    pub fn progress(&self, line: &str) {
        (self.0.parts.progress)(self.call(), line);
    }

    /// A piece of session state. `None` if it was never put or is of another shape.
    #[must_use]
    pub fn state<T: DeserializeOwned>(&self, slot: &str) -> Option<T> {
        self.0.parts.state.slots.get(&Slot(slot.to_owned()))?.to().ok()
    }

    /// The file as it was when this session last saw it.
    #[must_use]
    pub fn seen(&self, path: &Path) -> Option<FileStamp> {
        self.0.parts.state.seen.get(path).copied()
    }

    /// Asks a person. Without an answer yet, the call is suspended: pass the error on with `?`. Once the answer is there,
    /// maybe days later and in another process, the call runs again and gets it here. So ask before anything is done that
    /// must not be done twice.
    pub async fn ask(&self, question: Question) -> Result<Answer, Suspended> {
        let n = self.0.asked.fetch_add(1, Ordering::Relaxed);
        if let Some(answer) = self.0.parts.answers.get(usize::from(n)) {
            return Ok(answer.clone());
        }
        if let Ok(mut pending) = self.0.pending.lock() {
            pending.get_or_insert((n, question));
        }
        Err(Suspended(()))
    }

    /// The question that suspended the call and its number among the call's questions; the loop's business.
    #[must_use]
    pub fn pending_question(&self) -> Option<(u16, Question)> {
        self.0.pending.lock().ok()?.clone()
    }

    /// Files.
    #[must_use]
    pub fn files(&self) -> &dyn Files {
        &*self.0.parts.ports.files
    }

    /// Processes.
    #[must_use]
    pub fn runner(&self) -> &dyn CommandRunner {
        &*self.0.parts.ports.runner
    }

    /// Background work.
    #[must_use]
    pub fn background(&self) -> &dyn Background {
        &*self.0.parts.ports.background
    }

    /// Contents that the session keeps beside its log.
    #[must_use]
    pub fn blobs(&self) -> &dyn Blobs {
        &*self.0.parts.blobs
    }

    /// All ports.
    #[must_use]
    pub fn ports(&self) -> &Ports {
        &self.0.parts.ports
    }
}

impl fmt::Debug for ToolCx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolCx").field("call", &self.call()).field("cwd", &self.cwd()).finish_non_exhaustive()
    }
}
