//! Where a text is in a file. Owns matching and replacing; works on bytes, so that what is outside a match cannot change,
//! whatever its encoding.

use std::ops::Range;

use memchr::memmem;

use super::lines::{adopt_line_ends, without_carriage_returns};

/// All places where a text is, in the file's own bytes.
pub(crate) struct Matches(Vec<Range<usize>>);

/// A file's text with its matches replaced.
pub(crate) struct Replaced {
    /// The whole text.
    pub(crate) body: Vec<u8>,
    /// The lines of the new text where the replacements start, from 1.
    pub(crate) lines: Vec<usize>,
}

impl Matches {
    /// Looks for `needle` in `body`. LF in the one matches CRLF in the other.
    pub(crate) fn find(body: &[u8], needle: &[u8]) -> Self {
        if needle.is_empty() {
            return Self(Vec::new());
        }
        let needle = without_carriage_returns(needle);
        let multiline = memchr::memchr(b'\n', &needle).is_some();
        if !multiline || memmem::find(body, b"\r\n").is_none() {
            return Self(memmem::find_iter(body, &*needle).map(|at| at..at + needle.len()).collect());
        }
        // Found in the text without carriage returns; `removed` leads back.
        let plain = without_carriage_returns(body);
        let removed: Vec<usize> =
            memmem::find_iter(body, b"\r\n").enumerate().map(|(before, at)| at - before).collect();
        // A place right before a line end is the place before its CR.
        let original = |at: usize| at + removed.partition_point(|r| *r < at);
        let found = memmem::find_iter(&plain, &*needle);
        Self(found.map(|at| original(at)..original(at + needle.len())).collect())
    }

    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The lines where they start, from 1.
    pub(crate) fn lines(&self, body: &[u8]) -> Vec<usize> {
        self.0.iter().map(|m| line_of(body, m.start)).collect()
    }

    /// Replaces each by `new`, literally but for line ends.
    pub(crate) fn replace(&self, body: &[u8], new: &[u8]) -> Replaced {
        let plain = without_carriage_returns(new);
        let is_plain_file = memmem::find(body, b"\r\n").is_none();
        let mut out = Vec::with_capacity(body.len() + new.len());
        let (mut last, mut line, mut counted) = (0, 1, 0);
        let mut lines = Vec::with_capacity(self.0.len());
        for found in &self.0 {
            out.extend_from_slice(&body[last..found.start]);
            line += memchr::memchr_iter(b'\n', &out[counted..]).count();
            counted = out.len();
            lines.push(line);
            if is_plain_file {
                // Whoever writes CRLF into a file without any means it.
                out.extend_from_slice(new);
            } else {
                let around = &body[around(body, found)];
                out.extend_from_slice(&adopt_line_ends(&body[found.clone()], &plain, around));
            }
            last = found.end;
        }
        out.extend_from_slice(&body[last..]);
        Replaced { body: out, lines }
    }
}

/// From a match to the end of its last line; everything if that line has no end.
fn around(body: &[u8], found: &Range<usize>) -> Range<usize> {
    let start = found.end.saturating_sub(1);
    memchr::memchr(b'\n', &body[start..]).map_or(0..body.len(), |at| start..start + at + 1)
}

/// The line that the byte at `at` is in, from 1.
fn line_of(body: &[u8], at: usize) -> usize {
    memchr::memchr_iter(b'\n', &body[..at]).count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn edit(body: &str, old: &str, new: &str) -> (usize, String) {
        let matches = Matches::find(body.as_bytes(), old.as_bytes());
        let replaced = matches.replace(body.as_bytes(), new.as_bytes());
        (matches.len(), String::from_utf8(replaced.body).unwrap())
    }

    #[test]
    fn line_ends_are_the_files() {
        assert_eq!(edit("a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\n"), (1, "x\r\ny\r\nc\r\n".into()));
        assert_eq!(edit("a\r\nb\r\nc", "a\r\nb", "x\r\ny"), (1, "x\r\ny\r\nc".into()));
        assert_eq!(edit("a\r\nb\nc\r\n", "b", "b\nB"), (1, "a\r\nb\nB\nc\r\n".into()));
        assert_eq!(edit("a\r\nb\nc\r\n", "\nb\n", "\nB\n"), (1, "a\r\nB\nc\r\n".into()));
        assert_eq!(edit("a\nb\n", "a", "$1 \\n"), (1, "$1 \\n\nb\n".into()));
        assert_eq!(edit("a\nb\n", "a\r\nb", "x\ny"), (1, "x\ny\n".into()));
        assert_eq!(edit("a\nb\n", "a", "x\r\ny"), (1, "x\r\ny\nb\n".into()));
    }

    #[test]
    fn replacements_know_their_lines() {
        let body = b"a\nb\na\n";
        let replaced = Matches::find(body, b"a").replace(body, b"x\nx");
        assert_eq!(replaced.lines, [1, 4]);
    }

    proptest! {
        /// The reference: the text between matches, split at them, is the same before and after.
        #[test]
        fn what_is_outside_matches_stays(parts in proptest::collection::vec("[a-c\r\n\u{e9}]{0,8}", 1..6), new in "[x\n]{0,4}") {
            let body = parts.join("<>");
            let matches = Matches::find(body.as_bytes(), b"<>");
            prop_assert_eq!(matches.len(), parts.len() - 1);
            let replaced = matches.replace(body.as_bytes(), new.as_bytes()).body;
            let mut rest = &replaced[..];
            for part in &parts {
                let at = memmem::find(rest, part.as_bytes());
                prop_assert!(at.is_some());
                rest = &rest[at.unwrap() + part.len()..];
            }
        }
    }
}
