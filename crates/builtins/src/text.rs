//! Text as it lies in files. Owns encodings, marks and line ends: what is read is decoded for the model, what is written
//! goes back in the form that the file had.

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;

use encoding_rs::{Encoding as Codec, UTF_16BE, UTF_16LE, WINDOWS_1252};
use open_agent_model::FileStamp;
use open_agent_tool::{Located, PortError, ToolCx, ToolError, file_stamp};

/// As much of a file's start tells what is in it.
pub(crate) const SAMPLE: usize = 64 * 1024;
/// The largest file that is changed as a whole in memory.
const MAX_WHOLE: u64 = 128 * 1024 * 1024;

/// U+FEFF in UTF-8.
pub(crate) const MARK: &[u8] = b"\xEF\xBB\xBF";

/// How a file's text is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// UTF-8, or something that ASCII is a part of.
    Bytes,
    /// UTF-16, the low byte first.
    Utf16Le,
    /// UTF-16, the high byte first.
    Utf16Be,
}

impl Encoding {
    /// The decoder, where one is needed.
    pub(crate) fn codec(self) -> Option<&'static Codec> {
        match self {
            Self::Bytes => None,
            Self::Utf16Le => Some(UTF_16LE),
            Self::Utf16Be => Some(UTF_16BE),
        }
    }
}

/// What a file's start tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sniffed {
    /// Text.
    Text {
        /// How it is encoded.
        encoding: Encoding,
        /// Bytes of the mark in front of it.
        mark: usize,
    },
    /// No text.
    Binary,
}

/// Looks at a file's start.
pub(crate) fn sniff(sample: &[u8]) -> Sniffed {
    let text = |encoding, mark| Sniffed::Text { encoding, mark };
    if sample.starts_with(MARK) {
        return text(Encoding::Bytes, MARK.len());
    }
    if sample.starts_with(b"\xFF\xFE\0\0") {
        return Sniffed::Binary;
    }
    if sample.starts_with(b"\xFF\xFE") {
        return text(Encoding::Utf16Le, 2);
    }
    if sample.starts_with(b"\xFE\xFF") {
        return text(Encoding::Utf16Be, 2);
    }
    if memchr::memchr(0, sample).is_none() {
        let odd =
            sample.iter().filter(|b| b.is_ascii_control() && !b"\t\n\r\x0C\x1B\x08".contains(b)).count();
        return if odd * 10 > sample.len() * 3 { Sniffed::Binary } else { text(Encoding::Bytes, 0) };
    }
    // Without a mark, only text in western letters gives itself away: every other byte is zero.
    let units = sample.len() / 2;
    let zeros = |at: usize| sample.chunks_exact(2).filter(|unit| unit[at] == 0).count();
    let (even, odd) = (zeros(0), zeros(1));
    if units >= 4 && even == 0 && odd * 10 > units * 8 {
        text(Encoding::Utf16Le, 0)
    } else if units >= 4 && odd == 0 && even * 10 > units * 8 {
        text(Encoding::Utf16Be, 0)
    } else {
        Sniffed::Binary
    }
}

/// A file's whole text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    encoding: Encoding,
    mark: Vec<u8>,
    /// UTF-8, or the file's own bytes where they are no UTF-8. Without the mark.
    pub(crate) body: Vec<u8>,
}

impl Text {
    /// Reads it. `None`: it is no text, or cannot be written back as it was.
    pub(crate) fn decode(bytes: Vec<u8>) -> Option<Self> {
        let Sniffed::Text { encoding, mark } = sniff(&bytes[..bytes.len().min(SAMPLE)]) else { return None };
        let body = match encoding.codec() {
            None => bytes[mark..].to_vec(),
            Some(codec) => {
                let (text, broken) = codec.decode_without_bom_handling(&bytes[mark..]);
                if broken {
                    return None;
                }
                text.into_owned().into_bytes()
            }
        };
        Some(Self { encoding, mark: bytes[..mark].to_vec(), body })
    }

    /// The file's bytes with `body` in place of its text.
    pub(crate) fn encode(&self, body: &[u8]) -> Vec<u8> {
        let mut out = self.mark.clone();
        let unit = match self.encoding {
            Encoding::Bytes => {
                out.extend_from_slice(body);
                return out;
            }
            Encoding::Utf16Le => u16::to_le_bytes,
            Encoding::Utf16Be => u16::to_be_bytes,
        };
        out.extend(String::from_utf8_lossy(body).encode_utf16().flat_map(unit));
        out
    }

