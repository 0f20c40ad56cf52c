//! Glob: files by name, the newest first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use ignore::overrides::Override;
use ignore::types::Types;
use open_agent_model::{Access, Effect};
use open_agent_tool::{Files, Located, PathKind, Planned, PlannedTool, ToolCx, ToolError, ToolOutput};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounds::head_and_tail;
use crate::paths::{explain, locate, shown};
use crate::walk::{Deadline, PATIENCE, Rules, Tally, WITHOUT_RULES, Walk, with_notes};

const MAX_FILES: usize = 100;

pub(super) struct Glob;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    /// Such as `*.rs` (at any depth), `src/**/*.{ts,tsx}`.
    pattern: String,
    /// The folder to start at (default: the working folder).
    path: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    filenames: Vec<String>,
    num_files: usize,
    total: usize,
    truncated: bool,
    timed_out: bool,
    skipped_ignored: usize,
    skipped_hidden: usize,
    duration_ms: u64,
}

impl PlannedTool for Glob {
    const NAME: &'static str = "Glob";
    type Input = Input;
    type Plan = Result<Search, ToolError>;

    fn description(&self) -> String {
        "Finds files by name, the newest first, 100 at most. Hidden files and what .gitignore names are left out unless \
         the pattern or path names them outright."
            .into()
    }

    fn plan(&self, input: Input, cx: &ToolCx) -> Planned<Self::Plan> {
        let plan = Search::of(cx, &input);
        let folder = match &plan {
            Ok(search) => search.folder.path().to_owned(),
            Err(_) => cx.cwd().join(input.path.as_deref().unwrap_or(".")),
        };
        Planned { access: vec![Access::Read(folder)], effect: Effect::ReadOnly, plan }
    }

    async fn call(&self, search: Self::Plan, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        answer(search?, cx, Deadline::new(PATIENCE, cx.cancel())).await
    }
}

async fn answer(search: Search, cx: &ToolCx, deadline: Deadline) -> Result<ToolOutput, ToolError> {
    let started = Instant::now();
    search.folder.require_folder().map_err(|error| explain(cx, search.folder.path(), error))?;
    let (files, watched) = (Arc::clone(&cx.ports().files), deadline.clone());
    let found = deadline.bound(move || find(&search, &*files, &watched)).await?;
    let late = || Answer { found: Found::default(), tally: Tally::late(), note: None };
    Ok(output(cx, found.unwrap_or_else(late), started))
}

/// What a pattern asks for.
pub(super) struct Search {
    folder: Located,
    /// The folder was named outright.
    is_named: bool,
    /// A set of one: a set knows short ways for common patterns.
    matcher: GlobSet,
    /// Below the folder: what a file would be called whose name has brackets.
    literal: Option<String>,
    max_depth: Option<usize>,
    names_hidden: bool,
}

impl Search {
    fn of(cx: &ToolCx, input: &Input) -> Result<Self, ToolError> {
        let base = locate(cx, input.path.as_deref().unwrap_or("."))?;
        let (prefix, rest) = split(&input.pattern);
        let folder =
            if prefix.is_empty() { base } else { cx.files().locate(base.path(), Path::new(prefix))? };
        if rest.is_empty() {
            return Err(ToolError::bad_input("the pattern names no file"));
        }
        // As in ignore files: without a slash, the name may be at any depth.
        let pattern = if input.pattern.contains('/') { rest.to_owned() } else { format!("**/{rest}") };
        let matcher = GlobBuilder::new(&pattern)
            .literal_separator(true)
            .build()
            .and_then(|glob| GlobSetBuilder::new().add(glob).build())
            .map_err(|error| ToolError::bad_input(format!("{error}. To find text in files, use Grep.")))?;
        let max_depth =
            (!pattern.contains("**") && !pattern.contains('{')).then(|| pattern.split('/').count());
        let names_hidden =
            rest.split('/').any(|part| part.starts_with('.') || part.contains("{.") || part.contains(",."));
        let may_be_literal = rest.contains(['[', '{']) && rest.split('/').all(|part| part != "..");
        let literal = may_be_literal.then(|| rest.to_owned());
        let is_named = folder.path() != cx.cwd();
        Ok(Self { folder, is_named, matcher, literal, max_depth, names_hidden })
    }
}

/// The folders that a pattern names plainly, and the rest of it.
fn split(pattern: &str) -> (&str, &str) {
    let mut at = 0;
    for (i, _) in pattern.match_indices('/') {
        if pattern[at..i].contains(['*', '?', '[', '{', '\\']) {
            break;
        }
        at = i + 1;
    }
    let prefix = &pattern[..at];
    (if prefix.len() > 1 { prefix.trim_end_matches('/') } else { prefix }, &pattern[at..])
}

/// The newest of the files that match.
#[derive(Default)]
struct Found {
    newest: BinaryHeap<Reverse<(SystemTime, Reverse<PathBuf>)>>,
    total: usize,
}

impl Found {
    fn push(&mut self, modified: SystemTime, path: &Path) {
        let is_full = self.newest.len() == MAX_FILES;
        if let (true, Some(Reverse((oldest, Reverse(last))))) = (is_full, self.newest.peek()) {
            if modified < *oldest || (modified == *oldest && path >= last) {
                return;
            }
            self.newest.pop();
        }
        self.newest.push(Reverse((modified, Reverse(path.to_owned()))));
    }

