//! The report of an attack: printed as it grows, and written to a file.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::truth::Verdict;

/// A report.
pub struct Report {
    folder: PathBuf,
    file: std::fs::File,
    violations: BTreeMap<String, Vec<String>>,
    counts: BTreeMap<String, usize>,
    words: BTreeMap<String, usize>,
}

impl Report {
    /// Begins the report of an attack, in a folder of its own, from which earlier content is removed.
    pub fn new(attack: &str, seed: u64) -> std::io::Result<Self> {
        let base = std::env::current_exe()?;
        let target = base.parent().and_then(Path::parent).unwrap_or(Path::new("target"));
        let folder = target.join("attack").join(format!("{attack}-{seed}"));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)?;
        let file = std::fs::File::create(folder.join("report.txt"))?;
        let mut report = Self {
            folder,
            file,
            violations: BTreeMap::new(),
            counts: BTreeMap::new(),
            words: BTreeMap::new(),
        };
        report.line(&format!("{attack}, seed {seed}; files in {}", report.folder.display()));
        Ok(report)
    }

    /// Returns the folder for what the attack leaves.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes a line.
    pub fn line(&mut self, text: &str) {
        println!("{text}");
        let _ = writeln!(self.file, "{text}");
    }

    /// Counts something.
    pub fn count(&mut self, what: &str, n: usize) {
        *self.counts.entry(what.to_owned()).or_default() += n;
    }

    /// Notes a violation; its first word is its kind.
    pub fn violation(&mut self, at: &str, text: &str) {
        self.line(&format!("VIOLATION {at}: {text}"));
        let kind = text.split(':').next().unwrap_or_default();
        let kind = if kind.starts_with("SILENT") { kind } else { kind.split(' ').next().unwrap_or_default() };
        let kind = kind.to_owned();
        self.violations.entry(kind).or_default().push(at.to_owned());
    }

    /// Adds the result of comparing a session with its journal.
    pub fn add(&mut self, at: &str, verdict: &Verdict) {
        for violation in &verdict.violations {
            self.violation(at, violation);
        }
        for ((tool, told), n) in &verdict.counts {
            self.count(&format!("told of {tool}: {told:?}"), *n);
        }
        for (template, n) in &verdict.templates {
            *self.words.entry(template.clone()).or_default() += n;
        }
        self.count("told that the outcome is unknown, of calls that had not had an effect", verdict.cautious);
        self.count("effects that came after the model was told of their call", verdict.late);
    }

    /// Writes the counts and returns whether there was no violation.
    pub fn end(mut self) -> bool {
        for (what, n) in std::mem::take(&mut self.counts) {
            self.line(&format!("{n:6}  {what}"));
        }
        if !self.words.is_empty() {
            self.line("what the model was told:");
            for (template, n) in std::mem::take(&mut self.words) {
                self.line(&format!("{n:6}  {}", template.replace('\n', "\\n")));
            }
        }
        let violations = std::mem::take(&mut self.violations);
        let total: usize = violations.values().map(Vec::len).sum();
        for (kind, places) in violations {
            let first = places.first().map_or("", String::as_str);
            self.line(&format!("{:6}  violations of kind {kind}, the first in {first}", places.len()));
        }
        self.line(&format!("{total} violations"));
        total == 0
    }
}
