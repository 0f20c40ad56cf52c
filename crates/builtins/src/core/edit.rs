//! Edit: one text for another inside a file. All else stays as it is, byte for byte.

use std::borrow::Cow;
use std::path::Path;

use open_agent_model::{Change, Effect, FileSeen, FileStamp};
use open_agent_tool::{Located, Planned, PlannedTool, ToolCx, ToolError, ToolOutput};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounds::count;
use crate::edits::{Hunk, Matches, Replaced, explain_miss, patch};
use crate::paths::{
    Lookup, check_names_a_file, check_seen, explain, is_missing, locate, shown, write_access,
};
use crate::text::{Charset, MARK, Text, is_second, read_whole, to_windows_1252};

/// How many places are named.
const MAX_PLACES: usize = 20;

pub(super) struct Edit;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    /// The file; relative paths start at the working folder.
    file_path: String,
    /// The text to replace, exactly as in the file; empty to make a new file.
    old_string: String,
    /// What replaces it.
    new_string: String,
    /// Replace each occurrence (default: there must be exactly one).
    #[serde(default)]
    replace_all: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Details<'a> {
    file_path: &'a Path,
    old_string: &'a str,
    new_string: &'a str,
    replace_all: bool,
    replacements: usize,
    user_modified: bool,
    structured_patch: Vec<Hunk>,
}

impl PlannedTool for Edit {
    const NAME: &'static str = "Edit";
    type Input = Input;
    type Plan = (Input, Lookup);

    fn description(&self) -> String {
        "Replaces text in a file that was read in this session and is unchanged since. old_string must be the file's text \
         exactly, with its indentation but without Read's line numbers, and must occur once: add lines around it until \
         it does, or set replace_all. Text is taken literally. Line ends and encoding are kept: write \\n for any line \
         end."
            .into()
    }

    fn plan(&self, input: Input, cx: &ToolCx) -> Planned<Self::Plan> {
        let found = locate(cx, &input.file_path);
        let access = write_access(cx, &input.file_path, &found);
        Planned { access, effect: Effect::Unsafe, plan: (input, found) }
    }

    async fn call(&self, (input, found): Self::Plan, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        if input.old_string == input.new_string {
            return Err(ToolError::bad_input(
                "old_string and new_string are the same: there is nothing to do",
            ));
        }
        let at = found?;
        let (bytes, stamp) = match read_whole(cx, &at).await {
            Ok(file) => file?,
            Err(error) if is_missing(&error) && input.old_string.is_empty() => {
                check_names_a_file(&input.file_path)?;
                return create(cx, &at, &input).await;
            }
            Err(error) => return Err(explain(cx, at.path(), error)),
        };
        check_seen(cx, at.path(), stamp)?;
        let edited = {
            let (at, cx) = (at.clone(), cx.clone());
            tokio::task::spawn_blocking(move || edit(&cx, at.path(), bytes, input)).await??
        };
        // What was written meanwhile must not be lost.
        let replaced = cx.files().replace_if(&at, &edited.bytes, Some(stamp)).await;
        let stamp = replaced.map_err(|error| explain(cx, at.path(), error))?;
        let path = at.path().to_owned();
        Ok(edited.output.with_change(Change::FileSeen(FileSeen { path, stamp })))
    }
}

struct Edited {
    bytes: Vec<u8>,
    output: ToolOutput,
}

fn edit(cx: &ToolCx, path: &Path, bytes: Vec<u8>, input: Input) -> Result<Edited, ToolError> {
    let name = shown(cx, path);
    let Some(mut text) = Text::decode(bytes) else {
        return Err(ToolError::new(format!(
            "{name} is a binary file or broken UTF-16; Edit would damage it."
        )));
    };
    let replaced = if input.old_string.is_empty() {
        if !text.body.is_empty() {
            return Err(ToolError::bad_input(format!(
                "{name} exists and is not empty, so old_string must not be empty. Use Write to replace all of it."
            )));
        }
        Replaced { body: text.without_mark(&input.new_string).as_bytes().to_vec(), lines: vec![1] }
    } else {
        replace(&mut text, &name, &input)?
    };
    let details = Details {
        file_path: path,
        old_string: &input.old_string,
        new_string: &input.new_string,
        replace_all: input.replace_all,
        replacements: replaced.lines.len(),
        user_modified: false,
        structured_patch: patch(&text.body, &replaced.body),
    };
    let what = format!(
        "Edited {name}: {} at {}.",
        count(replaced.lines.len(), "replacement"),
        places(&replaced.lines)
    );
    Ok(Edited { bytes: text.encode(&replaced.body), output: ToolOutput::text(what).with_details(&details) })
}

