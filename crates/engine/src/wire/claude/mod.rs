//! Events as the lines of JSON that the Claude command line prints (`stream-json`). Owns which event makes which frames and
//! what a run's `result` sums up. Field names are that program's; what is ours in addition has names of its own. Ids follow
//! from the log, so that a replay prints the same frames.

mod block;
mod frame;
mod stream;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::PathBuf;

use open_agent_model::{
    BackgroundKind, BackgroundOutcome, BackgroundWork, CallId, Cost, Layer, Message, Open, ProviderErrorKind,
    QueueId, RunStatus, SessionId, StopReason, Timestamp, ToolUseId, Usage,
};
use open_agent_session::Origin;
use serde::Serialize;
use uuid::Uuid;

use crate::{
    AgentEvent, AssistantMessage, BackgroundEnded, Envelope, ModelFailed, RunEnded, RunStarted, RunSummary,
    ToolFinished, ToolProgress, ToolRuled,
};
use block::{api_blocks, api_result};
use stream::Streamed;

/// How much is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// The result alone.
    Result,
    /// Whole messages.
    #[default]
    Messages,
    /// Whole messages and, as they come, their pieces. Needs live events.
    Partial,
}

/// What frames say that no event says.
#[derive(Clone, Debug, Default)]
pub struct ClaudeSetup {
    /// How much is printed.
    pub detail: Detail,
    /// Where the key comes from: a variable's name, or `none`.
    pub api_key_source: String,
    /// Our version.
    pub version: String,
    /// The session's own folder, below which outputs of background work lie.
    pub session_folder: Option<PathBuf>,
}

/// Turns the events of one session into frames.
pub struct ClaudeFrames {
    setup: ClaudeSetup,
    session: SessionId,
    ids: FrameIds,
    run: RunSummary,
    /// Whether a run has begun: before, `run` knows no time.
    has_begun: bool,
    doing: Doing,
    calls: HashMap<CallId, CallSeen>,
    streamed: Option<Streamed>,
    /// The last run has its `result` frame.
    closed: bool,
}

/// What a run did last: it tells how it came to its end.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Doing {
    #[default]
    Asking,
    Calling,
    Failing,
}

struct CallSeen {
    id: ToolUseId,
    tool: String,
    at: Timestamp,
}

impl ClaudeFrames {
    /// Frames for the events of `session`.
    #[must_use]
    pub fn new(session: SessionId, setup: ClaudeSetup) -> Self {
        let ids = FrameIds::new(session.as_str());
        Self {
            setup,
            session,
            ids,
            run: RunSummary::default(),
            has_begun: false,
            doing: Doing::default(),
            calls: HashMap::new(),
            streamed: None,
            closed: false,
        }
    }

    /// Appends the frames of an event, a line each. Most events make one, some none.
    pub fn push(&mut self, event: &Envelope, out: &mut Vec<u8>) {
        let seq = event.seq.map_or(0, |seq| seq.0);
        match &event.event {
            AgentEvent::BlockDelta(delta) => return self.delta(delta, out),
            AgentEvent::BlockStarted(block) => self.block_started(block, event.turn, out),
            AgentEvent::AnswerStarted(started) => self.answer_started(started, event.turn, out),
            AgentEvent::ToolProgress(progress) => self.progress(progress, event.at, out),
            AgentEvent::RunStarted(started) => self.run_started(event, started, out),
            AgentEvent::AssistantMessage(answer) => self.answered(event, answer, out),
            AgentEvent::ModelFailed(failed) => self.failed(event, failed, out),
            AgentEvent::ToolRuled(ruled) => self.ruled(event, ruled, out),
            AgentEvent::ToolFinished(finished) => self.finished(seq, finished, out),
            AgentEvent::UserMessage(user) => {
                // What the caller said itself is not repeated; what the loop says in the user's place is shown.
                if user.origin != Origin::Prompt {
                    self.synthetic(seq, &user.message, out);
                }
            }
            AgentEvent::MessageQueued(queued) => {
                self.queue_frame("message_queued", seq, vec![queued.id], out)
            }
            AgentEvent::MessagesDelivered(delivered) => {
                self.queue_frame("messages_delivered", seq, delivered.ids.clone(), out);
            }
            AgentEvent::MessageUnqueued(unqueued) => {
                self.queue_frame("message_unqueued", seq, vec![unqueued.id], out);
            }
            AgentEvent::QuestionAsked(asked) => {
                let mut frame = self.system("question_asked", seq);
                frame.question = Some(&asked.question);
                frame.ask_id = Some(asked.ask.to_string());
                self.line(Detail::Messages, &frame, out);
            }
            AgentEvent::QuestionAnswered(answered) => {
                let mut frame = self.system("question_answered", seq);
                frame.answer = Some(&answered.answer);
                frame.ask_id = Some(answered.ask.to_string());
                self.line(Detail::Messages, &frame, out);
            }
            AgentEvent::Notice(notice) => {
                let mut frame = self.system("notice", seq);
                frame.message = Some(&notice.text);
                self.line(Detail::Messages, &frame, out);
            }
            AgentEvent::BackgroundStarted(work) => self.task_started(seq, work, out),
            AgentEvent::BackgroundEnded(ended) => self.task_ended(seq, ended, out),
            AgentEvent::Configured(c) => {
                let mut frame = self.system("model_switched", seq);
                frame.switched = Some(frame::Switched { from_model: &c.from.model, to_model: &c.to.model });
                self.line(Detail::Messages, &frame, out);
            }
            AgentEvent::Interrupted => {
                let frame = self.system("interrupted", seq);
                self.line(Detail::Messages, &frame, out);
            }
            AgentEvent::RunEnded(ended) => {
                self.run.last_at = event.at;
                self.result(seq, ended, out);
            }
        }
        self.run.last_at = event.at;
    }

