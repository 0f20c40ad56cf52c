//! `models`: the catalogue as a table or as JSON. Asks nobody: what is shown is what the program knows.

use std::collections::BTreeMap;
use std::io::{self, Write as _};

use anyhow::Result;
use clap::Args;
use open_agent::model::PRICES_AS_OF;
use open_agent::{Catalogue, Cost, Effort, ModelInfo, ThinkingKinds};
use serde::Serialize;

use crate::exit::Exit;

/// Options of `models`.
#[derive(Debug, Args)]
pub(crate) struct Models {
    /// Only models whose name or vendor contains this
    #[arg(value_name = "TEXT")]
    filter: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Listing {
    /// The day the prices were taken.
    prices_as_of: &'static str,
    /// Short names, and the models that they stand for.
    aliases: BTreeMap<String, String>,
    /// In USD for a million tokens; `null` = not known.
    models: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    value: String,
    /// Short names that stand for it now.
    aliases: Vec<String>,
    vendor: String,
    input_usd_per_mtok: Option<f64>,
    output_usd_per_mtok: Option<f64>,
    cache_read_usd_per_mtok: Option<f64>,
    cache_write_5m_usd_per_mtok: Option<f64>,
    cache_write_1h_usd_per_mtok: Option<f64>,
    context_tokens: Option<u64>,
    max_output_tokens: Option<u64>,
    thinking: bool,
    vision: bool,
    pdf: bool,
    display_name: String,
    description: String,
    supports_effort: bool,
    supported_effort_levels: Vec<Effort>,
    supports_adaptive_thinking: bool,
}

impl Models {
    pub(crate) fn run(self) -> Result<Exit> {
        let filter = self.filter.unwrap_or_default().to_lowercase();
        let catalogue = Catalogue::default();
        let owned = |(alias, model): (&str, &str)| (alias.to_owned(), model.to_owned());
        let mut aliases: BTreeMap<String, String> = catalogue.aliases().map(owned).collect();
        // Whoever looks for a short name is shown the model that it stands for.
        let stands_for = aliases.get(&filter).cloned();
        let wanted = |m: &ModelInfo| {
            let names = [m.name.to_lowercase(), m.vendor.to_lowercase()];
            names.iter().any(|name| name.contains(&filter)) || stands_for.as_ref() == Some(&m.name)
        };
        let mut models: Vec<Row> = catalogue.all().filter(wanted).map(Row::from).collect();
        for row in &mut models {
            let own = aliases.iter().filter(|(_, model)| **model == row.value);
            row.aliases = own.map(|(alias, _)| alias.clone()).collect();
        }
        aliases.retain(|_, model| models.iter().any(|row| row.value == *model));
        let text = if self.json {
            let listing = Listing { prices_as_of: PRICES_AS_OF, aliases, models };
            serde_json::to_string_pretty(&listing)? + "\n"
        } else {
            table(&models, &aliases)
        };
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        stdout.flush()?;
        Ok(Exit::Success)
    }
}

impl From<ModelInfo> for Row {
    fn from(m: ModelInfo) -> Self {
        let usd = |cost: fn(&open_agent::Price) -> Cost| m.price.as_ref().map(|p| cost(p).usd());
        Self {
            input_usd_per_mtok: usd(|p| p.input),
            output_usd_per_mtok: usd(|p| p.output),
            cache_read_usd_per_mtok: usd(|p| p.cache_read),
            cache_write_5m_usd_per_mtok: usd(|p| p.cache_write_5m),
            cache_write_1h_usd_per_mtok: usd(|p| p.cache_write_1h),
            display_name: m.display_name(),
            description: m.description(),
            supports_effort: m.efforts.as_ref().is_some_and(|efforts| !efforts.is_empty()),
            supports_adaptive_thinking: m.thinking.is_some_and(|kinds| kinds.adaptive),
            value: m.name,
            aliases: Vec::new(),
            vendor: m.vendor,
            context_tokens: m.context_tokens,
            max_output_tokens: m.max_output_tokens,
            thinking: m.thinking.is_some_and(ThinkingKinds::thinks),
            vision: m.vision == Some(true),
            pdf: m.pdf == Some(true),
            supported_effort_levels: m.efforts.unwrap_or_default(),
        }
    }
}

fn table(models: &[Row], aliases: &BTreeMap<String, String>) -> String {
    let usd = |price: Option<f64>| price.map_or_else(|| "-".to_owned(), |p| format!("{p}"));
    let tokens = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
    let mut rows = vec![
        ["MODEL", "VENDOR", "INPUT $", "OUTPUT $", "CACHED $", "WINDOW", "OUTPUT", "CAN"].map(str::to_owned),
    ];
    rows.extend(models.iter().map(|m| {
        let can =
            [(m.thinking, "think"), (m.supports_effort, "effort"), (m.vision, "see"), (m.pdf, "pdf")];
        let can: Vec<&str> = can.iter().filter(|(able, _)| *able).map(|(_, word)| *word).collect();
        [
            m.value.clone(),
            m.vendor.clone(),
            usd(m.input_usd_per_mtok),
            usd(m.output_usd_per_mtok),
            usd(m.cache_read_usd_per_mtok),
            tokens(m.context_tokens),
            tokens(m.max_output_tokens),
            can.join(" "),
        ]
    }));
    let widths: Vec<usize> =
        (0..8).map(|i| rows.iter().map(|r| r[i].chars().count()).max().unwrap_or_default()).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (i, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // Numbers end where their column ends.
            line += &if (2..7).contains(&i) { format!("{cell:>width$}  ") } else { format!("{cell:<width$}  ") };
        }
        text += line.trim_end();
        text.push('\n');
    }
    let aliases: Vec<String> = aliases.iter().map(|(alias, model)| format!("{alias} = {model}")).collect();
    if !aliases.is_empty() {
        text += &format!("\nShort names: {}.\n", aliases.join(", "));
    }
    text += &format!("\nPrices in USD for a million tokens, as of {PRICES_AS_OF}; - = not known.\n");
    text
}
