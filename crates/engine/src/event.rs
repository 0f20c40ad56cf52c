//! What a run tells those who watch it. Owns `AgentEvent` and the map from log entries to durable events: a replayed log
//! gives exactly the durable part of what was streamed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use open_agent_model::{
    Access, AgentId, Answer, AskId, BackgroundEnd, BackgroundWork, BrokenInput, CallId, Cost, Message, Open,
    Outcome, PermissionMode, Question, QueueId, RawJson, ResultBlock, Ruling, RunId, RunStatus, Seq,
    SessionId, StopReason, Timestamp, ToolUseId, Usage,
};
use open_agent_session::{
    Done, Failure, ModelDone, ModelSettings, Notice, Origin, Retry, Ruled, SessionEntry, Stored,
};
use serde::Serialize;

use crate::Machine;

/// The version of the events' form.
pub const EVENT_VERSION: u32 = 1;

/// An event and where it belongs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Envelope {
    /// [`EVENT_VERSION`].
    pub v: u32,
    /// The place of its log entry. Events without one are live only: they are not repeated on replay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<Seq>,
    /// When.
    pub at: Timestamp,
    /// In which session.
    pub session: SessionId,
    /// In which run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// Of which agent.
    pub agent: AgentId,
    /// The session of the agent that started this one as its sub-agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<SessionId>,
    /// In which model turn.
    pub turn: u32,
    /// What.
    pub event: AgentEvent,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum AgentEvent {
    /// A run begins.
    RunStarted(RunStarted),
    /// From the next request on, the run asks another model, or asks otherwise.
    Configured(Configured),
    /// A message from outside the model.
    UserMessage(UserMessage),
    /// A message waits in the queue of the session.
    MessageQueued(MessageQueued),
    /// Messages left the queue and joined the conversation.
    MessagesDelivered(MessagesDelivered),
    /// A message was taken out of the queue.
    MessageUnqueued(MessageUnqueued),
    /// A model answer is complete.
    AssistantMessage(AssistantMessage),
    /// A request brought no whole answer.
    ModelFailed(ModelFailed),
    /// Something went otherwise than asked, or looks so. The run goes on.
    Notice(Notice),
    /// It was decided whether a call runs. An allowed call begins as soon as it is its turn.
    ToolRuled(ToolRuled),
    /// A call put a question.
    QuestionAsked(QuestionAsked),
    /// A question was answered.
    QuestionAnswered(QuestionAnswered),
    /// A call has its result.
    ToolFinished(ToolFinished),
    /// A call began work that goes on in the background.
    BackgroundStarted(BackgroundWork),
    /// Background work is over. Told before the next request, for then the model is told too.
    BackgroundEnded(BackgroundEnded),
    /// The run is to stop.
    Interrupted,
    /// The run is over.
    RunEnded(RunEnded),

    /// Live: the model begins to answer.
    AnswerStarted(AnswerStarted),
    /// Live: a block of the answer begins.
    BlockStarted(BlockStarted),
    /// Live: more of a block.
    BlockDelta(BlockDelta),
    /// Live: a call says how far it is.
    ToolProgress(ToolProgress),
}

/// See [`AgentEvent::RunStarted`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunStarted {
    /// The model.
    pub model: Arc<str>,
    /// The project's folder.
    pub root: PathBuf,
    /// The permission mode.
    pub mode: PermissionMode,
    /// The tools that the model is offered, by name.
    pub tools: Vec<String>,
}

/// See [`AgentEvent::Configured`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Configured {
    /// Whom the run asked before, and how.
    pub from: ModelSettings,
    /// Whom it asks now, and how.
    pub to: ModelSettings,
}

/// See [`AgentEvent::UserMessage`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UserMessage {
    /// The message.
    pub message: Arc<Message>,
    /// Where it comes from.
    pub origin: Open<Origin>,
}

/// See [`AgentEvent::MessageQueued`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MessageQueued {
    /// Its name in the queue.
    pub id: QueueId,
    /// The message.
    pub message: Arc<Message>,
    /// True if the run that goes on gets it with its next request; false if it starts the next run.
    pub steer: bool,
}

/// See [`AgentEvent::MessagesDelivered`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MessagesDelivered {
    /// Their names in the queue.
    pub ids: Vec<QueueId>,
    /// The messages, in the same order.
    pub messages: Vec<Arc<Message>>,
}

