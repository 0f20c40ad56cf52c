//! Grep: text in files, with ripgrep's own engine in this process. The answer is in the order of paths, whatever thread
//! was first.

mod collect;
mod search;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use ignore::overrides::{Override, OverrideBuilder};
use ignore::types::{Types, TypesBuilder};
use open_agent_model::{Access, Effect};
use open_agent_tool::{PortError, Tool, ToolCx, ToolError, ToolOutput};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::collect::{Collected, Collector, Record};
use self::search::Search;
use crate::bounds::{MAX_CHARS, count, head_and_tail};
use crate::paths::{explain, read_access, resolve, shown};
use crate::walk::{Deadline, PATIENCE, Rules, Tally, Walk, with_notes};

const DEFAULT_LIMIT: usize = 250;
/// Bytes of a pattern that is ready for use, and of what a thread notes about it while it searches: repetitions of
/// repetitions grow beyond all bounds.
const MAX_PATTERN: usize = 32 * 1024 * 1024;
const MAX_STATES: usize = 64 * 1024 * 1024;
/// The most characters of a line that are shown.
pub(super) const MAX_LINE: usize = 1_000;

/// Characters of the heading and of the note that says where the next page begins, at most.
const MAX_HEADING: usize = 300;

pub(super) struct Grep;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum OutputMode {
    Content,
    #[default]
    FilesWithMatches,
    Count,
}

#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    /// A regular expression (Rust syntax).
    pattern: String,
    /// File or folder to search (default: the working folder).
    path: Option<String>,
    /// Only files like this: `*.ts`, `!*.min.js`.
    glob: Option<String>,
    /// Only files of this type: rust, py, js …
    r#type: Option<String>,
    /// Default: files_with_matches.
    #[serde(default)]
    output_mode: OutputMode,
    /// Lines after each match (content).
    #[serde(rename = "-A")]
    after: Option<usize>,
    /// Lines before each match (content).
    #[serde(rename = "-B")]
    before: Option<usize>,
    /// Lines before and after (content).
    #[serde(rename = "-C", alias = "context")]
    context: Option<usize>,
    /// Line numbers (content; default true).
    #[serde(rename = "-n")]
    numbers: Option<bool>,
    /// Ignore case.
    #[serde(rename = "-i", default)]
    ignore_case: bool,
    /// Only the matching parts (content).
    #[serde(rename = "-o", default)]
    only_matching: bool,
    /// `.` matches line ends, and matches may span lines.
    #[serde(default)]
    multiline: bool,
    /// At most this many lines or files (default 250, 0 = all).
    head_limit: Option<usize>,
    /// Leave out this many first.
    #[serde(default)]
    offset: usize,
}

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

impl Tool for Grep {
    const NAME: &'static str = "Grep";
    type Input = Input;

    fn description(&self) -> String {
        "Searches file contents for a regular expression, with ripgrep's engine: faster than grep in Bash. Results are \
         sorted by path. Hidden files, what .gitignore names and binary files are left out unless path names them \
         outright. Braces and other special characters have to be escaped: `interface\\{\\}`."
            .into()
    }

    fn access(&self, input: &Input, cx: &ToolCx) -> Vec<Access> {
        vec![read_access(cx, input.path.as_deref().unwrap_or("."))]
    }

    fn effect(&self, _: &Input) -> Effect {
        Effect::ReadOnly
    }

    async fn call(&self, input: Input, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        answer(input, cx, Deadline::new(PATIENCE, cx.cancel())).await
    }
}

/// Where to search.
enum Place {
    Folder(Box<Plan>),
    File(PathBuf, File),
}

