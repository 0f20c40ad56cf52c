//! The decoder of server-sent events. Owns framing only: bytes in, names and data out, borrowed from its buffer. Any
//! cut between chunks gives the same events; an event's size is bounded. `id` and `retry` mean nothing to us.

use std::ops::Range;

use memchr::memchr2;

use crate::HttpError;

/// Splits a byte stream into events.
#[derive(Debug)]
pub struct SseDecoder {
    buf: Vec<u8>,
    /// Where the event being read begins; all before it is done with.
    start: usize,
    /// Where the line being read begins.
    line: usize,
    /// No line ends between `line` and here.
    scanned: usize,
    /// The last line ended with CR at the end of the buffer: an LF that follows belongs to it.
    skip_lf: bool,
    first_line: bool,
    limit: usize,
    name: Range<usize>,
    data: Data,
    /// Holds the last joined data while it is lent out.
    spare: Vec<u8>,
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// Its `event` field; empty if there was none. `error` for a field of that name.
    pub name: &'a str,
    /// Its `data`, lines joined by LF. May be no UTF-8.
    pub data: &'a [u8],
}

#[derive(Debug)]
enum Data {
    None,
    /// One line, in the buffer.
    Line(Range<usize>),
    Joined(Vec<u8>),
}

/// A line that is an event by itself.
struct Stray {
    error: bool,
    value: Range<usize>,
}

const ERROR: &str = "error";

