//! Messages that were sent while a run goes on, until they are delivered or taken back.

use open_agent_model::{QueueId, RunStatus};
use open_agent_session::Queued;

/// The queue of a session, in the order in which messages were sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue(Vec<Queued>);

impl Queue {
    pub(super) fn add(&mut self, queued: &Queued) {
        // A record that comes twice is one message.
        if self.find(queued.id).is_none() {
            self.0.push(queued.clone());
        }
    }

    pub(super) fn take(&mut self, id: QueueId) -> Option<Queued> {
        let at = self.0.iter().position(|queued| queued.id == id)?;
        Some(self.0.remove(at))
    }

    pub(super) fn find(&self, id: QueueId) -> Option<&Queued> {
        self.0.iter().find(|queued| queued.id == id)
    }

    pub(super) fn all(&self) -> &[Queued] {
        &self.0
    }

    /// Returns the messages that the next request of the run that goes on has to carry.
    pub(super) fn steering(&self) -> Vec<QueueId> {
        self.0.iter().filter(|queued| queued.steer).map(|queued| queued.id).collect()
    }
}

/// Returns true if messages that are left when a run ends start the next run. After an interrupt or at the end of the
/// budget they wait for the user instead.
#[must_use]
pub(super) fn goes_on_after(status: RunStatus) -> bool {
    match status {
        RunStatus::Cancelled | RunStatus::ErrorMaxBudgetUsd => false,
        RunStatus::Success
        | RunStatus::ErrorMaxTurns
        | RunStatus::ErrorMaxModelCalls
        | RunStatus::ErrorDuringExecution
        | RunStatus::Refusal
        | RunStatus::Waiting => true,
    }
}
