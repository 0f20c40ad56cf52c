//! Read: the lines of a file or of a blob of the session with numbers, a picture or a document. Memory is bounded whatever
//! the file's size.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read as _, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use encoding_rs_io::DecodeReaderBytesBuilder;
use open_agent_model::{BlobId, Change, Effect, FileSeen, ResultBlock, Source};
use open_agent_tool::{Planned, PlannedTool, ToolCx, ToolError, ToolOutput, file_stamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounds::{MAX_CHARS, count};
use crate::media::{Media, check_image, check_pdf};
use crate::paths::{Lookup, explain, locate, read_access};
use crate::text::{Census, Charset, SAMPLE, Sniffed, show, sniff};
use crate::walk::{Deadline, PATIENCE};

const DEFAULT_LINES: u64 = 2_000;
/// The most characters of a line that are shown.
const MAX_LINE: usize = 2_000;
/// Room for the notes below the lines.
const NOTES: usize = 1_000;
/// How far behind the last line shown the rest is counted.
const MAX_COUNTED: u64 = 256 * 1024 * 1024;

pub(super) struct Read;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    /// The file; relative paths start at the working folder. Or a `blob:` path that a result names.
    file_path: String,
    /// First line to read, counted from 1.
    offset: Option<u64>,
    /// How many lines (default 2000).
    limit: Option<u64>,
}

impl PlannedTool for Read {
    const NAME: &'static str = "Read";
    type Input = Input;
    type Plan = (Input, Place);

    fn description(&self) -> String {
        "Reads a file. Text comes with line numbers (`number<tab>line`), which are not part of the file; at most 2000 \
         lines, or those that offset and limit name. Pictures (PNG, JPEG, GIF, WebP) and PDFs (up to 100 pages) are \
         shown as such. A file must be read before Edit or Write may change it. Reads no folders: use Glob."
            .into()
    }

    fn plan(&self, input: Input, cx: &ToolCx) -> Planned<Self::Plan> {
        // What the session holds was read or made by its own calls, which were ruled.
        if let Some(blob) = BlobId::from_path(&input.file_path) {
            let blob = blob.map_err(|bad| {
                let path = &input.file_path;
                ToolError::bad_input(format!("{bad}. A file of this name is read as \"./{path}\"."))
            });
            return Planned {
                access: Vec::new(),
                effect: Effect::ReadOnly,
                plan: (input, Place::Blob(blob)),
            };
        }
        let found = locate(cx, &input.file_path);
        let access = vec![read_access(cx, &input.file_path, &found)];
        Planned { access, effect: Effect::ReadOnly, plan: (input, Place::File(found)) }
    }

    async fn call(&self, (input, place): Self::Plan, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        if input.offset == Some(0) || input.limit == Some(0) {
            return Err(ToolError::bad_input("offset and limit count from 1"));
        }
        let window = Window { first: input.offset.unwrap_or(1), lines: input.limit.unwrap_or(DEFAULT_LINES) };
        let deadline = Deadline::new(PATIENCE, cx.cancel());
        let watched = deadline.clone();
        let (name, read) = match place {
            Place::File(found) => {
                let at = found?;
                let file = cx.files().open(&at).await.map_err(|error| explain(cx, at.path(), error))?;
                let name = at.path().display().to_string();
                (name, deadline.bound(move || read_file(file, at.path(), &window, &watched)).await?)
            }
            Place::Blob(blob) => {
                let blob = blob?;
                let bytes = blob_bytes(&blob, cx).await?;
                let (name, path) = (blob.path(), PathBuf::from(blob.path()));
                (name, deadline.bound(move || read_blob(bytes, &path, &window, &watched)).await?)
            }
        };
        read.unwrap_or_else(|| Err(ToolError::new(format!("{name} could not be read in time."))))
    }
}

/// What is to be read.
pub(super) enum Place {
    File(Lookup),
    /// Contents that the session keeps beside its log.
    Blob(Result<BlobId, ToolError>),
}

struct Window {
    first: u64,
    lines: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Details<'a> {
    r#type: &'static str,
    file: FileDetails<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FileDetails<'a> {
    file_path: &'a Path,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_line: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    num_lines: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_lines: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    original_size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    width: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    height: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pages: Option<usize>,
}

impl<'a> FileDetails<'a> {
    fn of(file_path: &'a Path) -> Self {
        Self {
            file_path,
            start_line: None,
            num_lines: None,
            total_lines: None,
            original_size: None,
            width: None,
            height: None,
            pages: None,
        }
    }
}