fn replace(text: &mut Text, name: &str, input: &Input) -> Result<Replaced, ToolError> {
    let charset = text.charset();
    let (mut matches, new) = find(text, charset, input);
    if text.has_mark()
        && let Some(old) = input.old_string.strip_prefix('\u{feff}')
    {
        // The mark stands before all text, of which it is no part.
        matches = if old.is_empty() {
            Matches::start()
        } else {
            Matches::find(&text.body, old.as_bytes()).at_start()
        };
        if matches.len() > 0 && !input.new_string.starts_with('\u{feff}') {
            text.drop_mark();
        }
    }
    if matches.len() == 0 {
        if charset == Charset::Unknown && !input.old_string.is_ascii() {
            return Err(unknown(
                name,
                "old_string has characters that are not ASCII, which cannot be found in it",
            ));
        }
        return Err(ToolError::new(explain_miss(&text.body, &input.old_string)));
    }
    // Also where they overlap it is not clear which one is meant.
    if matches.len() > 1 && !input.replace_all {
        return Err(ToolError::new(format!(
            "old_string occurs {} times in {name}, at {}. Nothing was changed. Add lines around it so that it occurs \
             once, or set replace_all.",
            matches.len(),
            places(&matches.lines(&text.body))
        )));
    }
    if charset == Charset::Unknown && matches.starts().any(|at| may_be_half(&text.body, at)) {
        return Err(unknown(name, "old_string begins with what may be the second half of a character"));
    }
    let Some(new) = new else {
        return Err(match charset {
            Charset::Unknown => unknown(name, "new_string has characters that are not ASCII"),
            _ => ToolError::new(format!(
                "{name} is encoded in Windows-1252 (Latin-1), which has no sign for some character of new_string. \
                 Nothing was changed. Use other characters, or convert the file with iconv first."
            )),
        });
    };
    let mut replaced = matches.replace(&text.body, &new);
    if text.has_mark() && !text.body.starts_with(MARK) && replaced.body.starts_with(MARK) {
        replaced.body.drain(..MARK.len());
    }
    Ok(replaced)
}

/// The places, and the new text in the file's bytes, if its encoding has it.
fn find<'a>(text: &Text, charset: Charset, input: &'a Input) -> (Matches, Option<Cow<'a, [u8]>>) {
    let new = text.bytes_of(&input.new_string, charset);
    let none = Matches::find(b"", b"");
    if charset == Charset::Unknown && !input.old_string.is_ascii() {
        return (none, new);
    }
    let matches = Matches::find(&text.body, input.old_string.as_bytes());
    if matches.len() > 0 || text.is_utf8() || charset == Charset::Unknown {
        return (matches, new);
    }
    // As Read shows them, bytes that are no UTF-8 are Windows-1252.
    let Some(latin) = to_windows_1252(&input.old_string) else { return (matches, new) };
    let matches = Matches::find(&text.body, &latin);
    if matches.len() > 0 && !input.old_string.is_ascii() {
        return (matches, to_windows_1252(&input.new_string).map(Into::into));
    }
    (matches, new)
}

/// Whether a match at `at` may begin inside a character of two bytes.
fn may_be_half(body: &[u8], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|before| body.get(before));
    before.is_some_and(|b| *b >= 0x80) && body.get(at).is_some_and(|b| is_second(*b))
}

fn unknown(name: &str, why: &str) -> ToolError {
    ToolError::new(format!(
        "{name} is in an unknown encoding that is neither UTF-8 nor Windows-1252, and {why}. Nothing was changed. Convert \
         it with iconv in Bash first, and back afterwards."
    ))
}

async fn create(cx: &ToolCx, at: &Located, input: &Input) -> Result<ToolOutput, ToolError> {
    let path = at.path();
    let bytes = input.new_string.as_bytes();
    let nothing: Option<FileStamp> = None;
    let made = cx.files().replace_if(at, bytes, nothing).await;
    let stamp = made.map_err(|error| explain(cx, path, error))?;
    let details = Details {
        file_path: path,
        old_string: "",
        new_string: &input.new_string,
        replace_all: input.replace_all,
        replacements: 1,
        user_modified: false,
        structured_patch: patch(b"", bytes),
    };
    Ok(ToolOutput::text(format!("Created {}.", shown(cx, path)))
        .with_details(&details)
        .with_change(Change::FileSeen(FileSeen { path: path.to_owned(), stamp })))
}

fn places(lines: &[usize]) -> String {
    let mut lines: Vec<usize> = lines.to_vec();
    lines.dedup();
    let shown: Vec<String> = lines.iter().take(MAX_PLACES).map(usize::to_string).collect();
    let more = lines.len().saturating_sub(MAX_PLACES);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{} {}{more}", if lines.len() == 1 { "line" } else { "lines" }, shown.join(", "))
}
