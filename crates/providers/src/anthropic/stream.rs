//! Frames of the Messages API into events. Owns what a frame means; the assembler makes a message of the events.
//! Unknown blocks are kept whole, unknown events and deltas are skipped.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use open_agent_model::{ModelEvent, ProviderError, RawJson, StopReason, ToolFragment, UsageUpdate};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::events::{Decode, Queue, is_json};
use crate::failure::Site;
use crate::halves::Halves;
use crate::wire::{Many, Num, Text};

pub(crate) struct Decoder {
    site: Arc<Site>,
    halves: Halves,
    open: Option<Open>,
    stopped: bool,
    ended: bool,
}

/// A block of which something is held back until it ends.
enum Open {
    /// Arguments that came with the block's start count only if no piece of them follows.
    Tool { slot: u32, input: Option<String> },
    /// A block that we do not know: pieces of its input are put into it.
    Opaque { slot: u32, raw: String, input: String },
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Frame<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    index: Num,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    #[serde(borrow)]
    content_block: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    usage: Option<Usage>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Delta<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow)]
    text: Text<'a>,
    #[serde(borrow)]
    thinking: Text<'a>,
    #[serde(borrow)]
    signature: Text<'a>,
    #[serde(borrow)]
    partial_json: Text<'a>,
    #[serde(borrow)]
    stop_reason: Text<'a>,
    #[serde(borrow)]
    stop_sequence: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Usage {
    input_tokens: Num,
    output_tokens: Num,
    cache_read_input_tokens: Num,
    cache_creation_input_tokens: Num,
    cache_creation: Option<CacheCreation>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CacheCreation {
    ephemeral_5m_input_tokens: Num,
    ephemeral_1h_input_tokens: Num,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct BlockStart<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow)]
    text: Text<'a>,
    #[serde(borrow)]
    thinking: Text<'a>,
    #[serde(borrow)]
    signature: Text<'a>,
    #[serde(borrow)]
    data: Text<'a>,
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

/// A whole message: an answer in one piece, or what `message_start` carries.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Whole<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    model: Text<'a>,
    #[serde(borrow)]
    content: Many<&'a RawValue>,
    #[serde(borrow)]
    stop_reason: Text<'a>,
    #[serde(borrow)]
    stop_sequence: Text<'a>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    usage: Option<Usage>,
}

impl Decoder {
    pub(crate) fn new(site: Arc<Site>) -> Self {
        Self { site, halves: Halves::default(), open: None, stopped: false, ended: false }
    }

    fn start(&mut self, raw: &RawValue, out: &mut Queue) {
        let Ok(message) = serde_json::from_str::<Whole<'_>>(raw.get()) else { return };
        out.push_back(ModelEvent::Start { id: message.id.some(), model: message.model.some() });
        out.extend(message.usage.map(|u| ModelEvent::Usage(u.update())));
    }

    fn block_start(&mut self, slot: u32, raw: &RawValue, out: &mut Queue) {
        let Ok(block) = serde_json::from_str::<BlockStart<'_>>(raw.get()) else { return };
        match block.kind.as_str() {
            "text" => out.extend(block.text.some().map(|text| ModelEvent::Text { slot, text })),
            "thinking" => {
                out.extend(block.thinking.some().map(|text| ModelEvent::Thinking { slot, text }));
                let signature = block.signature.some();
                out.extend(signature.map(|signature| ModelEvent::Signature { slot, signature }));
            }
            "redacted_thinking" => {
                out.extend(block.data.some().map(|data| ModelEvent::Redacted { slot, data }));
            }
            "tool_use" => {
                let (id, name) = (block.id.some(), block.name.some());
                out.push_back(ModelEvent::Tool(ToolFragment { slot, id, name, input: None }));
                let input = block.input.map(RawValue::get).filter(|i| !matches!(*i, "{}" | "null"));
                self.open = Some(Open::Tool { slot, input: input.map(str::to_owned) });
            }
            "" => {}
            kind => {
                tracing::debug!(kind, "a content block of an unknown type is kept as it is");
                self.open = Some(Open::Opaque { slot, raw: raw.get().to_owned(), input: String::new() });
            }
        }
    }

