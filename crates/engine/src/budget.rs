//! Money that an agent may spend. Owns the check before each request: one that might cost more than what is left is not
//! sent, and its output limit is lowered to what the rest pays for.

use std::sync::Mutex;
use std::sync::PoisonError;

use open_agent_model::{Cost, Price};

/// Spending of an agent over its prompts, with an optional limit.
#[derive(Debug, Default)]
pub struct Budget {
    limit: Option<Cost>,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    spent: Cost,
    /// Estimates of requests under way, so that several agents on one budget cannot each spend the rest.
    reserved: Cost,
}

/// The right to make one request. What it really cost is settled; dropping it unsettled frees what was reserved.
#[derive(Debug)]
pub struct Reservation<'a> {
    budget: &'a Budget,
    amount: Cost,
    /// The most output tokens the rest pays for.
    pub max_tokens: u64,
}

/// The next request might cost more than what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the budget of {limit} is spent: {spent} so far, and the next request needs at least {needed}")]
pub struct BudgetExceeded {
    /// The limit.
    pub limit: Cost,
    /// What was spent.
    pub spent: Cost,
    /// What the next request's input would cost.
    pub needed: Cost,
}

impl Budget {
    /// A budget with or without a limit.
    #[must_use]
    pub fn new(limit: Option<Cost>) -> Self {
        Self { limit, state: Mutex::default() }
    }

    /// The limit.
    #[must_use]
    pub fn limit(&self) -> Option<Cost> {
        self.limit
    }

    /// What was spent so far.
    #[must_use]
    pub fn spent(&self) -> Cost {
        self.state().spent
    }

    /// Takes into account what was spent before this budget was made.
    pub fn at_least(&self, spent: Cost) {
        let mut state = self.state();
        state.spent = state.spent.max(spent);
    }

    /// Reserves the estimated cost of a request's input. `price` is known wherever there is a limit: a budget for a
    /// model without a price is refused when the agent is made.
    pub fn reserve(
        &self,
        price: Option<&Price>,
        input_tokens: u64,
        max_tokens: u64,
    ) -> Result<Reservation<'_>, BudgetExceeded> {
        let (Some(limit), Some(price)) = (self.limit, price) else {
            return Ok(Reservation { budget: self, amount: Cost(0), max_tokens });
        };
        // Input may be written to the cache on the way, which can cost more.
        let plain = open_agent_model::Usage { input_tokens, ..Default::default() };
        let cached =
            open_agent_model::Usage { cache_write_5m_input_tokens: input_tokens, ..Default::default() };
        let needed = price.of(&plain).max(price.of(&cached));
        let mut state = self.state();
        let spent = state.spent.plus(state.reserved);
        let left = Cost(limit.0.saturating_sub(spent.plus(needed).0));
        let affordable = price.output_tokens_for(left);
        if left == Cost(0) || affordable == 0 {
            return Err(BudgetExceeded { limit, spent, needed });
        }
        let max_tokens = max_tokens.min(affordable);
        let output = open_agent_model::Usage { output_tokens: max_tokens, ..Default::default() };
        let amount = needed.plus(price.of(&output));
        state.reserved = state.reserved.plus(amount);
        Ok(Reservation { budget: self, amount, max_tokens })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation<'_> {
    /// Says what the request really cost.
    pub fn settle(self, cost: Option<Cost>) {
        let mut state = self.budget.state();
        state.spent = state.spent.plus(cost.unwrap_or_default());
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let mut state = self.budget.state();
        state.reserved = Cost(state.reserved.0.saturating_sub(self.amount.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usd(text: &str) -> Cost {
        Cost::from_usd(text).unwrap()
    }

    fn price() -> Price {
        Price::new(usd("3"), usd("15"))
    }

    #[test]
    fn a_request_that_might_cost_too_much_is_not_made() {
        let budget = Budget::new(Some(usd("0.01")));
        let price = price();
        // 1,000 input tokens cost 0.003; the other 0.007 pay for 466 output tokens.
        let first = budget.reserve(Some(&price), 1_000, 16_000).unwrap();
        assert_eq!(first.max_tokens, 466);
        first.settle(Some(usd("0.0095")));
        assert_eq!(budget.spent(), usd("0.0095"));
        let error = budget.reserve(Some(&price), 1_000, 16_000).unwrap_err();
        assert_eq!(error.needed, usd("0.003"));
        // Freed by dropping: a request that failed before it cost anything.
        drop(budget.reserve(Some(&price), 10, 10).unwrap());
        assert_eq!(budget.spent(), usd("0.0095"));
    }

    #[test]
    fn requests_under_way_count() {
        let budget = Budget::new(Some(usd("0.01")));
        let first = budget.reserve(Some(&price()), 1_000, 16_000).unwrap();
        assert!(budget.reserve(Some(&price()), 1_000, 16_000).is_err());
        drop(first);
        assert!(budget.reserve(Some(&price()), 1_000, 16_000).is_ok());
    }

    #[test]
    fn without_a_limit_nothing_is_lowered() {
        let budget = Budget::new(None);
        assert_eq!(budget.reserve(None, u64::MAX, 7).unwrap().max_tokens, 7);
    }
}
