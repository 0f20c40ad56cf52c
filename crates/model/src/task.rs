//! Work in the background, as it is stored and shown: what it is, and how it ended.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{CallId, Open, Timestamp, path_text};

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
    /// What kind of work it is.
    pub kind: Open<TaskKind>,
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
pub struct TaskEnd {
    /// The kind of end.
    pub outcome: Open<TaskOutcome>,
    /// More about it, in words that follow "it": for example `ended with exit code 3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Kinds of ends of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskOutcome {
    /// It did what it was asked.
    Completed,
    /// It ended by itself and failed.
    Failed,
    /// Somebody stopped it.
    Stopped,
    /// It reached its time limit and was killed.
    TimedOut,
    /// The process that ran it is gone. It ended with that, unless that process was killed: then it may still run.
    Lost,
}

impl TaskEnd {
    /// An end about which there is no more to say.
    #[must_use]
    pub const fn of(outcome: TaskOutcome) -> Self {
        Self { outcome: Open::Known(outcome), detail: None }
    }

    /// The end of a process: completed if its exit code is 0.
    #[must_use]
    pub fn of_process(code: Option<i32>, signal: Option<i32>) -> Self {
        let outcome = if code == Some(0) { TaskOutcome::Completed } else { TaskOutcome::Failed };
        let detail = match (code, signal) {
            (Some(code), _) => format!("ended with exit code {code}"),
            (None, Some(signal)) => format!("was ended by signal {signal}"),
            (None, None) => {
                return Self { detail: Some("ended, how is not known".into()), ..Self::of(outcome) };
            }
        };
        Self { outcome: outcome.into(), detail: Some(detail) }
    }

    /// Returns true if it did what it was asked.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.outcome == TaskOutcome::Completed
    }
}

/// What follows after "it".
impl fmt::Display for TaskEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.detail, &self.outcome) {
            (Some(detail), _) => f.write_str(detail),
            (None, Open::Unknown(word)) => write!(f, "ended ({word})"),
            (None, Open::Known(outcome)) => f.write_str(match outcome {
                TaskOutcome::Completed => "has completed",
                TaskOutcome::Failed => "failed",
                TaskOutcome::Stopped => "was stopped",
                TaskOutcome::TimedOut => "reached its time limit and was killed",
                TaskOutcome::Lost => {
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
    fn ends_of_processes_are_told() {
        assert!(TaskEnd::of_process(Some(0), None).is_success());
        let failed = TaskEnd::of_process(Some(3), None);
        assert_eq!((failed.is_success(), failed.to_string().as_str()), (false, "ended with exit code 3"));
        assert_eq!(TaskEnd::of_process(None, Some(9)).to_string(), "was ended by signal 9");
        assert!(!TaskEnd::of_process(None, None).is_success());
    }
}
