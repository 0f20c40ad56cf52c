//! What a session's log is made of. Owns the entries; interprets nothing. How an entry is stored: `record.rs`.

use std::path::PathBuf;
use std::sync::Arc;

use open_agent_model::{
    Access, AgentId, Answer, AskId, BackgroundEnd, BackgroundId, BackgroundWork, BlobId, CallId, Change,
    Cost, CostSource, Effect, Effort, Message, Open, Outcome, PermissionMode, Prefix, Provenance,
    ProviderErrorKind, Question, QueueId, RawJson, ResultBlock, Ruling, RunId, RunStatus, Seq, SessionId,
    StopReason, ThinkingMode, Timestamp, ToolSpec, Usage, path_text,
};
use serde::{Deserialize, Serialize};

/// Something that happened in a session.
///
/// The shapes are frozen with the first published version. Rules for changing them: [`crate::Stored`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionEntry {
    /// The session begins; the first entry of each log.
    SessionStarted(SessionStarted),
    /// From here on the session's project is in another folder, or on another machine.
    Moved(Moved),
    /// A process claimed the session. Calls that were in flight before it are lost.
    Opened(Opened),
    /// A message from outside the model.
    User(UserMessage),
    /// A message waits in the session's queue.
    Queued(Queued),
    /// Messages left the queue and joined the conversation, in this order.
    Delivered {
        /// Which messages.
        ids: Vec<QueueId>,
    },
    /// A message was taken out of the queue before it was delivered.
    Unqueued {
        /// Which message.
        id: QueueId,
    },
    /// A run begins.
    RunStarted(RunStarted),
    /// The run uses these model settings from its next request on.
    Configured(ModelSettings),
    /// Requests begin with this system prompt and these tools from here on.
    Prefix(Arc<Prefix>),
    /// Tools were added or removed after the prefix was written.
    ToolsChanged(ToolsChanged),
    /// The model answered.
    ModelDone(ModelDone),
    /// A model request brought no whole answer.
    ModelFailed(ModelFailed),
    /// Something about a request or the session that the embedding program should know.
    Noticed(Notice),
    /// Pictures and documents that the provider refused are not sent any more.
    Withheld(Withheld),
    /// Blobs are missing or damaged: from here on a note stands wherever the conversation so far refers to one.
    BlobsLost {
        /// Which blobs.
        ids: Vec<BlobId>,
    },
    /// The policy decided whether a call runs.
    Ruled(Ruled),
    /// A question was put and waits for an answer.
    Asked {
        /// The question's identity.
        ask: AskId,
        /// The question.
        question: Question,
    },
    /// A question was answered.
    Answered {
        /// The question's identity.
        ask: AskId,
        /// The answer.
        answer: Answer,
    },
    /// A call that may not run twice begins.
    Started {
        /// Which call.
        call: CallId,
    },
    /// A call has its result.
    Done(Done),
    /// A call began work that goes on in the background.
    BackgroundStarted(BackgroundWork),
    /// Background work is over, and the model is told.
    BackgroundEnded(BackgroundEnded),
    /// The run is to stop.
    Interrupted {},
    /// A run is over.
    RunEnded(RunEnded),
    /// An entry that a later version wrote and marked as one that may be skipped; kept as it is.
    #[serde(skip)]
    Unknown(RawJson),
}

/// See [`SessionEntry::SessionStarted`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionStarted {
    /// The project's folder, as a real path.
    #[serde(with = "path_text")]
    pub root: PathBuf,
    /// The agent whose session it is.
    pub agent: AgentId,
    /// The session of the agent that started this one as its sub-agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SessionId>,
    /// The session that this one is a copy of, and the last record that was copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkedFrom>,
    /// The program that began the session, with its version.
    pub product: String,
}

/// Where a forked session comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkedFrom {
    /// The session that was copied.
    pub session: SessionId,
    /// Its last record in the copy.
    pub through: Seq,
}

