//! The budget of one agent: its own node of a tree, and what its session had cost before.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use open_agent_model::{Cost, Price};
use open_agent_session::SessionEntry;
use serde::{Deserialize, Serialize};

use super::{Budget, BudgetError, Reservation};

/// What an agent's own limit covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetScope {
    /// Every request that this agent makes, over all of its prompts since it was built. What its session had cost before
    /// is shown but not counted, and that includes an unfinished run that the agent resumes.
    #[default]
    Agent,
    /// Everything that the session has cost, by its log, plus every request that this agent makes.
    Session,
}

impl fmt::Display for BudgetScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Agent => "agent",
            Self::Session => "session",
        })
    }
}

impl FromStr for BudgetScope {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "agent" => Ok(Self::Agent),
            "session" => Ok(Self::Session),
            _ => Err(format!("{text:?} is not a budget scope: use agent or session")),
        }
    }
}

/// What one agent spends from. It belongs to one agent and one session.
#[derive(Debug)]
pub struct AgentBudget {
    /// Only this agent's requests, and those of its children, are counted here.
    node: Arc<Budget>,
    scope: BudgetScope,
    session: Mutex<SessionCost>,
}

/// Which part of the session's cost is whose.
#[derive(Debug, Default)]
struct SessionCost {
    /// What this agent's own requests cost.
    own: Cost,
    /// What was in the log besides, when this agent opened the session.
    before: Cost,
}

impl AgentBudget {
    /// The budget of an agent with the limit `limit`, below `shared` if that is given.
    #[must_use]
    pub fn new(shared: Option<&Arc<Budget>>, limit: Option<Cost>, scope: BudgetScope) -> Self {
        let node = match shared {
            Some(parent) => Budget::child_of(parent, limit),
            None => Budget::new(limit),
        };
        Self { node: Arc::new(node), scope, session: Mutex::default() }
    }

    /// The node that holds the agent's own limit and spending.
    #[must_use]
    pub fn node(&self) -> &Arc<Budget> {
        &self.node
    }

    /// What the session had cost before this agent opened it.
    #[must_use]
    pub fn spent_before(&self) -> Cost {
        self.session().before
    }

    /// Takes note of what the session has cost by its log; called each time the agent opens its session. An agent that opens
    /// it again (after an error of the store) does not count its own requests twice, and learns what others have spent
    /// meanwhile.
    ///
    /// With [`BudgetScope::Session`] the earlier cost counts against the agent's own limit. It never counts against a
    /// shared budget: that one covers what is spent through it.
    pub fn open_session(&self, logged: Cost) {
        let mut session = self.session();
        let before = Cost(logged.0.saturating_sub(session.own.0));
        let new = Cost(before.0.saturating_sub(session.before.0));
        session.before = session.before.plus(new);
        drop(session);
        if self.scope == BudgetScope::Session {
            self.node.charge(new);
        }
    }

    /// As [`Budget::reserve`]. An error says what the session had cost before.
    pub async fn reserve(
        &self,
        price: Option<&Price>,
        input_tokens: u64,
        max_tokens: u64,
    ) -> Result<Reservation, BudgetError> {
        self.node.reserve(price, input_tokens, max_tokens).await.map_err(|error| match error {
            BudgetError::Exceeded(mut exceeded) => {
                exceeded.scope = self.scope;
                exceeded.spent_before = self.spent_before();
                BudgetError::Exceeded(exceeded)
            }
            other => other,
        })
    }

    /// Settles a reservation with what the request really cost.
    pub fn settle(&self, reservation: Reservation, cost: Option<Cost>) {
        let mut session = self.session();
        session.own = session.own.plus(cost.unwrap_or_default());
        drop(session);
        reservation.settle(cost);
    }

    fn session(&self) -> MutexGuard<'_, SessionCost> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What all model requests in a log have cost, failed and interrupted ones too. A request whose price was not known when it
/// was made is counted at the price that `price_of` knows now, else not at all.
pub fn logged_cost<'a>(
    entries: impl IntoIterator<Item = &'a SessionEntry>,
    price_of: impl Fn(&str) -> Option<Price>,
) -> Cost {
    let requests = entries.into_iter().filter_map(|entry| match entry {
        SessionEntry::ModelDone(done) => Some((done.message.model.as_deref(), done.usage, done.cost)),
        SessionEntry::ModelFailed(failed) => Some((Some(&*failed.model), failed.usage, failed.cost)),
        _ => None,
    });
    let cost_of = |(model, usage, cost): (Option<&str>, _, Option<Cost>)| {
        cost.or_else(|| Some(price_of(model?)?.of(&usage))).unwrap_or_default()
    };
    requests.map(cost_of).fold(Cost(0), Cost::plus)
}
