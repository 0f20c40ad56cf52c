//! What is known about models. Owns the built-in table (`models.csv`, prices in USD for a million tokens, as of
//! [`PRICES_AS_OF`]) and what a user registered in addition. A value, not process-wide state.
//!
//! A row of the table is a model, or a family of models if its name ends in `*`. A cell that is empty in a model's row
//! is taken from the families whose prefix fits, the longest prefix first; of a model without a row of its own only
//! that is known. A family may have an alias, which stands for its newest model, so that a new row moves it.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use crate::{Cost, Effort, ModelInfo, Price, ThinkingKinds};

/// The day the built-in prices were taken from public price lists.
pub const PRICES_AS_OF: &str = "2026-11-29";

const TABLE: &str = include_str!("models.csv");

/// The columns of the table, in their order.
#[derive(Clone, Copy)]
enum Column {
    Vendor,
    Name,
    Input,
    Output,
    CacheRead,
    CacheWrite5m,
    CacheWrite1h,
    Context,
    MaxOutput,
    Reasoning,
    Vision,
    Pdf,
    Thinking,
    Effort,
    MediaInResults,
    Alias,
}

const COLUMNS: usize = Column::Alias as usize + 1;

/// The rows of the table, of which only names and aliases are read at first: a run needs the rest of one or two.
static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| TABLE.lines().skip(1).map(Row::new).collect());

/// A row of the table.
#[derive(Clone, Copy)]
struct Row {
    name: &'static str,
    /// The alias of a family; empty if it has none, and for the row of one model.
    alias: &'static str,
    line: &'static str,
}

/// The built-in table and what a user added to it. A clone shares what was added so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalogue {
    registered: Arc<BTreeMap<String, ModelInfo>>,
}

impl Catalogue {
    /// Adds a model, or overrides what is known about it. What is `None` in `info` (or an empty vendor) is still taken
    /// from the table.
    pub fn register_model(&mut self, info: ModelInfo) {
        Arc::make_mut(&mut self.registered).insert(info.name.clone(), info);
    }

    /// The name of the model that an alias stands for: the newest of its family, registered models included. Any other
    /// name is returned as it is.
    #[must_use]
    pub fn resolve<'a>(&'a self, name: &'a str) -> &'a str {
        if self.registered.contains_key(name) {
            return name;
        }
        let family = families().find(|row| row.alias == name && !name.is_empty());
        family.and_then(|row| newest(self.names(), row.prefix()?)).unwrap_or(name)
    }

    /// All aliases with the models that they stand for.
    pub fn aliases(&self) -> impl Iterator<Item = (&str, &str)> {
        let named = families().filter(|row| !row.alias.is_empty());
        named.filter_map(|row| Some((row.alias, newest(self.names(), row.prefix()?)?)))
    }

    /// What is known about `name`, which may be an alias. A vendor's prefix (`anthropic/`) and a date (`-20250929`) do
    /// not matter, unless the name with them was registered. `None` if the model is not known at all.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<ModelInfo> {
        let name = self.resolve(name);
        let base = name.rsplit('/').next().unwrap_or(name);
        let spellings = [Some(name), Some(base), without_date(base)];
        let known = spellings
            .into_iter()
            .flatten()
            .find_map(|name| or(self.registered.get(name).cloned(), model_row(name)));
        or(known, family(base))
    }

    /// What is known about `name`, be it nothing.
    #[must_use]
    pub fn info(&self, name: &str) -> ModelInfo {
        self.find(name).unwrap_or_else(|| ModelInfo::unknown(name))
    }

    /// All models of the table, then the registered ones.
    pub fn all(&self) -> impl Iterator<Item = ModelInfo> + '_ {
        self.names().filter_map(|name| self.find(name))
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        let is_own = |name: &&String| models().all(|row| row.name != name.as_str());
        let registered = self.registered.keys().filter(is_own);
        models().map(|row| row.name).chain(registered.map(String::as_str))
    }
}

/// The rows of families, which come first in the table.
fn families() -> impl Iterator<Item = Row> {
    ROWS.iter().copied().take_while(|row| row.prefix().is_some())
}

fn models() -> impl Iterator<Item = Row> {
    ROWS.iter().copied().skip_while(|row| row.prefix().is_some())
}

/// Returns what is known of a model, what only `other` knows included.
fn or(known: Option<ModelInfo>, other: Option<ModelInfo>) -> Option<ModelInfo> {
    match (known, other) {
        (Some(known), Some(other)) => Some(known.or(other)),
        (known, other) => known.or(other),
    }
}

