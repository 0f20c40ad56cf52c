//! The loop as a fold of a session's log. `apply` is its only mutator, live and on resume; `next` says what has to happen
//! and is pure. No IO, no clock, no chance, no waiting: whatever must be remembered is an entry.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use open_agent_model::{
    Access, Answer, AskId, Block, CallId, Change, Decision, Effect, Layer, Message, MessageId, Prefix,
    Question, RawJson, Role, RunId, RunStatus, StopReason, Task, TaskId, Timestamp, ToolUse,
};
use open_agent_session::{
    Done, ModelDone, ModelFailed, ModelSettings, Notice, NoticeKind, Origin, Ruled, RunEnded, RunStarted,
    SessionEntry, Stored, Transcript, UserMessage,
};
use open_agent_tool::SessionState;

use crate::scheduler::{CallPhase, CallView, ready};
use crate::{Totals, Words};

/// How often in a row an answer that hit the output limit is continued.
const MAX_CONTINUATIONS: u32 = 3;
/// How many answers in a row may end within a tool call.
const MAX_CUT_CALLS: u32 = 2;

const CONTINUE: &str = "Your answer was cut at the output limit. Go on exactly where it stopped.";
const CLOSED_BY_INTERRUPT: &str = "Interrupted by the user before it finished.";
const CLOSED_BY_MESSAGE: &str = "Not run: the user went on with a new message.";
const CLOSED_BY_LIMIT: &str = "Not run: the run ended before.";
const LOST: &str =
    "The process ended while this call ran. Its outcome is unknown: check what it did before repeating it.";

/// What has to happen next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Ask the model.
    CallModel {
        /// Not before this moment: an earlier attempt failed.
        not_before: Option<Timestamp>,
    },
    /// Rule these calls, in order, up to the first that does more than read.
    Rule(Vec<CallId>),
    /// Have these calls running; take the result of the first that finishes.
    Run(Vec<CallId>),
    /// Write these entries.
    Record(Vec<SessionEntry>),
    /// Wait for an answer to one of these questions.
    Wait(Vec<AskId>),
    /// Nothing: no run is going on.
    Done,
}

/// The state of a session.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    transcript: Transcript,
    state: Arc<SessionState>,
    prefix: Option<Arc<Prefix>>,
    calls: Vec<Call>,
    /// Who wrote a piece of session state last, within the open turn.
    writers: BTreeMap<String, u16>,
    phase: Phase,
    run: Option<RunFold>,
    interrupted: bool,
    context_tokens: u64,
    /// All background work, and whether the model knows that it is over.
    tasks: BTreeMap<TaskId, (Task, bool)>,
    /// The newest notice of its kind, which holds for the whole session.
    variables_removed: Option<Notice>,
}

#[derive(Clone, Debug, Default, PartialEq)]
enum Phase {
    /// No run, or one that ended.
    #[default]
    Idle,
    /// A request is due.
    ModelDue,
    /// Calls are open.
    Calls,
    /// The model stopped for this reason, without calls.
    Stopped(StopReason),
    /// The last request failed for good.
    Failed(String),
}

/// A call of the newest answer.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its identity.
    pub id: CallId,
    /// As the model wrote it.
    pub tool_use: ToolUse,
    /// Its ruling, once there is one.
    pub ruled: Option<Ruled>,
    /// Answers to its questions so far.
    pub answers: Vec<Answer>,
    phase: Progress,
}

#[derive(Clone, Debug, PartialEq)]
enum Progress {
    New,
    /// It cannot run, for this reason.
    Refused(String),
    Ready,
    Started,
    /// It ran when its process ended, and must not run again.
    Lost,
    Waiting(AskId, Question),
    Finished,
}

/// A call that the rules refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Denial {
    /// The tool.
    pub tool: String,
    /// Why, and what would allow it.
    pub reason: String,
}

