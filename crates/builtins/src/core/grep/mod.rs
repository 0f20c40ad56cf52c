//! Grep: text in files, with ripgrep's own engine in this process. The answer is in the order of paths, whatever thread
//! was first.

mod collect;
mod input;
mod search;

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use ignore::overrides::{Override, OverrideBuilder};
use ignore::types::{Types, TypesBuilder};
use open_agent_model::Effect;
use open_agent_tool::{Files, Located, PathKind, Planned, PlannedTool, ToolCx, ToolError, ToolOutput};
use serde::Serialize;

use self::collect::{Collected, Collector, Record};
use self::input::{DEFAULT_LIMIT, Input, OutputMode, has_context, matcher, needed};
use self::search::Search;
use crate::bounds::{MAX_CHARS, count, head_and_tail};
use crate::paths::{Lookup, explain, locate, read_access, shown};
use crate::walk::{Deadline, PATIENCE, Rules, Tally, Walk, with_notes};

/// Characters of the heading and of the note that says where the next page begins, at most.
const MAX_HEADING: usize = 300;

pub(super) struct Grep;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Details<'a> {
    mode: OutputMode,
    num_files: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    filenames: Vec<&'a str>,
    num_lines: usize,
    num_matches: u64,
    applied_limit: Option<usize>,
    applied_offset: usize,
    truncated: bool,
    timed_out: bool,
    skipped_ignored: usize,
    skipped_hidden: usize,
}

impl PlannedTool for Grep {
    const NAME: &'static str = "Grep";
    type Input = Input;
    type Plan = (Input, Lookup);

    fn description(&self) -> String {
        "Searches file contents for a regular expression, with ripgrep's engine: faster than grep in Bash. Results are \
         sorted by path. Hidden files, what .gitignore names and binary files are left out unless path names them \
         outright. Braces and other special characters have to be escaped: `interface\\{\\}`."
            .into()
    }

    fn plan(&self, input: Input, cx: &ToolCx) -> Planned<Self::Plan> {
        let path = input.path.as_deref().unwrap_or(".");
        let at = locate(cx, path);
        let access = vec![read_access(cx, path, &at)];
        Planned { access, effect: Effect::ReadOnly, plan: (input, at) }
    }

    async fn call(&self, (input, at): Self::Plan, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        answer(input, at?, cx, Deadline::new(PATIENCE, cx.cancel())).await
    }
}

/// Where to search.
enum Place {
    Folder(Box<Root>),
    File(Located, File),
}

async fn answer(input: Input, at: Located, cx: &ToolCx, deadline: Deadline) -> Result<ToolOutput, ToolError> {
    let place = if at.kind() == PathKind::Folder {
        Place::Folder(Box::new(Root {
            overrides: overrides(cx, at.path(), input.glob.as_deref())?,
            types: types(input.r#type.as_deref())?,
            is_named: at.path() != cx.cwd(),
            files: Arc::clone(&cx.ports().files),
            at,
        }))
    } else {
        let file = cx.files().open(&at).await.map_err(|error| explain(cx, at.path(), error))?;
        Place::File(at, file)
    };
    let collector = Arc::new(Collector::new(needed(&input)));
    let (asked, watched, into) = (input.clone(), deadline.clone(), Arc::clone(&collector));
    let work = move || {
        // Here, for a large pattern takes its time.
        let search = Search::new(&asked, matcher(&asked)?);
        Ok::<_, ToolError>(match place {
            Place::Folder(root) => {
                let tally = search_folder(&search, &root, &into, &watched);
                search.worker(&into, &watched).bring_page(|path| root.open(path));
                tally
            }
            Place::File(at, file) => {
                search.file_alone(at.path(), file, &into, &watched);
                Tally::default()
            }
        })
    };
    let mut tally = deadline.bound(work).await?.unwrap_or_else(|| Ok(Tally::late()))?;
    let collected = collector.take();
    if collected.is_late {
        tally.set_late();
    }
    Ok(output(cx, &input, collected, &tally))
}

/// As ripgrep's `--glob`: relative to the working folder, and stronger than ignore files.
fn overrides(cx: &ToolCx, root: &Path, globs: Option<&str>) -> Result<Override, ToolError> {
    let Some(globs) = globs else { return Ok(Override::empty()) };
    let base = if root.starts_with(cx.cwd()) { cx.cwd() } else { root };
    let mut builder = OverrideBuilder::new(base);
    for glob in split_globs(globs) {
        builder.add(glob).map_err(|error| ToolError::bad_input(format!("glob: {error}")))?;
    }
    builder.build().map_err(|error| ToolError::bad_input(format!("glob: {error}")))
}

/// Several globs are separated by spaces, or by commas outside of braces.
fn split_globs(globs: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    globs
        .split(move |c: char| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            c.is_whitespace() || (c == ',' && depth <= 0)
        })
        .filter(|glob| !glob.is_empty())
}

