//! What is known about models: prices, windows, abilities. Owns the built-in table (`models.csv`, prices in USD for a
//! million tokens, as of [`PRICES_AS_OF`]) and what a user registered in addition. A value, not a process-wide table.

use std::collections::BTreeMap;

use crate::{Cost, Effort, Price, thinking_abilities};

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
    /// It can decide by itself how long it thinks.
    pub adaptive_thinking: bool,
    /// The efforts that it can be asked for; empty = none, or not known.
    pub efforts: Vec<Effort>,
    /// It sees pictures.
    pub vision: bool,
    /// It reads PDFs.
    pub pdf: bool,
}

impl ModelInfo {
    /// The name as people write it: `claude-sonnet-4-6` is "Claude Sonnet 4.6".
    #[must_use]
    pub fn display_name(&self) -> String {
        let is_number = |part: &str| part.bytes().all(|b| b.is_ascii_digit()) && part.len() < 4;
        let mut name = String::new();
        let mut last_is_number = false;
        for part in self.name.split(['-', '_', '/']).filter(|part| !part.is_empty()) {
            let number = is_number(part);
            if !name.is_empty() {
                name.push(if number && last_is_number { '.' } else { ' ' });
            }
            let mut letters = part.chars();
            name.extend(letters.next().map(|first| first.to_ascii_uppercase()));
            name.push_str(letters.as_str());
            last_is_number = number;
        }
        name
    }

    /// What it can, in a few words.
    #[must_use]
    pub fn description(&self) -> String {
        let window = self.context_tokens.map(|n| format!("{n} tokens of context"));
        let can = [(self.thinking, "thinks"), (self.vision, "sees pictures"), (self.pdf, "reads PDFs")];
        let can = can.into_iter().filter(|(able, _)| *able).map(|(_, word)| word.to_owned());
        window.into_iter().chain(can).collect::<Vec<_>>().join(", ")
    }

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
            adaptive_thinking: false,
            efforts: Vec::new(),
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
    let (adaptive_thinking, most) = match cell(0) {
        "anthropic" => {
            let abilities = thinking_abilities(cell(1));
            (abilities.adaptive, abilities.effort)
        }
        // `reasoning_effort`, of those models that reason.
        "openai" => (false, (cell(9) == "1").then_some(Effort::High)),
        _ => (false, None),
    };
    Some(ModelInfo {
        name: (!cell(1).is_empty()).then(|| cell(1).to_owned())?,
        vendor: cell(0).to_owned(),
        price,
        context_tokens: cell(7).parse().ok(),
        max_output_tokens: cell(8).parse().ok(),
        thinking: cell(9) == "1",
        adaptive_thinking,
        efforts: Effort::ALL.into_iter().filter(|effort| most.is_some_and(|most| *effort <= most)).collect(),
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
        // The first of two rows would hide the second.
        let names: std::collections::HashSet<&str> = all.iter().map(|m| &*m.name).collect();
        assert_eq!(names.len(), all.len());
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
    fn thinking_effort_and_names_are_shown() {
        let c = Catalogue::default();
        let sonnet = c.find("claude-sonnet-4-6").unwrap();
        assert_eq!((sonnet.display_name().as_str(), sonnet.adaptive_thinking), ("Claude Sonnet 4.6", true));
        assert_eq!(sonnet.efforts, Effort::ALL);
        assert!(
            sonnet.description().contains("tokens of context, thinks, sees pictures"),
            "{}",
            sonnet.description()
        );
        let opus = c.find("claude-opus-4-5").unwrap();
        assert_eq!((opus.adaptive_thinking, opus.efforts.as_slice()), (false, &Effort::ALL[..3]));
        assert_eq!(c.find("claude-haiku-4-5").unwrap().efforts, []);
        assert_eq!(c.find("anthropic/claude-opus-4-8").unwrap().efforts, Effort::ALL);
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
