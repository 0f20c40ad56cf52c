//! The stored form of a record: one line of JSON with a checksum. Owns [`encode`] and [`decode`], which are pure; knows
//! nothing of files.
//!
//! A record is one line, and its fields stand in this order:
//!
//! ```json
//! {"v":1,"seq":4,"at":1790000000000,"crc":795665927,"entry":{"started":{"call":{"turn":0,"index":1}}}}
//! ```
//!
//! | field | meaning |
//! |---|---|
//! | `v` | the lowest format version whose readers read this record rightly |
//! | `seq` | the record's place in its log, from 1 |
//! | `at` | when it was written, in milliseconds since 1970 |
//! | `crc` | the checksum, see below |
//! | `skip` | optional; `true` = a reader that does not know the entry may go on without it |
//! | `entry` | what happened: an object with one field, whose name is the entry's kind |
//!
//! **The checksum** is the CRC-32 (the one of zlib and PNG) of the whole line as it is stored, without its line feed and
//! without the text of the `crc` field itself: from the quote that begins `"crc":` up to and including the comma after the
//! number. It covers the header, fields that this version does not know, and every byte of the entry. In Python:
//! `zlib.crc32(re.sub(rb'"crc":\d+,', b'', line, count=1))`. `"crc":` stands within the first 1,024 bytes of a line.
//!
//! **The beginning.** The bytes `{"v":` begin a record and stand nowhere else in a line: in strings, quotes are escaped, and
//! where raw JSON holds an object that begins so, it is written as `{ "v":`. So records can be found in damaged lines, and
//! JSON that a model wrote is never taken for a record.
//!
//! **Reading** tells three cases apart. *Damaged*: the line is no JSON, the checksum is wrong, or a known kind of entry in a
//! known version does not parse. *Newer*: the checksum is right, and the version, the kind of entry or a deciding value in
//! it is not known here. Everything else is a record. What is newer but marked `"skip":true` is a record too, with
//! [`SessionEntry::Unknown`] as its entry.
//!
//! Records that were read are never rendered again. Whoever copies a log copies [`EncodedRecord`]s.

use open_agent_model::{RawJson, Seq, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::SessionEntry;

/// The newest format version that this version of the library reads.
///
/// It grows when something that older readers would take wrongly is written of a kind of entry that they know. A new kind of
/// entry and a new deciding value need no new version, since older readers recognise them as newer.
pub const FORMAT_VERSION: u32 = 1;

/// How each record begins. No other part of a record looks like it.
pub(crate) const RECORD_START: &[u8] = b"{\"v\":";

/// The header of a line up to the end of its checksum fits into this many bytes.
const HEADER_LIMIT: usize = 1024;

/// One record of a log, decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// Its place in the log, from 1.
    pub seq: Seq,
    /// When it was written.
    pub at: Timestamp,
    /// The lowest format version whose readers read it rightly.
    pub v: u32,
    /// Whether a reader that does not know the entry may go on without it.
    pub skip: bool,
    /// What happened.
    pub entry: SessionEntry,
}

impl Stored {
    /// Makes a record as this version writes it: with the lowest version that reads the entry rightly, and not to be skipped
    /// by readers that do not know it.
    #[must_use]
    pub fn new(seq: Seq, at: Timestamp, entry: SessionEntry) -> Self {
        // Every kind of entry that exists so far is read rightly by version 1.
        Self { seq, at, v: 1, skip: false, entry }
    }
}

/// A record in its stored form: a line whose header and checksum are right. This is what stores keep, return and copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedRecord {
    seq: Seq,
    bytes: Vec<u8>,
}

impl EncodedRecord {
    /// Takes a stored line without its line feed, for example to copy it into another log.
    ///
    /// Kinds of entries and versions that this version does not know are accepted.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with a line that is damaged.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, String> {
        let seq = inspect(&bytes)?.seq;
        Ok(Self { seq, bytes })
    }

    /// The record's place in its log.
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// The line, without a line feed. No byte in it is a line feed.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Decodes the record.
    #[must_use]
    pub fn decode(&self) -> Decoded {
        decode(&self.bytes)
    }
}

/// What a line turned out to be.
#[expect(clippy::large_enum_variant, reason = "a record is the usual case, and each is taken out at once")]
#[derive(Clone, Debug, PartialEq)]
pub enum Decoded {
    /// A record that this version can read, or may skip.
    Record(Stored),
    /// A record that was changed since it was written, or no record at all; the text says in which way.
    Damaged(String),
    /// A record that is whole and that this version does not know how to read.
    Newer {
        /// What is not known.
        what: String,
    },
}

