//! Walking folders as ripgrep does: hidden files and what ignore files name are left out, links are not followed. Owns
//! the count of what was left out and the deadline.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ignore::overrides::Override;
use ignore::types::Types;
use ignore::{DirEntry, WalkBuilder, WalkState};
use tokio_util::sync::CancellationToken;

use crate::bounds::count;

/// How long a walk may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Ends work that takes too long or is not wanted any more.
#[derive(Clone)]
pub(crate) struct Deadline {
    until: Instant,
    cancel: CancellationToken,
}

impl Deadline {
    pub(crate) fn new(patience: Duration, cancel: &CancellationToken) -> Self {
        Self { until: Instant::now() + patience, cancel: cancel.clone() }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.cancel.is_cancelled() || Instant::now() >= self.until
    }
}

/// What is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rules {
    /// Hidden files and what ignore files name.
    All,
    /// What ignore files name.
    Ignored,
    /// Nothing but Git's own folder.
    None,
}

/// A folder to walk.
pub(crate) struct Walk<'a> {
    pub(crate) root: &'a Path,
    pub(crate) rules: Rules,
    pub(crate) max_depth: Option<usize>,
    pub(crate) overrides: Override,
    pub(crate) types: Types,
    pub(crate) deadline: &'a Deadline,
}

/// What a walk met besides what it gave.
#[derive(Default)]
pub(crate) struct Tally {
    files: AtomicUsize,
    present: AtomicUsize,
    given: AtomicUsize,
    present_hidden: AtomicUsize,
    given_hidden: AtomicUsize,
    unreadable: AtomicUsize,
    late: AtomicBool,
}

impl Walk<'_> {
    /// Walks with several threads; `visitor` makes the function that a thread calls with each file.
    pub(crate) fn run<F>(&self, mut visitor: impl FnMut() -> F) -> Tally
    where
        F: FnMut(&DirEntry) + Send,
    {
        let tally = Tally::default();
        let mut builder = WalkBuilder::new(self.root);
        builder
            .hidden(self.rules == Rules::All)
            .overrides(self.overrides.clone())
            .types(self.types.clone())
            .max_depth(self.max_depth)
            .add_custom_ignore_filename(".rgignore");
        if self.rules == Rules::None {
            builder.ignore(false).git_ignore(false).git_global(false).git_exclude(false).parents(false);
        }
        if self.rules != Rules::All {
            builder.filter_entry(|entry| entry.depth() == 0 || entry.file_name() != ".git");
        }
        builder.build_parallel().run(|| {
            let mut visit = visitor();
            let tally = &tally;
            Box::new(move |entry| self.step(entry, tally, &mut visit))
        });
        tally
    }

    fn step(
        &self,
        entry: Result<DirEntry, ignore::Error>,
        tally: &Tally,
        visit: &mut impl FnMut(&DirEntry),
    ) -> WalkState {
        if self.deadline.is_over() {
            tally.late.store(true, Ordering::Relaxed);
            return WalkState::Quit;
        }
        let Ok(entry) = entry else {
            tally.unreadable.fetch_add(1, Ordering::Relaxed);
            return WalkState::Continue;
        };
        let Some(kind) = entry.file_type() else { return WalkState::Continue };
        if entry.depth() > 0 {
            tally.given.fetch_add(1, Ordering::Relaxed);
            if is_hidden(entry.file_name()) {
                tally.given_hidden.fetch_add(1, Ordering::Relaxed);
            }
        }
        if kind.is_dir() {
            if self.max_depth.is_none_or(|max| entry.depth() < max) {
                self.count_present(entry.path(), tally);
            }
        } else if kind.is_file() {
            tally.files.fetch_add(1, Ordering::Relaxed);
            visit(&entry);
        }
        WalkState::Continue
    }

    /// Counts what is in a folder: the walk does not say what it leaves out.
    fn count_present(&self, folder: &Path, tally: &Tally) {
        if self.rules == Rules::None {
            return;
        }
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        let (mut present, mut hidden) = (0, 0);
        let selects = !self.overrides.is_empty() || !self.types.is_empty();
        for entry in entries.flatten() {
            let name = entry.file_name();
            if name == ".git" {
                continue;
            }
            if selects {
                let path = folder.join(&name);
                let is_dir = entry.file_type().is_ok_and(|t| t.is_dir());
                let wanted = self.overrides.matched(&path, is_dir);
                if wanted.is_ignore() || (wanted.is_none() && self.types.matched(&path, is_dir).is_ignore()) {
                    continue;
                }
            }
            present += 1;
            hidden += usize::from(is_hidden(&name));
        }
        tally.present.fetch_add(present, Ordering::Relaxed);
        tally.present_hidden.fetch_add(hidden, Ordering::Relaxed);
    }
}

impl Tally {
    /// Files that were given.
    pub(crate) fn files(&self) -> usize {
        self.files.load(Ordering::Relaxed)
    }

    /// The walk was ended before it was through.
    pub(crate) fn is_late(&self) -> bool {
        self.late.load(Ordering::Relaxed)
    }

    /// Notes that the walk's work was ended early.
    pub(crate) fn set_late(&self) {
        self.late.store(true, Ordering::Relaxed);
    }

    /// Files and folders that were left out: by ignore files, and as hidden.
    pub(crate) fn skipped(&self) -> (usize, usize) {
        let of = |n: &AtomicUsize| n.load(Ordering::Relaxed);
        if self.is_late() {
            // What was counted and not yet given was not left out.
            return (0, 0);
        }
        let hidden = of(&self.present_hidden).saturating_sub(of(&self.given_hidden));
        let all = of(&self.present).saturating_sub(of(&self.given));
        (all.saturating_sub(hidden), hidden)
    }

    /// What has to be said about the walk.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let (ignored, hidden) = self.skipped();
        if ignored > 0 {
            notes.push(format!("{} skipped because ignore files (.gitignore …) name them", entries(ignored)));
        }
        if hidden > 0 {
            notes.push(format!("{} skipped as hidden", entries(hidden)));
        }
        if ignored + hidden > 0 {
            notes.push("name such a folder or file outright to look into it".into());
        }
        let unreadable = self.unreadable.load(Ordering::Relaxed);
        if unreadable > 0 {
            notes.push(format!("{} could not be read", count(unreadable, "folder")));
        }
        if self.is_late() {
            notes.push(
                "STOPPED EARLY because it took too long: the result is incomplete, narrow it down".into(),
            );
        }
        notes
    }
}

fn entries(n: usize) -> String {
    if n == 1 { "1 file or folder was".into() } else { format!("{n} files and folders were") }
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_bytes().first() == Some(&b'.')
}

/// The note below an answer.
pub(crate) fn with_notes(mut text: String, notes: &[String]) -> String {
    if !notes.is_empty() {
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str(&format!("[{}.]", notes.join("; ")));
    }
    text
}

/// Where to walk, and whether that place was named outright.
pub(crate) struct Start {
    pub(crate) folder: PathBuf,
    pub(crate) is_named: bool,
}
