//! What a tool call touches, changes, asks, and how it was ruled: everything about calls that a log entry holds.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Open, RawJson, path_text};

/// Whether a call may run again after a crash. In doubt `Unsafe`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// It only reads.
    ReadOnly,
    /// Running it twice is as good as once.
    Idempotent,
    /// It must not run twice unasked.
    Unsafe,
}

/// Something a call touches.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Reads this file or folder (a real path).
    Read(#[serde(with = "path_text")] PathBuf),
    /// Writes this file (a real path).
    Write(#[serde(with = "path_text")] PathBuf),
    /// Runs this shell command.
    Exec(String),
    /// Does something that the tool alone knows, in its words.
    Opaque(String),
}

/// The name of a piece of session state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slot(pub String);

/// What a call changes in its session. Tools return changes; the log applies them, in call order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Replaces a piece of session state.
    Put {
        /// Which.
        slot: Slot,
        /// By what.
        value: RawJson,
    },
    /// The shell's folder is now this one.
    Cwd(#[serde(with = "path_text")] PathBuf),
    /// A file's content was seen or written.
    FileSeen(FileSeen),
}

/// A file as it was when a call last saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSeen {
    /// The real path.
    #[serde(with = "path_text")]
    pub path: PathBuf,
    /// Its stamp.
    pub stamp: FileStamp,
}

/// What tells one state of a file from another without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStamp {
    /// Modification time, nanoseconds since 1970.
    pub modified_ns: i64,
    /// Bytes.
    pub len: u64,
    /// What the file system knows of it besides; older records have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inode: Option<InodeStamp>,
}

/// What cannot be set back as a modification time can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InodeStamp {
    /// The inode's number: another one is another file under the same name.
    pub number: u64,
    /// When content or attributes were changed, nanoseconds since 1970.
    pub changed_ns: i64,
    /// The mode.
    pub mode: u32,
    /// The number of hard links.
    pub links: u64,
}

impl FileStamp {
    /// Whether the content can still be what it was at `earlier`. A change of mode or links explains a later change time:
    /// `chmod` must not make a file a stranger's.
    #[must_use]
    pub fn agrees_with(&self, earlier: &Self) -> bool {
        let same_inode = match (self.inode, earlier.inode) {
            (Some(now), Some(then)) => {
                now.number == then.number
                    && (now.changed_ns == then.changed_ns || now.mode != then.mode || now.links != then.links)
            }
            _ => true,
        };
        same_inode && self.modified_ns == earlier.modified_ns && self.len == earlier.len
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It did what it was asked.
    Ok,
    /// It failed, or could not be run as it was written.
    Error,
    /// The permission policy refused it; it did not run.
    Refused,
    /// It reached its time limit and was stopped.
    TimedOut,
    /// It was stopped by an interrupt.
    Interrupted,
    /// It had begun, and the process ended before its result was written. What it did is unknown.
    Lost,
    /// It was closed before it began, because its run ended or went on without it.
    Closed,
}

/// Whether the text of a result comes from someone whom the user trusts.
///
/// A policy may ask before it lets something leave the machine once untrusted text has entered the conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provenance {
    /// The user's own machine and project.
    #[default]
    Trusted,
    /// Somebody else, such as a web page or a remote server.
    Untrusted,
}

impl Provenance {
    /// Returns true for the default, which records leave out.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        *self == Self::Trusted
    }
}

/// How a call was ruled, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ruling {
    /// Whether it runs.
    pub decision: Decision,
    /// What decided.
    pub layer: Open<Layer>,
    /// The rule that matched, as written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// One sentence for people and for the model.
    pub reason: String,
}

impl Ruling {
    /// Returns true if a rule refused the call. A call of an unknown tool or with unreadable input does not run either, but
    /// nobody refused it: its result says what is wrong.
    #[must_use]
    pub fn is_denial(&self) -> bool {
        self.decision == Decision::Deny && self.layer != Layer::Call
    }
}

