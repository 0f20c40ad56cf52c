//! Text as it lies in files. Owns encodings, marks and line ends: what is read is decoded for the model, what is written
//! goes back in the form that the file had.

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use encoding_rs::{Encoding as Codec, UTF_16BE, UTF_16LE, WINDOWS_1252};
use open_agent_model::FileStamp;
use open_agent_tool::{PortError, ToolCx, ToolError, file_stamp};

/// As much of a file's start tells what is in it.
pub(crate) const SAMPLE: usize = 64 * 1024;
/// The largest file that is changed as a whole in memory.
const MAX_WHOLE: u64 = 128 * 1024 * 1024;

const UTF8_MARK: &[u8] = b"\xEF\xBB\xBF";

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
    if sample.starts_with(UTF8_MARK) {
        return text(Encoding::Bytes, UTF8_MARK.len());
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

    /// `text` in the bytes of this file. `None`: the file's encoding has no such character.
    pub(crate) fn bytes_of<'a>(&self, text: &'a str) -> Option<Cow<'a, [u8]>> {
        if text.is_ascii() || self.is_utf8() || has_utf8(&self.body) {
            return Some(text.as_bytes().into());
        }
        to_windows_1252(text).map(Cow::Owned)
    }
}

/// `text` in Windows-1252, which is Latin-1 with more characters.
pub(crate) fn to_windows_1252(text: &str) -> Option<Vec<u8>> {
    let (bytes, _, unmappable) = WINDOWS_1252.encode(text);
    (!unmappable).then(|| bytes.into_owned())
}

/// Whether there is at least one character of several bytes in proper UTF-8.
fn has_utf8(bytes: &[u8]) -> bool {
    bytes.utf8_chunks().any(|chunk| !chunk.valid().is_ascii())
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
    path: &Path,
) -> Result<Result<(Vec<u8>, FileStamp), ToolError>, PortError> {
    let file = cx.files().open(path).await?;
    let name = path.display().to_string();
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

    proptest! {
        #[test]
        fn what_is_decoded_is_encoded_to_the_same_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), mark in 0..4_usize) {
            let marks: [&[u8]; 4] = [b"", UTF8_MARK, b"\xFF\xFE", b"\xFE\xFF"];
            bytes.splice(0..0, marks[mark].iter().copied());
            if let Some(text) = Text::decode(bytes.clone()) {
                prop_assert_eq!(text.encode(&text.body), bytes);
            }
        }
    }
}