/// See [`SessionEntry::Moved`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// The project's folder now, as a real path.
    #[serde(with = "path_text")]
    pub root: PathBuf,
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

/// See [`SessionEntry::Queued`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Queued {
    /// The message's name in the queue.
    pub id: QueueId,
    /// The message.
    pub message: Arc<Message>,
    /// Who sent it.
    pub origin: Open<Origin>,
    /// True: it is delivered with the next request of the run that goes on. False: it waits until that run has ended and
    /// starts the next one.
    pub steer: bool,
}

/// See [`SessionEntry::User`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UserMessage {
    /// The message.
    pub message: Arc<Message>,
    /// Where it comes from.
    pub origin: Open<Origin>,
}

/// Where a user message comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
    /// The model turn, from 0 in each session. Stored and never counted from the answers in the log, so that a record
    /// that is lost does not give later calls other identities. A rewind does not lower it.
    pub turn: u32,
    /// The answer.
    pub message: Arc<Message>,
    /// Why it ended.
    pub stop: StopReason,
    /// The stop sequence that the model wrote, if that is why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_sequence: Option<String>,
    /// Its tokens.
    pub usage: Usage,
    /// Its cost; `None` if the price is not known.
    pub cost: Option<Cost>,
    /// Where the cost comes from; `None` if there is no cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_source: Option<Open<CostSource>>,
    /// Milliseconds from the request to the end of the answer.
    pub api_ms: u64,
    /// Milliseconds from the request to the first piece of the answer; `None` if the provider did not stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft_ms: Option<u64>,
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
    /// Where the cost comes from; `None` if there is no cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_source: Option<Open<CostSource>>,
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
    /// What kind of notice.
    pub kind: Open<NoticeKind>,
    /// One sentence for people.
    pub text: String,
}

/// Kinds of notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
    /// Tools were added or removed while the session goes on.
    ToolsChanged,
    /// Records of the log are damaged; what they held is lost.
    LogDamaged,
    /// Blobs of the session are missing or damaged; notes stand in their place from now on.
    BlobsLost,
    /// The process ended while a request was due: an answer may have been paid for that is not in the log.
    RequestRepeated,
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
    /// What kind of failure.
    pub kind: Open<ProviderErrorKind>,
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
    /// The input it runs with, if ruling changed it; else it is the one that the model wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<RawJson>,
    /// What it touches.
    pub access: Vec<Access>,
    /// Whether it may run twice.
    pub effect: Effect,
    /// What was decided.
    pub ruling: Ruling,
}

/// See [`SessionEntry::ToolsChanged`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolsChanged {
    /// Tools that the prefix does not name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<ToolSpec>,
    /// Names of tools that are gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
    /// What the model is told about it, in the user's place.
    pub message: Arc<Message>,
}

/// See [`SessionEntry::Done`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// Which call.
    pub call: CallId,
    /// How it ended.
    pub outcome: Open<Outcome>,
    /// The result that the model reads.
    pub content: Vec<ResultBlock>,
    /// The result for a user interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<RawJson>,
    /// Whether the result comes from someone whom the user trusts.
    #[serde(default, skip_serializing_if = "Provenance::is_trusted")]
    pub provenance: Provenance,
    /// What it changes in the session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// Milliseconds that it ran; 0 if it never did.
    pub ms: u64,
}

impl Done {
    /// The result of a call that ended without a result of its own.
    #[must_use]
    pub fn without_result(call: CallId, outcome: Outcome, text: impl Into<String>) -> Self {
        Self {
            call,
            outcome: outcome.into(),
            content: vec![ResultBlock::text(text)],
            details: None,
            provenance: Provenance::Trusted,
            changes: Vec::new(),
            ms: 0,
        }
    }

    /// Returns true unless the call did what it was asked.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.outcome != Outcome::Ok
    }
}

/// See [`SessionEntry::BackgroundEnded`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BackgroundEnded {
    /// Which work.
    pub id: BackgroundId,
    /// How it ended.
    pub end: BackgroundEnd,
    /// What the model is told about it, in the user's place.
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
