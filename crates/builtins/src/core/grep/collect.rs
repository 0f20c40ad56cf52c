//! What the threads of a search bring together. Owns the bound on it: only what can be shown is kept, and the first in
//! the order of paths is what is shown.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::input::{MAX_HELD, MAX_SEARCHED};
use crate::bounds::count;
use crate::walk::WITHOUT_RULES;

/// Kept beyond what is needed before anything is thrown away, so that throwing away stays rare.
const SLACK: usize = 2_000;
/// More text is not kept, whatever the limit.
pub(super) const MAX_BYTES: usize = 8 * 1024 * 1024;

/// Binary files are named up to so many.
const MAX_NAMED: usize = 20;

/// A line of an answer.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) number: Option<u64>,
    pub(super) is_match: bool,
    /// There are lines between this and the one before that are not shown.
    pub(super) is_after_gap: bool,
    pub(super) text: String,
}

/// What a file holds.
#[derive(Debug, Default)]
pub(super) struct Hits {
    pub(super) matches: u64,
    /// How many lines of an answer it is; the first of them may be counted only.
    pub(super) lines: usize,
    pub(super) records: Vec<Record>,
    /// There is more in the file.
    pub(super) is_cut: bool,
}

impl Hits {
    fn bytes(&self) -> usize {
        self.records.iter().map(|r| r.text.len() + size_of::<Record>()).sum()
    }
}

/// All that was found.
#[derive(Debug, Default)]
pub(super) struct Collected {
    pub(super) files: BTreeMap<PathBuf, Hits>,
    /// There is more.
    pub(super) is_cut: bool,
    pub(super) is_late: bool,
    unreadable: usize,
    huge: usize,
    long_lines: usize,
    links: usize,
    is_without_rules: bool,
    binary: Vec<PathBuf>,
}

impl Collected {
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for path in self.binary.iter().take(MAX_NAMED) {
            notes.push(format!("{} is a binary file that matches", path.display()));
        }
        if let more @ 1.. = self.binary.len().saturating_sub(MAX_NAMED) {
            notes.push(format!("{more} more binary files match"));
        }
        if self.is_without_rules {
            notes.push(WITHOUT_RULES.to_owned());
        }
        if self.files.is_empty() && self.links > 0 {
            let links = count(self.links, "link");
            notes.push(format!("{links} to files not followed: name one outright to search it"));
        }
        if self.unreadable > 0 {
            notes.push(format!("{} could not be read", count(self.unreadable, "file")));
        }
        if self.long_lines > 0 {
            notes.push(format!(
                "{} searched in part: of a line, no more than the first {} MB",
                count(self.long_lines, "file"),
                MAX_SEARCHED / 1024 / 1024
            ));
        }
        if self.huge > 0 {
            notes.push(format!(
                "{} left out: with multiline, a file of more than {} MB",
                count(self.huge, "file"),
                MAX_HELD / 1024 / 1024
            ));
        }
        notes
    }
}

/// Shared by the threads.
pub(super) struct Collector {
    needed: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    collected: Collected,
    lines: usize,
    bytes: usize,
    /// From this path on nothing is needed any more.
    end: Option<PathBuf>,
}

impl Collector {
    /// `needed` lines will be shown, or left out before.
    pub(super) fn new(needed: usize) -> Self {
        Self { needed, state: Mutex::default() }
    }

    /// Whether what is in the file can still be shown.
    pub(super) fn wants(&self, path: &Path) -> bool {
        self.state.lock().is_ok_and(|state| state.end.as_deref().is_none_or(|end| path < end))
    }

    pub(super) fn add(&self, path: &Path, hits: Hits) {
        let Ok(mut state) = self.state.lock() else { return };
        if state.end.as_deref().is_some_and(|end| path >= end) {
            return;
        }
        state.lines += hits.lines;
        state.bytes += hits.bytes();
        state.collected.is_cut |= hits.is_cut;
        state.collected.files.insert(path.to_owned(), hits);
        if state.lines > self.needed.saturating_add(SLACK) || state.bytes > MAX_BYTES {
            state.prune(self.needed);
        }
    }

    pub(super) fn unreadable(&self) {
        if let Ok(mut state) = self.state.lock() {
            state.collected.unreadable += 1;
        }
    }

    pub(super) fn long_line(&self) {
        if let Ok(mut state) = self.state.lock() {
            state.collected.long_lines += 1;
        }
    }

    pub(super) fn huge(&self) {
        if let Ok(mut state) = self.state.lock() {
            state.collected.huge += 1;
        }
    }

    pub(super) fn binary(&self, path: &Path) {
        if let Ok(mut state) = self.state.lock() {
            state.collected.binary.push(path.to_owned());
        }
    }

    /// There is a link to a file, which is not followed.
    pub(super) fn link(&self) {
        if let Ok(mut state) = self.state.lock() {
            state.collected.links += 1;
        }
    }

    /// What matches was found without rules only.
    pub(super) fn without_rules(&self) {
        if let Ok(mut state) = self.state.lock() {
            state.collected.is_without_rules = true;
        }
    }

    /// Whether anything matches so far.
    pub(super) fn has_any(&self) -> bool {
        self.state.lock().is_ok_and(|state| !state.collected.files.is_empty())
    }

    /// Forgets what was met.
    pub(super) fn begin_again(&self) {
        if let Ok(mut state) = self.state.lock() {
            *state = State::default();
        }
    }

    pub(super) fn late(&self) {
        if let Ok(mut state) = self.state.lock() {
            state.collected.is_late = true;
        }
    }

    /// The files, in order, and how many lines of an answer each is.
    pub(super) fn lines(&self) -> Vec<(PathBuf, usize)> {
        let of = |(path, hits): (&PathBuf, &Hits)| (path.clone(), hits.lines);
        self.state.lock().map(|state| state.collected.files.iter().map(of).collect()).unwrap_or_default()
    }

    /// Puts lines with their text where they were counted only.
    pub(super) fn fill(&self, path: &Path, lines: usize, records: Vec<Record>) {
        if let Ok(mut state) = self.state.lock()
            && let Some(hits) = state.collected.files.get_mut(path)
        {
            (hits.lines, hits.records) = (lines, records);
        }
    }

    /// What there is; threads that were given up may still be at work.
    pub(super) fn take(&self) -> Collected {
        self.state.lock().map(|mut state| std::mem::take(&mut state.collected)).unwrap_or_default()
    }
}

impl State {
    /// Throws away the last files, as long as the rest is enough.
    fn prune(&mut self, needed: usize) {
        while let Some((path, hits)) = self.collected.files.last_key_value() {
            let (lines, bytes) = (hits.lines, hits.bytes());
            let is_needed = self.lines - lines <= needed && self.bytes <= MAX_BYTES;
            if is_needed || self.collected.files.len() == 1 {
                break;
            }
            self.end = Some(path.clone());
            self.collected.is_cut = true;
            self.lines -= lines;
            self.bytes -= bytes;
            self.collected.files.pop_last();
        }
    }
}