fn read_file(file: File, path: &Path, window: &Window, deadline: &Deadline) -> Result<ToolOutput, ToolError> {
    let stamp = file_stamp(&file.metadata()?);
    let output = show_contents((file, stamp.len), path, window, deadline)?;
    // What cannot be shown was looked at all the same: it may be written anew.
    Ok(output.with_change(Change::FileSeen(FileSeen { path: path.to_owned(), stamp })))
}

fn read_blob(
    bytes: Vec<u8>,
    path: &Path,
    window: &Window,
    deadline: &Deadline,
) -> Result<ToolOutput, ToolError> {
    let len = bytes.len() as u64;
    show_contents((Cursor::new(bytes), len), path, window, deadline)
}

async fn blob_bytes(blob: &BlobId, cx: &ToolCx) -> Result<Vec<u8>, ToolError> {
    cx.blobs().read(blob).await?.ok_or_else(|| {
        let path = blob.path();
        ToolError::new(format!(
            "This session has no {path}, or its file is damaged. Run again what brought it."
        ))
    })
}

fn show_contents(
    (mut file, len): (impl io::Read + Seek, u64),
    path: &Path,
    window: &Window,
    deadline: &Deadline,
) -> Result<ToolOutput, ToolError> {
    let mut sample = Vec::new();
    file.by_ref().take(SAMPLE as u64).read_to_end(&mut sample)?;
    if let Some(media) = Media::of(&sample) {
        match media_output(&mut file, path, len, (media, &sample)) {
            Ok(output) => return Ok(output),
            Err(_) if media.may_be_text(&sample) => file.seek(io::SeekFrom::Start(sample.len() as u64))?,
            Err(why) => return Ok(ToolOutput::text(why).as_error()),
        };
    }
    let Sniffed::Text { encoding, mark } = sniff(&sample) else {
        let why = format!(
            "{} is a binary file of {} bytes; it cannot be shown as text. Look into it with Bash (file, xxd, strings).",
            path.display(),
            len
        );
        return Ok(ToolOutput::text(why).as_error());
    };
    if len == 0 && sample.is_empty() {
        let file = FileDetails {
            start_line: Some(1),
            num_lines: Some(0),
            total_lines: Some(0),
            ..FileDetails::of(path)
        };
        return Ok(ToolOutput::text("The file is empty.").with_details(&Details { r#type: "text", file }));
    }
    let lines = if let Some(codec) = encoding.codec() {
        file.seek(io::SeekFrom::Start(mark as u64))?;
        let decoded = DecodeReaderBytesBuilder::new().encoding(Some(codec)).build(file);
        Lines::read(BufReader::with_capacity(SAMPLE, decoded), window, deadline)?
    } else {
        let start = sample.split_off(mark);
        Lines::read(BufReader::with_capacity(SAMPLE, io::Cursor::new(start).chain(file)), window, deadline)?
    };
    Ok(lines.into_output(path, window, encoding.codec().map(|c| c.name())))
}

/// The picture or document, or why it is refused.
fn media_output(
    file: &mut impl io::Read,
    path: &Path,
    len: u64,
    (media, start): (Media, &[u8]),
) -> Result<ToolOutput, String> {
    let refuse = |why: String| format!("{}: {why}", path.display());
    if len > media.max_bytes() {
        let smaller = "Make a smaller copy, or take a part out, with Bash and read that.";
        return Err(refuse(format!(
            "{len} bytes are too many; at most {} can be shown. {smaller}",
            media.max_bytes()
        )));
    }
    let mut bytes = start.to_vec();
    let rest = file.take(media.max_bytes() + 1).read_to_end(&mut bytes);
    rest.map_err(|error| refuse(error.to_string()))?;
    let base64 = |media_type: &str| Source::Inline {
        media_type: media_type.to_owned(),
        data: Arc::from(STANDARD.encode(&bytes)),
    };
    let mut details = FileDetails { original_size: Some(len), ..FileDetails::of(path) };
    Ok(match media {
        Media::Image(media_type) => {
            let (width, height) = check_image(media_type, &bytes).map_err(refuse)?;
            (details.width, details.height) = (Some(width), Some(height));
            let content = vec![ResultBlock::Image { source: base64(media_type) }];
            ToolOutput { content, ..ToolOutput::default() }
                .with_details(&Details { r#type: "image", file: details })
        }
        Media::Pdf => {
            details.pages = Some(check_pdf(&bytes).map_err(refuse)?);
            let title = path.file_name().map(|n| n.to_string_lossy().into_owned());
            let content = vec![ResultBlock::Document { source: base64("application/pdf"), title }];
            ToolOutput { content, ..ToolOutput::default() }
                .with_details(&Details { r#type: "pdf", file: details })
        }
    })
}

/// The lines of a window.
#[derive(Default)]
struct Lines {
    text: String,
    shown: u64,
    /// Lines of the whole file, and whether that is all of them.
    total: u64,
    counted: bool,
    cut: usize,
    latin: usize,
    /// Of the bytes of the lines that are shown.
    census: Census,
    full: bool,
    /// The deadline came before the end.
    late: bool,
}

impl Lines {
    fn read(from: impl BufRead, window: &Window, deadline: &Deadline) -> io::Result<Self> {
        let mut from = Watched { from, deadline, late: false };
        let mut lines = Self { total: skip_lines(&mut from, window.first - 1)?, ..Self::default() };
        let mut line = Vec::new();
        let mut chars = 0;
        while lines.total >= window.first - 1 && lines.shown < window.lines {
            line.clear();
            let Some(len) = next_line(&mut from, &mut line)? else { break };
            let (text, latin) = show(&line);
            let (text, cut) = cut_line(&text, len, line.len());
            let next = chars + text.chars().count() + 8;
            if next > MAX_CHARS - NOTES {
                lines.full = true;
                lines.total += 1;
                break;
            }
            chars = next;
            lines.total += 1;
            lines.shown += 1;
            lines.cut += usize::from(cut);
            lines.latin += usize::from(latin);
            lines.census.add(&line);
            push_numbered(&mut lines.text, lines.total, &text);
        }
        let reached = from.late;
        let (more, all) = count_lines(&mut from, MAX_COUNTED)?;
        lines.total += more;
        lines.late = reached;
        lines.counted = all && !from.late;
        Ok(lines)
    }

    fn into_output(mut self, path: &Path, window: &Window, codec: Option<&str>) -> ToolOutput {
        let last = window.first.saturating_add(self.shown.max(1) - 1);
        let total = if self.counted { self.total.to_string() } else { format!("more than {}", self.total) };
        let mut notes = Vec::new();
        if self.late {
            notes.push(format!(
                "Reading took too long and was ended after {}, of which {} are shown. Use Bash for this file.",
                count(usize::try_from(self.total).unwrap_or(usize::MAX), "line"),
                self.shown
            ));
        } else if self.shown == 0 && !self.full {
            notes
                .push(format!("The file has only {} lines; line {} is behind its end.", total, window.first));
        } else if self.total > last || !self.counted {
            let why = if self.full { ", as much as can be shown at once" } else { "" };
            notes.push(format!(
                "Lines {}-{last} of {total}{why}. Read on with offset {}.",
                window.first,
                last.saturating_add(1)
            ));
        }
        if self.cut > 0 {
            notes.push(format!("{} longer than {MAX_LINE} characters were cut.", count(self.cut, "line")));
        }
        if self.latin > 0 {
            let lines = count(self.latin, "line");
            notes.push(if self.census.charset() == Charset::Unknown {
                format!(
                    "{lines} in an unknown encoding that is no UTF-8: characters that are not ASCII are shown wrong, \
                     and Edit does not take them. Convert a copy with iconv in Bash to read them."
                )
            } else {
                format!(
                    "{lines} with bytes that are no UTF-8, shown as Windows-1252 (Latin-1). Edit keeps them."
                )
            });
        }
        if let Some(codec) = codec {
            notes.push(format!("The file is encoded in {codec}. Edit and Write keep that."));
        }
        if !notes.is_empty() {
            if !self.text.is_empty() {
                self.text.push('\n');
            }
            self.text.push_str(&format!("[{}]", notes.join(" ")));
        }
        let file = FileDetails {
            start_line: Some(window.first),
            num_lines: Some(self.shown),
            total_lines: self.counted.then_some(self.total),
            ..FileDetails::of(path)
        };
        ToolOutput::text(self.text).with_details(&Details { r#type: "text", file })
    }
}

/// As `cat -n` does it.
fn push_numbered(out: &mut String, number: u64, line: &str) {
    let number = number.to_string();
    out.extend(std::iter::repeat_n(' ', 6_usize.saturating_sub(number.len())));
    out.push_str(&number);
    out.push('\t');
    out.push_str(line);
    out.push('\n');
}

/// `len` is the line's real length, of which `kept` bytes are in `text`.
fn cut_line(text: &str, len: u64, kept: usize) -> (std::borrow::Cow<'_, str>, bool) {
    let end = text.char_indices().nth(MAX_LINE).map(|(at, _)| at);
    if end.is_none() && len == kept as u64 {
        return (text.into(), false);
    }
    let head = &text[..end.unwrap_or(text.len())];
    (format!("{head}… [line of {len} bytes, cut]").into(), true)
}

/// Is at its end when the deadline is over: a line may be as long as a disk, and mostly hole.
struct Watched<'a, R> {
    from: R,
    deadline: &'a Deadline,
    late: bool,
}

impl<R: BufRead> Watched<'_, R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.late = self.late || self.deadline.is_over();
        if self.late { Ok(&[]) } else { self.from.fill_buf() }
    }

    fn consume(&mut self, len: usize) {
        self.from.consume(len);
    }
}

/// Passes over `n` lines; gives how many there were.
fn skip_lines(from: &mut Watched<'_, impl BufRead>, n: u64) -> io::Result<u64> {
    let mut passed = 0;
    let mut open = false;
    while passed < n {
        let bytes = from.fill_buf()?;
        if bytes.is_empty() {
            return Ok(passed + u64::from(open));
        }
        match memchr::memchr(b'\n', bytes) {
            Some(at) => {
                passed += 1;
                open = false;
                from.consume(at + 1);
            }
            None => {
                open = true;
                let len = bytes.len();
                from.consume(len);
            }
        }
    }
    Ok(passed)
}

/// The next line without its end, of which only the start is kept; gives its length.
fn next_line(from: &mut Watched<'_, impl BufRead>, line: &mut Vec<u8>) -> io::Result<Option<u64>> {
    // A character has at most four bytes.
    const KEPT: usize = MAX_LINE * 4 + 4;
    let mut len = 0_u64;
    let mut any = false;
    loop {
        let bytes = from.fill_buf()?;
        if bytes.is_empty() {
            break;
        }
        any = true;
        let end = memchr::memchr(b'\n', bytes);
        let part = &bytes[..end.unwrap_or(bytes.len())];
        len += part.len() as u64;
        line.extend_from_slice(&part[..part.len().min(KEPT - line.len())]);
        let used = part.len() + usize::from(end.is_some());
        from.consume(used);
        if end.is_some() {
            break;
        }
    }
    if len > line.len() as u64 {
        drop_cut_character(line);
    } else if line.last() == Some(&b'\r') {
        line.pop();
        len -= 1;
    }
    Ok(any.then_some(len))
}

fn drop_cut_character(line: &mut Vec<u8>) {
    let tail = line.iter().rev().take(3).take_while(|b| **b & 0xC0 == 0x80).count();
    if line.len() > tail && line[line.len() - tail - 1] >= 0xC0 {
        line.truncate(line.len() - tail - 1);
    }
}

/// How many lines are left, and whether all were counted.
fn count_lines(from: &mut Watched<'_, impl BufRead>, max: u64) -> io::Result<(u64, bool)> {
    let (mut lines, mut seen, mut open) = (0, 0, false);
    loop {
        let bytes = from.fill_buf()?;
        if bytes.is_empty() {
            return Ok((lines + u64::from(open), true));
        }
        if seen > max {
            return Ok((lines, false));
        }
        lines += memchr::memchr_iter(b'\n', bytes).count() as u64;
        open = bytes.last() != Some(&b'\n');
        let len = bytes.len();
        seen += len as u64;
        from.consume(len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::parts;

    fn read_until(deadline: &Deadline, body: &[u8], first: u64) -> (String, serde_json::Value) {
        let window = Window { first, lines: DEFAULT_LINES };
        // A few bytes at a time, with a look at the deadline before each.
        let from = BufReader::with_capacity(8, io::Cursor::new(body));
        let lines = Lines::read(from, &window, deadline).unwrap();
        parts(&lines.into_output(Path::new("a"), &window, None))
    }

    #[test]
    fn what_was_read_by_the_deadline_is_shown_and_marked_as_a_part() {
        let body = "1234567\n".repeat(10);
        let (text, details) = read_until(&Deadline::after_looks(3), body.as_bytes(), 1);
        assert!(
            text.starts_with("     1\t1234567\n     2\t1234567\n     3\t1234567\n\n[Reading took"),
            "{text}"
        );
        assert!(text.contains("ended after 3 lines, of which 3 are shown"), "{text}");
        assert!(details["file"].get("totalLines").is_none(), "{details}");
        // As in a file that is one large hole.
        let (text, _) = read_until(&Deadline::after_looks(100), &[0; 100_000], 7_000);
        assert!(text.starts_with("[Reading took too long"), "{text}");
        // Only counting the rest was too much.
        let window = Window { first: 1, lines: 1 };
        let from = BufReader::with_capacity(8, io::Cursor::new(body.as_bytes()));
        let lines = Lines::read(from, &window, &Deadline::after_looks(2)).unwrap();
        let (text, _) = parts(&lines.into_output(Path::new("a"), &window, None));
        assert!(text.ends_with("[Lines 1-1 of more than 2. Read on with offset 2.]"), "{text}");
    }
}