/// A run so far.
#[derive(Clone, Debug)]
pub struct RunFold {
    /// How it began.
    pub started: RunStarted,
    /// When it began.
    pub at: Timestamp,
    /// When its last entry was written.
    pub last_at: Timestamp,
    /// The model that is asked now: that of the settings, or the fallback.
    pub model: Arc<str>,
    /// Whom requests ask, and how.
    pub settings: ModelSettings,
    /// Where the run's messages begin in the transcript.
    pub first_message: usize,
    /// Failed attempts at the request that is due.
    pub failures: u32,
    /// Model answers.
    pub turns: u32,
    /// What all model requests used, failed ones too.
    pub totals: Totals,
    /// What the model said last.
    pub words: Words,
    /// Why the model stopped last.
    pub stop: Option<StopReason>,
    /// What went otherwise than asked.
    pub notices: Vec<Notice>,
    /// Calls that the rules refused.
    pub denials: Vec<Denial>,
    /// How it ended, if it has.
    pub ended: Option<RunEnded>,
    not_before: Option<Timestamp>,
    continuations: u32,
    cut_calls: u32,
    /// What came of the newest answer's call that was cut.
    last_cut: Option<String>,
}

impl Machine {
    /// Takes the next record of the log.
    pub fn apply(&mut self, record: &Stored) {
        self.transcript.apply(&record.entry);
        if let Some(run) = self.run.as_mut().filter(|r| r.ended.is_none()) {
            run.last_at = record.at;
        }
        match &record.entry {
            SessionEntry::Opened(_) => self.on_opened(),
            SessionEntry::User(_) => self.on_user(),
            SessionEntry::RunStarted(started) => self.on_run_started(started, record.at),
            SessionEntry::Noticed(notice) => {
                if notice.kind == NoticeKind::VariablesRemoved {
                    self.variables_removed = Some(notice.clone());
                }
                if let Some(run) = &mut self.run {
                    run.notices.push(notice.clone());
                }
            }
            SessionEntry::Configured(settings) => {
                if let Some(run) = &mut self.run {
                    run.configure(settings);
                }
            }
            // The conversation is shorter now; how much, the next answer says.
            SessionEntry::Withheld(_) => self.context_tokens = 0,
            SessionEntry::Prefix(prefix) => self.prefix = Some(Arc::clone(prefix)),
            SessionEntry::ModelDone(done) => self.on_model_done(done),
            SessionEntry::ModelFailed(failed) => self.on_model_failed(failed),
            SessionEntry::Ruled(ruled) => self.on_ruled(ruled),
            SessionEntry::Asked { ask, question } => {
                self.set_phase(ask.call, Progress::Waiting(*ask, question.clone()));
            }
            SessionEntry::Answered { ask, answer } => self.on_answered(*ask, answer),
            SessionEntry::Started { call } => self.set_phase(*call, Progress::Started),
            SessionEntry::Done(done) => self.on_done(done),
            SessionEntry::TaskStarted(task) => {
                self.tasks.insert(task.id.clone(), (task.clone(), false));
            }
            SessionEntry::TaskEnded(ended) => {
                if let Some((_, is_over)) = self.tasks.get_mut(&ended.task) {
                    *is_over = true;
                }
            }
            SessionEntry::Interrupted {} => self.interrupted = true,
            SessionEntry::RunEnded(ended) => self.on_run_ended(ended),
            SessionEntry::Unknown(_) | _ => {}
        }
    }

    /// What has to happen next.
    #[must_use]
    pub fn next(&self) -> Step {
        let Some(run) = self.run.as_ref().filter(|r| r.ended.is_none()) else { return Step::Done };
        if self.interrupted {
            return self.end(RunStatus::Cancelled, Vec::new(), CLOSED_BY_INTERRUPT);
        }
        let lost = self.close(|c| c.phase == Progress::Lost, LOST);
        if !lost.is_empty() {
            return Step::Record(lost);
        }
        match &self.phase {
            Phase::Idle => {
                let errors = vec!["the run has no message to answer".to_owned()];
                self.end(RunStatus::ErrorDuringExecution, errors, CLOSED_BY_LIMIT)
            }
            Phase::Calls => self.next_calls(run),
            Phase::ModelDue => self.next_request(run),
            Phase::Stopped(stop) => self.next_stopped(run, stop),
            Phase::Failed(error) => {
                self.end(RunStatus::ErrorDuringExecution, vec![error.clone()], CLOSED_BY_LIMIT)
            }
        }
    }

