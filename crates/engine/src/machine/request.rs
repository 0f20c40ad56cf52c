//! Decisions around a model request: whether one is made, what follows after the model stopped, and what follows after a
//! request failed.

use std::sync::Arc;
use std::time::Duration;

use open_agent_model::{Block, Message, MessageId, ProviderError, Role, RunStatus, StopReason, Timestamp};
use open_agent_session::{Failure, Notice, NoticeKind, Origin, Retry, SessionEntry, UserMessage};

use super::withheld::withheld;
use super::{Closing, Machine, RunFold, RunPhase, Step};
use crate::retry::{RetryConfig, Verdict};

/// How many times in a row an answer that hit the output limit is continued.
const MAX_CONTINUATIONS: u32 = 3;
/// How many answers in a row may end within a tool call.
const MAX_CUT_CALLS: u32 = 2;

const CONTINUE: &str = "Your answer was cut at the output limit. Go on exactly where it stopped.";

/// What the decision about a failed request needs from outside.
#[derive(Clone, Copy)]
pub(crate) struct FailureFacts<'a> {
    /// The model that was asked.
    pub model: &'a Arc<str>,
    /// What went wrong.
    pub error: &'a ProviderError,
    /// How requests are retried.
    pub config: &'a RetryConfig,
    /// The model to ask when this one has no luck.
    pub fallback: Option<&'a Arc<str>>,
    /// The request held pictures or documents.
    pub sent_media: bool,
    /// The time.
    pub now: Timestamp,
    /// A random number between 0 and 1, by which waits vary.
    pub chance: f64,
}

/// What follows after a failed request.
#[derive(Debug)]
pub(crate) struct Failed {
    /// The failure as it is stored.
    pub failure: Failure,
    /// The next attempt, if there is one.
    pub retry: Option<Retry>,
    /// What changes before the next attempt.
    pub entries: Vec<SessionEntry>,
}

impl Machine {
    /// Decides what follows after a failed request: another attempt, another model, an attempt without the pictures that
    /// the provider refused, or the end.
    #[must_use]
    pub(crate) fn after_failure(&self, facts: FailureFacts<'_>) -> Failed {
        let FailureFacts { model, error, config, .. } = facts;
        let failures = self.run.as_ref().map_or(0, |r| r.failures) + 1;
        let again = |delay: Duration, model: &Arc<str>, attempt: u32| {
            let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
            let at = Timestamp(facts.now.0.saturating_add(i64::try_from(delay_ms).unwrap_or(i64::MAX)));
            Some(Retry { at, delay_ms, attempt, max_retries: config.max_retries, model: Arc::clone(model) })
        };
        let fallback = facts.fallback.filter(|fallback| *fallback != model);
        let verdict = config.decide(error, failures, facts.chance);
        let (mut note, mut retry, mut entries) = (String::new(), None, Vec::new());
        let refused_media = (matches!(verdict, Verdict::Hopeless | Verdict::Exhausted) && facts.sent_media)
            .then(|| withheld(error, model, &self.transcript))
            .flatten();
        match (verdict, fallback) {
            _ if refused_media.is_some() => {
                // Another request, so it does not count as an attempt at this one.
                retry = again(Duration::ZERO, model, failures - 1);
                entries = refused_media.into_iter().flatten().collect();
            }
            (Verdict::After(delay), _) => retry = again(delay, model, failures),
            (Verdict::Exhausted | Verdict::TooLong(_), Some(fallback)) => {
                // The other model has all its attempts before it.
                retry = again(Duration::ZERO, fallback, 0);
            }
            (Verdict::Exhausted, None) if failures > 1 => note = format!(" (after {failures} attempts)"),
            (Verdict::TooLong(asked), None) => {
                let (asked, most) = (asked.as_secs(), config.max_server_delay.as_secs());
                note = format!(" (the server asks to wait {asked} s; the longest wait allowed is {most} s)");
            }
            _ => {}
        }
        let failure = Failure {
            kind: error.kind.into(),
            message: format!("{}{note}", error.message),
            status: error.status,
            request_id: error.request_id.clone(),
        };
        Failed { failure, retry, entries }
    }

