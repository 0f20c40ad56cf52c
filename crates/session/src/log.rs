//! From the lines that a store returns to a log: which of them are records, what is damaged, what is newer than this
//! version, and where the next record goes. Pure; owns the rules for damage, which are the same for all stores.
//!
//! - Records are sorted by their place. Of two records with one place the first in storage order counts; the second is
//!   damage, unless it has the same bytes.
//! - A damaged line is skipped, and its record is missing: there is a gap in the places. If damaged lines end the log, the
//!   next record leaves a gap for them, so that whoever folds the log sees that something is missing. A gap for which there
//!   are not enough damaged lines is damage too: lines were removed.
//! - A last line without its line feed that is no record is *torn*: its write was never acknowledged. It leaves no gap. The
//!   next append ends it with [`SEAL`], by which later readers know it.
//! - A record counts wherever it can be found: before a damaged byte in the place of its line feed, after a line that was cut
//!   and lost its line feed, without a line feed at the log's end. No JSON within a record looks like a record's beginning.
//! - A byte-order mark and blank lines are ignored.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use open_agent_model::Seq;

use crate::record::{self, Checked, Decoded, RECORD_START};
use crate::{EncodedRecord, Stored};

/// What is appended to a torn last line, before the line feed that ends it.
///
/// By it a later reader knows that the line was not damaged: nothing is missing. No part of a record can look like it: in
/// JSON, a tab stands between tokens only, and no token begins with `#`.
pub(crate) const SEAL: &[u8] = b"\t#torn";
const SEAL_AND_LINE_FEED: &[u8] = b"\t#torn\n";

/// What some editors put before a file's first line.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// A log as a store returns it: lines in storage order that nobody has looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawLog {
    /// The file, table or place in which the lines are; reports of damage name it.
    pub source: Arc<str>,
    /// The lines.
    pub lines: Vec<RawLine>,
}

/// A line of a log, or a row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawLine {
    /// The line's number, from 1, or the row's.
    pub number: u64,
    /// Its bytes, without the line feed.
    pub bytes: Vec<u8>,
    /// Whether a line feed ends it. Only the last line of a file can lack one; rows of tables do not.
    pub is_ended: bool,
}

impl RawLog {
    /// Splits a file's bytes into lines.
    #[must_use]
    pub fn from_bytes(source: impl Into<Arc<str>>, bytes: &[u8]) -> Self {
        let lines = split_lines(bytes).zip(1..);
        let lines = lines.map(|(line, number)| RawLine::new(number, line.to_vec()));
        Self { source: source.into(), lines: lines.collect() }
    }

    /// All records whose checksum is right, sorted by their place, each place once, with the bytes that are stored. This is
    /// what a copy of the log consists of, records that this version cannot decode included.
    #[must_use]
    pub fn into_records(self) -> Vec<EncodedRecord> {
        let mut records = Vec::new();
        for line in &self.lines {
            for piece in pieces(line) {
                if let Piece::Record(checked) = piece {
                    records.push(checked.encoded());
                }
            }
        }
        // Both are stable: the first of two with one place stays.
        records.sort_by_key(EncodedRecord::seq);
        records.dedup_by_key(|record| record.seq());
        records
    }
}

/// Lines with their line feeds; only the last one can lack it.
fn split_lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let end = memchr::memchr(b'\n', rest).map_or(rest.len(), |at| at + 1);
        let (line, after) = rest.split_at(end);
        rest = after;
        (!line.is_empty()).then_some(line)
    })
}

impl RawLine {
    /// A line as it was read, with its line feed if it has one.
    pub(crate) fn new(number: u64, mut bytes: Vec<u8>) -> Self {
        let is_ended = bytes.last() == Some(&b'\n');
        if is_ended {
            bytes.pop();
        }
        Self { number, bytes, is_ended }
    }
}

/// A session's log, decoded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// The records that can be read, sorted by their place. A jump in the places means that records are missing.
    pub records: Vec<Stored>,
    /// What is wrong with the log, in storage order. The texts are the same each time the log is read.
    pub damage: Vec<Damage>,
    /// The first record that is whole and that this version cannot read. Nothing may be appended to such a log.
    pub newer: Option<Newer>,
    head: Seq,
    lost_at_end: u64,
}

/// One damaged place of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file, table or place in which the log is.
    pub source: Arc<str>,
    /// The line's number, from 1, or the row's.
    pub line: u64,
    /// What it means.
    pub kind: DamageKind,
    /// What is wrong, as a clause for people.
    pub reason: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, line {}: {}", self.source, self.line, self.reason)
    }
}

