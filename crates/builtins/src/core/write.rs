//! Write: a file's whole content, new or in place of the old.

use std::borrow::Cow;
use std::path::Path;

use open_agent_model::{Change, Effect, FileSeen};
use open_agent_tool::{Planned, PlannedTool, ToolCx, ToolError, ToolOutput};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounds::{MAX_CHARS, count};
use crate::edits::{Hunk, adopt_line_ends, patch};
use crate::paths::{
    Lookup, check_names_a_file, check_seen, explain, is_missing, locate, shown, write_access,
};
use crate::text::{Charset, Text, read_whole, show};

pub(super) struct Write;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    /// The file; relative paths start at the working folder.
    file_path: String,
    /// The whole new content.
    content: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Details<'a> {
    r#type: &'static str,
    file_path: &'a Path,
    structured_patch: Vec<Hunk>,
    /// `None` for a new file, and where it is too long to be kept.
    original_file: Option<Cow<'a, str>>,
}

impl PlannedTool for Write {
    const NAME: &'static str = "Write";
    type Input = Input;
    type Plan = (Input, Lookup);

    fn description(&self) -> String {
        "Writes a whole file; folders are made as needed. A file that exists must have been read in this session and be \
         unchanged since. It keeps its line ends, encoding, mark, permissions and links. To change a part of a file, \
         Edit is better."
            .into()
    }

    fn plan(&self, input: Input, cx: &ToolCx) -> Planned<Self::Plan> {
        let found = locate(cx, &input.file_path);
        let access = write_access(cx, &input.file_path, &found);
        Planned { access, effect: Effect::Unsafe, plan: (input, found) }
    }

    async fn call(&self, (input, found): Self::Plan, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        let at = found?;
        let path = at.path();
        let old = match read_whole(cx, &at).await {
            Ok(old) => Some(old?),
            Err(error) if is_missing(&error) => None,
            Err(error) => return Err(explain(cx, path, error)),
        };
        let known = old.as_ref().map(|(_, stamp)| *stamp);
        let ((bytes, lost), original) = match old {
            None => {
                check_names_a_file(&input.file_path)?;
                ((input.content.clone().into_bytes(), None), None)
            }
            Some((bytes, stamp)) => {
                check_seen(cx, path, stamp)?;
                (keep_form(&bytes, &input.content), Some(bytes))
            }
        };
        let replaced = cx.files().replace_if(&at, &bytes, known).await;
        let stamp = replaced.map_err(|error| explain(cx, path, error))?;
        let lines = count(input.content.lines().count(), "line");
        let (kind, did) = if original.is_some() { ("update", "Overwrote") } else { ("create", "Created") };
        let original = original.unwrap_or_default();
        let details = Details {
            r#type: kind,
            file_path: path,
            structured_patch: if kind == "update" { patch(&original, &bytes) } else { Vec::new() },
            original_file: (kind == "update" && original.len() <= MAX_CHARS).then(|| show(&original).0),
        };
        let lost = lost.map(|lost| format!(" {lost}")).unwrap_or_default();
        Ok(ToolOutput::text(format!("{did} {} ({lines}).{lost}", shown(cx, path)))
            .with_details(&details)
            .with_change(Change::FileSeen(FileSeen { path: path.to_owned(), stamp })))
    }
}

/// The new content with the line ends, encoding and mark of the old, and what was not kept.
fn keep_form(old: &[u8], content: &str) -> (Vec<u8>, Option<&'static str>) {
    let Some(text) = Text::decode(old.to_vec()) else { return (content.as_bytes().to_vec(), None) };
    let content = text.without_mark(content);
    // Whoever writes CRLF means it.
    let body = if content.contains("\r\n") {
        content.as_bytes().into()
    } else {
        adopt_line_ends(&text.body, content.as_bytes(), &[])
    };
    let charset = text.charset();
    let own = std::str::from_utf8(&body).ok().and_then(|body| text.bytes_of(body, charset));
    let lost = match charset {
        _ if own.is_some() => None,
        Charset::Windows1252 => {
            Some("It was in Windows-1252 (Latin-1), which has no sign for some character, and is UTF-8 now.")
        }
        _ => Some("It was in an unknown encoding and is UTF-8 now."),
    };
    (text.encode(own.as_deref().unwrap_or(&body)), lost)
}
