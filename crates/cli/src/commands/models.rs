//! `models`: the catalogue as a table or as JSON. Asks nobody: what is shown is what the program knows.

use std::io::{self, Write as _};

use anyhow::Result;
use clap::Args;
use open_agent::model::PRICES_AS_OF;
use open_agent::{Catalogue, Cost, Effort, ModelInfo};
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
    /// In USD for a million tokens; `null` = not known.
    models: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    value: String,
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
        let wanted =
            |m: &ModelInfo| m.name.to_lowercase().contains(&filter) || m.vendor.to_lowercase().contains(&filter);
        let models: Vec<Row> = Catalogue::default().all().filter(wanted).map(Row::from).collect();
        let text = if self.json {
            let listing = Listing { prices_as_of: PRICES_AS_OF, models };
            serde_json::to_string_pretty(&listing)? + "\n"
        } else {
            table(&models)
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
            supports_effort: !m.efforts.is_empty(),
            supports_adaptive_thinking: m.adaptive_thinking,
            value: m.name,
            vendor: m.vendor,
            context_tokens: m.context_tokens,
            max_output_tokens: m.max_output_tokens,
            thinking: m.thinking,
            vision: m.vision,
            pdf: m.pdf,
            supported_effort_levels: m.efforts,
        }
    }
}

fn table(models: &[Row]) -> String {
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
    text += &format!("\nPrices in USD for a million tokens, as of {PRICES_AS_OF}; - = not known.\n");
    text
}
