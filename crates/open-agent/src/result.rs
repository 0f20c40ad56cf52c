//! What a prompt comes to.

use std::collections::BTreeSet;
use std::sync::Arc;

use open_agent_engine::{Denial, Driver, RunFold, Totals};
use open_agent_model::{
    AskId, Cost, Message, ProviderError, Question, RunId, RunStatus, SessionId, StopReason, Usage,
};
use open_agent_session::Notice;

use crate::error::advice;

/// The result of a run.
#[derive(Clone, Debug)]
pub struct QueryResult {
    /// The text of the last answer, or of what came of it.
    pub text: String,
    /// How the run ended.
    pub status: RunStatus,
    /// Why the model stopped last.
    pub stop_reason: Option<StopReason>,
    /// What went wrong, for people. What to change is not in it: see [`QueryResult::explanation`].
    pub errors: Vec<String>,
    /// The failure of the provider that ended the run, with its kind and with what could be changed.
    pub failure: Option<ProviderError>,
    /// The conversation since the prompt.
    pub messages: Vec<Arc<Message>>,
    /// Model answers.
    pub turns: u32,
    /// Model requests, failed ones too.
    pub model_calls: u32,
    /// How often a process ended while an answer was due and another one went on with the run. So many answers may have been
    /// paid for that are not in the log: their tokens and cost are in none of these numbers.
    pub repeated_requests: u32,
    /// Tokens of all requests.
    pub usage: Usage,
    /// Cost of all requests; `None` if a price is not known.
    pub cost: Option<Cost>,
    /// What the session had cost before this agent opened it: all requests in its log that this agent did not make, at the
    /// latest time it opened the session. 0 for a new session. It counts against `max_budget_usd` only with
    /// [`BudgetScope::Session`](crate::BudgetScope::Session).
    pub spent_before: Cost,
    /// The same as `cost` for each model.
    pub cost_by_model: Vec<ModelCost>,
    /// Milliseconds from the prompt to the end.
    pub duration_ms: u64,
    /// Milliseconds of all requests.
    pub duration_api_ms: u64,
    /// The session.
    pub session_id: SessionId,
    /// The run.
    pub run_id: Option<RunId>,
    /// What went otherwise than asked.
    pub notices: Vec<Notice>,
    /// Calls that the rules refused. The model was told that and why, and the run went on. How they could be allowed is
    /// for the user: see [`QueryResult::denial_advice`].
    pub denials: Vec<Denial>,
    /// Questions that wait for an answer.
    pub questions: Vec<(AskId, Question)>,
}

/// What a run used of one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelCost {
    /// The model.
    pub model: Arc<str>,
    /// Tokens.
    pub usage: Usage,
    /// Cost; `None` = the price is not known.
    pub cost: Option<Cost>,
    /// Requests.
    pub requests: u32,
}

impl QueryResult {
    /// Whether the run did what it was asked.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.status.is_success()
    }

    /// Returns what went wrong and, where that is known, what to change, in terms of this library's options. Empty if
    /// nothing went wrong.
    #[must_use]
    pub fn explanation(&self) -> String {
        let said = self.errors.join("; ");
        match self.failure.as_ref().and_then(|failure| failure.hint.as_deref()) {
            Some(hint) => format!("{said}: {}", advice(hint)),
            None => said,
        }
    }

    /// Returns how the calls that were refused could be allowed, in terms of this library's options: first what allows
    /// least. `None` if none was refused.
    #[must_use]
    pub fn denial_advice(&self) -> Option<String> {
        let tools: BTreeSet<&str> = self.denials.iter().map(|denial| denial.tool.as_str()).collect();
        let these = if tools.len() == 1 { "this tool" } else { "these tools" };
        let options =
            tools.iter().map(|tool| format!("`allow_tool(\"{tool}\")`")).collect::<Vec<_>>().join(", ");
        (!tools.is_empty()).then(|| {
            format!(
                "allow {these} with {options}, or every call with `permission_mode(PermissionMode::BypassPermissions)`"
            )
        })
    }

    /// Whether it was interrupted.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.status == RunStatus::Cancelled
    }

    /// The result of the driver's run.
    pub(crate) fn of(driver: &Driver) -> Self {
        let machine = driver.machine();
        let run = machine.run();
        let summary = run.map(|r| r.summary.clone()).unwrap_or_default();
        let questions = machine.questions();
        let ended = run.and_then(|r| r.ended.clone());
        let status = match (&ended, questions.is_empty()) {
            (Some(ended), _) => ended.status,
            (None, false) => RunStatus::Waiting,
            (None, true) => RunStatus::ErrorDuringExecution,
        };
        Self {
            text: summary.words.text().to_owned(),
            status,
            duration_ms: summary.duration_ms(),
            stop_reason: summary.stop,
            errors: ended.map(|e| e.errors).unwrap_or_default(),
            failure: driver.failure().filter(|_| status == RunStatus::ErrorDuringExecution).cloned(),
            messages: run.map(|r| machine.transcript().messages_since(r.seq)).unwrap_or_default(),
            turns: summary.turns,
            model_calls: summary.totals.requests,
            repeated_requests: run.map_or(0, |r| r.repeated),
            usage: summary.totals.usage,
            cost: run.and(summary.totals.cost),
            spent_before: driver.spent_before(),
            cost_by_model: cost_by_model(&summary.totals),
            notices: run.map(|r| r.notices.clone()).unwrap_or_default(),
            denials: summary.denials,
            duration_api_ms: summary.totals.api_ms,
            session_id: driver.id().clone(),
            run_id: run.map(RunFold::id),
            questions,
        }
    }
}

fn cost_by_model(totals: &Totals) -> Vec<ModelCost> {
    let cost = |(model, used): (&Arc<str>, &open_agent_engine::ModelUse)| ModelCost {
        model: Arc::clone(model),
        usage: used.usage,
        cost: used.cost,
        requests: used.requests,
    };
    totals.by_model.iter().map(cost).collect()
}