/// Encodes a record.
///
/// Raw JSON keeps its text, with two exceptions that do not change its meaning: line feeds between tokens become spaces,
/// since a record is one line, and `{"v":` becomes `{ "v":`, since that is how a record begins.
///
/// # Errors
///
/// Returns an error if the entry has no JSON form.
pub fn encode(record: &Stored) -> Result<EncodedRecord, serde_json::Error> {
    encode_tracked(record).map(|(encoded, _)| encoded)
}

/// As [`encode`]; also returns true if the encoded entry differs from `record.entry` (in the white space of raw JSON).
pub(crate) fn encode_tracked(record: &Stored) -> Result<(EncodedRecord, bool), serde_json::Error> {
    let mut after = Vec::with_capacity(512);
    if record.skip {
        after.extend_from_slice(b"\"skip\":true,");
    }
    after.extend_from_slice(b"\"entry\":");
    match &record.entry {
        SessionEntry::Unknown(raw) => after.extend_from_slice(raw.get().as_bytes()),
        entry => entry.serialize(&mut serde_json::Serializer::new(&mut after))?,
    }
    after.push(b'}');
    let is_changed = make_one_record(&mut after);
    let mut bytes =
        format!("{{\"v\":{},\"seq\":{},\"at\":{},", record.v, record.seq.0, record.at.0).into_bytes();
    let crc = checksum(&bytes, &after);
    bytes.reserve_exact(after.len() + 17);
    bytes.extend_from_slice(format!("\"crc\":{crc},").as_bytes());
    bytes.append(&mut after);
    Ok((EncodedRecord { seq: record.seq, bytes }, is_changed))
}

/// Removes line feeds and beginnings of records from an encoded entry. Returns true if there were any.
fn make_one_record(entry: &mut Vec<u8>) -> bool {
    let mut is_changed = false;
    while let Some(at) = memchr::memchr2(b'\n', b'\r', entry) {
        for byte in entry.iter_mut().skip(at).filter(|byte| matches!(byte, b'\n' | b'\r')) {
            *byte = b' ';
        }
        is_changed = true;
    }
    let starts: Vec<usize> = memchr::memmem::find_iter(entry, RECORD_START).collect();
    if starts.is_empty() {
        return is_changed;
    }
    let mut spaced = Vec::with_capacity(entry.len() + starts.len());
    let mut from = 0;
    for start in starts {
        spaced.extend_from_slice(entry.get(from..=start).unwrap_or_default());
        spaced.push(b' ');
        from = start + 1;
    }
    spaced.extend_from_slice(entry.get(from..).unwrap_or_default());
    *entry = spaced;
    true
}

/// Decodes a line without its line feed. See the module's documentation for the rules.
#[must_use]
pub fn decode(line: &[u8]) -> Decoded {
    match inspect(line) {
        Ok(checked) => checked.decode(),
        Err(reason) => Decoded::Damaged(reason),
    }
}

/// A line whose checksum is right and whose place is known.
pub(crate) struct Checked<'a> {
    pub(crate) line: &'a [u8],
    pub(crate) seq: Seq,
    pub(crate) crc: u32,
    plain: Option<PlainHeader<'a>>,
}

/// The fields that every version writes are `v` and `seq`; the others may change with a new version.
#[derive(Deserialize)]
struct Header<'a> {
    v: u32,
    seq: Seq,
    #[serde(default)]
    at: Option<Timestamp>,
    #[serde(default)]
    skip: bool,
    #[serde(borrow, default)]
    entry: Option<&'a RawValue>,
}

/// The header of a record in exactly the documented form: numbers, `skip` or not, and the entry as the last field.
///
/// It is taken apart without walking through the entry's JSON, which would double the time that reading a log takes. Whether
/// the rest of the line is one entry shows when that is decoded; if it is not, the header is read by the general rules.
struct PlainHeader<'a> {
    v: u32,
    seq: Seq,
    at: Timestamp,
    skip: bool,
    entry: &'a [u8],
}

impl<'a> PlainHeader<'a> {
    /// Parses the parts of a line before and after its checksum.
    fn parse(before: &[u8], after: &'a [u8]) -> Option<Self> {
        let before = std::str::from_utf8(before).ok()?;
        let (v, rest) = before.strip_prefix("{\"v\":")?.split_once(",\"seq\":")?;
        let (seq, at) = rest.strip_suffix(',')?.split_once(",\"at\":")?;
        let (skip, after) = match after.strip_prefix(b"\"skip\":true,") {
            Some(after) => (true, after),
            None => (false, after),
        };
        let entry = after.strip_prefix(b"\"entry\":")?.strip_suffix(b"}")?;
        // `parse` takes a plus sign, which JSON does not have.
        let is_plain = |number: &str| !number.starts_with('+');
        let (v, seq, at) = [v, seq, at].iter().all(|n| is_plain(n)).then_some((v, seq, at))?;
        let (seq, at) = (Seq(seq.parse().ok()?), Timestamp(at.parse().ok()?));
        Some(Self { v: v.parse().ok()?, seq, at, skip, entry })
    }