    /// What ends the run that goes on, if there is one, before another begins.
    #[must_use]
    pub fn give_up(&self) -> Vec<SessionEntry> {
        match self.run.as_ref().filter(|r| r.ended.is_none()) {
            Some(_) => self.ending(RunStatus::Cancelled, Vec::new(), CLOSED_BY_MESSAGE),
            None => Vec::new(),
        }
    }

    /// Whether the request that is due sends a paused answer back, to go on.
    #[must_use]
    pub(crate) fn resumes_pause(&self) -> bool {
        self.phase == Phase::Stopped(StopReason::PauseTurn)
    }

    /// The conversation as the model gets it.
    #[must_use]
    pub fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    /// What calls see of the session.
    #[must_use]
    pub fn state(&self) -> &Arc<SessionState> {
        &self.state
    }

    /// What requests begin with, once it was written down.
    #[must_use]
    pub fn prefix(&self) -> Option<&Arc<Prefix>> {
        self.prefix.as_ref()
    }

    /// The run that goes on, or the last one.
    #[must_use]
    pub fn run(&self) -> Option<&RunFold> {
        self.run.as_ref()
    }

    /// A call of the newest answer.
    #[must_use]
    pub fn call(&self, id: CallId) -> Option<&Call> {
        self.calls.iter().find(|c| c.id == id)
    }

    /// The questions that wait for an answer.
    #[must_use]
    pub fn questions(&self) -> Vec<(AskId, Question)> {
        let waiting = self.calls.iter().filter_map(|c| match &c.phase {
            Progress::Waiting(ask, question) => Some((*ask, question.clone())),
            _ => None,
        });
        waiting.collect()
    }

    /// Background work that was started in this session.
    #[must_use]
    pub(crate) fn task(&self, id: &TaskId) -> Option<&Task> {
        self.tasks.get(id).map(|(task, _)| task)
    }

    /// Background work of whose end the model was not told.
    pub(crate) fn open_tasks(&self) -> impl Iterator<Item = &Task> {
        self.tasks.values().filter(|(_, is_over)| !is_over).map(|(task, _)| task)
    }

    /// Whether this was said last about the variables that commands do not see.
    #[must_use]
    pub(crate) fn is_told(&self, variables_removed: &Notice) -> bool {
        self.variables_removed.as_ref() == Some(variables_removed)
    }

    /// How many tokens the conversation had at the last answer, by the vendor's own count.
    #[must_use]
    pub fn context_tokens(&self) -> u64 {
        self.context_tokens
    }

    // ---- apply ----

    /// A call that ran when the last process ended runs again if that does no harm; else its outcome is unknown.
    fn on_opened(&mut self) {
        for call in &mut self.calls {
            if call.phase == Progress::Started {
                call.phase = if call.effect() == Effect::Unsafe { Progress::Lost } else { Progress::Ready };
            }
        }
    }

    /// While calls are open, the message follows their results.
    fn on_user(&mut self) {
        if !self.calls.iter().any(Call::is_open) {
            self.phase = Phase::ModelDue;
        }
    }

    fn on_run_started(&mut self, started: &RunStarted, at: Timestamp) {
        let moved = self.run.as_ref().is_none_or(|last| last.started.root != started.root);
        if moved {
            Arc::make_mut(&mut self.state).cwd.clone_from(&started.root);
        }
        self.interrupted = false;
        self.run = Some(RunFold {
            started: started.clone(),
            at,
            last_at: at,
            model: Arc::clone(&started.settings.model),
            settings: started.settings.clone(),
            first_message: self.next_user_message(),
            failures: 0,
            turns: 0,
            totals: Totals::default(),
            words: Words::default(),
            stop: None,
            notices: Vec::new(),
            denials: Vec::new(),
            ended: None,
            not_before: None,
            continuations: 0,
            cut_calls: 0,
            last_cut: None,
        });
    }