fn types(name: Option<&str>) -> Result<Types, ToolError> {
    let Some(name) = name else { return Ok(Types::empty()) };
    let mut builder = TypesBuilder::new();
    builder.add_defaults().select(name);
    builder.build().map_err(|error| {
        ToolError::bad_input(format!("type: {error}. Use glob instead, such as \"*.{name}\"."))
    })
}

/// A folder to search.
struct Root {
    at: Located,
    files: Arc<dyn Files>,
    is_named: bool,
    overrides: Override,
    types: Types,
}

impl Root {
    /// Opens a file below it once more.
    fn open(&self, path: &Path) -> io::Result<File> {
        let below = path.strip_prefix(self.at.path()).map_err(io::Error::other)?;
        let (Some(folder), Some(name)) = (below.parent(), below.file_name()) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let folder = self.files.read_dir(&self.at, folder).map_err(io::Error::other)?;
        folder.open(name).map_err(io::Error::other)
    }
}

fn search_folder(search: &Search, root: &Root, into: &Collector, deadline: &Deadline) -> Tally {
    let by = |rules| {
        let walk = Walk {
            files: &*root.files,
            root: &root.at,
            rules,
            max_depth: None,
            overrides: root.overrides.clone(),
            types: root.types.clone(),
            deadline,
        };
        walk.run(|| {
            let mut worker = search.worker(into, deadline);
            move |met| match met.is_link() {
                false => worker.search(met),
                true if met.is_file() => into.link(),
                true => {}
            }
        })
    };
    let tally = by(Rules::All);
    if !root.is_named || into.has_any() || tally.is_late() {
        return tally;
    }
    // A folder that was named is meant as it is, where the rules leave nothing of it or nothing that matches.
    let (ignored, hidden) = tally.skipped();
    // With a filter, that nothing was met says nothing of the folder.
    let is_filtered = !root.overrides.is_empty() || !root.types.is_empty();
    if tally.files() == 0 && (ignored, hidden) != (0, 0) && !is_filtered {
        into.begin_again();
        return by(Rules::None);
    }
    if ignored > 0 {
        into.begin_again();
        let walked = by(Rules::None);
        if into.has_any() {
            into.without_rules();
            return walked;
        }
    }
    tally
}

fn output(cx: &ToolCx, input: &Input, collected: Collected, tally: &Tally) -> ToolOutput {
    let limit = match input.head_limit.unwrap_or(DEFAULT_LIMIT) {
        0 => usize::MAX,
        limit => limit,
    };
    let mut notes = collected.notes();
    notes.extend(tally.notes());
    // The page ends where the answer's bound is, so that nothing has to be cut out of its middle.
    let around = notes.iter().map(|note| note.chars().count() + 2).sum::<usize>() + MAX_HEADING;
    let mut out = Rendered {
        left_out: input.offset,
        room: limit,
        chars: MAX_CHARS.saturating_sub(around),
        ..Rendered::default()
    };
    let names: Vec<_> = collected.files.keys().map(|path| shown(cx, path).into_owned()).collect();
    for (name, hits) in names.iter().zip(collected.files.values()) {
        match input.output_mode {
            OutputMode::FilesWithMatches => out.line(|text| text.push_str(name)),
            OutputMode::Count => out.line(|text| text.push_str(&format!("{name}:{}", hits.matches))),
            OutputMode::Content => {
                out.pass_by(hits.lines - hits.records.len());
                for record in &hits.records {
                    render(&mut out, name, record, input.numbers.unwrap_or(true));
                }
                out.after_file(has_context(input));
            }
        }
    }
    let is_cut = out.is_cut || collected.is_cut;
    if let Some(note) = page_note(input, &out, is_cut, tally) {
        notes.insert(0, note);
    }
    let text = match input.output_mode {
        _ if collected.files.is_empty() => "No match.".to_owned(),
        OutputMode::Content => out.text,
        _ => format!("{}\n{}", found(input.output_mode, &collected), out.text),
    };
    let (skipped_ignored, skipped_hidden) = tally.skipped();
    let details = Details {
        mode: input.output_mode,
        num_files: names.len(),
        filenames: names.iter().take(DEFAULT_LIMIT).map(String::as_str).collect(),
        num_lines: out.lines,
        num_matches: collected.files.values().map(|hits| hits.matches).sum(),
        applied_limit: (limit != usize::MAX).then_some(limit),
        applied_offset: input.offset,
        truncated: is_cut || tally.is_late(),
        timed_out: tally.is_late(),
        skipped_ignored,
        skipped_hidden,
    };
    let text = with_notes(text.trim_end_matches('\n').to_owned(), &notes);
    ToolOutput::text(head_and_tail(text, "; narrow the search or use offset")).with_details(&details)
}

