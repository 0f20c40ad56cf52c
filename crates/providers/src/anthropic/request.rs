//! Requests of the Messages API. Owns how our data is written there: a pure function of request, profile and marks.

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use open_agent_model::{
    Block, Message, ModelRequest, Prefix, RawJson, ResultBlock, Role, Source, ToolChoice, ToolResult,
};
use serde::Serialize;

use super::thinking::{self, OutputConfig, Thinking};
use crate::cache::{EncodeCache, Items, Style};
use crate::name::sendable;

/// Stands for a message of which nothing can be sent, so that roles still alternate.
pub(crate) const NOTHING_VISIBLE: &str = "(no visible output)";

const MARK: CacheControl = CacheControl { kind: "ephemeral" };
const MARK_JSON: &[u8] = br#","cache_control":{"type":"ephemeral"}"#;

/// Encodes requests and remembers what does not change.
pub(crate) struct Encoder {
    messages: EncodeCache<Message>,
    prefixes: EncodeCache<Prefix>,
    marks: bool,
}

#[derive(Serialize)]
struct Head<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop_sequences: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Choice<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Thinking>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Choice<'a> {
    Any,
    None,
    Tool { name: &'a str },
}

#[derive(Clone, Copy, Serialize)]
struct CacheControl {
    #[serde(rename = "type")]
    kind: &'static str,
}

#[derive(Serialize)]
struct WirePrefix<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<WireTool<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<WireSection<'a>>,
}

