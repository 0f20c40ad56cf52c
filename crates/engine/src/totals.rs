//! What the answers of a run come to: what they used, and the words that are its result.

use std::collections::BTreeMap;
use std::sync::Arc;

use open_agent_model::{Cost, Message, StopReason, Usage};

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

/// The text of the newest answer, or of the part of it that came. An answer that went on over several requests is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    text: String,
    /// So much of it is followed by what comes next: the answer goes on.
    settled: usize,
}

impl Words {
    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Takes the next message. Without a reason why it stopped it broke off, and may be made again.
    pub(crate) fn say(&mut self, message: &Message, stop: Option<&StopReason>) {
        self.text.truncate(self.settled);
        self.text.push_str(&message.text());
        let Some(stop) = stop else { return };
        let calls = message.tool_uses().next().is_some();
        let goes_on = !calls && matches!(stop, StopReason::MaxTokens | StopReason::PauseTurn);
        self.settled = if goes_on { self.text.len() } else { 0 };
    }
}
