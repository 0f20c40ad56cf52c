//! Contents that are too large for a record: stored once a session beside its log, and referred to by their hash. Owns
//! the reference, and what a message refers to. Stores nothing: that is a session store's business.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde::de::{Error as _, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Block, Message, ResultBlock, Source};

/// What a path to a blob begins with.
const SCHEME: &str = "blob:";

/// The name of a blob: the SHA-256 of its bytes, in 64 lowercase hexadecimal digits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct BlobId(Arc<str>);

/// A text that is no [`BlobId`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} names no blob: 64 lowercase hexadecimal digits are needed")]
pub struct BadBlobId(pub String);

impl BlobId {
    /// Reads a name.
    ///
    /// # Errors
    ///
    /// Returns [`BadBlobId`] unless `hex` has 64 lowercase hexadecimal digits, so that a name is safe as a file's name.
    pub fn new(hex: &str) -> Result<Self, BadBlobId> {
        let is_hex = hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if hex.len() == 64 && is_hex { Ok(Self(hex.into())) } else { Err(BadBlobId(hex.to_owned())) }
    }

    /// Makes the name of bytes that have this SHA-256.
    #[must_use]
    pub fn from_sha256(digest: [u8; 32]) -> Self {
        let nibbles = digest.into_iter().flat_map(|byte| [byte >> 4, byte & 15]);
        let hex: String = nibbles.filter_map(|n| char::from_digit(n.into(), 16)).collect();
        Self(hex.into())
    }

    /// Reads a path as [`BlobId::path`] writes it. Returns `None` if `path` does not begin with `blob:`.
    ///
    /// ```
    /// use open_agent_model::BlobId;
    /// assert!(BlobId::from_path("src/main.rs").is_none());
    /// assert!(BlobId::from_path("blob:../secret").unwrap().is_err());
    /// ```
    #[must_use]
    pub fn from_path(path: &str) -> Option<Result<Self, BadBlobId>> {
        path.strip_prefix(SCHEME).map(Self::new)
    }

    /// Returns the path by which the `Read` tool opens the blob: `blob:` and the name.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{SCHEME}{}", self.0)
    }

    /// Returns the hexadecimal digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<BlobId> for String {
    fn from(id: BlobId) -> Self {
        id.as_str().to_owned()
    }
}

impl TryFrom<String> for BlobId {
    type Error = BadBlobId;

    fn try_from(hex: String) -> Result<Self, BadBlobId> {
        Self::new(&hex)
    }
}

impl fmt::Display for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A reference to a blob. Only name and length are written to JSON.
///
/// A reference remembers its content once that is known: from the beginning where this process stored the blob, otherwise
/// from when it was read ([`Blob::fill`]). Clones share it. Two references are equal if they name the same blob.
#[derive(Clone, Serialize, Deserialize)]
pub struct Blob {
    id: BlobId,
    bytes: u64,
    #[serde(skip)]
    content: Arc<OnceLock<Arc<str>>>,
}

impl Blob {
    /// Refers to the blob `id`, which is `bytes` long.
    #[must_use]
    pub fn new(id: BlobId, bytes: u64) -> Self {
        Self { id, bytes, content: Arc::default() }
    }

    /// Returns its name.
    #[must_use]
    pub fn id(&self) -> &BlobId {
        &self.id
    }

    /// Returns its length in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the content in the form in which its place needs it (base64 of a picture, the text of a result); `None` if
    /// this process has not read it yet.
    #[must_use]
    pub fn content(&self) -> Option<&str> {
        self.content.get().map(|content| &**content)
    }

    /// Remembers the content. The first one counts.
    pub fn fill(&self, content: Arc<str>) {
        let _known = self.content.set(content);
    }

    /// Remembers the content that `other`, a reference to the same blob, has. Does nothing if that has none.
    pub fn fill_from(&self, other: &Self) {
        if let Some(content) = other.content.get() {
            self.fill(Arc::clone(content));
        }
    }
}

impl PartialEq for Blob {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.bytes == other.bytes
    }
}

impl Eq for Blob {}

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Blob({}, {} bytes)", self.id, self.bytes)
    }
}

/// The text of a tool's result: in the record itself, or in a blob. Derefs to the text.
///
/// In JSON it is a string, or an object with the blob's `id` and `bytes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResultText {
    /// Here. Clones share it: a result stands in the log, in the conversation and in events.
    Inline(Arc<str>),
    /// In a blob, as UTF-8. Derefs to an empty text as long as the content is not known.
    Blob(Blob),
}

impl ResultText {
    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Inline(text) => text,
            Self::Blob(blob) => blob.content().unwrap_or_default(),
        }
    }
}

impl Deref for ResultText {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for ResultText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl<T: Into<String>> From<T> for ResultText {
    fn from(text: T) -> Self {
        Self::Inline(text.into().into())
    }
}

impl Serialize for ResultText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Inline(text) => serializer.serialize_str(text),
            Self::Blob(blob) => blob.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ResultText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrBlob;
        impl<'de> Visitor<'de> for TextOrBlob {
            type Value = ResultText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a blob")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<ResultText, E> {
                Ok(ResultText::Inline(text.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ResultText, A::Error> {
                Blob::deserialize(MapAccessDeserializer::new(map))
                    .map(ResultText::Blob)
                    .map_err(A::Error::custom)
            }
        }
        deserializer.deserialize_any(TextOrBlob)
    }
}

/// A blob that a message refers to, and the form in which its content is needed there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlobUse<'a> {
    /// The bytes of a picture or document, in base64.
    Base64(&'a Blob),
    /// A text.
    Text(&'a Blob),
}

impl<'a> BlobUse<'a> {
    /// Returns the reference.
    #[must_use]
    pub fn blob(self) -> &'a Blob {
        match self {
            Self::Base64(blob) | Self::Text(blob) => blob,
        }
    }
}

impl Message {
    /// Returns the blobs that the message refers to, in order.
    pub fn blobs(&self) -> impl Iterator<Item = BlobUse<'_>> {
        self.content.iter().flat_map(Block::blobs)
    }
}