    fn delta(&mut self, slot: u32, delta: Delta<'_>, out: &mut Queue) {
        match delta.kind.as_str() {
            "text_delta" => out.extend(delta.text.some().map(|text| ModelEvent::Text { slot, text })),
            "input_json_delta" => {
                if let Some(Open::Opaque { input, .. }) = &mut self.open {
                    input.push_str(delta.partial_json.as_str());
                    return;
                }
                let Some(more) = delta.partial_json.some() else { return };
                if let Some(Open::Tool { input, .. }) = &mut self.open {
                    *input = None;
                }
                out.push_back(ModelEvent::Tool(ToolFragment {
                    slot,
                    input: Some(more),
                    ..ToolFragment::default()
                }));
            }
            "thinking_delta" => {
                out.extend(delta.thinking.some().map(|text| ModelEvent::Thinking { slot, text }));
            }
            "signature_delta" => {
                let signature = delta.signature.some();
                out.extend(signature.map(|signature| ModelEvent::Signature { slot, signature }));
            }
            kind => tracing::debug!(kind, "a delta of an unknown type is skipped"),
        }
    }

    fn block_stop(&mut self, slot: u32, out: &mut Queue) {
        self.release(out);
        out.push_back(ModelEvent::BlockStop { slot });
    }

    fn release(&mut self, out: &mut Queue) {
        match self.open.take() {
            Some(Open::Tool { slot, input: input @ Some(_) }) => {
                out.push_back(ModelEvent::Tool(ToolFragment { slot, input, ..ToolFragment::default() }));
            }
            Some(Open::Opaque { slot, raw, input }) => {
                let raw = if input.is_empty() { raw } else { with_input(&raw, &input).unwrap_or(raw) };
                out.extend(RawJson::parse(raw).ok().map(|raw| ModelEvent::Opaque { slot, raw }));
            }
            _ => {}
        }
    }

    fn stop(&mut self, reason: Text<'_>, sequence: &Text<'_>, out: &mut Queue) {
        // Some servers name the sequence and still say `end_turn`.
        let reason = match reason.as_str() {
            "" => return,
            "end_turn" if sequence.is_empty() => StopReason::EndTurn,
            "end_turn" | "stop_sequence" => StopReason::StopSequence,
            "tool_use" => StopReason::ToolUse,
            "max_tokens" => StopReason::MaxTokens,
            "pause_turn" => StopReason::PauseTurn,
            "refusal" => StopReason::Refusal,
            "model_context_window_exceeded" => StopReason::ContextWindowExceeded,
            other => StopReason::Other(other.to_owned()),
        };
        self.stopped = true;
        out.push_back(ModelEvent::Stop(reason));
    }
}

