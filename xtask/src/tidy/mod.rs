//! `tidy`: the rules of the code base that no compiler checks. Each submodule owns one kind of rule and reports into
//! one [`Report`]; none of them changes a file.

mod arrows;
mod circles;
mod code;
mod features;
mod files;
mod licences;
mod metadata;
mod sizes;
mod source;
mod table;
mod trees;

use std::path::Path;

use anyhow::Result;

use self::files::Tracked;
use self::metadata::Metadata;

/// What the checks found. A warning is shown and fails nothing.
#[derive(Default)]
pub(crate) struct Report {
    errors: Vec<String>,
    warnings: Vec<String>,
}

impl Report {
    fn error(&mut self, text: impl Into<String>) {
        self.errors.push(text.into());
    }

    fn warn(&mut self, text: impl Into<String>) {
        self.warnings.push(text.into());
    }
}

/// Checks the workspace at `root`; prints every finding and one closing line of counts.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let mut report = Report::default();
    let files = Tracked::load(root)?;
    let metadata = Metadata::load(root)?;

    let arrows = arrows::check(&metadata, &mut report);
    let trees = trees::check(root, &metadata, &mut report)?;
    features::check(root, &mut report)?;
    let sources = files.rust_sources();
    let lines = sizes::check(&files, &sources, &mut report)?;
    source::check(&sources, &mut report);
    circles::check(&sources, &mut report);
    let foreign = licences::check(&metadata, &mut report);

    for text in &report.warnings {
        println!("warning: {text}");
    }
    for text in &report.errors {
        println!("error: {text}");
    }
    println!(
        "tidy: {} crates, {arrows} arrows, {trees} dependency trees, {} files, {} Rust files, {lines} lines, \
         {foreign} third-party crates: {} errors, {} warnings",
        metadata.members().count(),
        files.all.len(),
        sources.len(),
        report.errors.len(),
        report.warnings.len(),
    );
    Ok(report.errors.is_empty())
}
