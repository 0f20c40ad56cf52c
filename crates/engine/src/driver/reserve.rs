//! Waiting for the budget before a request is sent.

use open_agent_model::ModelRequest;

use super::{Driver, changed};
use crate::{BudgetError, Reservation};

impl Driver {
    /// Reserves what a request can cost, waiting for its turn if necessary. `None` if the run was interrupted or its
    /// settings were changed meanwhile: the request as it is must not be sent, and gives up its place in the queue.
    pub(super) async fn reserve(
        &mut self,
        request: &ModelRequest,
        input_tokens: u64,
    ) -> Option<Result<Reservation, BudgetError>> {
        let host = std::sync::Arc::clone(&self.host);
        let price = host.catalogue.find(&request.model).and_then(|m| m.price);
        let reservation = host.budget.reserve(price.as_ref(), input_tokens, request.options.max_tokens);
        let mut reservation = std::pin::pin!(reservation);
        loop {
            tokio::select! {
                biased;
                reserved = &mut reservation => return Some(reserved),
                () = self.cancel.cancelled() => return None,
                () = changed(self.wanted.as_mut()) => {
                    if self.changed_settings().is_some() {
                        return None;
                    }
                }
            }
        }
    }
}
