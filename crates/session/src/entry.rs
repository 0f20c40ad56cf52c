//! What a session's log is made of. Owns the entries; interprets nothing. How an entry is stored: `record.rs`.

use std::path::PathBuf;
use std::sync::Arc;

use open_agent_model::{
    Access, Answer, AskId, CallId, Change, Cost, Effect, Effort, Message, PermissionMode, Prefix,
    ProviderErrorKind, Question, RawJson, ResultBlock, Ruling, RunId, RunStatus, StopReason, Task, TaskEnd,
    TaskId, ThinkingMode, Timestamp, Usage,
};
use serde::{Deserialize, Serialize};

/// Something that happened in a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SessionEntry {
    /// A process claimed the session. Calls in flight before it are lost.
    Opened(Opened),
    /// A message from outside the model.
    User(UserMessage),
    /// A run begins.
    RunStarted(RunStarted),
    /// From the next request on, the run asks so.
    Configured(ModelSettings),
    /// From here on, requests begin with this.
    Prefix(Arc<Prefix>),
    /// The model answered.
    ModelDone(ModelDone),
    /// A request brought no whole answer.
    ModelFailed(ModelFailed),
    /// Something about a request that whoever made the agent should know.
    Noticed(Notice),
    /// Pictures and documents that the provider refused are not sent any more.
    Withheld(Withheld),
    /// It was decided whether a call runs.
    Ruled(Ruled),
    /// A call put a question and waits.
    Asked {
        /// Which question.
        ask: AskId,
        /// What it says.
        question: Question,
    },
    /// A question was answered.
    Answered {
        /// Which question.
        ask: AskId,
        /// What the answer is.
        answer: Answer,
    },
    /// A call that must not run twice begins.
    Started {
        /// Which.
        call: CallId,
    },
    /// A call has its result.
    Done(Done),
    /// A call began work that goes on in the background.
    TaskStarted(Task),
    /// Background work is over, and the model is told.
    TaskEnded(TaskEnded),
    /// The run is to stop.
    Interrupted {},
    /// A run is over.
    RunEnded(RunEnded),
    /// Written by a later version; kept as it is.
    #[serde(skip)]
    Unknown(RawJson),
}

/// See [`SessionEntry::Opened`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// Grows with every claim; fences writers of earlier ones.
    pub epoch: u64,
    /// Who claims.
    pub owner: Owner,
}

/// A process that works on sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Owner(pub String);

/// See [`SessionEntry::User`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UserMessage {
    /// The message.
    pub message: Arc<Message>,
    /// Where it comes from.
    pub origin: Origin,
}

/// Where a user message comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Origin {
    /// A person, or whoever speaks for one.
    Prompt,
    /// The loop asks the model to go on after its answer was cut.
    Continuation,
}

/// See [`SessionEntry::RunStarted`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunStarted {
    /// Its name.
    pub run: RunId,
    /// Whom it asks, and how.
    pub settings: ModelSettings,
    /// The project's folder.
    pub root: PathBuf,
    /// The permission mode it begins with.
    pub mode: PermissionMode,
    /// Its limits.
    pub limits: RunLimits,
}

/// What can change from request to request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelSettings {
    /// The model.
    pub model: Arc<str>,
    /// Whether it thinks before it answers; `None` = the vendor's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<ThinkingMode>,
    /// How much work it puts into an answer; `None` = the vendor's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
}

/// Limits of a run, checked before each request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunLimits {
    /// The most model answers; `None` = no limit.
    pub max_turns: Option<u32>,
    /// The most model requests, failed ones too.
    pub max_model_calls: u32,
    /// In which order calls of one answer run.
    pub scheduling: ToolScheduling,
}

impl Default for RunLimits {
    fn default() -> Self {
        Self { max_turns: Some(10), max_model_calls: 500, scheduling: ToolScheduling::Ordered }
    }
}

/// In which order calls of one answer run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolScheduling {
    /// Reads run together, writes alone, and nothing moves across a write.
    #[default]
    Ordered,
    /// All reads first, then the writes one by one.
    ReadsFirst,
}

