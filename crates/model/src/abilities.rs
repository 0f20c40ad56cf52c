//! What Claude models know about thinking and effort, as data. `providers` fits requests to it, the catalogue shows it.

use crate::Effort;

/// What a model knows about thinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThinkingAbilities {
    /// It can decide by itself how long it thinks.
    pub adaptive: bool,
    /// It takes a budget of tokens, and can be told not to think.
    pub budget: bool,
    /// It takes an effort, up to this one.
    pub effort: Option<Effort>,
}

struct Row {
    /// How the model's name begins.
    prefix: &'static str,
    abilities: ThinkingAbilities,
}

const fn row(prefix: &'static str, adaptive: bool, budget: bool, effort: Option<Effort>) -> Row {
    Row { prefix, abilities: ThinkingAbilities { adaptive, budget, effort } }
}

/// The first row that fits counts. From Opus 4.7 on budgets are gone.
const TABLE: &[Row] = &[
    row("claude-3", false, true, None),
    row("claude-opus-4-5", false, true, Some(Effort::High)),
    row("claude-opus-4-6", true, true, Some(Effort::Max)),
    row("claude-opus-4-7", true, false, Some(Effort::Max)),
    row("claude-opus-4-8", true, false, Some(Effort::Max)),
    row("claude-opus-4", false, true, None),
    row("claude-sonnet-4-6", true, true, Some(Effort::Max)),
    row("claude-sonnet-4", false, true, None),
    row("claude-haiku-4", false, true, None),
    row("claude-", true, false, Some(Effort::Max)),
    // Other models behind the same API know budgets at best.
    row("", false, true, None),
];

/// What is known about a model that is asked through the Messages API; a vendor's prefix (`anthropic/`) does not matter.
#[must_use]
pub fn thinking_abilities(model: &str) -> ThinkingAbilities {
    let name = model.rsplit('/').next().unwrap_or(model);
    let found = TABLE.iter().find(|row| name.starts_with(row.prefix));
    found.map_or(ThinkingAbilities { adaptive: false, budget: true, effort: None }, |row| row.abilities)
}