/// Whether a call runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It runs.
    Allow,
    /// It does not.
    Deny,
}

/// What decided about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// No policy was asked: the call itself is impossible (no such tool, unreadable input).
    Call,
    /// The list of tools that are allowed beforehand.
    AllowedTools,
    /// The permission mode.
    Mode,
}

/// The decision for calls that no rule matches.
///
/// All names are known, so that records and settings that hold them can be read; the modes that are not built yet are
/// refused when an agent is made ([`PermissionMode::is_available`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PermissionMode {
    /// Reads inside the workspace run; everything else is refused.
    #[default]
    Default,
    /// Edits inside the workspace run as well.
    AcceptEdits,
    /// Nothing runs that changes anything; the model makes a plan.
    Plan,
    /// A classifier decides instead of a person.
    Auto,
    /// What would have to be asked is refused.
    DontAsk,
    /// Everything runs.
    BypassPermissions,
}

impl PermissionMode {
    /// All modes, in the order in which they are listed for users.
    pub const ALL: [Self; 6] =
        [Self::Default, Self::AcceptEdits, Self::Plan, Self::Auto, Self::DontAsk, Self::BypassPermissions];

    /// Returns the mode's name as users write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::AcceptEdits => "acceptEdits",
            Self::Plan => "plan",
            Self::Auto => "auto",
            Self::DontAsk => "dontAsk",
            Self::BypassPermissions => "bypassPermissions",
        }
    }

    /// Returns true if agents can run in this mode.
    #[must_use]
    pub fn is_available(self) -> bool {
        matches!(self, Self::Default | Self::BypassPermissions)
    }
}

impl fmt::Display for PermissionMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for PermissionMode {
    type Err = String;
    /// Reads a mode's name as users write it, or Cloud Agent's `askForPermission` for the default.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "askForPermission" {
            return Ok(Self::Default);
        }
        let known = Self::ALL.into_iter().find(|mode| mode.as_str() == text);
        known.ok_or_else(|| {
            let names: Vec<&str> =
                Self::ALL.iter().filter(|m| m.is_available()).map(|m| m.as_str()).collect();
            format!("{text:?} is not a permission mode: use {}", names.join(" or "))
        })
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// The model was done.
    Success,
    /// `max_turns` struck.
    ErrorMaxTurns,
    /// `max_budget_usd` struck.
    ErrorMaxBudgetUsd,
    /// `max_model_calls` struck.
    ErrorMaxModelCalls,
    /// Something failed.
    ErrorDuringExecution,
    /// It was interrupted.
    Cancelled,
    /// The model declined.
    Refusal,
    /// It waits for an answer.
    Waiting,
}

impl RunStatus {
    /// Its name in records and frames.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::ErrorMaxTurns => "error_max_turns",
            Self::ErrorMaxBudgetUsd => "error_max_budget_usd",
            Self::ErrorMaxModelCalls => "error_max_model_calls",
            Self::ErrorDuringExecution => "error_during_execution",
            Self::Cancelled => "cancelled",
            Self::Refusal => "refusal",
            Self::Waiting => "waiting",
        }
    }

    /// Whether the run did what it was asked.
    #[must_use]
    pub fn is_success(self) -> bool {
        self == Self::Success
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_of_older_records_are_compared_by_what_they_have() {
        let old: FileStamp = serde_json::from_str(r#"{"modified_ns":5,"len":3}"#).unwrap();
        let inode = InodeStamp { number: 1, changed_ns: 9, mode: 0o644, links: 1 };
        let new = FileStamp { inode: Some(inode), ..old };
        assert!(new.agrees_with(&old));
        assert!(!FileStamp { len: 4, ..new }.agrees_with(&old));
        assert_eq!(serde_json::from_str::<FileStamp>(&serde_json::to_string(&new).unwrap()).unwrap(), new);
    }
}
