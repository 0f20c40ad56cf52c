//! The loop as a fold of a session's log.
//!
//! [`Machine`] holds what the log says and decides what has to happen next. It does no IO and knows no clock, no randomness
//! and no `await`: everything that it must remember is an entry, and every fact that a decision needs from outside (the
//! time, a fresh id, the answer of a budget) is an argument.
//!
//! # The protocol
//!
//! Whoever drives the machine (the [`Driver`](crate::Driver)) repeats three steps:
//!
//! 1. It asks [`Machine::next`] for the next [`Step`].
//! 2. It performs the step: asks the model, rules calls, runs calls. What came of it are entries.
//! 3. It appends the entries to the log and gives each stored record to [`Machine::apply`].
//!
//! | step | performed by | ends with the entry |
//! |---|---|---|
//! | [`Step::CallModel`] | a model request | `ModelDone`, or `ModelFailed` with or without a retry |
//! | [`Step::Rule`] | the policy | `Ruled` for one or more of the calls |
//! | [`Step::Run`] | tools | `Started`, then `Done`, or `Asked` if a call needs an answer |
//! | [`Step::Record`] | nobody: the machine has decided | the entries that it names |
//! | [`Step::Wait`] | somebody outside | `Answered` |
//! | [`Step::Done`] | nobody | – |
//!
//! A new process that goes on with a session applies all its records in order and then does the same. The order of entries in
//! one run: `RunStarted`, `User`, then turns (`ModelDone`, and for each call `Ruled`, `Started`, `Done`), then `RunEnded`.
//!
//! # What a damaged log means
//!
//! A record may be missing. The machine sees it by a jump in the records' numbers and takes the worst for true: a call that
//! was open at that moment may have begun, so an unsafe one is never run again. Entries about calls or questions that it
//! does not know are ignored. Whatever is missing, the next request is valid.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use open_agent_model::{
    AskId, AskSource, BackgroundId, BackgroundWork, CallId, Decision, Outcome, Prefix, Question, QueueId,
    RunStatus, Seq, StopReason, Timestamp, ToolUse,
};
use open_agent_session::{
    ModelDone, ModelFailed, Notice, NoticeKind, Queued, Ruled, RunEnded, RunStarted, SessionEntry, Stored,
    Transcript,
};
use open_agent_tool::SessionState;

use crate::scheduler::{CallView, ready};

mod background;
mod call;
mod notices;
mod queue;
mod request;
mod run;
mod state;
#[cfg(test)]
mod tests;
mod withheld;

pub(crate) use background::ended as background_ended;
pub use call::Call;
pub(crate) use notices::AnswerFacts;
pub(crate) use request::{Failed, FailureFacts};
pub use run::RunFold;

use background::Background;
use call::{CallState, Closing};
use queue::Queue;
use state::StateFold;

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
    seq: Seq,
    transcript: Transcript,
    root: Option<PathBuf>,
    state: StateFold,
    prefix: Option<Arc<Prefix>>,
    /// The names of the tools that the model was told of, by the prefix and by what changed since.
    offered: BTreeSet<String>,
    calls: Vec<Call>,
    phase: RunPhase,
    run: Option<RunFold>,
    /// A run has records, and the one that began it is lost.
    is_run_lost: bool,
    interrupted: bool,
    context_tokens: u64,
    background: Background,
    queue: Queue,
    /// The newest notice of its kind, which holds for the whole session.
    variables_removed: Option<Notice>,
}

