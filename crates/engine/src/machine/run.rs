//! A run as the log tells it: what it was asked for, what it has come to, and how it ended.

use std::sync::Arc;

use open_agent_model::{RunId, Seq, StopReason, Timestamp};
use open_agent_session::{ModelDone, ModelFailed, ModelSettings, Notice, RunEnded, RunStarted};

use crate::RunSummary;

/// A run so far.
#[derive(Clone, Debug)]
pub struct RunFold {
    /// How it began.
    pub started: RunStarted,
    /// The record that began it.
    pub seq: Seq,
    /// What it has come to.
    pub summary: RunSummary,
    /// The model that is asked now: that of the settings, or the fallback.
    pub model: Arc<str>,
    /// Whom requests ask, and how.
    pub settings: ModelSettings,
    /// Failed attempts at the request that is due.
    pub failures: u32,
    /// What went otherwise than asked.
    pub notices: Vec<Notice>,
    /// How often a process ended while a request was due: so many answers may have been paid for that are not in the log.
    pub repeated: u32,
    /// As much of that was told.
    pub(super) repeated_told: u32,
    /// How it ended, if it has.
    pub ended: Option<RunEnded>,
    pub(super) not_before: Option<Timestamp>,
    /// How many answers in a row hit the output limit and are continued.
    pub(super) continuations: u32,
    /// How many answers in a row ended within a tool call.
    pub(super) cut_calls: u32,
    /// What came of the newest answer's call that was cut.
    last_cut: Option<String>,
}

impl RunFold {
    pub(super) fn new(started: &RunStarted, seq: Seq, at: Timestamp) -> Self {
        Self {
            started: started.clone(),
            seq,
            summary: RunSummary::new(at),
            model: Arc::clone(&started.settings.model),
            settings: started.settings.clone(),
            failures: 0,
            notices: Vec::new(),
            repeated: 0,
            repeated_told: 0,
            ended: None,
            not_before: None,
            continuations: 0,
            cut_calls: 0,
            last_cut: None,
        }
    }

    /// Returns its id.
    #[must_use]
    pub fn id(&self) -> RunId {
        self.started.run
    }

    /// Returns true until it has ended.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.ended.is_none()
    }

    pub(super) fn on_answer(&mut self, done: &ModelDone) {
        let model = done.message.model.clone().unwrap_or_else(|| Arc::clone(&self.model));
        (self.failures, self.not_before) = (0, None);
        self.summary.on_answer(&model, &done.message, &done.stop, (done.usage, done.cost, done.api_ms));
        let mut uses = done.message.tool_uses();
        let has_calls = done.message.tool_uses().next().is_some();
        let cut = uses.find_map(|u| u.broken.as_ref().filter(|b| b.cut)).map(|b| b.raw.clone());
        // Where the server does not speak of a limit, only the same call again shows that there is one.
        let again = done.stop == StopReason::MaxTokens || cut == self.last_cut;
        self.cut_calls = match cut {
            Some(_) if again => self.cut_calls + 1,
            Some(_) => 1,
            None => 0,
        };
        self.last_cut = cut;
        let continued = done.stop == StopReason::MaxTokens && !has_calls;
        self.continuations = if continued { self.continuations + 1 } else { 0 };
    }

    pub(super) fn on_failure(&mut self, failed: &ModelFailed) {
        let used = (failed.usage, failed.cost, failed.api_ms);
        self.summary.on_failure(&failed.model, failed.partial.as_deref(), used);
        if let Some(retry) = &failed.retry {
            self.failures = retry.attempt;
            self.not_before = Some(retry.at);
            self.model = Arc::clone(&retry.model);
        }
    }

    /// Another model begins without the failures of the last one; other changes leave a fallback in its place.
    pub(super) fn configure(&mut self, settings: &ModelSettings) {
        if self.settings.model != settings.model {
            self.model = Arc::clone(&settings.model);
            (self.failures, self.not_before) = (0, None);
        }
        self.settings = settings.clone();
    }
}
