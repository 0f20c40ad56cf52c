//! Waiting for the budget before a request is sent.

use open_agent_model::ModelRequest;

use super::{Driver, next_letter};
use crate::{BudgetError, EngineError, Reservation, Step};

impl Driver {
    /// Reserves what a request can cost, waiting for its turn if necessary. `None` if the run was interrupted, its
    /// settings were changed or a message came meanwhile: the request as it is must not be sent, and gives up its place in
    /// the queue.
    pub(super) async fn reserve(
        &mut self,
        request: &ModelRequest,
        input_tokens: u64,
    ) -> Result<Option<Result<Reservation, BudgetError>>, EngineError> {
        let host = std::sync::Arc::clone(&self.host);
        let price = host.catalogue.find(&request.model).and_then(|m| m.price);
        let reservation = host.budget.reserve(price.as_ref(), input_tokens, request.options.max_tokens);
        let mut reservation = std::pin::pin!(reservation);
        loop {
            tokio::select! {
                biased;
                reserved = &mut reservation => return Ok(Some(reserved)),
                () = self.cancel.cancelled() => return Ok(None),
                letter = next_letter(self.inbox.as_mut()) => {
                    let before = self.machine.run().map(|run| run.settings.clone());
                    self.obey(letter).await?;
                    let is_changed = before != self.machine.run().map(|run| run.settings.clone());
                    if is_changed || !matches!(self.machine.next(), Step::CallModel { .. }) {
                        return Ok(None);
                    }
                }
            }
        }
    }
}
