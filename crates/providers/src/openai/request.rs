//! Requests of chat completions. Owns how our data is written there: a pure function of request and profile.

use std::borrow::Cow;
use std::sync::Arc;

use open_agent_model::{
    Block, Message, ModelRequest, Prefix, RawJson, ResultBlock, Role, Source, Thinking, ToolChoice,
    ToolResult,
};
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};

use super::thinking::Wishes;
use crate::anthropic::{NOTHING_VISIBLE, plain_text};
use crate::cache::{EncodeCache, Items, Style};
use crate::name::sendable;
use crate::{Profile, ReasoningBack};

/// Encodes requests and remembers what does not change.
pub(crate) struct Encoder {
    messages: EncodeCache<Message>,
    tools: EncodeCache<Prefix>,
    profile: &'static Profile,
    context_window: Option<u64>,
}

#[derive(Serialize)]
struct Head<'a> {
    model: &'a str,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(flatten)]
    limit: Named<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Choice<'a>>,
    #[serde(flatten)]
    wishes: Wishes,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_stream: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    num_ctx: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    options: Option<ServerOptions>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
struct ServerOptions {
    num_ctx: u64,
}

/// One field under the name that the server knows: the answer's bound, what the model thought.
struct Named<T>(&'static str, T);

impl<T: Serialize> Serialize for Named<T> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(Some(1))?;
        map.serialize_entry(self.0, &self.1)?;
        map.end()
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum Choice<'a> {
    Word(&'static str),
    Tool {
        #[serde(rename = "type")]
        kind: &'static str,
        function: ChosenFunction<'a>,
    },
}

#[derive(Serialize)]
struct ChosenFunction<'a> {
    name: &'a str,
}

#[derive(Serialize)]
struct WireTool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: WireFunction<'a>,
}

#[derive(Serialize)]
struct WireFunction<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a RawJson,
}

#[derive(Default, Serialize)]
struct WireMessage<'a> {
    role: &'static str,
    content: Option<Content<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<WireCall<'a>>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    reasoning: Option<Named<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_details: Option<&'a RawJson>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(String),
    Parts(Vec<Part<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    Text { text: String },
    ImageUrl { image_url: ImageUrl },
    File { file: File<'a> },
}

#[derive(Serialize)]
struct ImageUrl {
    url: String,
}

#[derive(Serialize)]
struct File<'a> {
    filename: &'a str,
    file_data: String,
}

#[derive(Serialize)]
struct WireCall<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    function: WireCallFunction<'a>,
}

#[derive(Serialize)]
struct WireCallFunction<'a> {
    name: Cow<'a, str>,
    arguments: &'a str,
}

impl Encoder {
    pub(crate) fn new(profile: &'static Profile, context_window: Option<u64>, limit: usize) -> Self {
        Self {
            messages: EncodeCache::new(limit),
            tools: EncodeCache::new(limit / 4),
            profile,
            context_window: context_window.filter(|_| profile.context_option),
        }
    }

    /// The body of a request for an answer.
    pub(crate) fn body(&self, request: &ModelRequest) -> Result<Vec<u8>, serde_json::Error> {
        let options = &request.options;
        let head = Head {
            model: &request.model,
            stream: true,
            stream_options: self.profile.stream_usage.then_some(StreamOptions { include_usage: true }),
            limit: Named(self.profile.max_tokens, options.max_tokens),
            temperature: options.temperature,
            stop: &options.stop_sequences,
            tool_choice: choice(request).filter(|_| self.profile.tool_choice),
            wishes: Wishes::new(self.profile.thinking, options, &request.info),
            tool_stream: (self.profile.tool_stream && !request.prefix.tools.is_empty()).then_some(true),
            num_ctx: self.context_window,
            options: self.context_window.map(|num_ctx| ServerOptions { num_ctx }),
        };
        let mut out = serde_json::to_vec(&head)?;
        out.pop();
        let style = Style { model: Arc::clone(&request.model), choice: false };
        let prefix = Items { style: &style, chunks: &[], tail: std::slice::from_ref(&request.prefix) };
        // Who cannot be told to call no tool gets none.
        let tools = self.profile.tool_choice || options.tool_choice != ToolChoice::None;
        self.tools.append(&mut out, &prefix, |_| tools, encode_prefix)?;
        let written_here = |m: &Message| m.model.as_deref() == Some(&*request.model);
        let (chunks, tail) = (request.messages.chunks(), request.messages.tail());
        let items = Items { style: &style, chunks, tail };
        self.messages
            .append(&mut out, &items, written_here, |m, here| encode_message(m, here, self.profile))?;
        out.extend_from_slice(b"]}");
        Ok(out)
    }
}