/// See [`AgentEvent::MessageUnqueued`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MessageUnqueued {
    /// Its name in the queue.
    pub id: QueueId,
}

/// See [`AgentEvent::AssistantMessage`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AssistantMessage {
    /// The answer.
    pub message: Arc<Message>,
    /// Why it ended.
    pub stop: StopReason,
    /// Its tokens.
    pub usage: Usage,
    /// Its cost.
    pub cost: Option<Cost>,
    /// Milliseconds from request to end.
    pub api_ms: u64,
    /// Milliseconds from the request to the first piece of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttft_ms: Option<u64>,
    /// The stop sequence that the model wrote, if that is why it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_sequence: Option<String>,
    /// The vendor's id of it.
    pub vendor_id: Option<String>,
    /// The model that answered, by the vendor's word, if it is not the one that was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<String>,
}

/// See [`AgentEvent::ModelFailed`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelFailed {
    /// The model that was asked.
    pub model: Arc<str>,
    /// What went wrong; `None` = it was interrupted.
    pub error: Option<Failure>,
    /// The part of the answer that is kept.
    pub partial: Option<Arc<Message>>,
    /// The request is made again; `None` = it failed for good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// Tokens that are known to be spent.
    pub usage: Usage,
    /// Their cost.
    pub cost: Option<Cost>,
    /// Milliseconds from request to failure.
    pub api_ms: u64,
}

/// See [`AgentEvent::ToolRuled`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ToolRuled {
    /// Which call.
    pub call: CallId,
    /// Its id in the transcript.
    pub tool_use_id: ToolUseId,
    /// The tool.
    pub tool: String,
    /// The input it runs with.
    pub input: RawJson,
    /// What it touches.
    pub access: Vec<Access>,
    /// What was decided.
    pub ruling: Ruling,
}

/// See [`AgentEvent::QuestionAsked`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QuestionAsked {
    /// Which question.
    pub ask: AskId,
    /// What it says.
    pub question: Question,
}

/// See [`AgentEvent::QuestionAnswered`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QuestionAnswered {
    /// Which question.
    pub ask: AskId,
    /// What the answer is.
    pub answer: Answer,
}

/// See [`AgentEvent::ToolFinished`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ToolFinished {
    /// Which call.
    pub call: CallId,
    /// Its id in the transcript.
    pub tool_use_id: ToolUseId,
    /// The tool.
    pub tool: String,
    /// What the model wrote, if it was no JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken: Option<BrokenInput>,
    /// The answer for the model.
    pub content: Vec<ResultBlock>,
    /// The answer for a user interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<RawJson>,
    /// It failed.
    pub is_error: bool,
    /// How it ended.
    pub outcome: Open<Outcome>,
    /// Milliseconds it ran.
    pub ms: u64,
}

/// See [`AgentEvent::BackgroundEnded`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BackgroundEnded {
    /// Which.
    pub work: BackgroundWork,
    /// How.
    pub end: BackgroundEnd,
    /// What the model is told.
    pub message: Arc<Message>,
}

/// See [`AgentEvent::RunEnded`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunEnded {
    /// How.
    pub status: RunStatus,
    /// Why the model stopped last.
    pub stop: Option<StopReason>,
    /// What went wrong.
    pub errors: Vec<String>,
}

/// See [`AgentEvent::AnswerStarted`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AnswerStarted {
    /// The model that answers, by the vendor's word; if it says none, the one that was asked.
    pub model: Arc<str>,
    /// The vendor's id of the answer.
    pub vendor_id: Option<String>,
    /// Tokens as far as they are known by now.
    pub usage: Usage,
}

/// See [`AgentEvent::BlockStarted`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BlockStarted {
    /// Its place in the answer.
    pub index: usize,
    /// What it is.
    pub kind: BlockKind,
}

/// What a streamed block is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BlockKind {
    /// Text.
    Text,
    /// Thinking.
    Thinking,
    /// A tool call; its deltas are pieces of its arguments' JSON.
    ToolUse {
        /// The vendor's id; the transcript may have another.
        id: String,
        /// The tool, unless its name comes later.
        name: String,
    },
    /// Thinking that the vendor encrypted, whole.
    RedactedThinking {
        /// The vendor's text.
        data: String,
    },
    /// A block that this version does not know, whole.
    Opaque {
        /// The vendor's block.
        raw: RawJson,
    },
}