    /// Returns the entries that end the run because the budget does not pay for the next request.
    #[must_use]
    pub(crate) fn over_budget(&self, error: String) -> Vec<SessionEntry> {
        self.ending(RunStatus::ErrorMaxBudgetUsd, vec![error], Closing::RunEnd)
    }

    /// Returns true if the request that is due sends a paused answer back, to go on.
    #[must_use]
    pub(crate) fn resumes_pause(&self) -> bool {
        self.phase == RunPhase::Stopped(StopReason::PauseTurn)
    }

    /// Returns true if a request is due: for a message, for results, or to go on with a paused answer.
    pub(super) fn is_request_due(&self) -> bool {
        self.phase == RunPhase::ModelDue || self.resumes_pause()
    }

    /// Returns the end of the run if a limit forbids its next request.
    pub(super) fn limit_reached(&self, run: &RunFold) -> Option<Step> {
        let limits = &run.started.limits;
        if run.cut_calls >= MAX_CUT_CALLS {
            return Some(self.fail(&format!(
                "{MAX_CUT_CALLS} answers in a row ended within a tool call, at the output limit"
            )));
        }
        if limits.max_turns.is_some_and(|max| run.summary.turns >= max) {
            let error = format!("the limit of {} turns is reached", run.summary.turns);
            return Some(self.end(RunStatus::ErrorMaxTurns, vec![error], Closing::RunEnd));
        }
        if run.summary.totals.requests >= limits.max_model_calls {
            let error = format!("the limit of {} model calls is reached", run.summary.totals.requests);
            return Some(self.end(RunStatus::ErrorMaxModelCalls, vec![error], Closing::RunEnd));
        }
        None
    }

    pub(super) fn next_request(&self, run: &RunFold) -> Step {
        if let Some(end) = self.limit_reached(run) {
            return end;
        }
        if let Some(notice) = repeated_notice(run) {
            return Step::Record(vec![notice]);
        }
        // A paused answer has to be the last message of its request; the message comes with the one after it.
        let steering = if self.resumes_pause() { Vec::new() } else { self.queue.steering() };
        if !steering.is_empty() {
            return Step::Record(vec![SessionEntry::Delivered { ids: steering }]);
        }
        Step::CallModel { not_before: run.not_before }
    }

    pub(super) fn next_stopped(&self, run: &RunFold, stop: &StopReason) -> Step {
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
                let origin = Origin::Continuation.into();
                Step::Record(vec![SessionEntry::User(UserMessage { message: Arc::new(message), origin })])
            }
            StopReason::MaxTokens => {
                let times = run.continuations;
                self.fail(&format!("the answer was cut at the output limit {times} times in a row"))
            }
            StopReason::PauseTurn => self.next_request(run),
            StopReason::Refusal => {
                self.end(RunStatus::Refusal, vec!["the model declined to answer".into()], Closing::RunEnd)
            }
            StopReason::ContextWindowExceeded => {
                self.fail("the conversation is longer than the model's context window")
            }
            StopReason::ToolUse => self.fail("the model stopped to call a tool, but no call came"),
            StopReason::EndTurn | StopReason::StopSequence | StopReason::Other(_) => {
                self.end(RunStatus::Success, Vec::new(), Closing::RunEnd)
            }
        }
    }
}

/// Returns the notice about a request that may have been made twice, unless it was told.
pub(super) fn repeated_notice(run: &RunFold) -> Option<SessionEntry> {
    let text = "the process ended while an answer of the model was due: one may have been paid for that is not in the log";
    let notice = Notice { kind: NoticeKind::RequestRepeated.into(), text: text.to_owned() };
    (run.repeated > run.repeated_told).then_some(SessionEntry::Noticed(notice))
}
