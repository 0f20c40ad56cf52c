//! Work in the background, as it is stored and shown: what it is, and how it ended.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{CallId, Timestamp};

/// The name of a piece of background work: unique in its session, also when that goes on in another process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(pub String);

impl TaskId {
    /// The name of the first task that a call starts. Calls are unique in a session, so these are, too.
    #[must_use]
    pub fn of(kind: TaskKind, call: CallId) -> Self {
        Self(format!("{}_{}_{}", kind.as_str(), call.turn, call.index))
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Kinds of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TaskKind {
    /// A shell command.
    Bash,
}

impl TaskKind {
    /// What names of such tasks begin with.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bash => "bash",
        }
    }
}

/// A piece of background work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Its name.
    pub id: TaskId,
    /// What kind of work.
    pub kind: TaskKind,
    /// What it does: of a shell command, the command.
    pub description: String,
    /// The call that started it.
    pub call: CallId,
    /// The file that holds what it writes.
    pub output_file: PathBuf,
    /// When it started.
    pub started: Timestamp,
}

/// How background work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TaskEnd {
    /// By itself.
    Exited {
        /// The exit code, unless a signal ended it.
        code: Option<i32>,
        /// The signal that ended it.
        signal: Option<i32>,
    },
    /// Somebody stopped it.
    Stopped,
    /// Its time was up.
    TimedOut,
    /// The agent that had started it is gone, and it with that, unless that was killed. What it wrote until then is in its
    /// output; how far it came is not known.
    Lost,
}

impl TaskEnd {
    /// Whether it did what it was asked.
    #[must_use]
    pub fn is_success(self) -> bool {
        matches!(self, Self::Exited { code: Some(0), .. })
    }
}

/// What follows after "it".
impl fmt::Display for TaskEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited { code: Some(code), .. } => write!(f, "ended with exit code {code}"),
            Self::Exited { signal: Some(signal), .. } => write!(f, "was ended by signal {signal}"),
            Self::Exited { .. } => f.write_str("ended, how is not known"),
            Self::Stopped => f.write_str("was stopped"),
            Self::TimedOut => f.write_str("reached its time limit and was killed"),
            Self::Lost => f.write_str(
                "ended with the agent that had started it, or runs on unattended if that was killed",
            ),
        }
    }
}