/// See [`AgentEvent::BlockDelta`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BlockDelta {
    /// The block's place in the answer.
    pub index: usize,
    /// Where in the block the text belongs, in bytes: a reader that missed something can tell.
    pub offset: usize,
    /// What kind of text.
    pub kind: DeltaKind,
    /// What comes next.
    pub text: String,
}

/// What kind of text a delta carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DeltaKind {
    /// Text.
    Text,
    /// Thinking.
    Thinking,
    /// A signature over thinking.
    Signature,
    /// A tool call's arguments.
    Input,
}

/// See [`AgentEvent::ToolProgress`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ToolProgress {
    /// Which call.
    pub call: CallId,
    /// The newest line.
    pub line: String,
}

/// Gives the durable events of a log, record by record. It looks at the machine only for names that the entry leaves out.
#[must_use]
pub(crate) fn event_of(record: &Stored, machine: &Machine) -> Option<AgentEvent> {
    Some(match &record.entry {
        SessionEntry::RunStarted(s) => AgentEvent::RunStarted(RunStarted {
            model: Arc::clone(&s.settings.model),
            root: machine.root().map(Path::to_owned).unwrap_or_default(),
            mode: s.mode,
            tools: machine
                .prefix()
                .map(|p| p.tools.iter().map(|t| t.name.clone()).collect())
                .unwrap_or_default(),
        }),
        SessionEntry::Configured(to) => {
            let from = machine.run()?.settings.clone();
            AgentEvent::Configured(Configured { from, to: to.clone() })
        }
        SessionEntry::User(u) => {
            AgentEvent::UserMessage(UserMessage { message: Arc::clone(&u.message), origin: u.origin.clone() })
        }
        SessionEntry::ModelDone(d) => AgentEvent::AssistantMessage(answer_of(d)),
        SessionEntry::ModelFailed(f) => AgentEvent::ModelFailed(failure_of(f)),
        SessionEntry::Noticed(notice) => AgentEvent::Notice(notice.clone()),
        SessionEntry::Ruled(r) => AgentEvent::ToolRuled(ruling_of(r, machine)?),
        SessionEntry::Asked { ask, question } => {
            AgentEvent::QuestionAsked(QuestionAsked { ask: *ask, question: question.clone() })
        }
        SessionEntry::Answered { ask, answer } => {
            AgentEvent::QuestionAnswered(QuestionAnswered { ask: *ask, answer: answer.clone() })
        }
        SessionEntry::Done(d) => AgentEvent::ToolFinished(end_of(d, machine)?),
        SessionEntry::Queued(q) => AgentEvent::MessageQueued(MessageQueued {
            id: q.id,
            message: Arc::clone(&q.message),
            steer: q.steer,
        }),
        SessionEntry::Delivered { ids } => AgentEvent::MessagesDelivered(delivery_of(ids, machine)),
        SessionEntry::Unqueued { id } => AgentEvent::MessageUnqueued(MessageUnqueued { id: *id }),
        SessionEntry::BackgroundStarted(work) => AgentEvent::BackgroundStarted(work.clone()),
        SessionEntry::BackgroundEnded(e) => AgentEvent::BackgroundEnded(BackgroundEnded {
            work: machine.background_work(&e.id)?.clone(),
            end: e.end.clone(),
            message: Arc::clone(&e.message),
        }),
        SessionEntry::Interrupted {} => AgentEvent::Interrupted,
        SessionEntry::RunEnded(e) => AgentEvent::RunEnded(RunEnded {
            status: e.status,
            stop: e.stop.clone(),
            errors: e.errors.clone(),
        }),
        SessionEntry::SessionStarted(_)
        | SessionEntry::Moved(_)
        | SessionEntry::Opened(_)
        | SessionEntry::Prefix(_)
        | SessionEntry::ToolsChanged(_)
        | SessionEntry::Withheld(_)
        | SessionEntry::BlobsLost { .. }
        | SessionEntry::Started { .. }
        | SessionEntry::Unknown(_) => return None,
    })
}

fn answer_of(d: &ModelDone) -> AssistantMessage {
    AssistantMessage {
        message: Arc::clone(&d.message),
        stop: d.stop.clone(),
        usage: d.usage,
        cost: d.cost,
        api_ms: d.api_ms,
        ttft_ms: d.ttft_ms,
        stop_sequence: d.stop_sequence.clone(),
        vendor_id: d.vendor_id.clone(),
        answered_by: d.answered_by.clone(),
    }
}