impl SseDecoder {
    /// A decoder that refuses events of more than `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            buf: Vec::new(),
            start: 0,
            line: 0,
            scanned: 0,
            skip_lf: false,
            first_line: true,
            limit,
            name: 0..0,
            data: Data::None,
            spare: Vec::new(),
        }
    }

    /// Takes the next bytes. Call [`Self::next_event`] until it gives none before feeding again.
    pub fn feed(&mut self, chunk: &[u8]) {
        if self.fresh() {
            self.start = self.line;
        }
        if self.start > 0 {
            self.buf.drain(..self.start);
            self.line -= self.start;
            self.scanned = self.scanned.saturating_sub(self.start);
            self.name = self.name.start.saturating_sub(self.start)..self.name.end.saturating_sub(self.start);
            if let Data::Line(range) = &mut self.data {
                *range = range.start - self.start..range.end - self.start;
            }
            self.start = 0;
        }
        self.buf.extend_from_slice(chunk);
    }

    /// The next whole event, or `None` until more is fed.
    pub fn next_event(&mut self) -> Result<Option<SseEvent<'_>>, HttpError> {
        if self.fresh() {
            self.start = self.line;
        }
        while let Some(line) = self.take_line() {
            self.bound(line.end)?;
            if let Some(stray) = self.stray(&line) {
                if matches!(self.data, Data::None) {
                    return Ok(Some(self.take_stray(stray)));
                }
                // What came before it goes first; then this line is read once more.
                self.line = line.start;
                return Ok(Some(self.take_event()));
            }
            if line.is_empty() && !matches!(self.data, Data::None) {
                return Ok(Some(self.take_event()));
            }
            if line.is_empty() {
                self.name = 0..0;
            }
            self.read(line);
        }
        self.bound(self.buf.len())?;
        Ok(None)
    }

    /// What is left when the stream has ended. By the book an event without its blank line does not count; servers
    /// that forget the last one are met in practice. Call it until it gives none.
    pub fn finish(&mut self) -> Result<Option<SseEvent<'_>>, HttpError> {
        if self.line < self.buf.len() {
            let rest = self.line..self.buf.len();
            self.bound(rest.end)?;
            match self.stray(&rest) {
                Some(stray) if matches!(self.data, Data::None) => {
                    self.line = self.buf.len();
                    return Ok(Some(self.take_stray(stray)));
                }
                Some(_) => return Ok(Some(self.take_event())),
                None => {
                    self.line = self.buf.len();
                    self.read(rest);
                }
            }
        }
        Ok((!matches!(self.data, Data::None)).then(|| self.take_event()))
    }

    fn fresh(&self) -> bool {
        self.name.is_empty() && matches!(self.data, Data::None)
    }

    fn bound(&self, end: usize) -> Result<(), HttpError> {
        let size = end.saturating_sub(self.start);
        if size > self.limit { Err(HttpError::EventTooBig { limit: self.limit }) } else { Ok(()) }
    }

    fn take_line(&mut self) -> Option<Range<usize>> {
        if self.skip_lf {
            if *self.buf.get(self.line)? == b'\n' {
                self.line += 1;
            }
            self.skip_lf = false;
        }
        let from = self.scanned.max(self.line);
        let Some(at) = memchr2(b'\n', b'\r', self.buf.get(from..)?) else {
            self.scanned = self.buf.len();
            return None;
        };
        let end = from + at;
        let mut line = self.line..end;
        self.line = end + 1;
        if self.buf.get(end) == Some(&b'\r') {
            match self.buf.get(self.line) {
                Some(b'\n') => self.line += 1,
                Some(_) => {}
                None => self.skip_lf = true,
            }
        }
        if std::mem::take(&mut self.first_line) && self.buf.starts_with(b"\xEF\xBB\xBF") {
            line.start = 3.min(line.end);
        }
        Some(line)
    }

    /// What servers write into a stream without a field: a whole object on a line of its own, or a field `error`. The
    /// book would have both skipped, and with them the only words that say what went wrong.
    fn stray(&self, line: &Range<usize>) -> Option<Stray> {
        let bytes = self.buf.get(line.clone())?;
        let content = bytes.trim_ascii_end();
        if content.starts_with(b"{\"") && content.ends_with(b"}") {
            return Some(Stray { error: false, value: line.clone() });
        }
        let (name, _) = bytes.split_at_checked(ERROR.len())?;
        let skip = name.eq_ignore_ascii_case(ERROR.as_bytes()).then(|| value_at(bytes, name))??;
        let value = bytes.get(skip..)?.trim_ascii();
        (!value.is_empty() && value != b"null")
            .then_some(Stray { error: true, value: line.start + skip..line.end })
    }

    fn take_stray(&mut self, stray: Stray) -> SseEvent<'_> {
        let name = std::mem::replace(&mut self.name, 0..0);
        let name = std::str::from_utf8(self.buf.get(name).unwrap_or_default()).unwrap_or_default();
        let name = if stray.error { ERROR } else { name };
        SseEvent { name, data: self.buf.get(stray.value).unwrap_or_default() }
    }

    /// Takes one line that is not the end of an event.
    fn read(&mut self, line: Range<usize>) {
        let bytes = self.buf.get(line.clone()).unwrap_or_default();
        if let Some(skip) = value_at(bytes, b"data") {
            let value = line.start + skip..line.end;
            let fresh = self.buf.get(value.clone()).unwrap_or_default();
            match &mut self.data {
                Data::None => self.data = Data::Line(value),
                Data::Line(first) => {
                    let mut joined = self.buf.get(first.clone()).unwrap_or_default().to_vec();
                    joined.push(b'\n');
                    joined.extend_from_slice(fresh);
                    self.data = Data::Joined(joined);
                }
                Data::Joined(joined) => {
                    joined.push(b'\n');
                    joined.extend_from_slice(fresh);
                }
            }
        } else if let Some(skip) = value_at(bytes, b"event") {
            self.name = line.start + skip..line.end;
        } else if self.fresh() {
            // A comment or an unknown field before anything else must not count as part of an event.
            self.start = self.line;
        }
    }

    fn take_event(&mut self) -> SseEvent<'_> {
        let name = std::mem::replace(&mut self.name, 0..0);
        let name = std::str::from_utf8(self.buf.get(name).unwrap_or_default()).unwrap_or_default();
        let data: &[u8] = match std::mem::replace(&mut self.data, Data::None) {
            Data::None => &[],
            Data::Line(range) => self.buf.get(range).unwrap_or_default(),
            Data::Joined(joined) => {
                self.spare = joined;
                &self.spare
            }
        };
        SseEvent { name, data }
    }
}

