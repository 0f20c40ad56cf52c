//! What a model streams, in one vocabulary for all vendors. Owns the events; `assemble` makes a message of them.

use serde::{Deserialize, Serialize};

use crate::{RawJson, UsageUpdate};

/// One event of a model's answer. `slot` is the vendor's number of a block; numbers may repeat, skip or be all the same.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ModelEvent {
    /// The answer begins.
    Start {
        /// The vendor's id of the answer.
        id: Option<String>,
        /// The model that really answers.
        model: Option<String>,
    },
    /// More text.
    Text {
        /// Which block.
        slot: u32,
        /// What comes next.
        text: String,
    },
    /// More thinking.
    Thinking {
        /// Which block.
        slot: u32,
        /// What comes next.
        text: String,
    },
    /// The signature over a thinking block.
    Signature {
        /// Which block.
        slot: u32,
        /// The vendor's text.
        signature: String,
    },
    /// A piece of structured thinking, a JSON object to be kept.
    ThinkingDetail {
        /// Which block.
        slot: u32,
        /// The piece.
        raw: RawJson,
    },
    /// Encrypted thinking.
    Redacted {
        /// Which block.
        slot: u32,
        /// The vendor's text.
        data: String,
    },
    /// A piece of a tool call.
    Tool(ToolFragment),
    /// A block that we do not know, whole.
    Opaque {
        /// Which block.
        slot: u32,
        /// The block.
        raw: RawJson,
    },
    /// A block is complete.
    BlockStop {
        /// Which block.
        slot: u32,
    },
    /// Token counts known so far.
    Usage(UsageUpdate),
    /// Why the model stopped.
    Stop(StopReason),
    /// The stop sequence that the model wrote, where the vendor says which one.
    StopSequence(String),
    /// A sign of life.
    Ping,
    /// The vendor's own end mark.
    End,
}

/// A piece of a tool call. What is missing or empty says nothing about the call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolFragment {
    /// Which block.
    pub slot: u32,
    /// The vendor's id of the call.
    pub id: Option<String>,
    /// The tool.
    pub name: Option<String>,
    /// More of the arguments' text.
    pub input: Option<String>,
}

/// Why a model stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
pub enum StopReason {
    /// It was done.
    EndTurn,
    /// It wrote a stop sequence.
    StopSequence,
    /// It wants tools.
    ToolUse,
    /// The output limit cut it.
    MaxTokens,
    /// A long server-side turn was paused; send it back to go on.
    PauseTurn,
    /// It declined.
    Refusal,
    /// The context window is full.
    ContextWindowExceeded,
    /// A reason we do not know, as it came.
    Other(String),
}

impl From<String> for StopReason {
    /// Reads the name on the wire of the Messages API; any other word is kept as [`StopReason::Other`].
    fn from(word: String) -> Self {
        let known = [
            Self::EndTurn,
            Self::StopSequence,
            Self::ToolUse,
            Self::MaxTokens,
            Self::PauseTurn,
            Self::Refusal,
            Self::ContextWindowExceeded,
        ];
        known.into_iter().find(|stop| stop.as_str() == word).unwrap_or(Self::Other(word))
    }
}

impl From<StopReason> for String {
    fn from(stop: StopReason) -> Self {
        stop.as_str().to_owned()
    }
}

impl StopReason {
    /// The reason's name on the wire of the Messages API; unknown ones as they came.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::EndTurn => "end_turn",
            Self::StopSequence => "stop_sequence",
            Self::ToolUse => "tool_use",
            Self::MaxTokens => "max_tokens",
            Self::PauseTurn => "pause_turn",
            Self::Refusal => "refusal",
            Self::ContextWindowExceeded => "model_context_window_exceeded",
            Self::Other(raw) => raw,
        }
    }
}
