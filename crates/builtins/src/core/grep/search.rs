//! One file's search. Owns what a match becomes in each output mode.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;

use grep_matcher::{LineTerminator, Matcher};
use grep_regex::RegexMatcher;
use grep_searcher::{
    BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkContextKind, SinkFinish, SinkMatch,
};

use super::collect::{Collector, Hits, MAX_BYTES, Record};
use super::input::{Input, MAX_HELD, MAX_LINE, MAX_SEARCHED, OutputMode, ends_with_cr, has_context, needed};
use crate::bounds::cut_line;
use crate::text::show;
use crate::walk::{Deadline, Met};

/// What to search for, and what to note.
#[derive(Clone)]
pub(super) struct Search {
    matcher: RegexMatcher,
    mode: OutputMode,
    only_matching: bool,
    multiline: bool,
    before: usize,
    after: usize,
    needed: usize,
    offset: usize,
    end: LineTerminator,
}

impl Search {
    pub(super) fn new(input: &Input, matcher: RegexMatcher) -> Self {
        let context = |own: Option<usize>| match input.output_mode {
            OutputMode::Content if has_context(input) => own.or(input.context).unwrap_or(0),
            _ => 0,
        };
        Self {
            matcher,
            mode: input.output_mode,
            only_matching: input.only_matching,
            multiline: input.multiline,
            before: context(input.before),
            after: context(input.after),
            needed: needed(input),
            offset: input.offset,
            end: if ends_with_cr(input) { LineTerminator::crlf() } else { LineTerminator::byte(b'\n') },
        }
    }

    /// What a thread works with.
    pub(super) fn worker<'a>(&'a self, collector: &'a Collector, deadline: &'a Deadline) -> Worker<'a> {
        Worker {
            search: self,
            matcher: self.matcher.clone(),
            searcher: self.searcher(BinaryDetection::quit(0)),
            collector,
            deadline,
        }
    }

    /// A file that was named is searched even if it is binary.
    pub(super) fn file_alone(&self, path: &Path, file: File, collector: &Collector, deadline: &Deadline) {
        let searcher = self.searcher(BinaryDetection::convert(0));
        let mut worker = Worker { searcher, ..self.worker(collector, deadline) };
        let again = file.try_clone();
        worker.search_file(path, file);
        let mut again = Some(again);
        worker.bring_page(|_| {
            let mut file = again.take().unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()))?;
            file.rewind()?;
            Ok(file)
        });
    }

    /// How many of a file's first lines are counted only. What lies before the offset is known once all files are, so
    /// that with an offset the first search only counts: of results of any size, no more than a page is held.
    fn counted_only(&self) -> usize {
        if self.mode == OutputMode::Content && self.offset > 0 { usize::MAX } else { 0 }
    }

    fn searcher(&self, binary: BinaryDetection) -> Searcher {
        SearcherBuilder::new()
            .line_terminator(self.end)
            .line_number(self.mode == OutputMode::Content)
            .before_context(self.before)
            .after_context(self.after)
            .multi_line(self.multiline)
            .binary_detection(binary)
            .heap_limit(Some(MAX_HELD))
            .build()
    }
}

/// One thread's tools.
pub(super) struct Worker<'a> {
    search: &'a Search,
    matcher: RegexMatcher,
    searcher: Searcher,
    collector: &'a Collector,
    deadline: &'a Deadline,
}

