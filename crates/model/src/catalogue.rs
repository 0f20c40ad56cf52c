//! What is known about models: prices, windows, abilities. Owns the built-in table (`models.csv`, prices in USD for a
//! million tokens, as of [`PRICES_AS_OF`]) and what a user registered in addition. A value, not a process-wide table.

use std::collections::BTreeMap;

use crate::{Cost, Price};

/// The day the built-in prices were taken from public price lists.
pub const PRICES_AS_OF: &str = "2026-11-29";

const TABLE: &str = include_str!("models.csv");

/// Short names for current models.
const ALIASES: &[(&str, &str)] = &[
    ("sonnet", "claude-sonnet-4-6"),
    ("opus", "claude-opus-4-6"),
    ("haiku", "claude-haiku-4-5"),
    ("fable", "claude-fable-5"),
];

/// What is known about one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelInfo {
    /// The name that requests carry.
    pub name: String,
    /// Whose table row it is; empty for registered models.
    pub vendor: String,
    /// What it costs; `None` is unknown, never free.
    pub price: Option<Price>,
    /// Tokens of context.
    pub context_tokens: Option<u64>,
    /// The most output tokens of one answer.
    pub max_output_tokens: Option<u64>,
    /// It can think before it answers.
    pub thinking: bool,
    /// It sees pictures.
    pub vision: bool,
    /// It reads PDFs.
    pub pdf: bool,
}

impl ModelInfo {
    /// A model of which nothing is known but its name.
    #[must_use]
    pub fn unknown(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            vendor: String::new(),
            price: None,
            context_tokens: None,
            max_output_tokens: None,
            thinking: false,
            vision: false,
            pdf: false,
        }
    }
}

/// The built-in table and what a user added to it.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    registered: BTreeMap<String, ModelInfo>,
}

impl Catalogue {
    /// Adds a model, or replaces what is known about it.
    pub fn register_model(&mut self, info: ModelInfo) {
        self.registered.insert(info.name.clone(), info);
    }

    /// The full name behind a short one; other names as they are.
    #[must_use]
    pub fn resolve<'a>(&self, name: &'a str) -> &'a str {
        ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, full)| full)
    }

    /// What is known about `name`. Registered models first; then the table, where a date suffix
    /// (`-20250929`) and a vendor prefix (`anthropic/`) do not matter.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<ModelInfo> {
        let name = self.resolve(name);
        if let Some(info) = self.registered.get(name) {
            return Some(info.clone());
        }
        // Scanned, not indexed: a run looks up one or two models, and an index would be built at every start.
        row(name).or_else(|| row(name.rsplit('/').next()?)).or_else(|| row(without_date(name)?))
    }

    /// All rows of the table, then the registered models.
    pub fn all(&self) -> impl Iterator<Item = ModelInfo> + '_ {
        TABLE.lines().skip(1).filter_map(read).chain(self.registered.values().cloned())
    }
}

fn row(name: &str) -> Option<ModelInfo> {
    let named = |line: &&str| line.split(',').nth(1) == Some(name);
    TABLE.lines().skip(1).find(named).and_then(read)
}

fn without_date(name: &str) -> Option<&str> {
    let (base, date) = name.rsplit_once('-')?;
    (date.len() == 8 && date.bytes().all(|b| b.is_ascii_digit())).then_some(base)
}

fn read(line: &str) -> Option<ModelInfo> {
    let cells: Vec<&str> = line.split(',').collect();
    let cell = |i: usize| cells.get(i).copied().unwrap_or_default();
    let price = match (Cost::from_usd(cell(2)), Cost::from_usd(cell(3))) {
        (Some(input), Some(output)) => {
            let or = |i: usize, other: Cost| Cost::from_usd(cell(i)).unwrap_or(other);
            let cache_write_5m = or(5, input);
            let cache_write_1h = or(6, cache_write_5m);
            Some(Price { input, output, cache_read: or(4, input), cache_write_5m, cache_write_1h })
        }
        _ => None,
    };
    Some(ModelInfo {
        name: (!cell(1).is_empty()).then(|| cell(1).to_owned())?,
        vendor: cell(0).to_owned(),
        price,
        context_tokens: cell(7).parse().ok(),
        max_output_tokens: cell(8).parse().ok(),
        thinking: cell(9) == "1",
        vision: cell(10) == "1",
        pdf: cell(11) == "1",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_read() {
        let all: Vec<_> = Catalogue::default().all().collect();
        assert_eq!(all.len(), TABLE.lines().count() - 1);
        let priced = all.iter().filter(|m| m.price.is_some()).count();
        let written = TABLE.lines().skip(1).filter(|l| !l.split(',').nth(2).unwrap().is_empty()).count();
        assert_eq!(priced, written);
    }

    #[test]
    fn names_are_found_with_date_prefix_and_alias() {
        let c = Catalogue::default();
        let sonnet = c.find("claude-sonnet-4-5").unwrap();
        assert_eq!(c.find("claude-sonnet-4-5-20250929").unwrap(), sonnet);
        assert_eq!(c.find("anthropic/claude-sonnet-4-5").unwrap(), sonnet);
        assert_eq!(c.find("sonnet").unwrap().name, "claude-sonnet-4-6");
        assert_eq!(sonnet.price.unwrap().cache_read, Cost::from_usd("0.3").unwrap());
        assert_eq!(c.find("no-such-model"), None);
    }

    #[test]
    fn an_unknown_price_is_none_not_zero() {
        let c = Catalogue::default();
        assert_eq!(c.find("qwen3-max").unwrap().price, None);
    }

    #[test]
    fn registering_belongs_to_the_value() {
        let mut a = Catalogue::default();
        let b = a.clone();
        a.register_model(ModelInfo { context_tokens: Some(9), ..ModelInfo::unknown("mine") });
        assert_eq!(a.find("mine").unwrap().context_tokens, Some(9));
        assert_eq!(b.find("mine"), None);
    }
}