/// What the run that goes on has come to.
#[derive(Clone, Debug, Default, PartialEq)]
enum RunPhase {
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

impl Machine {
    /// Takes the next record of the log.
    pub fn apply(&mut self, record: &Stored) {
        if record.seq.0 > self.seq.0.saturating_add(1) {
            self.on_gap();
        }
        self.seq = record.seq;
        self.transcript.apply(record);
        match self.open_run_mut() {
            Some(run) => run.summary.last_at = record.at,
            None => self.is_run_lost |= belongs_to_run(&record.entry),
        }
        match &record.entry {
            SessionEntry::SessionStarted(started) => self.on_root(&started.root),
            SessionEntry::Moved(moved) => self.on_root(&moved.root),
            SessionEntry::Opened(_) => self.on_opened(record.at),
            SessionEntry::User(_) => self.on_user(),
            SessionEntry::ToolsChanged(changed) => {
                self.offered.extend(changed.added.iter().map(|tool| tool.name.clone()));
                changed.removed.iter().for_each(|name| _ = self.offered.remove(name));
                self.on_user();
            }
            SessionEntry::Queued(queued) => self.queue.add(queued),
            SessionEntry::Delivered { ids } => self.on_delivered(record.seq, ids),
            SessionEntry::Unqueued { id } => {
                self.queue.take(*id);
            }
            SessionEntry::RunStarted(started) => self.on_run_started(started, record),
            SessionEntry::Noticed(notice) => self.on_noticed(notice),
            SessionEntry::Configured(settings) => {
                if let Some(run) = self.open_run_mut() {
                    run.configure(settings);
                }
            }
            // The conversation is shorter now; how much, the next answer says.
            SessionEntry::Withheld(_) | SessionEntry::BlobsLost { .. } => self.context_tokens = 0,
            SessionEntry::Prefix(prefix) => {
                self.offered = prefix.tools.iter().map(|tool| tool.name.clone()).collect();
                self.prefix = Some(Arc::clone(prefix));
            }
            SessionEntry::ModelDone(done) => self.on_model_done(done),
            SessionEntry::ModelFailed(failed) => self.on_model_failed(failed),
            SessionEntry::Ruled(ruled) => self.on_ruled(ruled),
            SessionEntry::Asked { ask, question } => {
                if let Some(call) = ask.call {
                    self.set_state(call, CallState::Waiting(*ask, question.clone()));
                }
            }
            SessionEntry::Answered { ask, answer } => {
                let is_asked = |c: &&mut Call| matches!(&c.state, CallState::Waiting(open, _) if open == ask);
                if let Some(call) = self.calls.iter_mut().find(is_asked) {
                    call.state = CallState::Ready;
                    if ask.source == AskSource::Tool {
                        call.answers.push(answer.clone());
                    }
                }
            }
            SessionEntry::Started { call } => {
                self.set_state(*call, CallState::Started);
                if let Some(call) = self.calls.iter_mut().find(|c| c.id == *call) {
                    call.has_begun = true;
                }
            }
            SessionEntry::Done(done) => self.on_done(done.call, &done.changes),
            SessionEntry::BackgroundStarted(work) => self.background.start(work),
            SessionEntry::BackgroundEnded(ended) => {
                self.background.end(&ended.id);
                self.on_user();
            }
            SessionEntry::Interrupted {} => self.interrupted = true,
            SessionEntry::RunEnded(ended) => self.on_run_ended(ended),
            SessionEntry::Unknown(_) => {}
        }
    }

    /// Returns what has to happen next.
    #[must_use]
    pub fn next(&self) -> Step {
        let Some(run) = self.open_run() else { return Step::Done };
        if self.interrupted {
            return self.end(RunStatus::Cancelled, Vec::new(), Closing::Interrupt);
        }
        let lost = self.close(|c| c.state == CallState::Lost, Closing::LostOnly);
        if !lost.is_empty() {
            return Step::Record(lost);
        }
        match &self.phase {
            RunPhase::Idle => self.fail("the run has no message to answer"),
            RunPhase::Calls => self.next_calls(run),
            RunPhase::ModelDue => self.next_request(run),
            RunPhase::Stopped(stop) => self.next_stopped(run, stop),
            RunPhase::Failed(error) => self.fail(error),
        }
    }

    /// Returns the entries that close what is open before another run begins: calls without a result, and the run that
    /// goes on, if there is one.
    #[must_use]
    pub fn give_up(&self) -> Vec<SessionEntry> {
        match self.open_run() {
            Some(run) => {
                let told = request::repeated_notice(run).into_iter();
                told.chain(self.ending(RunStatus::Cancelled, Vec::new(), Closing::NewMessage)).collect()
            }
            None => self.close(Call::is_open, Closing::NewMessage),
        }
    }

    /// Returns the conversation as the model gets it.
    #[must_use]
    pub fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    /// Returns what calls see of the session.
    #[must_use]
    pub fn state(&self) -> &Arc<SessionState> {
        self.state.get()
    }

    /// Returns the project's folder; `None` until the log says it.
    #[must_use]
    pub fn root(&self) -> Option<&Path> {
        self.root.as_deref()
    }

    /// Returns the system prompt and tools that requests begin with, once they were written down.
    #[must_use]
    pub fn prefix(&self) -> Option<&Arc<Prefix>> {
        self.prefix.as_ref()
    }

    /// Returns the names of the tools that the model was told of.
    #[must_use]
    pub(crate) fn offered_tools(&self) -> &BTreeSet<String> {
        &self.offered
    }

    /// Returns the number of the last record.
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// Returns the run that goes on, or the last one.
    #[must_use]
    pub fn run(&self) -> Option<&RunFold> {
        self.run.as_ref()
    }

    /// Returns true if the newest run's beginning is lost: what it was to do, and how it ended, is not known.
    #[must_use]
    pub fn is_run_lost(&self) -> bool {
        self.is_run_lost
    }