/// See [`SessionEntry::ModelDone`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelDone {
    /// The answer.
    pub message: Arc<Message>,
    /// Why it ended.
    pub stop: StopReason,
    /// Its tokens.
    pub usage: Usage,
    /// Its cost; `None` = the price is not known.
    pub cost: Option<Cost>,
    /// Milliseconds from request to end.
    pub api_ms: u64,
    /// The vendor's id of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor_id: Option<String>,
    /// The model that answered, by the vendor's word, if it is not the one that was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<String>,
}

/// See [`SessionEntry::ModelFailed`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelFailed {
    /// The model that was asked.
    pub model: Arc<str>,
    /// What went wrong; `None` = it was interrupted.
    pub error: Option<Failure>,
    /// The part of the answer that can be kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<Arc<Message>>,
    /// Tokens that are known to be spent.
    pub usage: Usage,
    /// Their cost; `None` = the price is not known.
    pub cost: Option<Cost>,
    /// Milliseconds from request to failure.
    pub api_ms: u64,
    /// The request is made again; `None` = it failed for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
}

/// Another attempt at a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// Not before this moment.
    pub at: Timestamp,
    /// How long that was from the failure, in milliseconds.
    pub delay_ms: u64,
    /// Which attempt at this request it will be; the first one was 0.
    pub attempt: u32,
    /// The most further attempts there may be.
    pub max_retries: u32,
    /// The model that is asked: another one where the first had no luck.
    pub model: Arc<str>,
}

/// Something that went otherwise than asked, or looks so. The run goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// What kind.
    pub kind: NoticeKind,
    /// One sentence for people.
    pub text: String,
}

/// Kinds of notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NoticeKind {
    /// The request was sent otherwise than it asked, to fit the model.
    RequestFitted,
    /// The provider counted far fewer input tokens than were sent: it may have cut the conversation.
    InputTruncated,
    /// The provider told no token counts, so costs are estimates.
    UsageMissing,
    /// The provider refused pictures or documents; notes stand in their place from now on.
    MediaWithheld,
    /// The model ended its answer as it should, but wrote no text and made no call.
    NoText,
    /// Commands do not see all variables of the environment: keys are kept from them.
    VariablesRemoved,
}

/// See [`SessionEntry::Withheld`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Withheld {
    /// Whose pictures and documents.
    pub scope: MediaScope,
    /// What the provider said; the model reads it.
    pub reason: String,
}

/// Which messages lose their pictures and documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MediaScope {
    /// The newest one.
    LastMessage,
    /// All so far.
    All,
}

/// A provider's failure, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What kind.
    pub kind: ProviderErrorKind,
    /// One sentence for people.
    pub message: String,
    /// The HTTP status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The vendor's id of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// See [`SessionEntry::Ruled`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ruled {
    /// Which call.
    pub call: CallId,
    /// The input it runs with.
    pub input: RawJson,
    /// What it touches.
    pub access: Vec<Access>,
    /// Whether it may run twice.
    pub effect: Effect,
    /// What was decided.
    pub ruling: Ruling,
}

/// See [`SessionEntry::Done`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// Which call.
    pub call: CallId,
    /// Its answer for the model.
    pub content: Vec<ResultBlock>,
    /// Its answer for a user interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<RawJson>,
    /// It failed.
    pub is_error: bool,
    /// What it changes in the session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// Milliseconds it ran; 0 if it never did.
    pub ms: u64,
}

impl Done {
    /// The result of a call that failed without running.
    #[must_use]
    pub fn error(call: CallId, text: impl Into<String>) -> Self {
        let content = vec![ResultBlock::text(text)];
        Self { call, content, details: None, is_error: true, changes: Vec::new(), ms: 0 }
    }
}

/// See [`SessionEntry::TaskEnded`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskEnded {
    /// Which.
    pub task: TaskId,
    /// How.
    pub end: TaskEnd,
    /// What the model is told, in the user's place.
    pub message: Arc<Message>,
}

/// See [`SessionEntry::RunEnded`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunEnded {
    /// How.
    pub status: RunStatus,
    /// Why the model stopped last.
    pub stop: Option<StopReason>,
    /// What went wrong, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
}