/// The model's own row, with what its families say.
fn model_row(name: &str) -> Option<ModelInfo> {
    let row = models().find(|row| row.name == name)?;
    let known = or(Some(row.info(name)), family(name))?;
    // Nothing says in which ways this model can be asked to think, only that it does.
    let reasons = || row.cells().get(Column::Reasoning) == "1";
    let thinking = known.thinking.or_else(|| reasons().then_some(ThinkingKinds::ALL));
    Some(ModelInfo { thinking, ..known })
}

/// What the families say about a model: of each cell the one with the longest prefix counts.
fn family(name: &str) -> Option<ModelInfo> {
    let mut fitting: Vec<(usize, Row)> = families()
        .filter_map(|row| row.prefix().filter(|prefix| name.starts_with(prefix)).map(|p| (p.len(), row)))
        .collect();
    fitting.sort_by_key(|(length, _)| std::cmp::Reverse(*length));
    fitting.into_iter().map(|(_, row)| row.info(name)).reduce(ModelInfo::or)
}

/// The name with the highest version after `prefix`. A name with anything but numbers there is a variant, not a version.
fn newest<'a>(names: impl Iterator<Item = &'a str>, prefix: &str) -> Option<&'a str> {
    let version = |name: &str| -> Option<Vec<u32>> {
        let parts = name.strip_prefix(prefix)?.split(['-', '.']);
        // Longer numbers are dates.
        parts.map(|part| part.parse().ok().filter(|_| part.len() < 4)).collect()
    };
    let versions = names.filter_map(|name| version(name).map(|version| (version, name)));
    versions.max().map(|(_, name)| name)
}

fn without_date(name: &str) -> Option<&str> {
    let (base, date) = name.rsplit_once('-')?;
    (date.len() == 8 && date.bytes().all(|b| b.is_ascii_digit())).then_some(base)
}

/// Takes the first cell off a line. A loop over bytes, as a search for so short a piece costs more than it saves.
fn next_cell(line: &mut &'static str) -> &'static str {
    let end = line.bytes().position(|byte| byte == b',').unwrap_or(line.len());
    let cell = &line[..end];
    *line = line.get(end + 1..).unwrap_or_default();
    cell
}

impl Row {
    fn new(line: &'static str) -> Self {
        let mut rest = line;
        for _ in 0..Column::Name as usize {
            next_cell(&mut rest);
        }
        let name = next_cell(&mut rest);
        let row = Self { name, alias: "", line };
        match row.prefix() {
            Some(_) => Self { alias: row.cells().get(Column::Alias), ..row },
            None => row,
        }
    }

    /// How the names of a family begin; `None` for the row of one model.
    fn prefix(self) -> Option<&'static str> {
        self.name.strip_suffix('*')
    }

    fn cells(self) -> Cells {
        let mut rest = self.line;
        Cells(std::array::from_fn(|_| next_cell(&mut rest)))
    }

    fn info(self, name: &str) -> ModelInfo {
        self.cells().info(name)
    }
}

