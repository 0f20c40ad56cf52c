//! What a run has come to: its answers, what they used, the words that are its result, the calls that were refused. The
//! machine folds it from the log and the frames of a run's end from events, which hold the same facts.

use std::collections::BTreeMap;
use std::sync::Arc;

use open_agent_model::{Cost, Message, RawJson, Ruling, StopReason, Timestamp, ToolUseId, Usage};

/// A run so far.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct RunSummary {
    /// When it began.
    pub at: Timestamp,
    /// When its last entry was written.
    pub last_at: Timestamp,
    /// Model answers.
    pub turns: u32,
    /// What all model requests used, failed ones too.
    pub totals: Totals,
    /// What the model said last.
    pub words: Words,
    /// Why the model stopped last.
    pub stop: Option<StopReason>,
    /// Calls that the rules refused.
    pub denials: Vec<Denial>,
}

/// A call that the rules refused.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Denial {
    /// The tool.
    pub tool: String,
    /// The call's id in the transcript.
    pub tool_use_id: ToolUseId,
    /// The input that was ruled.
    pub input: RawJson,
    /// Why it was refused, as the model was told.
    pub reason: String,
}

impl RunSummary {
    pub(crate) fn new(at: Timestamp) -> Self {
        Self { at, last_at: at, ..Self::default() }
    }

    /// Returns the milliseconds from its beginning to its last entry.
    #[must_use]
    pub fn duration_ms(&self) -> u64 {
        u64::try_from(self.last_at.0.saturating_sub(self.at.0)).unwrap_or_default()
    }

    pub(crate) fn on_answer(
        &mut self,
        model: &Arc<str>,
        message: &Message,
        stop: &StopReason,
        used: (Usage, Option<Cost>, u64),
    ) {
        self.totals.add(model, used);
        self.turns += 1;
        self.words.say(message, Some(stop));
        self.stop = Some(stop.clone());
    }

    /// Adds a request that brought no whole answer. `partial` is the part of the answer that is kept.
    pub(crate) fn on_failure(
        &mut self,
        model: &Arc<str>,
        partial: Option<&Message>,
        used: (Usage, Option<Cost>, u64),
    ) {
        self.totals.add(model, used);
        if let Some(partial) = partial {
            self.words.say(partial, None);
        }
    }

    pub(crate) fn on_ruled(&mut self, (tool, id, input): (&str, &ToolUseId, &RawJson), ruling: &Ruling) {
        if ruling.is_denial() {
            self.denials.push(Denial {
                tool: tool.to_owned(),
                tool_use_id: id.clone(),
                input: input.clone(),
                reason: ruling.reason.clone(),
            });
        }
    }
}

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
    /// The number of bytes of `text` that the next answer continues; the rest is replaced by it.
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
