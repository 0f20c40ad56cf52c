//! What is sent to a model. Owns the request and its options; `check` says whether a request is valid.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Messages, ModelInfo, RawJson};

/// A request. Everything that repeats from turn to turn is shared.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// The model's name, as it is sent.
    pub model: Arc<str>,
    /// What is known about that model; the request is fitted to it. [`ModelInfo::unknown`] if that is nothing.
    pub info: Arc<ModelInfo>,
    /// System prompt and tools: the same from turn to turn, so that the vendor can cache them.
    pub prefix: Arc<Prefix>,
    /// The conversation.
    pub messages: Messages,
    /// The rest.
    pub options: RequestOptions,
}

/// What comes before the conversation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Prefix {
    /// The system prompt, static sections first.
    pub system: Vec<Section>,
    /// The tools, in a stable order.
    pub tools: Vec<ToolSpec>,
}

/// A part of the system prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Section {
    /// Its name, for people; not sent.
    pub name: String,
    /// What it says.
    pub text: String,
}

/// A tool as a model sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// `[A-Za-z0-9_-]{1,64}`
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// A JSON Schema object.
    pub input_schema: RawJson,
}

/// How the model is to answer.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestOptions {
    /// The most output tokens.
    pub max_tokens: u64,
    /// Sampling temperature; `None` = the vendor's default.
    pub temperature: Option<f64>,
    /// Texts that end the answer.
    pub stop_sequences: Vec<String>,
    /// Whether a tool must be called.
    pub tool_choice: ToolChoice,
    /// Thinking; `None` = the vendor's default.
    pub thinking: Option<ThinkingMode>,
    /// Effort; `None` = the vendor's default.
    pub effort: Option<Effort>,
    /// The conversation may end with the model's own message: a paused turn that is to go on.
    pub resumes_pause: bool,
}

impl Default for RequestOptions {
    fn default() -> Self {
        Self {
            max_tokens: 16_384,
            temperature: None,
            stop_sequences: Vec::new(),
            tool_choice: ToolChoice::Auto,
            thinking: None,
            effort: None,
            resumes_pause: false,
        }
    }
}

/// Whether a tool must be called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// As the model likes.
    #[default]
    Auto,
    /// Some tool.
    Any,
    /// None.
    None,
    /// This tool.
    Tool(String),
}

/// Whether and how long a model thinks before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThinkingMode {
    /// The model decides.
    Adaptive,
    /// Up to so many tokens.
    Enabled {
        /// Tokens, at least 1.
        budget_tokens: u64,
    },
    /// Not at all.
    Disabled,
}

impl FromStr for ThinkingMode {
    type Err = String;
    /// `adaptive`, `disabled`, or a number of tokens.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "adaptive" => Ok(Self::Adaptive),
            "disabled" | "off" => Ok(Self::Disabled),
            other => match other.parse::<u64>() {
                Ok(budget_tokens) if budget_tokens > 0 => Ok(Self::Enabled { budget_tokens }),
                _ => Err(format!("{text:?} is not `adaptive`, `disabled` or a number of tokens above 0")),
            },
        }
    }
}

/// How much work a model puts into an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// Little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
    /// All it can.
    Max,
}

impl Effort {
    /// All levels.
    pub const ALL: [Self; 4] = [Self::Low, Self::Medium, Self::High, Self::Max];

    /// Its name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Max => "max",
        }
    }

    /// The thinking budget that stands for it where the API knows no effort.
    #[must_use]
    pub fn budget_tokens(self) -> u64 {
        match self {
            Self::Low => 1024,
            Self::Medium => 5120,
            Self::High => 10_240,
            Self::Max => 32_768,
        }
    }
}

impl FromStr for Effort {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|e| e.as_str() == text);
        found.ok_or_else(|| format!("{text:?} is not an effort: use low, medium, high or max"))
    }
}

impl fmt::Display for Effort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