fn choice(request: &ModelRequest) -> Option<Choice<'_>> {
    if request.prefix.tools.is_empty() {
        return None;
    }
    match &request.options.tool_choice {
        ToolChoice::Auto => None,
        ToolChoice::Any => Some(Choice::Word("required")),
        ToolChoice::None => Some(Choice::Word("none")),
        ToolChoice::Tool(name) => Some(Choice::Tool { kind: "function", function: ChosenFunction { name } }),
    }
}

/// Tools, and the list of messages begun with the system prompt.
fn encode_prefix(prefix: &Prefix, with_tools: bool) -> Result<Vec<u8>, serde_json::Error> {
    let mut out = Vec::new();
    if with_tools && !prefix.tools.is_empty() {
        let tools: Vec<WireTool<'_>> = prefix
            .tools
            .iter()
            .map(|t| WireTool {
                kind: "function",
                function: WireFunction {
                    name: &t.name,
                    description: &t.description,
                    parameters: &t.input_schema,
                },
            })
            .collect();
        out.extend_from_slice(b",\"tools\":");
        serde_json::to_writer(&mut out, &tools)?;
    }
    out.extend_from_slice(b",\"messages\":[");
    let texts: Vec<&str> =
        prefix.system.iter().map(|s| s.text.as_str()).filter(|t| !t.trim().is_empty()).collect();
    if !texts.is_empty() {
        let content = Some(Content::Text(texts.join("\n\n")));
        serde_json::to_writer(&mut out, &WireMessage { role: "system", content, ..WireMessage::default() })?;
        out.push(b',');
    }
    Ok(out)
}

/// One message of ours is one or more of theirs: each tool result is one.
fn encode_message(message: &Message, here: bool, profile: &Profile) -> Result<Vec<u8>, serde_json::Error> {
    let mut wire = Vec::new();
    match message.role {
        Role::Assistant => wire.push(assistant(message, here, profile)),
        Role::User => user(message, profile, &mut wire),
    }
    let mut out = Vec::new();
    for (i, one) in wire.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        serde_json::to_writer(&mut out, one)?;
    }
    Ok(out)
}

fn assistant<'a>(message: &'a Message, here: bool, profile: &Profile) -> WireMessage<'a> {
    let texts = message.content.iter().filter_map(|b| match b {
        Block::Text(text) if !text.trim().is_empty() => Some(text.as_str()),
        _ => None,
    });
    let text = texts.collect::<Vec<_>>().join("\n\n");
    let tool_calls: Vec<WireCall<'_>> = message
        .tool_uses()
        .map(|u| WireCall {
            id: u.id.as_str(),
            kind: "function",
            function: WireCallFunction {
                name: sendable(&u.name),
                arguments: if u.broken.is_some() { "{}" } else { u.input.get() },
            },
        })
        .collect();
    let thoughts: Vec<&Thinking> = message
        .content
        .iter()
        .filter_map(|b| match b {
            Block::Thinking(t) if here => Some(t),
            _ => None,
        })
        .collect();
    let thought = thoughts.iter().map(|t| t.text.as_str()).collect::<String>();
    let sent = match profile.reasoning_back {
        ReasoningBack::Never => false,
        ReasoningBack::Present => !thought.is_empty(),
        ReasoningBack::WithCalls => !thought.is_empty() || !tool_calls.is_empty(),
    };
    let details = thoughts.iter().find_map(|t| t.details.as_ref());
    let content = match (text.is_empty(), tool_calls.is_empty()) {
        (false, _) => Some(Content::Text(text)),
        (true, false) => None,
        (true, true) => Some(Content::Text(NOTHING_VISIBLE.to_owned())),
    };
    WireMessage {
        role: "assistant",
        content,
        tool_calls,
        reasoning: sent.then_some(Named(profile.reasoning_field, thought)),
        reasoning_details: details.filter(|_| profile.reasoning_back != ReasoningBack::Never),
        ..WireMessage::default()
    }
}