impl Block {
    /// Returns the blobs that the block refers to, in order.
    pub fn blobs(&self) -> impl Iterator<Item = BlobUse<'_>> {
        let (own, parts) = match self {
            Self::Image(source) | Self::Document { source, .. } => (source.blob(), [].as_slice()),
            Self::ToolResult(result) => (None, result.content.as_slice()),
            _ => (None, [].as_slice()),
        };
        own.map(BlobUse::Base64).into_iter().chain(parts.iter().filter_map(ResultBlock::blob))
    }
}

impl ResultBlock {
    /// Returns the blob that the part refers to.
    #[must_use]
    pub fn blob(&self) -> Option<BlobUse<'_>> {
        match self {
            Self::Image { source } | Self::Document { source, .. } => source.blob().map(BlobUse::Base64),
            Self::Text { text: ResultText::Blob(blob) }
            | Self::Resource { text: ResultText::Blob(blob), .. } => Some(BlobUse::Text(blob)),
            Self::Text { .. } | Self::Resource { .. } => None,
        }
    }
}

impl Source {
    /// Returns the media type and the base64 of bytes that this process has: of an inline source, and of a blob whose
    /// content is known.
    #[must_use]
    pub fn base64(&self) -> Option<(&str, &str)> {
        match self {
            Self::Inline { media_type, data } => Some((media_type, data)),
            Self::Blob { media_type, blob } => blob.content().map(|data| (media_type.as_str(), data)),
            Self::Url { .. } => None,
        }
    }

    /// Returns the media type, unless only an address is known.
    #[must_use]
    pub fn media_type(&self) -> Option<&str> {
        match self {
            Self::Inline { media_type, .. } | Self::Blob { media_type, .. } => Some(media_type),
            Self::Url { .. } => None,
        }
    }

    fn blob(&self) -> Option<&Blob> {
        match self {
            Self::Blob { blob, .. } => Some(blob),
            Self::Inline { .. } | Self::Url { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn blob() -> Blob {
        Blob::new(BlobId::new(HEX).unwrap(), 7)
    }

    #[test]
    fn names_are_safe_as_names_of_files() {
        let upper = HEX.to_uppercase();
        let long = format!("{HEX}0");
        for bad in ["", "..", &HEX[..63], &long, &upper, &format!("../{}", &HEX[3..])] {
            assert_eq!(BlobId::new(bad), Err(BadBlobId(bad.to_owned())));
            assert!(serde_json::from_value::<BlobId>(bad.into()).is_err(), "{bad}");
        }
        let id = BlobId::new(HEX).unwrap();
        assert_eq!(BlobId::from_path(&id.path()), Some(Ok(id)));
        assert_eq!(BlobId::from_path(HEX), None);
    }

    #[test]
    fn a_text_is_a_string_or_a_reference_in_json() {
        let inline = ResultText::from("é");
        assert_eq!(serde_json::to_string(&inline).unwrap(), r#""é""#);
        let stored = ResultText::Blob(blob());
        let json = serde_json::to_string(&stored).unwrap();
        assert_eq!(json, format!(r#"{{"id":"{HEX}","bytes":7}}"#));
        for text in [inline, stored] {
            let json = serde_json::to_string(&text).unwrap();
            assert_eq!(serde_json::from_str::<ResultText>(&json).unwrap(), text);
        }
        for bad in ["7", "null", r#"{"id":"x","bytes":7}"#, r#"{"bytes":7}"#] {
            assert!(serde_json::from_str::<ResultText>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn clones_share_a_content_that_is_filled_once() {
        let (one, other) = (blob(), blob());
        let clone = one.clone();
        assert_eq!((one.content(), ResultText::Blob(one.clone()).as_str()), (None, ""));
        clone.fill("text".into());
        one.fill("later".into());
        assert_eq!((one.content(), ResultText::Blob(one.clone()).as_str()), (Some("text"), "text"));
        assert_eq!(other.content(), None);
        assert_eq!(clone, other, "the content is not part of what is equal");
    }

    #[test]
    fn the_blobs_of_a_message_are_found_wherever_they_stand() {
        let source = || Source::Blob { media_type: "image/png".into(), blob: blob() };
        let parts = vec![
            ResultBlock::text("x"),
            ResultBlock::Image { source: source() },
            ResultBlock::Document { source: source(), title: None },
            ResultBlock::Text { text: ResultText::Blob(blob()) },
            ResultBlock::Resource { uri: "u".into(), text: ResultText::Blob(blob()) },
        ];
        let result =
            crate::ToolResult { tool_use_id: crate::ToolUseId::new("a"), content: parts, is_error: false };
        let mut message = Message::user(crate::MessageId::from_number(1), "hello");
        assert_eq!(message.blobs().count(), 0);
        message.content.push(Block::Image(source()));
        message.content.push(Block::Document { source: source(), title: None });
        message.content.push(Block::ToolResult(result));
        let found = message.blobs().map(|b| matches!(b, BlobUse::Text(_)));
        assert_eq!(found.collect::<Vec<_>>(), [false, false, false, false, true, true]);
        assert_eq!(source().base64(), None);
        let Source::Blob { blob, .. } = &source() else { panic!() };
        blob.fill("AA==".into());
        let filled = Source::Blob { media_type: "image/png".into(), blob: blob.clone() };
        assert_eq!(filled.base64(), Some(("image/png", "AA==")));
    }
}