    /// The `result` of a run that has none because it could not end by itself, or waits for an answer.
    pub fn close(&mut self, status: RunStatus, errors: Vec<String>, out: &mut Vec<u8>) {
        if !self.closed {
            let stop = self.run.stop.clone();
            self.result(u64::MAX, &RunEnded { status, stop, errors }, out);
        }
    }

    fn run_started(&mut self, event: &Envelope, started: &RunStarted, out: &mut Vec<u8>) {
        (self.run, self.has_begun, self.doing) = (RunSummary::new(event.at), true, Doing::default());
        self.closed = false;
        self.calls.clear();
        self.streamed = None;
        let seq = event.seq.map_or(0, |seq| seq.0);
        self.ids.begin_run(event.run.map_or(0, |run| run.number()));
        let frame = frame::Init {
            kind: "system",
            subtype: "init",
            cwd: started.root.to_string_lossy(),
            session_id: self.session.as_str(),
            tools: &started.tools,
            mcp_servers: [],
            model: &started.model,
            permission_mode: started.mode.as_str(),
            slash_commands: [],
            api_key_source: &self.setup.api_key_source,
            output_style: "default",
            agents: [],
            skills: [],
            plugins: [],
            open_agent_version: &self.setup.version,
            run_id: event.run,
            uuid: self.ids.durable(seq, 0),
        };
        self.line(Detail::Messages, &frame, out);
    }

    fn answered(&mut self, event: &Envelope, answer: &AssistantMessage, out: &mut Vec<u8>) {
        let model = answer.message.model.clone().unwrap_or_default();
        let used = (answer.usage, answer.cost, answer.api_ms);
        self.run.on_answer(&model, &answer.message, &answer.stop, used);
        self.doing = if answer.message.tool_uses().next().is_some() { Doing::Calling } else { Doing::Asking };
        let id = self.ids.message(answer.vendor_id.as_deref(), event.turn);
        self.stop_blocks(out);
        let model = answer.answered_by.as_deref().unwrap_or(&model);
        let said = Said { message: &answer.message, id: &id, usage: &answer.usage, model };
        self.assistant(event, said, frame::Extra::default(), out);
        self.stop_message(answer, out);
    }

