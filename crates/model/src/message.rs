//! Messages and their content blocks. Owns what a transcript consists of and how it is written to JSON. Knows no
//! vendor: `providers` maps from and to the wire.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Blob, MessageId, RawJson, ResultText, ToolUseId};

/// Who wrote a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The person, or tool results on their behalf.
    User,
    /// The model.
    Assistant,
}

/// One message of a transcript.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Ours.
    pub id: MessageId,
    /// Who wrote it.
    pub role: Role,
    /// What it says.
    pub content: Vec<Block>,
    /// The model that wrote it. Signed thinking is sent back to this model only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Arc<str>>,
}

impl Message {
    /// A user's text.
    #[must_use]
    pub fn user(id: MessageId, text: impl Into<String>) -> Self {
        Self { id, role: Role::User, content: vec![Block::Text(text.into())], model: None }
    }

    /// All its text blocks, joined.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        for block in &self.content {
            if let Block::Text(text) = block {
                out.push_str(text);
            }
        }
        out
    }

    /// Its tool uses, in order.
    pub fn tool_uses(&self) -> impl Iterator<Item = &ToolUse> {
        self.content.iter().filter_map(|b| if let Block::ToolUse(u) = b { Some(u) } else { None })
    }
}

/// One content block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "BlockJson", try_from = "BlockJson")]
pub enum Block {
    /// Text.
    Text(String),
    /// A picture.
    Image(Source),
    /// A document, such as a PDF.
    Document {
        /// Its bytes.
        source: Source,
        /// Its name.
        title: Option<String>,
    },
    /// What the model thought.
    Thinking(Thinking),
    /// Thinking that the vendor encrypted; goes back as it came.
    RedactedThinking {
        /// The vendor's text.
        data: String,
    },
    /// The model asks for a tool.
    ToolUse(ToolUse),
    /// A tool's answer.
    ToolResult(ToolResult),
    /// A block that this version does not know, byte for byte.
    Opaque {
        /// The vendor's block.
        raw: RawJson,
    },
}

/// What the model thought, as it has to go back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Thinking {
    /// Readable text; may be empty where the vendor withholds it.
    pub text: String,
    /// The vendor's signature over it.
    pub signature: Option<String>,
    /// A vendor's structured form of it (a JSON list), sent back as it came.
    pub details: Option<RawJson>,
}

/// The model asks for a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolUse {
    /// Legal and unique once the message is in a log.
    pub id: ToolUseId,
    /// As the model wrote it.
    pub name: String,
    /// Always a JSON object; `{}` where `broken` is set.
    pub input: RawJson,
    /// The model's arguments were no JSON object: the tool is not run.
    pub broken: Option<BrokenInput>,
}

/// Arguments that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokenInput {
    /// What arrived.
    pub raw: String,
    /// What is wrong and where.
    pub error: String,
    /// The answer ended before the arguments did.
    pub cut: bool,
}

/// A tool's answer.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolResult {
    /// Whose answer.
    pub tool_use_id: ToolUseId,
    /// What it says; may be empty.
    pub content: Vec<ResultBlock>,
    /// The call failed.
    pub is_error: bool,
}

/// A part of a tool's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ResultBlock {
    /// Text.
    Text {
        /// The text.
        text: ResultText,
    },
    /// A picture.
    Image {
        /// Its bytes.
        source: Source,
    },
    /// A document, such as a PDF.
    Document {
        /// Its bytes.
        source: Source,
        /// Its name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
    },
    /// A named text from elsewhere.
    Resource {
        /// Its name.
        uri: String,
        /// What it says.
        text: ResultText,
    },
}

impl ResultBlock {
    /// A text part.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: ResultText::from(text) }
    }
}

/// Where the bytes of a picture or document are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Source {
    /// Here, in base64.
    #[serde(rename = "base64")]
    Inline {
        /// Such as `image/png`.
        media_type: String,
        /// Base64.
        data: Arc<str>,
    },
    /// At an address that the model's host fetches.
    Url {
        /// The address.
        url: String,
    },
    /// In a blob of the session.
    Blob {
        /// Such as `image/png`.
        media_type: String,
        /// Which blob. It holds the bytes as they are; the content of the reference is their base64.
        blob: Blob,
    },
}

/// The stored form of a block: one flat struct, because raw JSON can sit neither in an internally tagged nor in an
/// untagged enum.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct BlockJson {
    #[serde(rename = "type")]
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<Source>,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signature: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<ToolUseId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    broken: Option<BrokenInput>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_use_id: Option<ToolUseId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Vec<ResultBlock>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_error: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw: Option<RawJson>,
}