impl Worker<'_> {
    pub(super) fn search(&mut self, met: &Met<'_>) {
        if !self.collector.wants(met.path) {
            return;
        }
        match met.open() {
            Ok(file) => self.search_file(met.path, file),
            Err(_) => self.collector.unreadable(),
        }
    }

    fn search_file(&mut self, path: &Path, file: File) {
        let skip = self.search.counted_only();
        let (done, hits, is_binary) = self.look_into(file, skip);
        self.note(path, done, hits, is_binary);
    }

    fn look_into(&mut self, file: File, skip: usize) -> (io::Result<()>, Hits, bool) {
        let mut sink = FileSink {
            search: self.search,
            matcher: &self.matcher,
            hits: Hits::default(),
            skip,
            kept: 0,
            gap: false,
            is_binary: false,
        };
        let mut file = Watched {
            file,
            deadline: self.deadline,
            lines: (!self.searcher.multi_line_with_matcher(&self.matcher)).then(|| LongLines {
                also_end: self.searcher.binary_detection().convert_byte(),
                ..LongLines::new(MAX_SEARCHED)
            }),
        };
        let done = self.searcher.search_reader(&self.matcher, &mut file, &mut sink);
        if file.lines.is_some_and(|lines| lines.is_cut) && skip == self.search.counted_only() {
            self.collector.long_line();
        }
        (done, sink.hits, sink.is_binary)
    }

    fn note(&self, path: &Path, done: io::Result<()>, mut hits: Hits, is_binary: bool) {
        match done {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::TimedOut => self.collector.late(),
            Err(error) if error.to_string().contains("allocation limit") => return self.collector.huge(),
            Err(_) => return self.collector.unreadable(),
        }
        if hits.matches == 0 {
            return;
        }
        if is_binary {
            if self.searcher.binary_detection().quit_byte().is_some()
                && self.search.mode != OutputMode::Content
            {
                return;
            }
            if self.search.mode == OutputMode::Content {
                self.collector.binary(path);
                if self.searcher.binary_detection().convert_byte().is_some() {
                    (hits.lines, hits.records) = (0, Vec::new());
                }
            }
        }
        if self.search.mode != OutputMode::Content {
            hits.lines = 1;
        }
        self.collector.add(path, hits);
    }

    /// Once all lines were counted: fetches the text of those that begin at the offset, as much as can be shown. `open`
    /// opens a file once more.
    pub(super) fn bring_page(&mut self, mut open: impl FnMut(&Path) -> io::Result<File>) {
        if self.search.counted_only() == 0 {
            return;
        }
        let (mut before, mut bytes) = (0, 0);
        for (path, lines) in self.collector.lines() {
            let skip = self.search.offset.saturating_sub(before);
            before += lines;
            if skip >= lines {
                continue;
            }
            let Ok(file) = open(&path) else {
                self.collector.unreadable();
                continue;
            };
            let (done, hits, _) = self.look_into(file, skip);
            if done.is_err_and(|error| error.kind() == io::ErrorKind::TimedOut) {
                return self.collector.late();
            }
            bytes += hits.records.iter().map(|record| record.text.len()).sum::<usize>();
            self.collector.fill(&path, hits.lines, hits.records);
            if bytes > MAX_BYTES || before >= self.search.needed {
                return;
            }
        }
    }
}

/// A file whose reading ends with the deadline, and of whose lines the beginnings are enough.
struct Watched<'a> {
    file: File,
    deadline: &'a Deadline,
    lines: Option<LongLines>,
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.deadline.is_over() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let read = self.file.read(buffer)?;
            let kept = self.lines.as_mut().map_or(read, |lines| lines.cut(&mut buffer[..read]));
            // None would mean the file's end.
            if kept > 0 || read == 0 {
                return Ok(kept);
            }
        }
    }
}

/// Takes the ends of lines out that are too long to be held, so that the rest of the file can be searched.
struct LongLines {
    max: usize,
    /// Ends a line as a line end does.
    also_end: Option<u8>,
    /// So much of the line has gone by.
    line: usize,
    is_cut: bool,
}

impl LongLines {
    fn new(max: usize) -> Self {
        Self { max, also_end: None, line: 0, is_cut: false }
    }

    /// How many bytes stay, at the start of the buffer.
    fn cut(&mut self, bytes: &mut [u8]) -> usize {
        let end = self.also_end.unwrap_or(b'\n');
        if self.line + bytes.len() <= self.max {
            self.line = match memchr::memrchr2(b'\n', end, bytes) {
                Some(at) => bytes.len() - at - 1,
                None => self.line + bytes.len(),
            };
            return bytes.len();
        }
        let (mut from, mut to) = (0, 0);
        while from < bytes.len() {
            let at = memchr::memchr2(b'\n', end, &bytes[from..]).map(|at| from + at);
            let len = at.unwrap_or(bytes.len()) - from;
            let kept = len.min(self.max - self.line);
            self.is_cut |= kept < len;
            bytes.copy_within(from..from + kept, to);
            to += kept;
            self.line += kept;
            from += len;
            if let Some(at) = at {
                bytes[to] = bytes[at];
                (to, from, self.line) = (to + 1, at + 1, 0);
            }
        }
        to
    }
}

struct FileSink<'a> {
    search: &'a Search,
    matcher: &'a RegexMatcher,
    hits: Hits,
    /// So many lines are only counted.
    skip: usize,
    /// Bytes of text in the others.
    kept: usize,
    gap: bool,
    is_binary: bool,
}

