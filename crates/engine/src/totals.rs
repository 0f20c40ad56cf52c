//! What the requests of a run used, added up.

use std::collections::BTreeMap;
use std::sync::Arc;

use open_agent_model::{Cost, Usage};

/// Sums over requests, failed ones too.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Totals {
    /// How many requests.
    pub requests: u32,
    /// Their tokens.
    pub usage: Usage,
    /// Their cost; `None` once one of unknown price was made.
    pub cost: Option<Cost>,
    /// Milliseconds they took.
    pub api_ms: u64,
    /// The same for each model.
    pub by_model: BTreeMap<Arc<str>, ModelUse>,
}

/// What a run used of one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelUse {
    /// Tokens.
    pub usage: Usage,
    /// Cost; `None` = the price is not known.
    pub cost: Option<Cost>,
    /// Requests.
    pub requests: u32,
}

impl Default for Totals {
    fn default() -> Self {
        let nothing = ModelUse::default();
        Self { requests: 0, usage: nothing.usage, cost: nothing.cost, api_ms: 0, by_model: BTreeMap::new() }
    }
}

impl Default for ModelUse {
    fn default() -> Self {
        Self { usage: Usage::default(), cost: Some(Cost(0)), requests: 0 }
    }
}

impl Totals {
    pub(crate) fn add(&mut self, model: &Arc<str>, (usage, cost, api_ms): (Usage, Option<Cost>, u64)) {
        let sum = |a: Option<Cost>, b: Option<Cost>| Some(a?.plus(b?));
        self.requests += 1;
        self.usage += usage;
        self.cost = sum(self.cost, cost);
        self.api_ms = self.api_ms.saturating_add(api_ms);
        let of = self.by_model.entry(Arc::clone(model)).or_default();
        of.requests += 1;
        of.usage += usage;
        of.cost = sum(of.cost, cost);
    }
}