impl From<Block> for BlockJson {
    fn from(block: Block) -> Self {
        let of = |kind: &str| Self { kind: kind.into(), ..Self::default() };
        match block {
            Block::Text(text) => Self { text: Some(text), ..of("text") },
            Block::Image(source) => Self { source: Some(source), ..of("image") },
            Block::Document { source, title } => Self { source: Some(source), title, ..of("document") },
            Block::Thinking(t) => {
                Self { thinking: Some(t.text), signature: t.signature, details: t.details, ..of("thinking") }
            }
            Block::RedactedThinking { data } => Self { data: Some(data), ..of("redacted_thinking") },
            Block::ToolUse(u) => Self {
                id: Some(u.id),
                name: Some(u.name),
                input: Some(u.input),
                broken: u.broken,
                ..of("tool_use")
            },
            Block::ToolResult(r) => Self {
                tool_use_id: Some(r.tool_use_id),
                content: Some(r.content),
                is_error: Some(r.is_error),
                ..of("tool_result")
            },
            Block::Opaque { raw } => Self { raw: Some(raw), ..of("opaque") },
        }
    }
}

impl TryFrom<BlockJson> for Block {
    type Error = String;
    fn try_from(j: BlockJson) -> Result<Self, String> {
        let missing = |field: &str| format!("block of type {:?} has no `{field}`", j.kind);
        Ok(match j.kind.as_str() {
            "text" => Self::Text(j.text.ok_or_else(|| missing("text"))?),
            "image" => Self::Image(j.source.ok_or_else(|| missing("source"))?),
            "document" => {
                Self::Document { source: j.source.ok_or_else(|| missing("source"))?, title: j.title }
            }
            "thinking" => Self::Thinking(Thinking {
                text: j.thinking.unwrap_or_default(),
                signature: j.signature,
                details: j.details,
            }),
            "redacted_thinking" => Self::RedactedThinking { data: j.data.ok_or_else(|| missing("data"))? },
            "tool_use" => Self::ToolUse(ToolUse {
                id: j.id.clone().ok_or_else(|| missing("id"))?,
                name: j.name.clone().ok_or_else(|| missing("name"))?,
                input: j.input.clone().ok_or_else(|| missing("input"))?,
                broken: j.broken,
            }),
            "tool_result" => Self::ToolResult(ToolResult {
                tool_use_id: j.tool_use_id.clone().ok_or_else(|| missing("tool_use_id"))?,
                content: j.content.unwrap_or_default(),
                is_error: j.is_error.unwrap_or_default(),
            }),
            "opaque" => Self::Opaque { raw: j.raw.ok_or_else(|| missing("raw"))? },
            // As serde says it of an enum: readers of records tell by these words that a later version wrote it.
            other => return Err(format!("unknown variant `{other}`, expected a type of content block")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_survive_json_byte_for_byte() {
        let input = RawJson::parse(r#"{"b": 1.0e2,  "a": []}"#).unwrap();
        let blocks = vec![
            Block::Text("héllo".into()),
            Block::Image(Source::Inline { media_type: "image/png".into(), data: "AA==".into() }),
            Block::Document {
                source: Source::Url { url: "https://a/b.pdf".into() },
                title: Some("b".into()),
            },
            Block::Thinking(Thinking {
                text: String::new(),
                signature: Some("sig".into()),
                details: Some(RawJson::parse("[ 1 ]").unwrap()),
            }),
            Block::RedactedThinking { data: "xyz".into() },
            Block::ToolUse(ToolUse {
                id: ToolUseId::new("a"),
                name: "Read".into(),
                input: input.clone(),
                broken: Some(BrokenInput { raw: "{".into(), error: "cut".into(), cut: true }),
            }),
            Block::ToolResult(ToolResult {
                tool_use_id: ToolUseId::new("a"),
                content: vec![
                    ResultBlock::text("t"),
                    ResultBlock::Resource { uri: "u".into(), text: "x".into() },
                ],
                is_error: true,
            }),
            Block::Opaque { raw: input },
        ];
        for block in blocks {
            let text = serde_json::to_string(&block).unwrap();
            let back: Block = serde_json::from_str(&text).unwrap();
            assert_eq!(back, block, "{text}");
        }
    }

    #[test]
    fn a_block_without_its_fields_is_named() {
        let error = serde_json::from_str::<Block>(r#"{"type":"tool_use","id":"a"}"#).unwrap_err();
        assert!(error.to_string().contains("has no `name`"), "{error}");
    }
}