    /// Where the next user message will be: a last message of the user is joined.
    fn next_user_message(&self) -> usize {
        let messages = self.transcript.messages();
        let joined = messages.last().is_some_and(|m| m.role == Role::User);
        messages.len() - usize::from(joined)
    }

    fn on_model_done(&mut self, done: &ModelDone) {
        let turn = self.transcript.turns().saturating_sub(1);
        let uses: Vec<ToolUse> = done.message.tool_uses().cloned().collect();
        let cut = uses.iter().find_map(|u| u.broken.as_ref().filter(|b| b.cut)).map(|b| b.raw.clone());
        if let Some(run) = &mut self.run {
            let model = done.message.model.clone().unwrap_or_else(|| Arc::clone(&run.model));
            (run.failures, run.not_before) = (0, None);
            run.totals.add(&model, (done.usage, done.cost, done.api_ms));
            run.turns += 1;
            run.words.say(&done.message, Some(&done.stop));
            run.stop = Some(done.stop.clone());
            // Where the server does not speak of a limit, only the same call again shows that there is one.
            let again = done.stop == StopReason::MaxTokens || cut == run.last_cut;
            run.cut_calls = match cut {
                Some(_) if again => run.cut_calls + 1,
                Some(_) => 1,
                None => 0,
            };
            run.last_cut = cut;
            let continued = done.stop == StopReason::MaxTokens && uses.is_empty();
            run.continuations = if continued { run.continuations + 1 } else { 0 };
        }
        self.context_tokens = done.usage.all_input().saturating_add(done.usage.output_tokens);
        self.writers.clear();
        self.calls =
            uses.into_iter().zip(0..).map(|(u, index)| Call::new(CallId { turn, index }, u)).collect();
        // What a filter cut is no call to run: the run's end closes it.
        let declined = done.stop == StopReason::Refusal;
        self.phase =
            if declined || self.calls.is_empty() { Phase::Stopped(done.stop.clone()) } else { Phase::Calls };
    }

    fn on_model_failed(&mut self, failed: &ModelFailed) {
        // What a request that broke off had counted is as true for the next attempt.
        self.context_tokens = self.context_tokens.max(failed.usage.all_input());
        if let Some(run) = &mut self.run {
            run.totals.add(&failed.model, (failed.usage, failed.cost, failed.api_ms));
            if let Some(partial) = &failed.partial {
                run.words.say(partial, None);
            }
        }
        match (&failed.retry, &failed.error, &mut self.run) {
            (Some(retry), _, Some(run)) => {
                run.failures = retry.attempt;
                run.not_before = Some(retry.at);
                run.model = Arc::clone(&retry.model);
            }
            (_, Some(error), _) => self.phase = Phase::Failed(error.message.clone()),
            _ => {}
        }
    }

    fn on_ruled(&mut self, ruled: &Ruled) {
        if let Some(call) = self.calls.iter_mut().find(|c| c.id == ruled.call) {
            call.phase = match ruled.ruling.decision {
                Decision::Allow => Progress::Ready,
                Decision::Deny => Progress::Refused(ruled.ruling.reason.clone()),
            };
            call.ruled = Some(ruled.clone());
            // An unknown tool or unreadable input was not denied by anybody.
            let ruling = &ruled.ruling;
            if ruling.decision == Decision::Deny
                && ruling.layer != Layer::Call
                && let Some(run) = &mut self.run
            {
                run.denials.push(Denial { tool: call.tool_use.name.clone(), reason: ruling.reason.clone() });
            }
        }
    }

    fn on_answered(&mut self, ask: AskId, answer: &Answer) {
        let waiting = |c: &&mut Call| matches!(&c.phase, Progress::Waiting(open, _) if *open == ask);
        if let Some(call) = self.calls.iter_mut().find(waiting) {
            call.answers.push(answer.clone());
            call.phase = Progress::Ready;
        }
    }

    fn on_done(&mut self, done: &Done) {
        let Some(call) = self.calls.iter_mut().find(|c| c.id == done.call && c.is_open()) else { return };
        call.phase = Progress::Finished;
        for change in &done.changes {
            self.apply_change(done.call.index, change);
        }
        if self.calls.iter().all(|c| !c.is_open()) {
            self.calls.clear();
            self.phase = Phase::ModelDue;
        }
    }