async fn answer(input: Input, cx: &ToolCx, deadline: Deadline) -> Result<ToolOutput, ToolError> {
    let path = resolve(cx, input.path.as_deref().unwrap_or("."))?;
    let place = match cx.files().walk_root(&path) {
        Ok(root) => Place::Folder(Box::new(Plan {
            overrides: overrides(cx, &root, input.glob.as_deref())?,
            types: types(input.r#type.as_deref())?,
            is_named: root != cx.cwd(),
            root,
        })),
        Err(PortError::WrongKind { .. }) => match cx.files().open(&path).await {
            Ok(file) => Place::File(path, file),
            Err(error) => return Err(explain(cx, &path, error)),
        },
        Err(error) => return Err(explain(cx, &path, error)),
    };
    let collector = Arc::new(Collector::new(search::needed(&input)));
    let (asked, watched, into) = (input.clone(), deadline.clone(), Arc::clone(&collector));
    let work = move || {
        // Here, for a large pattern takes its time.
        let search = Search::new(&asked, matcher(&asked)?);
        Ok::<_, ToolError>(match place {
            Place::Folder(plan) => {
                let tally = search_folder(&search, &plan, &into, &watched);
                search.worker(&into, &watched).bring_page();
                tally
            }
            Place::File(path, file) => {
                search.file_alone(&path, file, &into, &watched);
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

fn matcher(input: &Input) -> Result<RegexMatcher, ToolError> {
    let mut builder = RegexMatcherBuilder::new();
    builder
        .multi_line(true)
        .case_insensitive(input.ignore_case)
        .size_limit(MAX_PATTERN)
        .dfa_size_limit(MAX_STATES);
    if input.multiline {
        builder.dot_matches_new_line(true);
        if ends_with_cr(input) {
            builder.crlf(true).line_terminator(None);
        }
    } else {
        builder.line_terminator(Some(b'\n'));
        if ends_with_cr(input) {
            builder.crlf(true);
        }
    }
    builder.build(&input.pattern).map_err(|error| {
        let text = error.to_string();
        let hint = if text.contains("not allowed in a regex") {
            "To match across lines, set multiline."
        } else if text.contains("look-around") || text.contains("backreferences") {
            "Look-around and back-references are not supported; use grep -P in Bash for those."
        } else if text.contains("size limit") {
            "It is too large when it is written out: use smaller repetitions than {1,1000}, or + and *."
        } else {
            "Characters such as ( [ { * + ? . | $ ^ \\ that are meant literally need a \\ in front."
        };
        ToolError::bad_input(format!("The pattern is no valid regular expression: {text}\n{hint}"))
    })
}

/// Whether CR LF ends a line as LF does, so that `$` fits in files of either kind: unless CR is what is searched for.
fn ends_with_cr(input: &Input) -> bool {
    !["\\r", "\r", "\\x0d", "\\x0D"].iter().any(|cr| input.pattern.contains(cr))
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

struct Plan {
    root: PathBuf,
    is_named: bool,
    overrides: Override,
    types: Types,
}

fn search_folder(search: &Search, plan: &Plan, into: &Collector, deadline: &Deadline) -> Tally {
    let by = |rules| {
        let walk = Walk {
            root: &plan.root,
            rules,
            max_depth: None,
            overrides: plan.overrides.clone(),
            types: plan.types.clone(),
            deadline,
        };
        walk.run(|| {
            let mut worker = search.worker(into, deadline);
            move |met| match met.is_link() {
                false => worker.search(met.path),
                true if met.is_file() => into.link(),
                true => {}
            }
        })
    };
    let tally = by(Rules::All);
    if !plan.is_named || into.has_any() || tally.is_late() {
        return tally;
    }
    // A folder that was named is meant as it is, where the rules leave nothing of it or nothing that matches.
    let (ignored, hidden) = tally.skipped();
    // With a filter, that nothing was met says nothing of the folder.
    let is_filtered = !plan.overrides.is_empty() || !plan.types.is_empty();
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
                out.after_file(search::has_context(input));
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
        let input = serde_json::from_value(input).unwrap();
        testing::parts(&answer(input, cx, deadline).await.unwrap())
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