#[derive(Serialize)]
struct WireTool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a RawJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
struct WireSection<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
struct WireMessage<'a> {
    role: Role,
    content: Vec<Piece<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Piece<'a> {
    Block(WireBlock<'a>),
    Opaque(&'a RawJson),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum WireBlock<'a> {
    Text {
        text: Cow<'a, str>,
    },
    Image {
        source: WireSource<'a>,
    },
    Document {
        source: WireSource<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<&'a str>,
    },
    Thinking {
        thinking: &'a str,
        signature: &'a str,
    },
    RedactedThinking {
        data: &'a str,
    },
    ToolUse {
        id: &'a str,
        name: Cow<'a, str>,
        input: RawJson,
    },
    ToolResult {
        tool_use_id: &'a str,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        content: Vec<WireResult<'a>>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum WireResult<'a> {
    Text {
        text: String,
    },
    Image {
        source: WireSource<'a>,
    },
    Document {
        source: WireSource<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<&'a str>,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum WireSource<'a> {
    Base64 { media_type: &'a str, data: &'a str },
    Url { url: &'a str },
    Text { media_type: &'static str, data: String },
}

impl Encoder {
    /// `marks`: what the vendor is to cache is marked. `limit`: bytes of encodings to keep.
    pub(crate) fn new(marks: bool, limit: usize) -> Self {
        Self { messages: EncodeCache::new(limit), prefixes: EncodeCache::new(limit / 4), marks }
    }

    /// The body of a request for an answer.
    pub(crate) fn messages(&self, request: &ModelRequest) -> Result<Vec<u8>, serde_json::Error> {
        let options = &request.options;
        let fitted = thinking::fit(request);
        let head = Head {
            model: &request.model,
            max_tokens: Some(options.max_tokens),
            stream: Some(true),
            temperature: options.temperature.filter(|_| !fitted.thinks()),
            stop_sequences: &options.stop_sequences,
            tool_choice: choice(request),
            thinking: fitted.thinking,
            output_config: fitted.output_config,
        };
        self.body(&head, request)
    }

    /// The body of a request to count tokens.
    pub(crate) fn count(&self, request: &ModelRequest) -> Result<Vec<u8>, serde_json::Error> {
        let head = Head {
            model: &request.model,
            max_tokens: None,
            stream: None,
            temperature: None,
            stop_sequences: &[],
            tool_choice: choice(request),
            thinking: thinking::fit(request).thinking,
            output_config: None,
        };
        self.body(&head, request)
    }

    fn body(&self, head: &Head<'_>, request: &ModelRequest) -> Result<Vec<u8>, serde_json::Error> {
        let mut out = serde_json::to_vec(head)?;
        out.pop();
        let media_in_results = request.info.media_in_results != Some(false);
        let style = Style { model: Arc::clone(&request.model), choice: media_in_results };
        let prefix = Items { style: &style, chunks: &[], tail: std::slice::from_ref(&request.prefix) };
        self.prefixes.append(&mut out, &prefix, |_| false, |p, _| encode_prefix(p, self.marks))?;
        out.extend_from_slice(b",\"messages\":[");
        let form = |m: &Message| match m.role {
            Role::Assistant => m.model.as_deref() == Some(&*request.model),
            Role::User => media_in_results,
        };
        let encode = |m: &Message, form| match m.role {
            Role::Assistant => encode_answer(m, form),
            Role::User => encode_user(m, form),
        };
        let (chunks, tail) = (request.messages.chunks(), request.messages.tail());
        let items = Items { style: &style, chunks, tail };
        let ends = self.messages.append(&mut out, &items, form, encode)?;
        if self.marks {
            mark(&mut out, items.tail, &ends);
        }
        out.extend_from_slice(b"]}");
        Ok(out)
    }
}

/// Marks the last two user's messages: the vendor looks back from a mark over some 20 blocks only, and a turn of many
/// calls has more, so the mark of the turn before is repeated. They are in the list's tail, which is long enough.
fn mark(out: &mut Vec<u8>, tail: &[Arc<Message>], ends: &[usize]) {
    let marked = tail.iter().zip(ends).rev().filter(|(m, _)| m.role == Role::User).take(2);
    for (message, end) in marked {
        // A message ends with its last block: `…}]}`. From the back, so that earlier ends stay where they are.
        let at = end.saturating_sub(3);
        if !matches!(message.content.last(), None | Some(Block::Opaque { .. })) {
            out.splice(at..at, MARK_JSON.iter().copied());
        }
    }
}

fn choice(request: &ModelRequest) -> Option<Choice<'_>> {
    if request.prefix.tools.is_empty() {
        return None;
    }
    match &request.options.tool_choice {
        ToolChoice::Auto => None,
        ToolChoice::Any => Some(Choice::Any),
        ToolChoice::None => Some(Choice::None),
        ToolChoice::Tool(name) => Some(Choice::Tool { name }),
    }
}

/// The fields of tools and system prompt, each with a comma before it.
fn encode_prefix(prefix: &Prefix, marks: bool) -> Result<Vec<u8>, serde_json::Error> {
    let mut system: Vec<WireSection<'_>> = prefix
        .system
        .iter()
        .filter(|s| !s.text.trim().is_empty())
        .map(|s| WireSection { kind: "text", text: &s.text, cache_control: None })
        .collect();
    let mut tools: Vec<WireTool<'_>> = prefix
        .tools
        .iter()
        .map(|t| WireTool {
            name: &t.name,
            description: &t.description,
            input_schema: &t.input_schema,
            cache_control: None,
        })
        .collect();
    // One mark: the vendor reads tools before the system prompt, so the later covers the earlier.
    if marks && let Some(last) = system.last_mut() {
        last.cache_control = Some(MARK);
    } else if marks && let Some(last) = tools.last_mut() {
        last.cache_control = Some(MARK);
    }
    let object = serde_json::to_vec(&WirePrefix { tools, system })?;
    let inner = object.get(1..object.len().saturating_sub(1)).unwrap_or_default();
    let mut out = Vec::with_capacity(object.len());
    if !inner.is_empty() {
        out.push(b',');
        out.extend_from_slice(inner);
    }
    Ok(out)
}

/// `written_here`: by the model that is asked now.
fn encode_answer(message: &Message, written_here: bool) -> Result<Vec<u8>, serde_json::Error> {
    encode(message.role, message.content.iter().filter_map(|block| piece(block, written_here)).collect())
}

/// Pictures and documents of tool results stand inside them, or follow all results of the message where the model takes
/// none in them.
fn encode_user(message: &Message, media_in_results: bool) -> Result<Vec<u8>, serde_json::Error> {
    let mut content = Vec::new();
    let mut attached = Vec::new();
    for block in &message.content {
        match block {
            Block::ToolResult(result) if !media_in_results && result.content.iter().any(is_media) => {
                content.push(Piece::Block(result_without_media(result)));
                let head = format!("Attached by tool call {}:", result.tool_use_id.as_str());
                attached.push(Piece::Block(WireBlock::Text { text: head.into() }));
                attached.extend(result.content.iter().filter_map(media).map(Piece::Block));
            }
            Block::ToolResult(_) => content.extend(piece(block, false)),
            other => {
                // Results come first in a message.
                content.append(&mut attached);
                content.extend(piece(other, false));
            }
        }
    }
    content.append(&mut attached);
    encode(message.role, content)
}

fn encode(role: Role, mut content: Vec<Piece<'_>>) -> Result<Vec<u8>, serde_json::Error> {
    if content.is_empty() {
        content.push(Piece::Block(WireBlock::Text { text: NOTHING_VISIBLE.into() }));
    }
    serde_json::to_vec(&WireMessage { role, content })
}

fn result_without_media(result: &ToolResult) -> WireBlock<'_> {
    let mut content: Vec<WireResult<'_>> =
        result.content.iter().filter(|part| !is_media(part)).filter_map(wire_result).collect();
    content.push(WireResult::Text { text: "(attached below)".to_owned() });
    WireBlock::ToolResult { tool_use_id: result.tool_use_id.as_str(), content, is_error: result.is_error }
}

fn is_media(part: &ResultBlock) -> bool {
    matches!(part, ResultBlock::Image { .. } | ResultBlock::Document { .. })
}

fn media(part: &ResultBlock) -> Option<WireBlock<'_>> {
    match part {
        ResultBlock::Image { source } => Some(WireBlock::Image { source: wire_source(source)? }),
        ResultBlock::Document { source, title } => {
            Some(WireBlock::Document { source: document_source(source)?, title: title.as_deref() })
        }
        _ => None,
    }
}

fn piece(block: &Block, written_here: bool) -> Option<Piece<'_>> {
    Some(Piece::Block(match block {
        Block::Text(text) => WireBlock::Text { text: (!text.trim().is_empty()).then_some(text)?.into() },
        Block::Image(source) => WireBlock::Image { source: wire_source(source)? },
        Block::Document { source, title } => {
            WireBlock::Document { source: document_source(source)?, title: title.as_deref() }
        }
        // Unsigned thinking is refused, and thinking of another model means nothing to this one.
        Block::Thinking(t) => WireBlock::Thinking {
            thinking: &t.text,
            signature: t.signature.as_deref().filter(|_| written_here)?,
        },
        Block::RedactedThinking { data } => {
            WireBlock::RedactedThinking { data: written_here.then_some(data)? }
        }
        Block::ToolUse(u) => WireBlock::ToolUse {
            id: u.id.as_str(),
            name: sendable(&u.name),
            input: if u.broken.is_some() { RawJson::object() } else { u.input.clone() },
        },
        Block::ToolResult(r) => WireBlock::ToolResult {
            tool_use_id: r.tool_use_id.as_str(),
            content: r.content.iter().filter_map(wire_result).collect(),
            is_error: r.is_error,
        },
        Block::Opaque { raw } => return Some(Piece::Opaque(raw)),
    }))
}

fn wire_result(part: &ResultBlock) -> Option<WireResult<'_>> {
    Some(match part {
        ResultBlock::Text { text } => {
            WireResult::Text { text: (!text.trim().is_empty()).then(|| text.to_string())? }
        }
        ResultBlock::Image { source } => WireResult::Image { source: wire_source(source)? },
        ResultBlock::Document { source, title } => {
            WireResult::Document { source: document_source(source)?, title: title.as_deref() }
        }
        ResultBlock::Resource { uri, text } => WireResult::Text { text: format!("{uri}\n{text}") },
    })
}

fn wire_source(source: &Source) -> Option<WireSource<'_>> {
    match source {
        Source::Url { url } => Some(WireSource::Url { url }),
        Source::Inline { .. } | Source::Blob { .. } => {
            source.base64().map(|(media_type, data)| WireSource::Base64 { media_type, data })
        }
    }
}

/// Plain text goes out as such: in base64 only PDF is taken.
fn document_source(source: &Source) -> Option<WireSource<'_>> {
    match plain_text(source) {
        Some(data) => Some(WireSource::Text { media_type: "text/plain", data }),
        None => wire_source(source),
    }
}

/// The text of a document that is nothing but text.
pub(crate) fn plain_text(source: &Source) -> Option<String> {
    let (_, data) = source.base64().filter(|(media_type, _)| media_type.starts_with("text/"))?;
    let bytes = STANDARD.decode(data.as_bytes()).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