    /// Calls that run together finish in any order; where two write the same piece, the later call wins.
    fn apply_change(&mut self, index: u16, change: &Change) {
        let key = match change {
            Change::Put { slot, .. } => format!("slot {}", slot.0),
            Change::Cwd(_) => "cwd".to_owned(),
            Change::FileSeen(seen) => format!("file {}", seen.path.display()),
            _ => return,
        };
        let last = self.writers.entry(key).or_insert(index);
        if *last > index {
            return;
        }
        *last = index;
        let state = Arc::make_mut(&mut self.state);
        match change {
            Change::Put { slot, value } => {
                state.slots.insert(slot.clone(), value.clone());
            }
            Change::Cwd(path) => state.cwd.clone_from(path),
            Change::FileSeen(seen) => {
                state.seen.insert(seen.path.clone(), seen.stamp);
            }
            _ => {}
        }
    }

    fn on_run_ended(&mut self, ended: &RunEnded) {
        if let Some(run) = &mut self.run {
            run.ended = Some(ended.clone());
        }
        self.phase = Phase::Idle;
        self.interrupted = false;
    }

    fn set_phase(&mut self, id: CallId, phase: Progress) {
        if let Some(call) = self.calls.iter_mut().find(|c| c.id == id && c.is_open()) {
            call.phase = phase;
        }
    }

    // ---- next ----

    fn next_calls(&self, run: &RunFold) -> Step {
        let refused: Vec<SessionEntry> = self
            .calls
            .iter()
            .filter_map(|c| match &c.phase {
                Progress::Refused(reason) => Some(SessionEntry::Done(Done::error(c.id, reason))),
                _ => None,
            })
            .collect();
        if !refused.is_empty() {
            return Step::Record(refused);
        }
        let views: Vec<CallView> = self.calls.iter().map(Call::view).collect();
        let ready = ready(&views, run.started.limits.scheduling);
        let ids = |places: Vec<usize>| places.into_iter().map(|i| self.calls[i].id).collect();
        if !ready.rule.is_empty() {
            Step::Rule(ids(ready.rule))
        } else if !ready.run.is_empty() {
            Step::Run(ids(ready.run))
        } else {
            Step::Wait(self.questions().into_iter().map(|(ask, _)| ask).collect())
        }
    }

    fn next_request(&self, run: &RunFold) -> Step {
        let limits = &run.started.limits;
        if run.cut_calls >= MAX_CUT_CALLS {
            let error =
                format!("{MAX_CUT_CALLS} answers in a row ended within a tool call, at the output limit");
            return self.end(RunStatus::ErrorDuringExecution, vec![error], CLOSED_BY_LIMIT);
        }
        if limits.max_turns.is_some_and(|max| run.turns >= max) {
            let error = format!("the limit of {} turns is reached", run.turns);
            return self.end(RunStatus::ErrorMaxTurns, vec![error], CLOSED_BY_LIMIT);
        }
        if run.totals.requests >= limits.max_model_calls {
            let error = format!("the limit of {} model calls is reached", run.totals.requests);
            return self.end(RunStatus::ErrorMaxModelCalls, vec![error], CLOSED_BY_LIMIT);
        }
        Step::CallModel { not_before: run.not_before }
    }

