//! Work in the background, as it is stored and shown: what it is, and how it ended.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{AgentId, CallId, Open, SessionId, Timestamp, path_text};

/// The name of a piece of background work: unique in its session, also when that goes on in another process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BackgroundId(pub String);

impl BackgroundId {
    /// The name of the first work that a call starts. Calls are unique in a session, so these are, too.
    #[must_use]
    pub fn of(kind: BackgroundKind, call: CallId) -> Self {
        Self(format!("{}_{}_{}", kind.as_str(), call.turn, call.index))
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BackgroundId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Kinds of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackgroundKind {
    /// A shell command.
    Bash,
}

impl BackgroundKind {
    /// What names of such work begin with.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bash => "bash",
        }
    }

    /// What such work is called in a sentence.
    #[must_use]
    pub fn noun(self) -> &'static str {
        match self {
            Self::Bash => "command",
        }
    }
}

/// Whose background work it is. An agent sees and stops its own only, also where several agents share one process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BackgroundOwner {
    /// The session.
    pub session: SessionId,
    /// The agent that works on it.
    pub agent: AgentId,
}

/// A piece of background work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackgroundWork {
    /// Its name.
    pub id: BackgroundId,
    /// What kind of work it is.
    pub kind: Open<BackgroundKind>,
    /// What it does: of a shell command, the command.
    pub description: String,
    /// The call that started it.
    pub call: CallId,
    /// Where its output is, if it writes any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputRef>,
    /// When it started.
    pub started: Timestamp,
}

/// Where the output of background work lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputRef {
    /// A file below the session's own folder, so that it is found where the session is moved to. Relative, with `/`.
    Session(String),
    /// A file anywhere else, by its real path.
    File(#[serde(with = "path_text")] PathBuf),
}

impl OutputRef {
    /// Refers to `file`: relative to `folder`, the session's own, if it lies below it.
    #[must_use]
    pub fn new(file: &Path, folder: Option<&Path>) -> Self {
        let below = folder.and_then(|folder| file.strip_prefix(folder).ok()).and_then(Path::to_str);
        below.map_or_else(|| Self::File(file.to_owned()), |relative| Self::Session(relative.to_owned()))
    }

    /// Returns the file's path, given the session's own folder.
    #[must_use]
    pub fn path(&self, folder: Option<&Path>) -> PathBuf {
        match self {
            Self::Session(relative) => folder.map_or_else(|| PathBuf::from(relative), |f| f.join(relative)),
            Self::File(path) => path.clone(),
        }
    }
}

/// How background work ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackgroundEnd {
    /// The kind of end.
    pub outcome: Open<BackgroundOutcome>,
    /// More about it, in words that follow "it": for example `ended with exit code 3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Kinds of ends of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackgroundOutcome {
    /// It did what it was asked.
    Completed,
    /// It ended by itself and failed.
    Failed,
    /// Somebody stopped it.
    Stopped,
    /// It reached its time limit and was ended.
    TimedOut,
    /// The process that ran it is gone. It ended with that, unless that process was killed: then it may still run.
    Lost,
}

impl BackgroundEnd {
    /// An end about which there is no more to say.
    #[must_use]
    pub const fn of(outcome: BackgroundOutcome) -> Self {
        Self { outcome: Open::Known(outcome), detail: None }
    }

    /// An end with more to say about it, in words that follow "it": `ended with exit code 3`.
    #[must_use]
    pub fn with_detail(outcome: BackgroundOutcome, detail: impl Into<String>) -> Self {
        Self { outcome: Open::Known(outcome), detail: Some(detail.into()) }
    }

    /// Returns true if it did what it was asked.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.outcome == BackgroundOutcome::Completed
    }
}

/// What follows after "it".
impl fmt::Display for BackgroundEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.detail, &self.outcome) {
            (Some(detail), _) => f.write_str(detail),
            (None, Open::Unknown(word)) => write!(f, "ended ({word})"),
            (None, Open::Known(outcome)) => f.write_str(match outcome {
                BackgroundOutcome::Completed => "has completed",
                BackgroundOutcome::Failed => "failed",
                BackgroundOutcome::Stopped => "was stopped",
                BackgroundOutcome::TimedOut => "reached its time limit and was killed",
                BackgroundOutcome::Lost => {
                    "ended with the program that had started it, or runs on unattended if that was killed"
                }
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_below_the_sessions_folder_moves_with_it() {
        let file = Path::new("/s/a/scratch/bash_0_0.txt");
        let output = OutputRef::new(file, Some(Path::new("/s/a")));
        assert_eq!(output, OutputRef::Session("scratch/bash_0_0.txt".into()));
        assert_eq!(output.path(Some(Path::new("/moved"))), Path::new("/moved/scratch/bash_0_0.txt"));
        let elsewhere = OutputRef::new(file, Some(Path::new("/s/b")));
        assert_eq!(elsewhere, OutputRef::File(file.to_owned()));
        assert_eq!(elsewhere.path(None), file);
    }

    #[test]
    fn an_end_is_told_by_its_detail_or_its_outcome() {
        let failed = BackgroundEnd::with_detail(BackgroundOutcome::Failed, "ended with exit code 3");
        assert_eq!((failed.is_success(), failed.to_string().as_str()), (false, "ended with exit code 3"));
        let done = BackgroundEnd::of(BackgroundOutcome::Completed);
        assert_eq!((done.is_success(), done.to_string().as_str()), (true, "has completed"));
    }
}