impl FileSink<'_> {
    fn push(&mut self, number: Option<u64>, is_match: bool, bytes: &[u8]) {
        let is_after_gap = std::mem::take(&mut self.gap) && self.hits.lines > 0;
        self.hits.lines += 1;
        if self.hits.lines <= self.skip {
            return;
        }
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        // Cut here: what is not shown need not be kept, and lines of many megabytes are met.
        let text = cut_line(&show(bytes).0, MAX_LINE).into_owned();
        self.kept += text.len();
        self.hits.records.push(Record { number, is_match, is_after_gap, text });
    }

    /// Notes each line of a match of several lines.
    fn push_lines(&mut self, first: Option<u64>, bytes: &[u8]) {
        for (i, line) in bytes.split_inclusive(|b| *b == b'\n').enumerate() {
            self.push(first.map(|n| n + i as u64), true, line);
        }
    }

    /// Whether to go on.
    fn goes_on(&mut self) -> bool {
        match self.search.mode {
            OutputMode::FilesWithMatches => false,
            OutputMode::Count => true,
            OutputMode::Content => {
                // One more than needed shows that there is more.
                let is_full = self.hits.lines > self.search.needed || self.kept > MAX_BYTES;
                self.hits.is_cut |= is_full;
                !is_full
            }
        }
    }

    /// The matches themselves, within what the searcher found.
    fn each_match(
        &mut self,
        found: &SinkMatch<'_>,
        mut note: impl FnMut(&mut Self, Option<u64>, &[u8]),
    ) -> io::Result<()> {
        let range = found.bytes_range_in_buffer();
        // Without multiline a match must not see the line's end.
        let buffer = if self.search.multiline {
            found.buffer()
        } else {
            let line = found.bytes();
            &found.buffer()[..range.start + line.strip_suffix(b"\n").unwrap_or(line).len()]
        };
        let (mut counted, mut number) = (range.start, found.line_number());
        let matcher = self.matcher;
        matcher.find_iter_at(buffer, range.start, |m| {
            if m.start() >= range.end {
                return false;
            }
            if let Some(n) = &mut number {
                *n += memchr::memchr_iter(b'\n', &buffer[counted..m.start()]).count() as u64;
                counted = m.start();
            }
            note(self, number, &buffer[m.start()..m.end().min(range.end)]);
            // A line may have millions.
            self.goes_on()
        })?;
        Ok(())
    }
}

impl Sink for FileSink<'_> {
    type Error = io::Error;

    fn matched(&mut self, searcher: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        match self.search.mode {
            OutputMode::FilesWithMatches => self.hits.matches += 1,
            // Lines cannot be counted where a match may have several.
            OutputMode::Count if searcher.multi_line_with_matcher(self.matcher) => {
                self.each_match(found, |sink, _, _| sink.hits.matches += 1)?;
            }
            OutputMode::Count => self.hits.matches += 1,
            OutputMode::Content if self.search.only_matching => {
                self.each_match(found, |sink, number, text| {
                    // Matches of nothing say nothing.
                    if text.iter().any(|b| !matches!(b, b'\n' | b'\r')) {
                        sink.hits.matches += 1;
                        sink.push_lines(number, text);
                    }
                })?;
            }
            OutputMode::Content => {
                self.hits.matches += 1;
                self.push_lines(found.line_number(), found.bytes());
            }
        }
        Ok(self.goes_on())
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> Result<bool, io::Error> {
        if !matches!(context.kind(), SinkContextKind::Other) {
            self.push(context.line_number(), false, context.bytes());
        }
        Ok(true)
    }

    fn context_break(&mut self, _: &Searcher) -> Result<bool, io::Error> {
        self.gap = true;
        Ok(true)
    }

    fn finish(&mut self, _: &Searcher, finish: &SinkFinish) -> Result<(), io::Error> {
        self.is_binary |= finish.binary_byte_offset().is_some();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn of_each_line_the_beginning_stays(text in "[a\n]{0,60}", cut in 1_usize..9, max in 1_usize..6) {
            let mut lines = LongLines::new(max);
            let mut kept = Vec::new();
            for piece in text.as_bytes().chunks(cut) {
                let mut piece = piece.to_vec();
                let len = lines.cut(&mut piece);
                kept.extend_from_slice(&piece[..len]);
            }
            let want: Vec<&str> = text.split('\n').map(|line| &line[..line.len().min(max)]).collect();
            prop_assert_eq!(String::from_utf8(kept).unwrap(), want.join("\n"));
            prop_assert_eq!(lines.is_cut, text.split('\n').any(|line| line.len() > max));
        }
    }
}