    fn next_stopped(&self, run: &RunFold, stop: &StopReason) -> Step {
        match stop {
            StopReason::MaxTokens if run.continuations <= MAX_CONTINUATIONS => {
                // The id follows from the answer's, so that a machine that is folded again says the same.
                let last = self.transcript.messages().last().map_or(0, |m| m.id.number());
                let message = Message {
                    id: MessageId::from_number(last.wrapping_add(2)),
                    role: Role::User,
                    content: vec![Block::Text(CONTINUE.into())],
                    model: None,
                };
                let message = UserMessage { message: Arc::new(message), origin: Origin::Continuation };
                Step::Record(vec![SessionEntry::User(message)])
            }
            StopReason::MaxTokens => {
                let error =
                    format!("the answer was cut at the output limit {} times in a row", run.continuations);
                self.end(RunStatus::ErrorDuringExecution, vec![error], CLOSED_BY_LIMIT)
            }
            StopReason::PauseTurn => self.next_request(run),
            StopReason::Refusal => {
                self.end(RunStatus::Refusal, vec!["the model declined to answer".into()], CLOSED_BY_LIMIT)
            }
            StopReason::ContextWindowExceeded => {
                let error = "the conversation is longer than the model's context window".to_owned();
                self.end(RunStatus::ErrorDuringExecution, vec![error], CLOSED_BY_LIMIT)
            }
            StopReason::ToolUse => {
                let error = "the model stopped to call a tool, but no call came".to_owned();
                self.end(RunStatus::ErrorDuringExecution, vec![error], CLOSED_BY_LIMIT)
            }
            _ => self.end(RunStatus::Success, Vec::new(), CLOSED_BY_LIMIT),
        }
    }

    /// The end of the run, with a result for each call that has none.
    fn end(&self, status: RunStatus, errors: Vec<String>, reason: &str) -> Step {
        Step::Record(self.ending(status, errors, reason))
    }

    fn ending(&self, status: RunStatus, errors: Vec<String>, reason: &str) -> Vec<SessionEntry> {
        let mut entries = self.close(Call::is_open, reason);
        let stop = self.run.as_ref().and_then(|r| r.stop.clone());
        entries.push(SessionEntry::RunEnded(RunEnded { status, stop, errors }));
        entries
    }

    fn close(&self, which: impl Fn(&Call) -> bool, reason: &str) -> Vec<SessionEntry> {
        let calls = self.calls.iter().filter(|c| which(c));
        calls.map(|c| SessionEntry::Done(Done::error(c.id, reason))).collect()
    }
}

impl Call {
    fn new(id: CallId, tool_use: ToolUse) -> Self {
        let phase = match &tool_use.broken {
            Some(broken) if broken.cut => Progress::Refused(format!(
                "Not run: the arguments of {} are not whole, or not valid JSON ({}). Your answer ended within this call. \
                 Split the work into smaller calls.",
                tool_use.name, broken.error
            )),
            Some(broken) => Progress::Refused(format!(
                "Not run: the arguments of {} are not valid JSON ({}). Call it again with a JSON object.",
                tool_use.name, broken.error
            )),
            None => Progress::New,
        };
        Self { id, tool_use, ruled: None, answers: Vec::new(), phase }
    }

    /// Whether it has no result yet.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.phase != Progress::Finished
    }

    /// Whether it may run twice.
    #[must_use]
    pub fn effect(&self) -> Effect {
        self.ruled.as_ref().map_or(Effect::Unsafe, |r| r.effect)
    }

    /// The input it runs with.
    #[must_use]
    pub fn input(&self) -> &RawJson {
        self.ruled.as_ref().map_or(&self.tool_use.input, |r| &r.input)
    }

    /// What it touches.
    #[must_use]
    pub fn access(&self) -> &[Access] {
        self.ruled.as_ref().map_or(&[], |r| &r.access)
    }

    fn view(&self) -> CallView {
        let phase = match self.phase {
            Progress::New | Progress::Refused(_) => CallPhase::New,
            Progress::Ready | Progress::Started => CallPhase::Runnable,
            Progress::Waiting(..) => CallPhase::Waiting,
            Progress::Finished | Progress::Lost => CallPhase::Finished,
        };
        CallView { phase, read_only: self.ruled.is_some() && self.effect() == Effect::ReadOnly }
    }
}

impl RunFold {
    /// Its name.
    #[must_use]
    pub fn id(&self) -> RunId {
        self.started.run
    }

    /// The project's folder.
    #[must_use]
    pub fn root(&self) -> &PathBuf {
        &self.started.root
    }

    /// Another model begins without the failures of the last one; other changes leave a fallback in its place.
    fn configure(&mut self, settings: &ModelSettings) {
        if self.settings.model != settings.model {
            self.model = Arc::clone(&settings.model);
            (self.failures, self.not_before) = (0, None);
        }
        self.settings = settings.clone();
    }
}