    /// Returns a call of the newest answer.
    #[must_use]
    pub fn call(&self, id: CallId) -> Option<&Call> {
        self.calls.iter().find(|c| c.id == id)
    }

    /// Returns the questions that wait for an answer.
    #[must_use]
    pub fn questions(&self) -> Vec<(AskId, Question)> {
        let waiting = self.calls.iter().filter_map(|c| match &c.state {
            CallState::Waiting(ask, question) => Some((*ask, question.clone())),
            _ => None,
        });
        waiting.collect()
    }

    /// Returns the messages that wait in the queue, in the order in which they were sent.
    #[must_use]
    pub fn queue(&self) -> &[Queued] {
        self.queue.all()
    }

    /// Returns true if no run goes on and the queue holds messages that start the next one.
    #[must_use]
    pub fn has_next_run(&self) -> bool {
        self.may_begin_run() && !self.queue.all().is_empty()
    }

    /// Returns true if a run may begin without a prompt: none goes on or waits, and the last one did not end by an interrupt
    /// or for want of budget.
    #[must_use]
    pub fn may_begin_run(&self) -> bool {
        let last = self.run.as_ref().and_then(|run| run.ended.as_ref());
        self.open_run().is_none() && last.is_none_or(|ended| queue::goes_on_after(ended.status))
    }

    /// Returns true if a note about background work may join the conversation now: no run goes on, or it waits for an answer.
    #[must_use]
    pub(crate) fn takes_notes(&self) -> bool {
        self.open_run().is_none() || self.calls.iter().any(|c| matches!(c.state, CallState::Waiting(..)))
    }

    /// Returns background work that was started in this session.
    #[must_use]
    pub(crate) fn background_work(&self, id: &BackgroundId) -> Option<&BackgroundWork> {
        self.background.find(id)
    }

    /// Returns background work of whose end the model was not told.
    pub(crate) fn open_background(&self) -> impl Iterator<Item = &BackgroundWork> {
        self.background.open()
    }

    /// Returns true if this was the last notice about the variables that commands do not see.
    #[must_use]
    pub(crate) fn is_noticed(&self, variables_removed: &Notice) -> bool {
        self.variables_removed.as_ref() == Some(variables_removed)
    }

    /// Returns how many tokens the conversation had at the last answer, by the vendor's own count.
    #[must_use]
    pub fn context_tokens(&self) -> u64 {
        self.context_tokens
    }

    // ---- apply ----

    fn open_run(&self) -> Option<&RunFold> {
        self.run.as_ref().filter(|run| run.is_open())
    }

    fn open_run_mut(&mut self) -> Option<&mut RunFold> {
        self.run.as_mut().filter(|run| run.is_open())
    }

    /// A record is missing. Whatever it said of the calls that are open is lost.
    fn on_gap(&mut self) {
        self.calls.iter_mut().filter(|c| c.is_open()).for_each(|c| c.is_uncertain = true);
    }

    /// Another process goes on. Where a request was due, the last one may have made it and got an answer that it could not
    /// write down any more: nothing is written when a request is sent, so the log cannot say.
    fn on_opened(&mut self, at: Timestamp) {
        let may_have_asked = self.open_run().is_some_and(|run| {
            let is_early = run.not_before.is_some_and(|until| until > at);
            self.is_request_due() && !self.interrupted && !is_early && self.limit_reached(run).is_none()
        });
        if let Some(run) = self.open_run_mut().filter(|_| may_have_asked) {
            run.repeated += 1;
        }
        self.calls.iter_mut().for_each(Call::on_opened);
    }

    fn on_root(&mut self, root: &Path) {
        if self.root.as_deref() != Some(root) {
            self.state.set_cwd(root);
            self.root = Some(root.to_owned());
        }
    }

    /// While calls are open, the message follows their results.
    fn on_user(&mut self) {
        if !self.calls.iter().any(Call::is_open) {
            self.phase = RunPhase::ModelDue;
        }
    }

    fn on_delivered(&mut self, seq: Seq, ids: &[QueueId]) {
        for id in ids {
            if let Some(queued) = self.queue.take(*id) {
                self.transcript.deliver(seq, &queued.message, &queued.origin);
                self.on_user();
            }
        }
    }

    fn on_run_started(&mut self, started: &RunStarted, record: &Stored) {
        self.interrupted = false;
        self.is_run_lost = false;
        self.phase = RunPhase::Idle;
        self.run = Some(RunFold::new(started, record.seq, record.at));
    }

