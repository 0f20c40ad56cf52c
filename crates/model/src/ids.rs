//! Names of things. Owns the id types and their rules; makes no id from a clock or from chance itself:
//! whoever makes one passes the number in (`Clock::new_id`).

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A session's name: `[A-Za-z0-9_][A-Za-z0-9._-]{0,127}` without `..`, so that it is a safe file name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionId(Arc<str>);

/// Why a session id was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "session id {0:?} is not allowed: use 1 to 128 letters, digits, `_`, `-` or `.`, not beginning with `.` or `-`, without `..`"
)]
pub struct BadSessionId(pub String);

impl SessionId {
    /// Checks `text` and makes it an id.
    pub fn new(text: impl Into<String>) -> Result<Self, BadSessionId> {
        let text = text.into();
        let first = text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
        let rest = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'));
        if first && rest && text.len() <= 128 && !text.contains("..") {
            Ok(Self(text.into()))
        } else {
            Err(BadSessionId(text))
        }
    }

    /// An id from a fresh number.
    #[must_use]
    pub fn from_number(number: u128) -> Self {
        Self(Uuid::from_u128(number).to_string().into())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for SessionId {
    type Error = BadSessionId;
    fn try_from(text: String) -> Result<Self, BadSessionId> {
        Self::new(text)
    }
}

impl From<SessionId> for String {
    fn from(id: SessionId) -> Self {
        id.0.to_string()
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// An id from a fresh number.
            #[must_use]
            pub fn from_number(number: u128) -> Self {
                Self(Uuid::from_u128(number))
            }

            /// The number it was made from.
            #[must_use]
            pub fn number(&self) -> u128 {
                self.0.as_u128()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

uuid_id!(
    /// One run: a prompt up to its result.
    RunId
);
uuid_id!(
    /// One message of a transcript.
    MessageId
);
uuid_id!(
    /// One message in the queue of a session, from the moment it was sent until it is delivered or taken back.
    QueueId
);

/// An agent's name within a tree of agents: the main agent is `main`, its sub-agents have names of their own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AgentId(Arc<str>);

impl AgentId {
    /// A name.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The agent that the embedding program talks to.
    #[must_use]
    pub fn main() -> Self {
        Self::new("main")
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A tool call's identity in its session: the model turn (counted from 0) and the call's place in it. Never the
/// vendor's id, which may be missing, illegal or repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CallId {
    /// The model turn.
    pub turn: u32,
    /// The place in the turn.
    pub index: u16,
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.turn, self.index)
    }
}

/// Who puts a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AskSource {
    /// The permission policy asks whether a call may run.
    Permission,
    /// A running tool asks for something it needs.
    Tool,
    /// The session asks, without a call: for example whether a plan is accepted.
    Session,
}

/// A question's identity in its session: who asks, for which call, and the how-manieth question of that asker it is.
///
/// The source is part of the identity, so that an answer to a permission question is never read as the answer to the
/// first question of the tool itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AskId {
    /// Who asks.
    pub source: AskSource,
    /// The call that waits for the answer; `None` for a question of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// Which question of this source and call, from 0.
    pub n: u16,
}

impl AskId {
    /// The `n`-th question that the tool of `call` puts.
    #[must_use]
    pub fn of_tool(call: CallId, n: u16) -> Self {
        Self { source: AskSource::Tool, call: Some(call), n }
    }
}

impl fmt::Display for AskId {
    /// For example `tool.3.0.1`: the second question of the first call in turn 3.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.source {
            AskSource::Permission => "permission",
            AskSource::Tool => "tool",
            AskSource::Session => "session",
        })?;
        if let Some(call) = self.call {
            write!(f, ".{call}")?;
        }
        write!(f, ".{}", self.n)
    }
}

/// The id under which a tool use is sent to a model: legal for every vendor and unique in its transcript.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ToolUseId(Arc<str>);

impl ToolUseId {
    /// Takes an id as a vendor gave it, or as we made it.
    #[must_use]
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// Whether every vendor accepts it: `[A-Za-z0-9_-]{1,64}`.
    #[must_use]
    pub fn is_legal(&self) -> bool {
        is_legal_name(&self.0)
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// `[A-Za-z0-9_-]{1,64}`: what all vendors accept as a tool's name or as a call's id.
#[must_use]
pub fn is_legal_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

/// A record's place in its session's log, from 1. 0 = before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// The next place; the last one there is has none after it and gives itself.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// Milliseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_ids_are_safe_file_names() {
        for good in ["a", "_x", "2026-11-29.a_b", &"x".repeat(128)] {
            assert!(SessionId::new(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "-a", ".a", "a..b", "a/b", "a\\b", "ä", "a b", &"x".repeat(129)] {
            assert!(SessionId::new(bad).is_err(), "{bad}");
        }
    }
}
