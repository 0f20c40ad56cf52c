//! Background work that ends while no run goes on.

use open_agent_model::{BackgroundEnd, BackgroundOutcome, RunId};
use open_agent_session::Durability;
use open_agent_tool::BackgroundStatus;

use super::Driver;
use crate::{EngineError, RunSpec};

impl Driver {
    /// Returns true if background work goes on.
    #[must_use]
    pub fn has_background(&self) -> bool {
        self.host.ports.background.list(&self.owner()).iter().any(BackgroundStatus::is_running)
    }

    /// Returns true if background work has ended and the log does not say so yet.
    #[must_use]
    pub fn has_ended_background(&self) -> bool {
        self.untold_ends().next().is_some()
    }

    /// Returns true if background work has ended that is a reason to begin a run now. Work that was stopped is none: whoever
    /// stopped it knows.
    #[must_use]
    pub fn is_woken(&self) -> bool {
        let is_news = |end: BackgroundEnd| end.outcome != BackgroundOutcome::Stopped;
        self.machine.may_begin_run() && self.untold_ends().any(is_news)
    }

    /// Writes down what began and what ended in the background while no run goes on, or one waits for an answer. The model
    /// reads it with the next request. Writes nothing if there is no such news.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::Store`] if the log cannot be written.
    pub async fn tell_background(&mut self) -> Result<(), EngineError> {
        if !self.machine.takes_notes() {
            return Ok(());
        }
        let started = self.started_background();
        if !started.is_empty() {
            self.record(started, Durability::Written).await?;
        }
        let ended = self.ended_background();
        if ended.is_empty() { Ok(()) } else { self.record(ended, Durability::Written).await }
    }

    /// Begins a run whose first input is the notes about background work that has ended; `spec.prompt` is not used. Returns
    /// `None`, and begins nothing, if there is no such work.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::Store`] if the log cannot be written.
    pub async fn begin_woken(&mut self, spec: RunSpec) -> Result<Option<RunId>, EngineError> {
        let started = self.started_background();
        if !started.is_empty() {
            self.record(started, Durability::Written).await?;
        }
        let ended = self.ended_background();
        if ended.is_empty() {
            return Ok(None);
        }
        let (run, mut entries) = self.run_start(&spec).await?;
        entries.extend(ended);
        self.record(entries, Durability::Written).await?;
        Ok(Some(run))
    }
}