fn failure_of(f: &open_agent_session::ModelFailed) -> ModelFailed {
    ModelFailed {
        model: Arc::clone(&f.model),
        error: f.error.clone(),
        partial: f.partial.clone(),
        retry: f.retry.clone(),
        usage: f.usage,
        cost: f.cost,
        api_ms: f.api_ms,
    }
}

fn ruling_of(r: &Ruled, machine: &Machine) -> Option<ToolRuled> {
    let call = machine.call(r.call)?;
    Some(ToolRuled {
        call: r.call,
        tool_use_id: call.tool_use.id.clone(),
        tool: call.tool_use.name.clone(),
        input: r.input.clone().unwrap_or_else(|| call.tool_use.input.clone()),
        access: r.access.clone(),
        ruling: r.ruling.clone(),
    })
}

/// `None` for a second result of one call, which changes nothing.
fn end_of(d: &Done, machine: &Machine) -> Option<ToolFinished> {
    let call = machine.call(d.call).filter(|c| c.is_open())?;
    Some(ToolFinished {
        call: d.call,
        tool_use_id: call.tool_use.id.clone(),
        tool: call.tool_use.name.clone(),
        broken: call.tool_use.broken.clone(),
        content: d.content.clone(),
        details: d.details.clone(),
        is_error: d.is_error(),
        outcome: d.outcome.clone(),
        ms: d.ms,
    })
}

/// What stands in the queue of what was delivered.
fn delivery_of(ids: &[QueueId], machine: &Machine) -> MessagesDelivered {
    let known = |id: &&QueueId| machine.queue().iter().any(|q| q.id == **id);
    let ids: Vec<QueueId> = ids.iter().filter(known).copied().collect();
    let message = |id: &QueueId| machine.queue().iter().find(|q| q.id == *id);
    let messages = ids.iter().filter_map(message).map(|q| Arc::clone(&q.message)).collect();
    MessagesDelivered { ids, messages }
}

/// Replays a log: its durable events, in order.
#[must_use]
pub fn replay(session: &SessionId, records: &[Stored]) -> Vec<Envelope> {
    let mut machine = Machine::default();
    let mut events = Vec::new();
    let (mut agent, mut parent) = (AgentId::main(), None);
    for record in records {
        if let SessionEntry::SessionStarted(started) = &record.entry {
            (agent, parent) = (started.agent.clone(), started.parent.clone());
        }
        // Before the record is applied: afterwards a turn's calls may be gone.
        let event = event_of(record, &machine);
        let turn = turn_of(record, &machine);
        machine.apply(record);
        if let Some(event) = event {
            let place = EventPlace { session, agent: &agent, parent: parent.as_ref(), turn };
            events.push(envelope(place, &machine, record, event));
        }
    }
    events
}

/// The model turn that a record belongs to, told before the record is applied.
#[must_use]
pub(crate) fn turn_of(record: &Stored, machine: &Machine) -> u32 {
    match &record.entry {
        SessionEntry::Ruled(r) => r.call.turn,
        SessionEntry::Done(d) => d.call.turn,
        SessionEntry::ModelDone(d) => d.turn,
        SessionEntry::BackgroundStarted(work) => work.call.turn,
        SessionEntry::Asked { ask, .. } | SessionEntry::Answered { ask, .. } => {
            ask.call.map_or_else(|| machine.transcript().next_turn(), |call| call.turn)
        }
        _ => machine.transcript().next_turn(),
    }
}

/// Where a durable event belongs.
#[derive(Clone, Copy)]
pub(crate) struct EventPlace<'a> {
    pub(crate) session: &'a SessionId,
    pub(crate) agent: &'a AgentId,
    pub(crate) parent: Option<&'a SessionId>,
    pub(crate) turn: u32,
}

/// Puts a durable event in its envelope; `machine` has taken the record.
#[must_use]
pub(crate) fn envelope(
    place: EventPlace<'_>,
    machine: &Machine,
    record: &Stored,
    event: AgentEvent,
) -> Envelope {
    Envelope {
        v: EVENT_VERSION,
        seq: Some(record.seq),
        at: record.at,
        session: place.session.clone(),
        run: machine.run().map(crate::RunFold::id),
        agent: place.agent.clone(),
        parent: place.parent.cloned(),
        turn: place.turn,
        event,
    }
}