/// What a damaged place means for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DamageKind {
    /// A record that was there cannot be read any more, or the line never was a record.
    Lost,
    /// The last line was cut, most likely when its process or the machine ended while writing it. Its write was never
    /// acknowledged. It is reported only by the read that finds it at the log's end.
    Torn,
    /// Bytes around records are damaged; the records themselves are whole.
    Harmless,
    /// There is another record with the same place, which counts.
    Contradiction,
    /// Records are missing, and no damaged line is left of them.
    Missing,
}

/// A record that this version cannot read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Newer {
    /// The file, table or place in which the log is.
    pub source: Arc<str>,
    /// The line's number, from 1, or the row's.
    pub line: u64,
    /// What is not known, as a clause for people.
    pub what: String,
}

impl Log {
    /// Decodes what a store returned. Never fails: what cannot be read is in [`Log::damage`].
    #[must_use]
    pub fn read(raw: RawLog) -> Self {
        let mut reader =
            Reader { source: raw.source, log: Self::default(), seen: HashMap::new(), lost_lines: Vec::new() };
        for line in raw.lines {
            reader.take(&line);
        }
        reader.find_missing();
        let mut log = reader.log;
        if !log.records.is_sorted_by_key(|record| record.seq) {
            log.records.sort_by_key(|record| record.seq);
        }
        log
    }

    /// The highest place that a whole record has, also one that this version cannot decode.
    #[must_use]
    pub fn head(&self) -> Seq {
        self.head
    }

    /// The place of the next record. It leaves a gap if damaged lines end the log.
    #[must_use]
    pub fn next(&self) -> Seq {
        Seq(self.head.0.saturating_add(self.lost_at_end).saturating_add(1))
    }
}

struct Reader {
    source: Arc<str>,
    log: Log,
    /// The checksum and length of each record, to know equal ones.
    seen: HashMap<Seq, (u32, usize, u64)>,
    /// The lines of damaged records, as often as there is one in them.
    lost_lines: Vec<u64>,
}

impl Reader {
    fn take(&mut self, line: &RawLine) {
        for piece in pieces(line) {
            match piece {
                Piece::Record(checked) => self.take_record(line.number, &checked),
                Piece::Lost(reason) => {
                    self.log.lost_at_end += 1;
                    self.lost_lines.push(line.number);
                    self.damaged(line.number, DamageKind::Lost, reason);
                }
                Piece::Torn => {
                    let reason = "the last record was cut while it was written, and is skipped".to_owned();
                    self.damaged(line.number, DamageKind::Torn, reason);
                }
                Piece::BadLineFeed => {
                    let reason = "a line feed after a record is damaged; the record is whole".to_owned();
                    self.damaged(line.number, DamageKind::Harmless, reason);
                }
            }
        }
    }

    fn take_record(&mut self, line: u64, checked: &Checked<'_>) {
        let (seq, len) = (checked.seq, checked.line.len());
        if let Some((crc, known_len, first)) = self.seen.get(&seq) {
            if (*crc, *known_len) != (checked.crc, len) {
                let reason = format!("another record {} stands in line {first}, and that one counts", seq.0);
                self.damaged(line, DamageKind::Contradiction, reason);
            }
            return;
        }
        self.seen.insert(seq, (checked.crc, len, line));
        if seq > self.log.head {
            self.log.head = seq;
            self.log.lost_at_end = 0;
        }
        match checked.decode() {
            Decoded::Record(record) => self.log.records.push(record),
            Decoded::Damaged(reason) => self.damaged(line, DamageKind::Lost, reason),
            Decoded::Newer { what } => {
                let source = Arc::clone(&self.source);
                self.log.newer.get_or_insert(Newer { source, line, what });
            }
        }
    }

    /// Tells gaps in the places that no damaged lines explain.
    fn find_missing(&mut self) {
        let mut places: Vec<(Seq, u64)> = self.seen.iter().map(|(seq, (_, _, line))| (*seq, *line)).collect();
        places.sort_unstable();
        let mut before = (Seq(0), 0);
        for place in places {
            let gap = place.0.0.saturating_sub(before.0.0.saturating_add(1));
            // Lines may be swapped.
            let between = before.1.min(place.1)..=before.1.max(place.1);
            let lost = if gap == 0 {
                0
            } else {
                self.lost_lines.iter().filter(|l| between.contains(l)).count() as u64
            };
            if gap > lost {
                let (first, last) = (before.0.0 + 1, place.0.0 - 1);
                let reason = match gap {
                    1 => format!("record {first}, which belongs before it, is missing"),
                    _ if lost == 0 => {
                        format!("records {first} to {last}, which belong before it, are missing")
                    }
                    _ => format!(
                        "{} of the records {first} to {last}, which belong before it, are missing",
                        gap - lost
                    ),
                };
                self.damaged(place.1, DamageKind::Missing, reason);
            }
            before = place;
        }
    }