fn user<'a>(message: &'a Message, profile: &Profile, out: &mut Vec<WireMessage<'a>>) {
    let mut parts: Vec<Part<'a>> = Vec::new();
    for block in &message.content {
        match block {
            Block::ToolResult(result) => out.push(tool_message(result, profile, &mut parts)),
            Block::Text(text) if !text.trim().is_empty() => parts.push(Part::Text { text: text.clone() }),
            Block::Image(source) => parts.extend(image(source)),
            Block::Document { source, title } => parts.push(document(source, title.as_deref(), profile)),
            _ => {}
        }
    }
    if parts.is_empty() && !out.is_empty() {
        return;
    }
    out.push(WireMessage { role: "user", content: Some(content(parts)), ..WireMessage::default() });
}

/// Text alone goes out as a string, which every server takes.
fn content(parts: Vec<Part<'_>>) -> Content<'_> {
    if !parts.iter().all(|p| matches!(p, Part::Text { .. })) {
        return Content::Parts(parts);
    }
    let texts = parts.into_iter().filter_map(|p| if let Part::Text { text } = p { Some(text) } else { None });
    let text = texts.collect::<Vec<_>>().join("\n\n");
    Content::Text(if text.is_empty() { NOTHING_VISIBLE.to_owned() } else { text })
}

/// A tool message holds text only: pictures and documents follow in the user's message.
fn tool_message<'a>(r: &'a ToolResult, profile: &Profile, later: &mut Vec<Part<'a>>) -> WireMessage<'a> {
    let mut texts: Vec<String> = Vec::new();
    let mut attached = Vec::new();
    for part in &r.content {
        match part {
            ResultBlock::Text { text } => texts.push(text.to_string()),
            ResultBlock::Resource { uri, text } => texts.push(format!("{uri}\n{text}")),
            ResultBlock::Image { source } => attached.extend(image(source)),
            ResultBlock::Document { source, title } => {
                attached.push(document(source, title.as_deref(), profile));
            }
        }
    }
    if !attached.is_empty() {
        texts.push("(attached below)".to_owned());
        later.push(Part::Text { text: format!("Attached by tool call {}:", r.tool_use_id.as_str()) });
        later.extend(attached);
    }
    let mut text = texts.join("\n");
    if text.is_empty() {
        text.push_str("(no output)");
    }
    // This API has no mark for failure.
    if r.is_error && !text.trim_start().get(..5).is_some_and(|t| t.eq_ignore_ascii_case("error")) {
        text.insert_str(0, "Error: ");
    }
    WireMessage {
        role: "tool",
        content: Some(Content::Text(text)),
        tool_call_id: Some(r.tool_use_id.as_str()),
        ..WireMessage::default()
    }
}

fn image<'a>(source: &Source) -> Option<Part<'a>> {
    Some(Part::ImageUrl { image_url: ImageUrl { url: data_url(source)? } })
}

fn document<'a>(source: &'a Source, title: Option<&'a str>, profile: &Profile) -> Part<'a> {
    let filename = title.unwrap_or("document.pdf");
    if let Some(text) = plain_text(source) {
        let text = title.map_or(text.clone(), |title| format!("{title}\n{text}"));
        return Part::Text { text };
    }
    match data_url(source) {
        Some(file_data) if profile.documents => Part::File { file: File { filename, file_data } },
        _ => {
            Part::Text { text: format!("[document {filename:?} left out: this provider takes no documents]") }
        }
    }
}

fn data_url(source: &Source) -> Option<String> {
    match source {
        Source::Url { url } => Some(url.clone()),
        Source::Inline { .. } | Source::Blob { .. } => {
            source.base64().map(|(media_type, data)| format!("data:{media_type};base64,{data}"))
        }
    }
}
