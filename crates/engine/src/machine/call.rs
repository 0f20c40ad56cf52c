//! One tool call as the log tells it, and what is true of it when it is closed without a result of its own.

use open_agent_model::{Access, Answer, AskId, CallId, Effect, Outcome, Question, RawJson, ToolUse};
use open_agent_session::{Done, Ruled, SessionEntry};

use crate::scheduler::{CallPhase, CallView};

/// A call of the newest answer.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its identity.
    pub id: CallId,
    /// What the model wrote.
    pub tool_use: ToolUse,
    /// Its ruling, once there is one.
    pub ruled: Option<Ruled>,
    /// The answers to its tool's questions so far, in the order of the questions.
    pub answers: Vec<Answer>,
    pub(super) state: CallState,
    /// The log says that it began, in this process or an earlier one.
    pub(super) has_begun: bool,
    /// A record is missing since the last one about the call. It may have held the call's ruling or its beginning.
    pub(super) is_uncertain: bool,
}

/// How far a call is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum CallState {
    /// It was not ruled yet.
    New,
    /// It cannot run, for this reason.
    Refused(Outcome, String),
    /// It may run.
    Ready,
    /// It runs.
    Started,
    /// It had begun when its process ended, and must not run again.
    Lost,
    /// It waits for an answer.
    Waiting(AskId, Question),
    /// It has its result.
    Finished,
}

/// Why calls are closed that have no result of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    /// The user interrupted the run.
    Interrupt,
    /// A new message came while calls were open.
    NewMessage,
    /// The run ended: a limit, the budget, a failure.
    RunEnd,
    /// Only calls that are lost are closed; the run goes on.
    LostOnly,
}

impl Closing {
    fn words(self) -> &'static str {
        match self {
            Self::Interrupt => "the user interrupted the run",
            Self::NewMessage => "the user went on with a new message",
            Self::RunEnd | Self::LostOnly => "the run ended before",
        }
    }
}

const LOST: &str = "The process ended while this call ran. Its outcome is unknown, and what it started may still be \
                    running: check what it did before you repeat it.";

impl Call {
    pub(super) fn new(id: CallId, tool_use: ToolUse) -> Self {
        let state = match &tool_use.broken {
            Some(broken) if broken.cut => CallState::Refused(
                Outcome::Error,
                format!(
                    "Not run: the arguments of {} are not whole, or not valid JSON ({}). Your answer ended within this \
                     call. Split the work into smaller calls.",
                    tool_use.name, broken.error
                ),
            ),
            Some(broken) => CallState::Refused(
                Outcome::Error,
                format!(
                    "Not run: the arguments of {} are not valid JSON ({}). Call it again with a JSON object.",
                    tool_use.name, broken.error
                ),
            ),
            None => CallState::New,
        };
        let (has_begun, is_uncertain) = (false, false);
        Self { id, tool_use, ruled: None, answers: Vec::new(), state, has_begun, is_uncertain }
    }

    /// Returns true if it has no result yet.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.state != CallState::Finished
    }

    /// Returns whether it may run twice; unsafe until it was ruled.
    #[must_use]
    pub fn effect(&self) -> Effect {
        self.ruled.as_ref().map_or(Effect::Unsafe, |r| r.effect)
    }

    /// Returns the input that it runs with.
    #[must_use]
    pub fn input(&self) -> &RawJson {
        self.ruled.as_ref().and_then(|r| r.input.as_ref()).unwrap_or(&self.tool_use.input)
    }

    /// Returns what it touches, as far as it was ruled.
    #[must_use]
    pub fn access(&self) -> &[Access] {
        self.ruled.as_ref().map_or(&[], |r| &r.access)
    }

    /// A new process claimed the session. A call that had begun, or may have begun, runs again if that does no harm;
    /// otherwise its outcome is unknown.
    pub(super) fn on_opened(&mut self) {
        let may_have_begun = match self.state {
            CallState::Started => true,
            // The answer to a question may be what is missing, and that the call began again with it.
            CallState::New | CallState::Ready | CallState::Waiting(..) => self.is_uncertain,
            CallState::Refused(..) | CallState::Lost | CallState::Finished => false,
        };
        if may_have_begun {
            self.state = match (self.effect(), &self.state) {
                (Effect::Unsafe, _) => CallState::Lost,
                (_, CallState::Waiting(..)) => return,
                (Effect::ReadOnly | Effect::Idempotent, _) => CallState::Ready,
            };
        }
    }

    /// Returns the entry that closes the call. It says what is true: that the call did not begin, that it had begun and
    /// its outcome is unknown, or that it was refused. Every way in which a run can end asks here.
    pub(super) fn close(&self, why: Closing) -> SessionEntry {
        let words = why.words();
        let interrupted = why == Closing::Interrupt;
        let (outcome, text) = match &self.state {
            CallState::Lost if self.effect() == Effect::Unsafe => (Outcome::Lost, LOST.to_owned()),
            // It did not stop in time and was left behind; its process goes on.
            CallState::Started if self.effect() == Effect::Unsafe => {
                let text = format!(
                    "It had not ended when it was given up: {words}. Its outcome is unknown, and it may still be running: \
                     check what it did before you repeat it."
                );
                (Outcome::Lost, text)
            }
            // It ran until its process ended, or until it put a question, and was ruled again after that.
            CallState::Refused(_, reason) if self.has_begun => {
                let text = format!(
                    "It had begun before, and its outcome is unknown: check what it did before you repeat it. It does not \
                     go on: {reason}"
                );
                (Outcome::Lost, text)
            }
            CallState::Refused(outcome, reason) => (*outcome, reason.clone()),
            CallState::Waiting(..) => {
                let outcome = if interrupted { Outcome::Interrupted } else { Outcome::Closed };
                (outcome, format!("Not finished: it waited for an answer to its question, and {words}."))
            }
            // It may run twice, so what it did by now does no harm.
            _ if self.has_begun => {
                (Outcome::Interrupted, format!("Not finished: it had begun, and {words}."))
            }
            CallState::Ready if self.effect() == Effect::ReadOnly => {
                let outcome = if interrupted { Outcome::Interrupted } else { Outcome::Closed };
                (outcome, format!("No result: {words}. It only reads, so nothing was changed."))
            }
            _ if self.is_uncertain => (Outcome::Lost, LOST.to_owned()),
            _ => (Outcome::Closed, format!("Not run: {words}.")),
        };
        SessionEntry::Done(Done::without_result(self.id, outcome, text))
    }

    pub(super) fn view(&self) -> CallView {
        let phase = match self.state {
            CallState::New | CallState::Refused(..) => CallPhase::New,
            CallState::Ready | CallState::Started => CallPhase::Runnable,
            CallState::Waiting(..) => CallPhase::Waiting,
            CallState::Finished | CallState::Lost => CallPhase::Finished,
        };
        CallView { phase, read_only: self.ruled.is_some() && self.effect() == Effect::ReadOnly }
    }
}
