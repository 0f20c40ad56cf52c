//! What a search is asked for, and the bounds that all of its parts keep to.

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use open_agent_tool::ToolError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(super) const DEFAULT_LIMIT: usize = 250;
/// Bytes of a pattern that is ready for use, and of what a thread notes about it while it searches: repetitions of
/// repetitions grow beyond all bounds.
const MAX_PATTERN: usize = 32 * 1024 * 1024;
const MAX_STATES: usize = 64 * 1024 * 1024;
/// The most characters of a line that are shown.
pub(super) const MAX_LINE: usize = 1_000;

/// The most of a file that is held at once.
pub(super) const MAX_HELD: usize = 64 * 1024 * 1024;

/// As much of a line is searched: what is held grows by doubling.
pub(super) const MAX_SEARCHED: usize = MAX_HELD / 2;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::core) enum OutputMode {
    Content,
    #[default]
    FilesWithMatches,
    Count,
}

#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::core) struct Input {
    /// A regular expression (Rust syntax).
    pub(super) pattern: String,
    /// File or folder to search (default: the working folder).
    pub(super) path: Option<String>,
    /// Only files like this: `*.ts`, `!*.min.js`.
    pub(super) glob: Option<String>,
    /// Only files of this type: rust, py, js …
    pub(super) r#type: Option<String>,
    /// Default: files_with_matches.
    #[serde(default)]
    pub(super) output_mode: OutputMode,
    /// Lines after each match (content).
    #[serde(rename = "-A")]
    pub(super) after: Option<usize>,
    /// Lines before each match (content).
    #[serde(rename = "-B")]
    pub(super) before: Option<usize>,
    /// Lines before and after (content).
    #[serde(rename = "-C", alias = "context")]
    pub(super) context: Option<usize>,
    /// Line numbers (content; default true).
    #[serde(rename = "-n")]
    pub(super) numbers: Option<bool>,
    /// Ignore case.
    #[serde(rename = "-i", default)]
    pub(super) ignore_case: bool,
    /// Only the matching parts (content).
    #[serde(rename = "-o", default)]
    pub(super) only_matching: bool,
    /// `.` matches line ends, and matches may span lines.
    #[serde(default)]
    pub(super) multiline: bool,
    /// At most this many lines or files (default 250, 0 = all).
    pub(super) head_limit: Option<usize>,
    /// Leave out this many first.
    #[serde(default)]
    pub(super) offset: usize,
}

/// Lines of the answer that are needed at most.
pub(super) fn needed(input: &Input) -> usize {
    match input.head_limit.unwrap_or(DEFAULT_LIMIT) {
        0 => usize::MAX,
        limit => limit.saturating_add(input.offset),
    }
}

/// Whether groups of lines are set apart.
pub(super) fn has_context(input: &Input) -> bool {
    !input.only_matching && [input.after, input.before, input.context].iter().flatten().any(|n| *n > 0)
}

pub(super) fn matcher(input: &Input) -> Result<RegexMatcher, ToolError> {
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
pub(super) fn ends_with_cr(input: &Input) -> bool {
    !["\\r", "\r", "\\x0d", "\\x0D"].iter().any(|cr| input.pattern.contains(cr))
}