    /// Whether all of it is UTF-8 once decoded.
    pub(crate) fn is_utf8(&self) -> bool {
        std::str::from_utf8(&self.body).is_ok()
    }

    /// What the bytes of its body are.
    pub(crate) fn charset(&self) -> Charset {
        let mut census = Census::default();
        census.add(&self.body);
        census.charset()
    }

    /// `text` in the bytes of this file. `None`: the file's encoding has no such character, or is not known.
    pub(crate) fn bytes_of<'a>(&self, text: &'a str, charset: Charset) -> Option<Cow<'a, [u8]>> {
        if text.is_ascii() {
            return Some(text.as_bytes().into());
        }
        match charset {
            Charset::Utf8 => Some(text.as_bytes().into()),
            Charset::Windows1252 => to_windows_1252(text).map(Cow::Owned),
            Charset::Unknown => None,
        }
    }

    /// The text with neither mark nor what it stands for: a mark is written once.
    pub(crate) fn without_mark<'a>(&self, text: &'a str) -> &'a str {
        if self.has_mark() { text.strip_prefix('\u{feff}').unwrap_or(text) } else { text }
    }

    /// Whether there is a mark in front of it.
    pub(crate) fn has_mark(&self) -> bool {
        !self.mark.is_empty()
    }

    /// Takes the mark away, unless it is needed to tell the encoding.
    pub(crate) fn drop_mark(&mut self) {
        if self.encoding == Encoding::Bytes {
            self.mark.clear();
        }
    }
}

/// What bytes that ASCII is a part of are encoded in, as far as they tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Charset {
    /// UTF-8, but for stray bytes at most.
    Utf8,
    /// Windows-1252, of which Latin-1 is a part.
    Windows1252,
    /// Something else, perhaps with characters of two bytes, the second of which may look like ASCII.
    Unknown,
}

/// Counts what tells one charset from another.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Census {
    /// Characters of several bytes in proper UTF-8.
    wide: usize,
    /// Bytes that are no UTF-8, and how many groups of them touch a character of several bytes.
    strays: usize,
    touching: usize,
    /// Bytes from 0x80 on, and how many of them stand next to another: in western text few do, where characters have
    /// two bytes most.
    high: usize,
    paired: usize,
    /// Bytes that western text has nowhere, or not where they are.
    odd: usize,
}

impl Census {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        if bytes.is_ascii() {
            return;
        }
        let mut open = false;
        for chunk in bytes.utf8_chunks() {
            let valid = chunk.valid();
            self.wide += valid.chars().filter(|c| !c.is_ascii()).count();
            self.strays += chunk.invalid().len();
            // The group before this chunk, and the one at its end.
            self.touching += usize::from(open && valid.starts_with(|c: char| !c.is_ascii()));
            open = !chunk.invalid().is_empty();
            self.touching += usize::from(open && valid.ends_with(|c: char| !c.is_ascii()));
        }
        let is_high = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(|b| *b >= 0x80);
        for (at, byte) in bytes.iter().enumerate().filter(|(_, byte)| **byte >= 0x80) {
            self.high += 1;
            self.paired += usize::from(is_high(at.checked_sub(1)) || is_high(Some(at + 1)));
            let next = bytes.get(at + 1).copied().unwrap_or(b' ');
            self.odd += usize::from(match byte {
                // No characters at all.
                0x81 | 0x8D | 0x8F | 0x90 | 0x9D => true,
                // Signs that no word or path goes on after: ƒ † ‡ ˆ ‰ ” • ˜.
                0x83 | 0x86..=0x89 | 0x94 | 0x95 | 0x98 => is_second(next),
                _ => next == b'\\',
            });
        }
    }

    pub(crate) fn charset(self) -> Charset {
        // Some bytes of something else happen to be UTF-8; what is none is right beside them.
        let is_utf8 = self.wide > self.strays && (self.touching == 0 || self.wide > self.strays * 8);
        if self.strays == 0 || is_utf8 {
            Charset::Utf8
        } else if self.odd * 4 <= self.high && self.paired * 2 <= self.high {
            Charset::Windows1252
        } else {
            Charset::Unknown
        }
    }
}

/// Whether the byte can be the second of a character of two bytes (or of four, in GB 18030) though it is ASCII.
pub(crate) fn is_second(byte: u8) -> bool {
    byte.is_ascii_digit() || (0x40..=0x7E).contains(&byte)
}

/// `text` in Windows-1252, which is Latin-1 with more characters.
pub(crate) fn to_windows_1252(text: &str) -> Option<Vec<u8>> {
    let (bytes, _, unmappable) = WINDOWS_1252.encode(text);
    (!unmappable).then(|| bytes.into_owned())
}