    fn failed(&mut self, event: &Envelope, failed: &ModelFailed, out: &mut Vec<u8>) {
        let used = (failed.usage, failed.cost, failed.api_ms);
        self.run.on_failure(&failed.model, failed.partial.as_deref(), used);
        self.stop_blocks(out);
        let streamed = self.streamed.take();
        if let Some(retry) = &failed.retry {
            // What came of the answer is thrown away: it is made again.
            let error = failed.error.as_ref();
            let mut frame = self.system("api_retry", event.seq.map_or(0, |seq| seq.0));
            frame.retry = Some(frame::ApiRetry {
                attempt: retry.attempt,
                max_retries: retry.max_retries,
                retry_delay_ms: retry.delay_ms,
                error_status: error.and_then(|e| e.status),
                error: error.map_or_else(String::new, |e| e.kind.to_string()),
                model: &retry.model,
            });
            return self.line(Detail::Messages, &frame, out);
        }
        let id = streamed.map_or_else(|| self.ids.message(None, event.turn), |s| s.message_id);
        if let Some(partial) = &failed.partial {
            let extra = frame::Extra { aborted: true, ..frame::Extra::default() };
            let said = Said { message: partial, id: &id, usage: &failed.usage, model: &failed.model };
            self.assistant(event, said, extra, out);
        }
        self.doing = if failed.error.is_some() { Doing::Failing } else { Doing::Asking };
        let Some(error) = &failed.error else { return };
        let text = format!("API Error: {}", error.message);
        let frame = frame::Spoken {
            kind: "assistant",
            message: frame::ApiMessage {
                id: &self.ids.message(None, event.turn),
                kind: "message",
                role: "assistant",
                model: "<synthetic>",
                content: [block::ApiBlock::Text { text: &text }],
                stop_reason: Some("stop_sequence"),
                stop_sequence: None,
                usage: frame::ApiUsage::from(&Usage::default()),
            },
            parent_tool_use_id: None,
            session_id: self.session.as_str(),
            uuid: self.ids.durable(event.seq.map_or(0, |seq| seq.0), u32::MAX),
            extra: frame::Extra {
                error: Some(error.kind.known().map_or("unknown", |kind| error_code(*kind))),
                error_kind: Some(error.kind.to_string()),
                error_status: error.status,
                request_id: error.request_id.as_deref(),
                aborted: false,
            },
        };
        self.line(Detail::Messages, &frame, out);
    }

    /// One frame a block; they share the message's id, as it came in one answer.
    fn assistant(&self, event: &Envelope, said: Said<'_>, extra: frame::Extra<'_>, out: &mut Vec<u8>) {
        let seq = event.seq.map_or(0, |seq| seq.0);
        for (block, part) in api_blocks(&said.message.content).zip(0..) {
            let frame = frame::Spoken {
                kind: "assistant",
                message: frame::ApiMessage {
                    id: said.id,
                    kind: "message",
                    role: "assistant",
                    model: said.model,
                    content: [block],
                    stop_reason: None,
                    stop_sequence: None,
                    usage: frame::ApiUsage::from(said.usage),
                },
                parent_tool_use_id: None,
                session_id: self.session.as_str(),
                uuid: self.ids.durable(seq, part),
                extra: extra.clone(),
            };
            self.line(Detail::Messages, &frame, out);
        }
    }

    fn ruled(&mut self, event: &Envelope, ruled: &ToolRuled, out: &mut Vec<u8>) {
        let seen = CallSeen { id: ruled.tool_use_id.clone(), tool: ruled.tool.clone(), at: event.at };
        self.calls.insert(ruled.call, seen);
        self.run.on_ruled((&ruled.tool, &ruled.tool_use_id, &ruled.input), &ruled.ruling);
        if !ruled.ruling.is_denial() {
            return;
        }
        let mut frame = self.system("permission_denied", event.seq.map_or(0, |seq| seq.0));
        frame.tool_name = Some(&ruled.tool);
        frame.tool_use_id = Some(&ruled.tool_use_id);
        frame.decision_reason_type = Some(match ruled.ruling.layer.known() {
            Some(Layer::Mode) => "mode",
            Some(Layer::AllowedTools) => "rule",
            Some(Layer::Call) | None => "other",
        });
        frame.message = Some(&ruled.ruling.reason);
        self.line(Detail::Messages, &frame, out);
    }

    fn finished(&mut self, seq: u64, finished: &ToolFinished, out: &mut Vec<u8>) {
        if let Entry::Occupied(seen) = self.calls.entry(finished.call) {
            seen.remove();
        }
        let content = [api_result(&finished.tool_use_id, &finished.content, finished.is_error)];
        let frame = frame::Told {
            kind: "user",
            message: frame::UserMessage { role: "user", content },
            parent_tool_use_id: None,
            session_id: self.session.as_str(),
            uuid: self.ids.durable(seq, 0),
            tool_use_result: finished.details.as_ref(),
            synthetic: false,
        };
        self.line(Detail::Messages, &frame, out);
    }