impl Decode for Decoder {
    fn frame(&mut self, name: &str, data: &[u8], out: &mut Queue) -> Result<(), ProviderError> {
        if let Some(mended) = self.halves.mend(data) {
            return self.frame(name, &mended, out);
        }
        if !data.trim_ascii_start().starts_with(b"{") {
            tracing::debug!(name, "an event without a JSON object is skipped");
            return Ok(());
        }
        let frame: Frame<'_> = match serde_json::from_slice(data) {
            Ok(frame) => frame,
            Err(_) if std::str::from_utf8(data).is_err() => {
                // A few damaged bytes in a text are no reason to lose it.
                let text = String::from_utf8_lossy(data).into_owned();
                return self.frame(name, text.as_bytes(), out);
            }
            Err(_) if is_json(data) => {
                tracing::debug!(name, "an event of an unknown shape is skipped");
                return Ok(());
            }
            Err(_) => return Err(self.site.senseless("broken JSON", data)),
        };
        if name == "error" || frame.error.is_some() || frame.kind.as_str() == "error" {
            return Err(self.site.in_stream(data));
        }
        let kind = if frame.kind.is_empty() { name } else { frame.kind.as_str() };
        let slot = frame.index.0.and_then(|i| u32::try_from(i).ok()).unwrap_or_default();
        match kind {
            "content_block_delta" => {
                if let Some(delta) = frame.delta {
                    self.delta(slot, delta, out);
                }
            }
            "content_block_start" => {
                self.release(out);
                if let Some(raw) = frame.content_block {
                    self.block_start(slot, raw, out);
                }
            }
            "content_block_stop" => self.block_stop(slot, out),
            "message_start" => {
                if let Some(raw) = frame.message {
                    self.start(raw, out);
                }
            }
            "message_delta" => {
                out.extend(frame.usage.map(|u| ModelEvent::Usage(u.update())));
                if let Some(delta) = frame.delta {
                    self.stop(delta.stop_reason, &delta.stop_sequence, out);
                }
            }
            "message_stop" => {
                self.release(out);
                self.ended = true;
                out.push_back(ModelEvent::End);
            }
            "ping" => out.push_back(ModelEvent::Ping),
            other => tracing::debug!(kind = other, "an event of an unknown type is skipped"),
        }
        Ok(())
    }

    fn whole(&mut self, body: &[u8], out: &mut Queue) -> Result<(), ProviderError> {
        let message: Whole<'_> =
            serde_json::from_slice(body).map_err(|_| self.site.senseless("no JSON that we know", body))?;
        if message.error.is_some() || message.kind.as_str() == "error" {
            return Err(self.site.in_stream(body));
        }
        if message.stop_reason.is_empty() && message.content.0.is_empty() {
            return Err(self.site.senseless("an answer without a message", body));
        }
        out.push_back(ModelEvent::Start { id: message.id.some(), model: message.model.some() });
        for (slot, raw) in (0..).zip(message.content.0) {
            self.block_start(slot, raw, out);
            self.block_stop(slot, out);
        }
        out.extend(message.usage.map(|u| ModelEvent::Usage(u.update())));
        self.stop(message.stop_reason, &message.stop_sequence, out);
        out.push_back(ModelEvent::End);
        Ok(())
    }

    fn close(&mut self, out: &mut Queue) -> bool {
        self.release(out);
        self.stopped || self.ended
    }
}

impl Usage {
    fn update(&self) -> UsageUpdate {
        let split = self.cache_creation.as_ref();
        let (five, hour) = match split {
            Some(s) if s.ephemeral_5m_input_tokens.0.is_some() || s.ephemeral_1h_input_tokens.0.is_some() => {
                (s.ephemeral_5m_input_tokens.0, s.ephemeral_1h_input_tokens.0)
            }
            _ => (self.cache_creation_input_tokens.0, None),
        };
        UsageUpdate {
            input_tokens: self.input_tokens.0,
            output_tokens: self.output_tokens.0,
            cache_read_input_tokens: self.cache_read_input_tokens.0,
            cache_write_5m_input_tokens: five,
            cache_write_1h_input_tokens: hour,
        }
    }
}

/// `block` with its `input` replaced, all else byte for byte and in its order.
fn with_input(block: &str, input: &str) -> Option<String> {
    let fields = serde_json::from_str::<Fields<'_>>(block).ok()?.0;
    let input = if is_json(input.as_bytes()) { input } else { return None };
    let mut out = String::from("{");
    let mut placed = false;
    for (key, value) in &fields {
        let value = if key == "input" {
            placed = true;
            input
        } else {
            value.get()
        };
        push_field(&mut out, key, value)?;
    }
    if !placed {
        push_field(&mut out, "input", input)?;
    }
    out.push('}');
    Some(out)
}

fn push_field(out: &mut String, key: &str, value: &str) -> Option<()> {
    if out.len() > 1 {
        out.push(',');
    }
    out.push_str(&serde_json::to_string(key).ok()?);
    out.push(':');
    out.push_str(value);
    Some(())
}

struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Fields<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some((key, value)) = map.next_entry::<Text<'de>, &'de RawValue>()? {
                    fields.push((key.0, value));
                }
                Ok(Fields(fields))
            }
        }
        d.deserialize_map(V)
    }
}