/// Bytes for reading: UTF-8 where they are, else one Windows-1252 character a byte. Says whether there was any of those.
pub(crate) fn show(bytes: &[u8]) -> (Cow<'_, str>, bool) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return (text.into(), false);
    }
    let mut out = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        out.push_str(&WINDOWS_1252.decode_without_bom_handling(chunk.invalid()).0);
    }
    (out.into(), true)
}

/// A whole file and its stamp, if it is not too large.
pub(crate) async fn read_whole(
    cx: &ToolCx,
    at: &Located,
) -> Result<Result<(Vec<u8>, FileStamp), ToolError>, PortError> {
    let file = cx.files().open(at).await?;
    let name = at.path().display().to_string();
    let read = move || whole(file, &name);
    Ok(tokio::task::spawn_blocking(read).await.unwrap_or_else(|error| Err(error.into())))
}

fn whole(mut file: File, name: &str) -> Result<(Vec<u8>, FileStamp), ToolError> {
    let stamp = file_stamp(&file.metadata()?);
    if stamp.len > MAX_WHOLE {
        return Err(ToolError::new(format!(
            "{name} has {} bytes; only files up to {MAX_WHOLE} bytes are changed this way. Use Bash.",
            stamp.len
        )));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(stamp.len).unwrap_or_default());
    file.read_to_end(&mut bytes)?;
    Ok((bytes, stamp))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn starts_tell_what_a_file_is() {
        let text = |encoding, mark| Sniffed::Text { encoding, mark };
        assert_eq!(sniff(b""), text(Encoding::Bytes, 0));
        assert_eq!(sniff(b"\xEF\xBB\xBFa"), text(Encoding::Bytes, 3));
        assert_eq!(sniff(b"\xFF\xFEa\0"), text(Encoding::Utf16Le, 2));
        assert_eq!(sniff(b"\xFE\xFF\0a"), text(Encoding::Utf16Be, 2));
        assert_eq!(sniff(b"a\0b\0c\0d\0"), text(Encoding::Utf16Le, 0));
        assert_eq!(sniff(b"\0a\0b\0c\0d"), text(Encoding::Utf16Be, 0));
        assert_eq!(sniff(b"\x7FELF\0\0\x01"), Sniffed::Binary);
        assert_eq!(sniff(b"caf\xE9"), text(Encoding::Bytes, 0));
    }

    #[test]
    fn bytes_that_are_no_utf8_are_shown_as_latin() {
        assert_eq!(show(b"caf\xE9 \xC3\xA9"), ("café é".into(), true));
        assert_eq!(show("é".as_bytes()), ("é".into(), false));
    }

    #[test]
    fn bytes_tell_their_charset() {
        let charset = |bytes: &[u8]| {
            let mut census = Census::default();
            census.add(bytes);
            census.charset()
        };
        for western in [
            &b"caf\xE9 = 1\nna\xEFve"[..],
            b"it\x92s \x93so\x94, \x95 2 \x80",
            b"\xC4 \xD6 \xDC",
            b"\xA9 2001 M\xFCller",
        ] {
            assert_eq!(charset(western), Charset::Windows1252, "{western:?}");
        }
        for (codec, text) in [
            (encoding_rs::GBK, "// 模块 1: 保存文件"),
            (encoding_rs::GBK, "模块 = 1"),
            (encoding_rs::SHIFT_JIS, "表"),
            (encoding_rs::SHIFT_JIS, "// ソースコード, 能力"),
            (encoding_rs::SHIFT_JIS, "日本語の表"),
            (encoding_rs::EUC_KR, "한국어"),
            (encoding_rs::BIG5, "功能 = 許"),
            (encoding_rs::WINDOWS_1251, "// привет, мир"),
        ] {
            let (bytes, _, _) = codec.encode(text);
            assert_eq!(charset(&bytes), Charset::Unknown, "{text}");
        }
        assert_eq!(charset("été ☕".as_bytes()), Charset::Utf8);
        assert_eq!(charset(b"\xC3\xA9t\xC3\xA9 \xFF"), Charset::Utf8);
    }

    proptest! {
        #[test]
        fn what_is_decoded_is_encoded_to_the_same_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), mark in 0..4_usize) {
            let marks: [&[u8]; 4] = [b"", MARK, b"\xFF\xFE", b"\xFE\xFF"];
            bytes.splice(0..0, marks[mark].iter().copied());
            if let Some(text) = Text::decode(bytes.clone()) {
                prop_assert_eq!(text.encode(&text.body), bytes);
            }
        }
    }
}