    fn synthetic(&self, seq: u64, message: &Message, out: &mut Vec<u8>) {
        let frame = frame::Told {
            kind: "user",
            message: frame::UserMessage {
                role: "user",
                content: api_blocks(&message.content).collect::<Vec<_>>(),
            },
            parent_tool_use_id: None,
            session_id: self.session.as_str(),
            uuid: self.ids.durable(seq, 0),
            tool_use_result: None,
            synthetic: true,
        };
        self.line(Detail::Messages, &frame, out);
    }

    fn queue_frame(&self, subtype: &'static str, seq: u64, ids: Vec<QueueId>, out: &mut Vec<u8>) {
        let mut frame = self.system(subtype, seq);
        frame.queue_ids = ids;
        self.line(Detail::Messages, &frame, out);
    }

    fn task_started(&self, seq: u64, work: &BackgroundWork, out: &mut Vec<u8>) {
        let mut frame = self.system("task_started", seq);
        frame.tool_use_id = self.calls.get(&work.call).map(|seen| &seen.id);
        frame.task = Some(frame::TaskFrame {
            task_type: Some(match &work.kind {
                Open::Known(BackgroundKind::Bash) => "local_bash",
                Open::Unknown(word) => word,
            }),
            description: Some(&work.description),
            ..frame::TaskFrame::new(work, self.setup.session_folder.as_deref())
        });
        self.line(Detail::Messages, &frame, out);
    }

    fn task_ended(&self, seq: u64, ended: &BackgroundEnded, out: &mut Vec<u8>) {
        let mut frame = self.system("task_notification", seq);
        let status = match ended.end.outcome.known() {
            Some(BackgroundOutcome::Completed) => "completed",
            Some(BackgroundOutcome::Stopped | BackgroundOutcome::Lost) => "stopped",
            Some(BackgroundOutcome::Failed | BackgroundOutcome::TimedOut) | None => "failed",
        };
        frame.task = Some(frame::TaskFrame {
            status: Some(status),
            summary: Some(format!("{} {}", ended.work.id, ended.end)),
            ..frame::TaskFrame::new(&ended.work, self.setup.session_folder.as_deref())
        });
        self.line(Detail::Messages, &frame, out);
    }

    fn progress(&mut self, progress: &ToolProgress, at: Timestamp, out: &mut Vec<u8>) {
        let uuid = self.ids.live();
        let Some(seen) = self.calls.get(&progress.call) else { return };
        let frame = frame::Progress {
            kind: "tool_progress",
            tool_use_id: &seen.id,
            tool_name: &seen.tool,
            parent_tool_use_id: None,
            elapsed_time_seconds: seconds(seen.at, at),
            line: &progress.line,
            session_id: self.session.as_str(),
            uuid,
        };
        self.line(Detail::Partial, &frame, out);
    }

    fn result(&mut self, seq: u64, ended: &RunEnded, out: &mut Vec<u8>) {
        self.closed = true;
        let run = &self.run;
        let frame = frame::RunResult {
            kind: "result",
            subtype: ended.status.as_str(),
            is_error: !ended.status.is_success(),
            duration_ms: if self.has_begun { run.duration_ms() } else { 0 },
            duration_api_ms: run.totals.api_ms,
            num_turns: run.turns,
            result: run.words.text(),
            stop_reason: ended.stop.as_ref().map(StopReason::as_str),
            session_id: self.session.as_str(),
            total_cost_usd: run.totals.cost.map(Cost::usd),
            usage: frame::ApiUsage::from(&run.totals.usage),
            model_usage: frame::ModelUsage(&run.totals.by_model),
            permission_denials: run.denials.iter().map(frame::PermissionDenial::from).collect(),
            terminal_reason: self.doing.terminal_reason(ended.status),
            errors: (!ended.status.is_success()).then_some(&ended.errors),
            num_model_calls: run.totals.requests,
            uuid: self.ids.durable(seq, 0),
        };
        self.line(Detail::Result, &frame, out);
    }

    fn system<'a>(&self, subtype: &'static str, seq: u64) -> frame::System<'a>
    where
        Self: 'a,
    {
        frame::System::new(subtype, self.session.clone(), self.ids.durable(seq, 0))
    }

    fn line<T: Serialize>(&self, detail: Detail, frame: &T, out: &mut Vec<u8>) {
        if self.setup.detail < detail {
            return;
        }
        let before = out.len();
        match serde_json::to_writer(&mut *out, frame) {
            Ok(()) => {
                escape_line_ends(out, before);
                out.push(b'\n');
            }
            // Half a line would spoil the next one too. No frame holds anything that JSON cannot say.
            Err(error) => {
                out.truncate(before);
                tracing::error!(%error, "a frame could not be written");
            }
        }
    }
}