/// Where the value begins if `line` is the field `name`.
fn value_at(line: &[u8], name: &[u8]) -> Option<usize> {
    match line.strip_prefix(name)? {
        [] => Some(name.len()),
        [b':', b' ', ..] => Some(name.len() + 2),
        [b':', ..] => Some(name.len() + 1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(chunks: &[&[u8]]) -> Vec<(String, String)> {
        let mut decoder = SseDecoder::new(1 << 20);
        let mut out = Vec::new();
        let own = |e: SseEvent<'_>| (e.name.to_owned(), String::from_utf8(e.data.to_vec()).unwrap());
        for chunk in chunks {
            decoder.feed(chunk);
            while let Some(event) = decoder.next_event().unwrap() {
                out.push(own(event));
            }
        }
        while let Some(event) = decoder.finish().unwrap() {
            out.push(own(event));
        }
        out
    }

    fn pair(name: &str, data: &str) -> (String, String) {
        (name.into(), data.into())
    }

    #[test]
    fn fields_comments_and_line_ends() {
        let text = "\u{FEFF}event: a\ndata: 1\n\n: comment\n\nid: 7\nretry: 3\ndata:2\r\ndata: 3\r\n\r\n\
                    event\rdata\r\rdataset: no\ndata:  x\n\nevent: lost\n\ndata: end";
        let want = [pair("a", "1"), pair("", "2\n3"), pair("", ""), pair("", " x"), pair("", "end")];
        assert_eq!(all(&[text.as_bytes()]), want);
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(all(&bytes), want);
    }

    #[test]
    fn an_object_or_an_error_without_its_field_is_an_event() {
        let text = "data: 1\n{\"a\":1}\r\nevent: n\n{\"b\":2} \n\nerror: x\nERROR:y\n\nerror:\nerrors: no\nerror\n\
                    {\n\ndata: {\n\ndata: 2\n{\"c\":3}";
        let want = [
            pair("", "1"),
            pair("", "{\"a\":1}"),
            pair("n", "{\"b\":2} "),
            pair("error", "x"),
            pair("error", "y"),
            pair("", "{"),
            pair("", "2"),
            pair("", "{\"c\":3}"),
        ];
        assert_eq!(all(&[text.as_bytes()]), want);
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(all(&bytes), want);
    }

    #[test]
    fn an_event_without_end_is_refused_at_its_bound() {
        let mut decoder = SseDecoder::new(100);
        for _ in 0..1000 {
            decoder.feed(b": a comment is no part of an event\n\n");
            assert_eq!(decoder.next_event().unwrap(), None);
        }
        decoder.feed(b"data: ");
        let error = (0..30).find_map(|_| {
            decoder.feed(b"12345");
            decoder.next_event().err()
        });
        assert!(error.unwrap().to_string().contains("more than 100 bytes"));
        let mut whole = SseDecoder::new(100);
        whole.feed(format!("data: {}\n\n", "x".repeat(200)).as_bytes());
        assert!(whole.next_event().is_err());
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_events(
            lines in prop::collection::vec("(data|event|id|error|): ?[a-zé𝄞 ]{0,6}|[{]\"[a-z]{0,3}[}]|", 0..20),
            ends in prop::collection::vec(0..3usize, 20),
            cuts in prop::collection::vec(0..400usize, 0..8),
        ) {
            let mut text = String::new();
            for (line, end) in lines.iter().zip(&ends) {
                text.push_str(line);
                text.push_str(["\n", "\r", "\r\n"][*end]);
            }
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(text.len())).collect();
            cuts.sort_unstable();
            let (mut chunks, mut from) = (Vec::new(), 0);
            for cut in cuts {
                chunks.push(&text.as_bytes()[from..cut]);
                from = cut;
            }
            chunks.push(&text.as_bytes()[from..]);
            prop_assert_eq!(all(&chunks), all(&[text.as_bytes()]));
        }
    }
}
