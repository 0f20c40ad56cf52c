//! Line ends. Owns which end a new line gets and that lines which were not touched keep theirs.

use std::borrow::Cow;

use similar::{Algorithm, DiffOp, capture_diff_slices};

/// `bytes` with each CRLF as LF.
pub(crate) fn without_carriage_returns(bytes: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memmem::find(bytes, b"\r\n").is_none() {
        return bytes.into();
    }
    let mut out = Vec::with_capacity(bytes.len());
    for line in bytes.split_inclusive(|b| *b == b'\n') {
        match line.strip_suffix(b"\r\n") {
            Some(text) => {
                out.extend_from_slice(text);
                out.push(b'\n');
            }
            None => out.extend_from_slice(line),
        }
    }
    out.into()
}

/// The end that most lines have. `None`: there is no whole line.
pub(super) fn dominant(bytes: &[u8]) -> Option<&'static [u8]> {
    let all = memchr::memchr_iter(b'\n', bytes).count();
    let crlf = memchr::memmem::find_iter(bytes, b"\r\n").count();
    (all > 0).then_some(if crlf * 2 > all { b"\r\n" } else { b"\n" })
}

/// `new` (with LF) as a replacement for the part `old` of the text `around`: lines that are in both keep their end, new
/// ones get the end that most lines have, in `old` or else in `around`.
pub(crate) fn adopt_line_ends<'a>(old: &[u8], new: &'a [u8], around: &[u8]) -> Cow<'a, [u8]> {
    let crlf = memchr::memmem::find(old, b"\r\n").is_some();
    let usual = dominant(old).or_else(|| dominant(around)).unwrap_or(b"\n");
    if !crlf && usual == b"\n" {
        return new.into();
    }
    let old_lines: Vec<&[u8]> = old.split_inclusive(|b| *b == b'\n').collect();
    let is_mixed =
        old_lines.iter().filter(|l| l.ends_with(b"\n")).any(|l| l.ends_with(b"\r\n") != (usual == b"\r\n"));
    let new_lines: Vec<&[u8]> = new.split_inclusive(|b| *b == b'\n').collect();
    let mut ends: Vec<&[u8]> = vec![usual; new_lines.len()];
    if is_mixed {
        let text = |line: &&'a [u8]| -> &'a [u8] { line.strip_suffix(b"\n").unwrap_or(line) };
        let old_texts: Vec<&[u8]> = old_lines.iter().map(|l| bare(l)).collect();
        let new_texts: Vec<&[u8]> = new_lines.iter().map(text).collect();
        for op in capture_diff_slices(Algorithm::Myers, &old_texts, &new_texts) {
            if let DiffOp::Equal { old_index, new_index, len } = op {
                for i in 0..len {
                    let line = old_lines[old_index + i];
                    if line.ends_with(b"\n") {
                        ends[new_index + i] = &line[bare(line).len()..];
                    }
                }
            }
        }
    }
    let mut out = Vec::with_capacity(new.len() + new_lines.len());
    for (line, end) in new_lines.iter().zip(ends) {
        match line.strip_suffix(b"\n") {
            Some(text) => {
                out.extend_from_slice(text);
                out.extend_from_slice(end);
            }
            None => out.extend_from_slice(line),
        }
    }
    out.into()
}

/// A line without its end.
fn bare(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r\n").or_else(|| line.strip_suffix(b"\n")).unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_lines_end_as_most_do_and_old_ones_as_they_did() {
        let ends = |old: &str, new: &str, around: &str| {
            String::from_utf8(adopt_line_ends(old.as_bytes(), new.as_bytes(), around.as_bytes()).into_owned())
                .unwrap()
        };
        assert_eq!(ends("a\r\nb\r\n", "a\nx\nb\n", ""), "a\r\nx\r\nb\r\n");
        assert_eq!(ends("a\nb\r\nc\r\n", "a\nx\nb\nc\n", ""), "a\nx\r\nb\r\nc\r\n");
        assert_eq!(ends("a\r\nb\nc\n", "a\nb\nx\nc\n", ""), "a\r\nb\nx\nc\n");
        assert_eq!(ends("word", "two\nwords", "x\r\nword\r\n"), "two\r\nwords");
        assert_eq!(ends("word", "two\nwords", "word\nx\n"), "two\nwords");
        assert_eq!(ends("", "a\n", ""), "a\n");
    }
}