    fn damaged(&mut self, line: u64, kind: DamageKind, reason: String) {
        self.log.damage.push(Damage { source: Arc::clone(&self.source), line, kind, reason });
    }
}

/// A part of a line.
enum Piece<'a> {
    /// A record whose checksum is right.
    Record(Checked<'a>),
    /// Bytes that were a record, or never were one.
    Lost(String),
    /// The cut beginning of a record at the log's end.
    Torn,
    /// A record is followed by something else than a line feed.
    BadLineFeed,
}

/// Takes a line apart. Almost always it is one record.
fn pieces(line: &RawLine) -> Vec<Piece<'_>> {
    let (bytes, is_sealed) = match line.bytes.strip_suffix(SEAL) {
        Some(bytes) if line.is_ended => (bytes, true),
        _ => (line.bytes.as_slice(), false),
    };
    let mut rest =
        if line.number == 1 { bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes) } else { bytes };
    let mut pieces = Vec::with_capacity(1);
    while !rest.trim_ascii().is_empty() {
        if let Some(checked) = record_at_start(rest) {
            rest = rest.get(checked.line.len()..).unwrap_or_default();
            pieces.push(Piece::Record(checked));
            continue;
        }
        // Up to the next record, or to the line's end.
        let next = next_record(rest);
        let junk = rest.get(..next.unwrap_or(rest.len())).unwrap_or_default();
        // One byte behind a record stands where its line feed was. That may be gone altogether, which does no harm either.
        if junk.len() == 1 && matches!(pieces.last(), Some(Piece::Record(_))) {
            pieces.push(Piece::BadLineFeed);
        } else if junk.trim_ascii().is_empty() {
            // Indented by somebody.
        } else if next.is_some() || (line.is_ended && !is_sealed) {
            pieces.push(Piece::Lost(reason_of(junk)));
        } else if !is_sealed {
            pieces.push(Piece::Torn);
        }
        rest = rest.get(junk.len()..).unwrap_or_default();
    }
    pieces
}

fn reason_of(line: &[u8]) -> String {
    record::inspect(line).err().unwrap_or_default()
}

/// The record that `bytes` begin with.
fn record_at_start(bytes: &[u8]) -> Option<Checked<'_>> {
    if !bytes.starts_with(RECORD_START) {
        return None;
    }
    if let Ok(checked) = record::inspect(bytes) {
        return Some(checked);
    }
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<serde::de::IgnoredAny>();
    values.next()?.ok()?;
    record::inspect(bytes.get(..values.byte_offset())?).ok()
}

/// Where in `bytes`, after their beginning, the next record begins.
fn next_record(bytes: &[u8]) -> Option<usize> {
    let from = 1;
    memchr::memmem::find_iter(bytes.get(from..)?, RECORD_START)
        .map(|start| from + start)
        .find(|start| bytes.get(*start..).and_then(record_at_start).is_some())
}

/// What an append needs to know of a log's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tail {
    /// The highest place of a record in the part that was looked at; 0 if there is none.
    pub(crate) head: Seq,
    /// What has to be written before the next record so that it begins a line.
    pub(crate) prefix: &'static [u8],
}

impl Tail {
    /// Looks at whole lines from a log's end; the last one may be cut.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut tail = Self { head: Seq(0), prefix: b"" };
        for line in split_lines(bytes) {
            // The number only matters for the byte-order mark, with which no other line begins.
            let line = RawLine::new(1, line.to_vec());
            tail.prefix = if line.is_ended { b"" } else { b"\n" };
            for piece in pieces(&line) {
                match piece {
                    Piece::Record(checked) => tail.head = tail.head.max(checked.seq),
                    Piece::Torn => tail.prefix = SEAL_AND_LINE_FEED,
                    Piece::Lost(_) | Piece::BadLineFeed => {}
                }
            }
        }
        tail
    }
}

#[cfg(test)]
mod tests;