    /// Decodes the entry if this version knows it and nothing follows it.
    fn decode(&self) -> Option<Stored> {
        if self.v > FORMAT_VERSION {
            return None;
        }
        let entry = serde_json::from_slice(self.entry).ok()?;
        Some(Stored { seq: self.seq, at: self.at, v: self.v, skip: self.skip, entry })
    }
}

impl Checked<'_> {
    pub(crate) fn encoded(&self) -> EncodedRecord {
        EncodedRecord { seq: self.seq, bytes: self.line.to_vec() }
    }

    pub(crate) fn decode(&self) -> Decoded {
        if let Some(stored) = self.plain.as_ref().and_then(PlainHeader::decode) {
            return Decoded::Record(stored);
        }
        match full_header(self.line) {
            Ok(header) => header.decode(),
            Err(reason) => Decoded::Damaged(reason),
        }
    }
}

impl Header<'_> {
    fn decode(&self) -> Decoded {
        let Header { v, seq, at, skip, entry } = *self;
        let is_newer = v > FORMAT_VERSION;
        let (Some(at), Some(entry)) = (at, entry) else {
            return if is_newer {
                newer_format(v)
            } else {
                Decoded::Damaged("it has no time or no entry".into())
            };
        };
        let unknown = || match RawJson::parse(entry.get()) {
            Ok(raw) => Decoded::Record(Stored { seq, at, v, skip, entry: SessionEntry::Unknown(raw) }),
            Err(error) => Decoded::Damaged(error.to_string()),
        };
        if is_newer {
            return if skip { unknown() } else { newer_format(v) };
        }
        match serde_json::from_str::<SessionEntry>(entry.get()) {
            Ok(entry) => Decoded::Record(Stored { seq, at, v, skip, entry }),
            Err(error) => {
                let text = error.to_string();
                // serde's words for a kind of entry, or a value of a closed enum, that is not known.
                match text.strip_prefix("unknown variant ") {
                    Some(_) if skip => unknown(),
                    Some(rest) => {
                        let word = rest.split(", expected").next().unwrap_or(rest);
                        Decoded::Newer { what: format!("this version does not know {word}") }
                    }
                    None => Decoded::Damaged(format!("the entry cannot be read: {text}")),
                }
            }
        }
    }
}

fn newer_format(v: u32) -> Decoded {
    Decoded::Newer {
        what: format!("it is in format {v}, and this version reads formats up to {FORMAT_VERSION}"),
    }
}

/// Checks a line's checksum and reads its header.
pub(crate) fn inspect(line: &[u8]) -> Result<Checked<'_>, String> {
    let (crc, before, after) = split_checksum(line).ok_or("it is no record: it has no checksum")?;
    if checksum(before, after) != crc {
        return Err("its checksum is wrong: it was changed after it was written, or cut".to_owned());
    }
    if memchr::memchr(b'\n', line).is_some() {
        return Err("it holds a line feed".to_owned());
    }
    let plain = PlainHeader::parse(before, after);
    let seq = match &plain {
        Some(plain) => plain.seq,
        None => full_header(line)?.seq,
    };
    Ok(Checked { line, seq, crc, plain })
}

fn full_header(line: &[u8]) -> Result<Header<'_>, String> {
    serde_json::from_slice(line).map_err(|error| format!("its header cannot be read: {error}"))
}

/// Finds the first `"crc":` and splits the line around that field.
fn split_checksum(line: &[u8]) -> Option<(u32, &[u8], &[u8])> {
    const KEY: &[u8] = b"\"crc\":";
    let head = line.get(..HEADER_LIMIT).unwrap_or(line);
    let start = head.windows(KEY.len()).position(|window| window == KEY)?;
    let (before, field) = line.split_at(start);
    let digits = field.get(KEY.len()..)?;
    let end = digits.iter().position(|byte| !byte.is_ascii_digit())?;
    let number = digits.get(..end)?;
    if digits.get(end) != Some(&b',') || (number.len() > 1 && number.starts_with(b"0")) {
        return None;
    }
    let crc = std::str::from_utf8(number).ok()?.parse().ok()?;
    Some((crc, before, digits.get(end + 1..)?))
}

fn checksum(before: &[u8], after: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(before);
    hasher.update(after);
    hasher.finalize()
}

#[cfg(test)]
mod tests;