/// Says where the next page begins, or that this one is behind the last.
fn page_note(input: &Input, out: &Rendered, is_cut: bool, tally: &Tally) -> Option<String> {
    let what = if input.output_mode == OutputMode::Content { "lines" } else { "files" };
    let next = input.offset + out.lines;
    if is_cut && out.lines > 0 {
        return Some(format!("cut after {} {what}; more follow with offset {next}", out.lines));
    }
    // Of a search that was ended early nobody knows what is behind the offset.
    let is_behind = input.offset > 0 && out.lines == 0 && out.has_any && !is_cut && !tally.is_late();
    is_behind.then(|| format!("there is nothing behind offset {}", input.offset))
}

fn found(mode: OutputMode, collected: &Collected) -> String {
    let least = if collected.is_cut { "At least " } else { "" };
    let files = count(collected.files.len(), "file");
    if mode == OutputMode::Count {
        let matches: u64 = collected.files.values().map(|hits| hits.matches).sum();
        format!("{least}{files}, {}:", count(usize::try_from(matches).unwrap_or(usize::MAX), "matching line"))
    } else {
        format!("{least}{files}:")
    }
}

/// As ripgrep writes it: `path:12:text`, with `-` where the line is context.
fn render(out: &mut Rendered, name: &str, record: &Record, numbers: bool) {
    let Record { number, is_match, text, .. } = record;
    if record.is_after_gap {
        out.gap();
    }
    let sign = if *is_match { ':' } else { '-' };
    out.line(|line| {
        line.push_str(name);
        line.push(sign);
        if numbers && let Some(number) = number {
            line.push_str(&number.to_string());
            line.push(sign);
        }
        line.push_str(text);
    });
}

/// Lines of the answer, of which some are left out at the start and at the end.
#[derive(Default)]
struct Rendered {
    text: String,
    lines: usize,
    left_out: usize,
    room: usize,
    /// Characters that there is room for.
    chars: usize,
    is_cut: bool,
    /// There is something, shown or not.
    has_any: bool,
    gap: bool,
}

impl Rendered {
    fn line(&mut self, write: impl FnOnce(&mut String)) {
        let gap = std::mem::take(&mut self.gap);
        self.has_any = true;
        if self.left_out > 0 {
            self.left_out -= 1;
        } else if self.lines == self.room || self.is_cut {
            self.is_cut = true;
        } else {
            let before = self.text.len();
            if gap && self.lines > 0 {
                self.text.push_str("--\n");
            }
            write(&mut self.text);
            self.text.push('\n');
            let chars = self.text[before..].chars().count();
            match self.chars.checked_sub(chars) {
                // One is shown in any case, or the next page would begin where this one does.
                None if self.lines > 0 => {
                    self.text.truncate(before);
                    self.is_cut = true;
                }
                left => {
                    self.chars = left.unwrap_or(0);
                    self.lines += 1;
                }
            }
        }
    }

    /// Lines that were counted only.
    fn pass_by(&mut self, lines: usize) {
        let before = lines.min(self.left_out);
        self.left_out -= before;
        self.has_any |= lines > 0;
        self.is_cut |= lines > before;
    }

    fn gap(&mut self) {
        self.gap = true;
    }

    fn after_file(&mut self, has_context: bool) {
        self.gap = has_context;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing;

    async fn grep(cx: &ToolCx, input: serde_json::Value, deadline: Deadline) -> (String, serde_json::Value) {
        let input: Input = serde_json::from_value(input).unwrap();
        let at = locate(cx, input.path.as_deref().unwrap_or(".")).unwrap();
        testing::parts(&answer(input, at, cx, deadline).await.unwrap())
    }

    #[tokio::test]
    async fn h_grp_02_on_the_deadline_there_is_a_part_and_the_flag() {
        let (_dir, cx) = testing::folder_of_files(2_000, "needle\n");
        for mode in ["files_with_matches", "content", "count"] {
            let input = json!({"pattern": "needle", "output_mode": mode});
            let (text, details) = grep(&cx, input, Deadline::after_looks(300)).await;
            assert!(text.contains("STOPPED EARLY because it took too long"), "{text}");
            assert!(text.contains(".txt"), "{text}");
            let files = details["numFiles"].as_u64().unwrap();
            assert!((1..2_000).contains(&files), "{files}");
            assert_eq!(details["timedOut"], true);
        }
    }

    #[tokio::test]
    async fn a_file_that_has_no_end_is_read_until_the_deadline() {
        let (dir, cx) = testing::folder_of_files(0, "");
        let file = std::fs::File::create(dir.path().join("sparse")).unwrap();
        file.set_len(100 << 30).unwrap();
        let input = json!({"pattern": "needle", "path": "sparse"});
        let (text, details) = grep(&cx, input, Deadline::after_looks(200)).await;
        assert!(text.contains("STOPPED EARLY because it took too long"), "{text}");
        assert_eq!(details["timedOut"], true);
    }
}
