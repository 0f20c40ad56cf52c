//! Why a request is not made because of a budget.

use std::fmt;

use open_agent_model::Cost;

use super::BudgetScope;

/// A budget does not allow a request. The run ends with the status `error_max_budget_usd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BudgetError {
    /// The request could cost more than what is left.
    #[error(transparent)]
    Exceeded(#[from] BudgetExceeded),
    /// The budget has a limit, and the cost of the request cannot be estimated.
    #[error("the budget of {limit} cannot be kept, because the price of the model is not known")]
    NoPrice {
        /// The smallest limit that holds for the request.
        limit: Cost,
    },
}

/// The next request could cost more than what is left, even if nothing else were reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetExceeded {
    /// The limit that would be passed.
    pub limit: Cost,
    /// What was spent of it.
    pub spent: Cost,
    /// The estimated cost of the next request's input.
    pub needed: Cost,
    /// Whether the limit is that of an ancestor, which other agents may spend from as well.
    pub is_shared: bool,
    /// What the agent's own limit covers.
    pub scope: BudgetScope,
    /// What the session had cost before the agent opened it.
    pub spent_before: Cost,
}

impl BudgetExceeded {
    pub(super) fn new(limit: Cost, spent: Cost, needed: Cost, is_shared: bool) -> Self {
        Self { limit, spent, needed, is_shared, scope: BudgetScope::Agent, spent_before: Cost(0) }
    }
}

impl std::error::Error for BudgetExceeded {}

impl fmt::Display for BudgetExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, spent, needed, is_shared, scope, spent_before: before } = self;
        let shared = if *is_shared { "shared " } else { "" };
        // A shared budget never counts what a session had cost before.
        let is_counted = *scope == BudgetScope::Session && !is_shared;
        write!(f, "the {shared}budget of {limit} is spent: {spent} so far")?;
        match is_counted {
            true if *before > Cost(0) => write!(f, " in this session ({before} of it by earlier agents)")?,
            true => write!(f, " in this session")?,
            false => {}
        }
        write!(f, ", and the next request needs at least {needed}")?;
        if !is_counted && *before > Cost(0) {
            write!(f, " (the session had cost {before} before this agent opened it, which is not counted)")?;
        }
        Ok(())
    }
}