    fn on_noticed(&mut self, notice: &Notice) {
        if notice.kind == NoticeKind::VariablesRemoved {
            self.variables_removed = Some(notice.clone());
        }
        // Damage is found when a session is opened, which may be after its last run.
        let run = match &mut self.run {
            Some(run) if run.is_open() || notice.kind == NoticeKind::LogDamaged => run,
            _ => return,
        };
        run.notices.push(notice.clone());
        if notice.kind == NoticeKind::RequestRepeated {
            run.repeated_told = run.repeated;
        }
    }

    fn on_model_done(&mut self, done: &ModelDone) {
        if let Some(run) = self.open_run_mut() {
            run.on_answer(done);
        }
        self.context_tokens = done.usage.all_input().saturating_add(done.usage.output_tokens);
        self.state.begin_turn();
        let uses = done.message.tool_uses().cloned();
        let call = |(tool_use, index): (ToolUse, u16)| Call::new(CallId { turn: done.turn, index }, tool_use);
        self.calls = uses.zip(0..).map(call).collect();
        // What a filter cut is no call to run: the run's end closes it.
        let declined = done.stop == StopReason::Refusal;
        self.phase = if declined || self.calls.is_empty() {
            RunPhase::Stopped(done.stop.clone())
        } else {
            RunPhase::Calls
        };
    }

    fn on_model_failed(&mut self, failed: &ModelFailed) {
        // What a request that broke off had counted is as true for the next attempt.
        self.context_tokens = self.context_tokens.max(failed.usage.all_input());
        if let Some(run) = self.open_run_mut() {
            run.on_failure(failed);
        }
        if let (None, Some(error)) = (&failed.retry, &failed.error) {
            self.phase = RunPhase::Failed(error.message.clone());
        }
    }

    fn on_ruled(&mut self, ruled: &Ruled) {
        let Some(call) = self.calls.iter_mut().find(|c| c.id == ruled.call && c.is_open()) else { return };
        let ruling = &ruled.ruling;
        call.state = match ruling.decision {
            Decision::Allow => CallState::Ready,
            Decision::Deny => {
                let outcome = if ruling.is_denial() { Outcome::Refused } else { Outcome::Error };
                CallState::Refused(outcome, ruling.reason.clone())
            }
        };
        call.ruled = Some(ruled.clone());
        call.is_uncertain = false;
        if let Some(run) = self.run.as_mut().filter(|run| run.is_open()) {
            let ToolUse { name, id, input, .. } = &call.tool_use;
            run.summary.on_ruled((name, id, ruled.input.as_ref().unwrap_or(input)), ruling);
        }
    }

    fn on_done(&mut self, id: CallId, changes: &[open_agent_model::Change]) {
        let Some(call) = self.calls.iter_mut().find(|c| c.id == id && c.is_open()) else { return };
        call.state = CallState::Finished;
        for change in changes {
            self.state.apply(id.index, change);
        }
        if self.calls.iter().all(|c| !c.is_open()) {
            self.calls.clear();
            self.phase = RunPhase::ModelDue;
        }
    }

    fn on_run_ended(&mut self, ended: &RunEnded) {
        if let Some(run) = self.open_run_mut() {
            run.ended = Some(ended.clone());
        }
        self.phase = RunPhase::Idle;
        self.interrupted = false;
    }

    fn set_state(&mut self, id: CallId, state: CallState) {
        if let Some(call) = self.calls.iter_mut().find(|c| c.id == id && c.is_open()) {
            call.state = state;
            call.is_uncertain = false;
        }
    }

    // ---- next ----

    fn next_calls(&self, run: &RunFold) -> Step {
        let refused = self.close(|c| matches!(c.state, CallState::Refused(..)), Closing::RunEnd);
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

    fn fail(&self, error: &str) -> Step {
        self.end(RunStatus::ErrorDuringExecution, vec![error.to_owned()], Closing::RunEnd)
    }

    /// Returns the end of the run, with a result for each call that has none.
    fn end(&self, status: RunStatus, errors: Vec<String>, why: Closing) -> Step {
        Step::Record(self.ending(status, errors, why))
    }

    fn ending(&self, status: RunStatus, errors: Vec<String>, why: Closing) -> Vec<SessionEntry> {
        let mut entries = self.close(Call::is_open, why);
        let stop = self.run.as_ref().and_then(|r| r.summary.stop.clone());
        entries.push(SessionEntry::RunEnded(RunEnded { status, stop, errors }));
        entries
    }

    fn close(&self, which: impl Fn(&Call) -> bool, why: Closing) -> Vec<SessionEntry> {
        self.calls.iter().filter(|c| which(c)).map(|c| c.close(why)).collect()
    }
}

/// Returns true of entries that stand between the beginning and the end of a run only.
fn belongs_to_run(entry: &SessionEntry) -> bool {
    matches!(entry, SessionEntry::User(_) | SessionEntry::ModelDone(_) | SessionEntry::ModelFailed(_))
}