/// The cells of a row; those that the line leaves out at its end are empty.
struct Cells([&'static str; COLUMNS]);

impl Cells {
    fn get(&self, column: Column) -> &'static str {
        self.0[column as usize]
    }

    fn info(&self, name: &str) -> ModelInfo {
        let flag = |column| match self.get(column) {
            "1" => Some(true),
            "0" => Some(false),
            _ => None,
        };
        let reasons = flag(Column::Reasoning);
        ModelInfo {
            name: name.to_owned(),
            vendor: self.get(Column::Vendor).to_owned(),
            price: self.price(),
            context_tokens: self.get(Column::Context).parse().ok(),
            max_output_tokens: self.get(Column::MaxOutput).parse().ok(),
            thinking: self.thinking(reasons),
            efforts: self.efforts(reasons),
            vision: flag(Column::Vision),
            pdf: flag(Column::Pdf),
            media_in_results: flag(Column::MediaInResults),
        }
    }

    fn price(&self) -> Option<Price> {
        let (input, output) =
            (Cost::from_usd(self.get(Column::Input))?, Cost::from_usd(self.get(Column::Output))?);
        let or = |column, other: Cost| Cost::from_usd(self.get(column)).unwrap_or(other);
        let cache_write_5m = or(Column::CacheWrite5m, input);
        let cache_write_1h = or(Column::CacheWrite1h, cache_write_5m);
        Some(Price {
            input,
            output,
            cache_read: or(Column::CacheRead, input),
            cache_write_5m,
            cache_write_1h,
        })
    }

    /// A model of which only that it reasons is known leaves the kinds to its family.
    fn thinking(&self, reasons: Option<bool>) -> Option<ThinkingKinds> {
        if reasons == Some(false) {
            return Some(ThinkingKinds::NONE);
        }
        match self.get(Column::Thinking) {
            "" => None,
            kinds => {
                let has = |kind| kinds.split('+').any(|k| k == kind);
                // Whoever takes a budget takes none as well.
                Some(ThinkingKinds { adaptive: has("adaptive"), budget: has("budget"), off: has("budget") })
            }
        }
    }

    fn efforts(&self, reasons: Option<bool>) -> Option<Vec<Effort>> {
        let highest = match self.get(Column::Effort) {
            _ if reasons == Some(false) => return Some(Vec::new()),
            "none" => return Some(Vec::new()),
            cell => cell.parse::<Effort>().ok()?,
        };
        Some(Effort::ALL.into_iter().filter(|effort| *effort <= highest).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usd(text: &str) -> Cost {
        Cost::from_usd(text).unwrap()
    }

    #[test]
    fn every_row_is_read() {
        let all: Vec<_> = Catalogue::default().all().collect();
        assert_eq!(all.len() + families().count(), TABLE.lines().count() - 1);
        let priced = all.iter().filter(|m| m.price.is_some()).count();
        let written = models().filter(|row| !row.cells().get(Column::Input).is_empty()).count();
        assert_eq!(priced, written);
        // The first of two rows would hide the second, and families are looked for at the top only.
        let names: std::collections::HashSet<&str> = all.iter().map(|m| &*m.name).collect();
        assert_eq!(names.len(), all.len());
        assert!(models().all(|row| row.prefix().is_none()));
        // A cell that cannot be read would silently count as empty.
        for row in ROWS.iter() {
            let cells = row.cells();
            let cell = |column| cells.get(column);
            assert!(
                matches!(cell(Column::Thinking), "" | "budget" | "adaptive" | "adaptive+budget"),
                "{}",
                row.line
            );
            assert!(matches!(cell(Column::Effort), "" | "none" | "high" | "max"), "{}", row.line);
            for flag in [Column::Reasoning, Column::Vision, Column::Pdf, Column::MediaInResults] {
                assert!(matches!(cell(flag), "" | "0" | "1"), "{}", row.line);
            }
        }
        let header: Vec<&str> = TABLE.lines().next().unwrap().split(',').collect();
        assert_eq!((header[Column::Pdf as usize], header[Column::Alias as usize]), ("pdf", "alias"));
        assert_eq!(header.len(), COLUMNS);
    }

    #[test]
    fn names_are_found_with_date_prefix_and_alias() {
        let c = Catalogue::default();
        let sonnet = c.find("claude-sonnet-4-5").unwrap();
        assert_eq!(c.find("claude-sonnet-4-5-20250929").unwrap(), sonnet);
        assert_eq!(c.find("anthropic/claude-sonnet-4-5").unwrap(), sonnet);
        assert_eq!(c.find("anthropic/claude-sonnet-4-5-20250929").unwrap(), sonnet);
        assert_eq!(c.find("sonnet").unwrap().name, c.resolve("sonnet"));
        assert_eq!(sonnet.price.unwrap().cache_read, usd("0.3"));
        assert_eq!(c.find("no-such-model"), None);
        assert_eq!(c.info("no-such-model"), ModelInfo::unknown("no-such-model"));
    }

    /// Derived from the file itself, so that a new row moves the alias and this test with it.
    #[test]
    fn aliases_stand_for_the_newest_row_of_their_family() {
        let c = Catalogue::default();
        let aliases: Vec<(&str, &str)> = c.aliases().collect();
        let names: Vec<&str> = aliases.iter().map(|(alias, _)| *alias).collect();
        assert_eq!(names, ["fable", "haiku", "mythos", "opus", "sonnet"]);
        for (alias, model) in aliases {
            let begin = format!("claude-{alias}-");
            // `4-8` and `5` as 4.08 and 5.00.
            let number = |line: &&str| -> Option<f64> {
                let rest = line.split(',').nth(1)?.strip_prefix(&begin)?;
                let (major, minor) = rest.split_once('-').unwrap_or((rest, "0"));
                Some(major.parse::<f64>().ok()? + minor.parse::<f64>().ok()? / 100.0)
            };
            let newest = TABLE
                .lines()
                .filter(|line| number(line).is_some())
                .max_by(|a, b| number(a).partial_cmp(&number(b)).unwrap());
            assert_eq!(newest.unwrap().split(',').nth(1), Some(model), "{alias}");
            assert_eq!(c.resolve(alias), model);
        }
        assert_eq!(c.resolve("gpt-5"), "gpt-5");
        assert_eq!(c.resolve(""), "");
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        let of = |names: &[&'static str]| newest(names.iter().copied(), "m-");
        assert_eq!(of(&["m-4-8", "m-5", "m-4-10"]), Some("m-5"));
        assert_eq!(of(&["m-4-9", "m-4-10"]), Some("m-4-10"));
        assert_eq!(of(&["m-5", "m-5-5", "m-4"]), Some("m-5-5"));
        assert_eq!(of(&["m-1", "m-2-preview", "m-20260101", "m-", "n-9"]), Some("m-1"));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn a_registered_model_can_be_the_newest_and_can_take_an_alias() {
        let mut c = Catalogue::default();
        c.register_model(ModelInfo::unknown("claude-opus-99"));
        assert_eq!(c.resolve("opus"), "claude-opus-99");
        c.register_model(ModelInfo { context_tokens: Some(7), ..ModelInfo::unknown("opus") });
        assert_eq!((c.resolve("opus"), c.find("opus").unwrap().context_tokens), ("opus", Some(7)));
    }

    #[test]
    fn thinking_effort_and_names_are_shown() {
        let c = Catalogue::default();
        let sonnet = c.find("claude-sonnet-4-6").unwrap();
        assert_eq!(
            (sonnet.display_name().as_str(), sonnet.thinking),
            ("Claude Sonnet 4.6", Some(ThinkingKinds::ALL))
        );
        assert_eq!(sonnet.efforts.as_deref(), Some(&Effort::ALL[..]));
        let shown = sonnet.description();
        assert!(shown.contains("tokens of context, thinks, sees pictures, reads PDFs"), "{shown}");
        let opus = c.find("claude-opus-4-5").unwrap();
        assert_eq!(
            (opus.thinking, opus.efforts.as_deref()),
            (Some(ThinkingKinds::BUDGET), Some(&Effort::ALL[..3]))
        );
        assert_eq!(c.find("claude-haiku-4-5").unwrap().efforts, Some(vec![]));
        assert_eq!(c.find("anthropic/claude-opus-4-8").unwrap().efforts.as_deref(), Some(&Effort::ALL[..]));
        let gpt = c.find("gpt-4.1").unwrap();
        assert_eq!((gpt.thinking, gpt.efforts.as_deref()), (Some(ThinkingKinds::NONE), Some(&[][..])));
        assert_eq!(c.find("gpt-5").unwrap().efforts.as_deref(), Some(&Effort::ALL[..3]));
        // That it thinks is known, in which ways is not.
        let qwen = c.find("qwen3-max").unwrap();
        assert_eq!((qwen.thinking, qwen.efforts, qwen.vision), (Some(ThinkingKinds::ALL), None, Some(false)));
    }

    #[test]
    fn a_model_without_a_row_is_known_by_its_family() {
        let c = Catalogue::default();
        let next = c.find("claude-opus-77").unwrap();
        assert_eq!((next.name.as_str(), next.vendor.as_str()), ("claude-opus-77", "anthropic"));
        assert_eq!((next.price, next.context_tokens, next.vision), (None, None, Some(true)));
        assert_eq!(next.thinking, Some(ThinkingKinds { adaptive: true, budget: false, off: false }));
        // The longest prefix counts.
        assert_eq!(c.find("claude-opus-4-1-20250805").unwrap().thinking, Some(ThinkingKinds::BUDGET));
        assert_eq!(c.find("gpt-99").unwrap().thinking, None);
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
        assert_eq!(a.all().count(), b.all().count() + 1);
    }

    #[test]
    fn an_override_changes_what_it_says_and_nothing_else() {
        let mut c = Catalogue::default();
        let known = c.find("claude-sonnet-4-6").unwrap();
        c.register_model(ModelInfo { vision: Some(false), ..ModelInfo::unknown("claude-sonnet-4-6") });
        let want = ModelInfo { vision: Some(false), ..known };
        assert_eq!(c.find("claude-sonnet-4-6").unwrap(), want);
        assert_eq!(c.find("anthropic/claude-sonnet-4-6").unwrap(), want, "under each spelling");
        assert_eq!(c.all().filter(|m| m.name == "claude-sonnet-4-6").collect::<Vec<_>>(), [want]);
    }
}
