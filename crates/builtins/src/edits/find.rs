//! Where a text is in a file. Owns matching and replacing; works on bytes, so that what is outside a match cannot change,
//! whatever its encoding.

use std::ops::Range;

use memchr::memmem;

use super::lines::{adopt_line_ends, dominant, without_carriage_returns};

/// All places where a text is, in the file's own bytes.
pub(crate) struct Matches {
    found: Vec<Range<usize>>,
    /// Where it is once more if it is found once, in a place that shares bytes with the first.
    overlap: Option<Range<usize>>,
}

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
            return Self { found: Vec::new(), overlap: None };
        }
        let needle = without_carriage_returns(needle);
        let multiline = memchr::memchr(b'\n', &needle).is_some();
        if !multiline || memmem::find(body, b"\r\n").is_none() {
            return Self::of(body, &needle, |at| at);
        }
        // Found in the text without carriage returns; `removed` leads back.
        let plain = without_carriage_returns(body);
        let removed: Vec<usize> =
            memmem::find_iter(body, b"\r\n").enumerate().map(|(before, at)| at - before).collect();
        // A place right before a line end is the place before its CR.
        Self::of(&plain, &needle, |at| at + removed.partition_point(|r| *r < at))
    }

    fn of(text: &[u8], needle: &[u8], original: impl Fn(usize) -> usize) -> Self {
        let range = |at: usize| original(at)..original(at + needle.len());
        let starts: Vec<usize> = memmem::find_iter(text, needle).collect();
        let overlap = match starts[..] {
            [only] => memmem::find(&text[only + 1..], needle).map(|at| range(only + 1 + at)),
            _ => None,
        };
        Self { found: starts.into_iter().map(range).collect(), overlap }
    }

    /// The same, but for those that are not at the text's start.
    pub(crate) fn at_start(mut self) -> Self {
        self.found.retain(|found| found.start == 0);
        self.overlap = None;
        self
    }

    /// The place before all text.
    pub(crate) fn start() -> Self {
        Self { found: std::iter::once(0..0).collect(), overlap: None }
    }

    /// Where they start.
    pub(crate) fn starts(&self) -> impl Iterator<Item = usize> + '_ {
        self.found.iter().chain(&self.overlap).map(|found| found.start)
    }

    /// In how many places the text is.
    pub(crate) fn len(&self) -> usize {
        self.found.len() + usize::from(self.overlap.is_some())
    }

    /// The lines where they start, from 1.
    pub(crate) fn lines(&self, body: &[u8]) -> Vec<usize> {
        let (mut line, mut counted) = (1, 0);
        let line_of = |start: usize| {
            line += memchr::memchr_iter(b'\n', &body[counted..start]).count();
            counted = start;
            line
        };
        self.starts().map(line_of).collect()
    }

    /// Replaces each by `new`, literally but for line ends.
    pub(crate) fn replace(&self, body: &[u8], new: &[u8]) -> Replaced {
        let plain = without_carriage_returns(new);
        let is_plain_file = memmem::find(body, b"\r\n").is_none();
        let mut out = Vec::with_capacity(body.len() + new.len());
        let (mut last, mut line, mut counted) = (0, 1, 0);
        let mut lines = Vec::with_capacity(self.found.len());
        let mut ends = Ends { body, next: None, usual: None };
        for found in &self.found {
            out.extend_from_slice(&body[last..found.start]);
            line += memchr::memchr_iter(b'\n', &out[counted..]).count();
            counted = out.len();
            lines.push(line);
            if is_plain_file {
                // Whoever writes CRLF into a file without any means it.
                out.extend_from_slice(new);
            } else {
                let around = ends.around(found);
                out.extend_from_slice(&adopt_line_ends(&body[found.clone()], &plain, around));
            }
            last = found.end;
        }
        out.extend_from_slice(&body[last..]);
        Replaced { body: out, lines }
    }
}

/// The line ends around matches that come in order. Each byte is looked at once, however many matches a line has.
struct Ends<'a> {
    body: &'a [u8],
    /// The line end that was found last; the text's length if there was none.
    next: Option<usize>,
    usual: Option<&'a [u8]>,
}

impl<'a> Ends<'a> {
    /// The end of a match's last line; what most lines end in if that line has no end.
    fn around(&mut self, found: &Range<usize>) -> &'a [u8] {
        let start = found.end.saturating_sub(1);
        let next = match self.next {
            Some(next) if next >= start => next,
            _ => memchr::memchr(b'\n', &self.body[start..]).map_or(self.body.len(), |at| start + at),
        };
        self.next = Some(next);
        if next < self.body.len() {
            return &self.body[next.saturating_sub(1)..=next];
        }
        self.usual.get_or_insert_with(|| dominant(self.body).unwrap_or_default())
    }
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
    fn places_that_overlap_are_two() {
        let lines =
            |body: &str, text: &str| Matches::find(body.as_bytes(), text.as_bytes()).lines(body.as_bytes());
        assert_eq!(lines("aXaXa", "aXa"), [1, 1]);
        assert_eq!(lines("a\r\n\r\n\r\nb", "\n\n"), [1, 2]);
        assert_eq!(lines("aXa aX", "aXa"), [1]);
        // All of them: from the left, as everyone does it.
        assert_eq!(edit("aXaXa", "aXa", "b").1, "bXa");
    }

    #[test]
    fn many_matches_in_a_long_line_cost_no_more_than_their_number() {
        // A look at the whole text for each match would take many minutes.
        let count = open_agent_testkit::cases(200_000, 300_000);
        let body = format!("first\r\n{}", "a,".repeat(count));
        for end in ["", "\r\n"] {
            let (found, edited) = edit(&format!("{body}{end}"), "a", "b");
            assert_eq!((found, edited.matches('b').count()), (count, count));
        }
        let many = "ab\n".repeat(count);
        let lines = Matches::find(many.as_bytes(), b"a").lines(many.as_bytes());
        assert_eq!((lines.len(), lines.last()), (count, Some(&count)));
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