    /// Adds the one file of this name, if it is there and below the root.
    fn add_named(&mut self, root: &Located, files: &dyn Files, name: &str) {
        let path = root.path().join(name);
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return };
        let Ok(parent) = files.locate(root.path(), parent) else { return };
        if !parent.path().starts_with(root.path()) {
            return;
        }
        let Ok(folder) = files.read_dir(&parent, Path::new("")) else { return };
        if folder.target(name).is_ok_and(|behind| behind.kind == PathKind::File) {
            let modified = folder.entry(name).map_or(SystemTime::UNIX_EPOCH, |known| known.modified);
            self.total += 1;
            self.push(modified, &path);
        }
    }

    fn merge(&mut self, other: Self) {
        self.total += other.total;
        for Reverse((modified, Reverse(path))) in other.newest {
            self.push(modified, &path);
        }
    }
}

/// A thread's share; handed in when the thread is through.
struct Share<'a> {
    mine: Found,
    all: &'a Mutex<Found>,
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        if let Ok(mut all) = self.all.lock() {
            all.merge(std::mem::take(&mut self.mine));
        }
    }
}

/// What was found, and what is to be said about how.
struct Answer {
    found: Found,
    tally: Tally,
    note: Option<&'static str>,
}

fn find(search: &Search, files: &dyn Files, deadline: &Deadline) -> Answer {
    let rules = if search.names_hidden { Rules::Ignored } else { Rules::All };
    let (mut found, mut tally) = find_by(search, files, deadline, rules);
    let mut note = None;
    if found.total == 0
        && let Some(literal) = &search.literal
    {
        found.add_named(&search.folder, files, literal);
    }
    // A folder that was named is meant as it is, where the rules leave nothing of it or nothing that matches.
    if search.is_named && found.total == 0 && !tally.is_late() {
        let (ignored, hidden) = tally.skipped();
        let leaves_nothing = tally.files() == 0 && (ignored, hidden) != (0, 0);
        if leaves_nothing || ignored > 0 {
            let (more, walked) = find_by(search, files, deadline, Rules::None);
            if leaves_nothing || more.total > 0 {
                note = (!leaves_nothing).then_some(WITHOUT_RULES);
                (found, tally) = (more, walked);
            }
        }
    }
    Answer { found, tally, note }
}

fn find_by(search: &Search, files: &dyn Files, deadline: &Deadline, rules: Rules) -> (Found, Tally) {
    let all = Mutex::new(Found::default());
    let walk = Walk {
        files,
        root: &search.folder,
        rules,
        max_depth: search.max_depth,
        overrides: Override::empty(),
        types: Types::empty(),
        deadline,
    };
    let tally = walk.run(|| {
        let mut share = Share { mine: Found::default(), all: &all };
        move |met| {
            if search.matcher.is_match(met.relative) && met.is_file() {
                share.mine.total += 1;
                share.mine.push(met.modified(), met.path);
            }
        }
    });
    (all.into_inner().unwrap_or_default(), tally)
}

fn output(cx: &ToolCx, answer: Answer, started: Instant) -> ToolOutput {
    let Answer { found, tally, note } = answer;
    let total = found.total;
    let files: Vec<PathBuf> =
        found.newest.into_sorted_vec().into_iter().map(|Reverse((_, Reverse(path)))| path).collect();
    let names: Vec<String> = files.iter().map(|path| shown(cx, path).into_owned()).collect();
    let mut notes = Vec::new();
    if total > names.len() {
        notes.push(format!("{} of {total} files, the newest; narrow the pattern for others", names.len()));
    }
    notes.extend(note.map(str::to_owned));
    notes.extend(tally.notes());
    let text = if names.is_empty() { "No file matches.".to_owned() } else { names.join("\n") };
    let (skipped_ignored, skipped_hidden) = tally.skipped();
    let details = Details {
        num_files: names.len(),
        filenames: names,
        total,
        truncated: total > MAX_FILES || tally.is_late(),
        timed_out: tally.is_late(),
        skipped_ignored,
        skipped_hidden,
        duration_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or_default(),
    };
    ToolOutput::text(head_and_tail(with_notes(text, &notes), "")).with_details(&details)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[tokio::test]
    async fn h_grp_02_on_the_deadline_there_is_a_part_and_the_flag() {
        let (_dir, cx) = testing::folder_of_files(5_000, "");
        let input = Input { pattern: "*.txt".into(), path: None };
        let output = answer(Search::of(&cx, &input).unwrap(), &cx, Deadline::after_looks(20)).await.unwrap();
        let (text, details) = testing::parts(&output);
        assert!(text.contains("STOPPED EARLY because it took too long"), "{text}");
        assert!(text.starts_with("f") && text.contains(".txt\n"), "{text}");
        let total = details["total"].as_u64().unwrap();
        assert!((1..5_000).contains(&total), "{total}");
        assert_eq!((&details["timedOut"], &details["truncated"]), (&true.into(), &true.into()));
    }

    #[test]
    fn walks_start_where_the_pattern_stops_being_plain() {
        assert_eq!(split("*.rs"), ("", "*.rs"));
        assert_eq!(split("src/main.rs"), ("src", "main.rs"));
        assert_eq!(split("apps/a/**/x.json"), ("apps/a", "**/x.json"));
        assert_eq!(split("/etc/*.conf"), ("/etc", "*.conf"));
        assert_eq!(split("/*"), ("/", "*"));
        assert_eq!(split("{a,b}/c/d"), ("", "{a,b}/c/d"));
    }
}