/// What a model said, as a frame needs it.
struct Said<'a> {
    message: &'a Message,
    id: &'a str,
    usage: &'a Usage,
    model: &'a str,
}

/// JSON allows some line ends bare within strings, but many readers take them for the end of the frame.
fn escape_line_ends(out: &mut Vec<u8>, from: usize) {
    let frame = &out[from..];
    // Their first bytes rule most frames out.
    if !frame.contains(&0xC2) && !frame.contains(&0xE2) {
        return;
    }
    let frame = String::from_utf8_lossy(frame);
    let escaped =
        frame.replace('\u{85}', "\\u0085").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029");
    if escaped.len() != frame.len() {
        out.truncate(from);
        out.extend_from_slice(escaped.as_bytes());
    }
}

impl Doing {
    /// The reason of a run that ended with this status.
    fn terminal_reason(self, status: RunStatus) -> &'static str {
        match (status, self) {
            (RunStatus::Success, _) => "completed",
            (RunStatus::ErrorMaxTurns, _) => "max_turns",
            (RunStatus::ErrorMaxBudgetUsd, _) => "max_budget",
            (RunStatus::ErrorMaxModelCalls, _) => "max_model_calls",
            (RunStatus::Cancelled, Self::Calling) => "aborted_tools",
            (RunStatus::Cancelled, _) => "aborted_streaming",
            (RunStatus::Refusal, _) => "refusal",
            (RunStatus::Waiting, _) => "waiting",
            (_, Self::Failing) => "model_error",
            _ => "error",
        }
    }
}

/// Ids of frames and messages that follow from the session, the log's places and the turn.
struct FrameIds {
    session: u128,
    /// Live frames have no place in the log; theirs are counted within the run.
    run: u128,
    count: u64,
}

impl FrameIds {
    fn new(session: &str) -> Self {
        // FNV-1a: any fixed function of the text will do.
        let hash = session.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, byte| {
            (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
        });
        Self { session: hash, run: hash, count: 0 }
    }

    fn begin_run(&mut self, run: u128) {
        self.run = self.session ^ run.rotate_left(1);
        self.count = 0;
    }

    fn durable(&self, seq: u64, part: u32) -> Uuid {
        mixed(self.session, seq, u64::from(part))
    }

    fn live(&mut self) -> Uuid {
        self.count += 1;
        mixed(self.run, self.count, u64::MAX)
    }

    /// The vendor's id of an answer, or one made of the turn.
    fn message(&self, vendor: Option<&str>, turn: u32) -> String {
        match vendor.filter(|id| !id.is_empty()) {
            Some(id) => id.to_owned(),
            None => format!("msg_{}", mixed(self.session, u64::from(turn), u64::MAX - 1).simple()),
        }
    }
}

/// Splitmix over both halves; version 8 of a UUID is "made in a way of one's own".
fn mixed(base: u128, a: u64, b: u64) -> Uuid {
    let mix = |x: u64| {
        let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    };
    #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
    let (high, low) = ((base >> 64) as u64, base as u64);
    let high = mix(high ^ mix(a.wrapping_add(0x9e37_79b9_7f4a_7c15)));
    let low = mix(low ^ mix(b.wrapping_add(high)));
    uuid::Builder::from_custom_bytes((u128::from(high) << 64 | u128::from(low)).to_be_bytes()).into_uuid()
}

fn error_code(kind: ProviderErrorKind) -> &'static str {
    match kind {
        ProviderErrorKind::Authentication => "authentication_failed",
        ProviderErrorKind::RateLimited => "rate_limit",
        ProviderErrorKind::InvalidRequest
        | ProviderErrorKind::NotFound
        | ProviderErrorKind::ContextOverflow => "invalid_request",
        ProviderErrorKind::Overloaded | ProviderErrorKind::Server => "server_error",
        _ => "unknown",
    }
}

#[expect(clippy::cast_precision_loss, reason = "a duration for people")]
fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    (to.0 - from.0).max(0) as f64 / 1000.0
}
