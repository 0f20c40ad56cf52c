//! Frames of the Messages API into events. Owns what a frame means; the assembler makes a message of the events.
//! Unknown blocks are kept whole, unknown events and deltas are skipped.

use std::borrow::Cow;
use std::sync::Arc;

use open_agent_model::{ModelEvent, RawJson, StopReason, ToolFragment, UsageUpdate};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::failure::Site;
use crate::frame::{Decode, Queue, Read, is_json};
use crate::inband;
use crate::wire::{Fields, Many, Maybe, Num, Text, object, plain, says_something};

/// Blocks that are open at once; each piece is searched for among them. A server that ends none must not make that long.
const MAX_OPEN: usize = 256;

pub(crate) struct Decoder {
    site: Arc<Site>,
    /// Blocks of which something is held back until they end.
    open: Vec<Open>,
    /// Events from the start of the first unknown block that is open: blocks keep their order.
    held: Queue,
    /// Blocks that came with the message's start: they count only if none follows.
    early: Vec<String>,
    /// A word of this API has come.
    begun: bool,
    stopped: bool,
    ended: bool,
}

struct Open {
    slot: u32,
    input: Input,
}

enum Input {
    /// Arguments that came with the block's start count only if no piece of them follows.
    Tool(Option<String>),
    /// A block that we do not know, at this place of what is held: pieces of its input are put into it.
    Opaque { at: usize, pieces: String },
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Frame<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    index: Num,
    #[serde(borrow)]
    delta: Maybe<Delta<'a>>,
    #[serde(borrow)]
    content_block: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    usage: Maybe<Usage>,
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
    cache_creation: Maybe<CacheCreation>,
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
    content: Content<'a>,
    #[serde(borrow)]
    stop_reason: Text<'a>,
    #[serde(borrow)]
    stop_sequence: Text<'a>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    usage: Maybe<Usage>,
}

/// A list of blocks, one block, or only its text.
#[derive(Default)]
struct Content<'a>(Vec<Cow<'a, str>>);

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(d)?;
        let text = raw.get();
        Ok(Self(match text.as_bytes().first() {
            Some(b'"') if text == "\"\"" => Vec::new(),
            Some(b'"') => vec![object([("type", "\"text\""), ("text", text)]).into()],
            Some(b'{') => vec![text.into()],
            _ => {
                let Many(blocks) = serde_json::from_str::<Many<&RawValue>>(text).unwrap_or_default();
                blocks.into_iter().map(|block| block.get().into()).collect()
            }
        }))
    }
}

impl Decoder {
    pub(crate) fn new(site: Arc<Site>) -> Self {
        let (open, held) = (Vec::new(), Queue::new());
        Self { site, open, held, early: Vec::new(), begun: false, stopped: false, ended: false }
    }

    fn start(&mut self, json: &str, out: &mut Queue) {
        match serde_json::from_str::<Whole<'_>>(json) {
            Ok(message) => {
                out.push_back(self.begin(message.id, message.model));
                out.extend(message.usage.0.map(|u| ModelEvent::Usage(u.update())));
                self.early = message.content.0.into_iter().map(Cow::into_owned).collect();
            }
            Err(_) => again(json, |plain| self.start(plain, out)),
        }
    }

    fn begin(&self, id: Text<'_>, model: Text<'_>) -> ModelEvent {
        let hidden = |text: Text<'_>| text.some().map(|text| self.site.hide(&text));
        ModelEvent::Start { id: hidden(id), model: hidden(model) }
    }

    fn block_start(&mut self, slot: u32, json: &str, out: &mut Queue) {
        self.release(slot, out);
        if self.open.len() >= MAX_OPEN
            && let Some(first) = self.open.first().map(|o| o.slot)
        {
            self.release(first, out);
        }
        let block = match serde_json::from_str::<BlockStart<'_>>(json) {
            Ok(block) => block,
            Err(_) => return again(json, |plain| self.block_start(slot, plain, out)),
        };
        let out = if self.held.is_empty() { out } else { &mut self.held };
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
                self.open.push(Open { slot, input: Input::Tool(input.map(str::to_owned)) });
            }
            "" => {}
            kind => {
                tracing::debug!(kind, "a content block of an unknown type is kept as it is");
                let Ok(raw) = RawJson::parse(json) else { return };
                self.open
                    .push(Open { slot, input: Input::Opaque { at: self.held.len(), pieces: String::new() } });
                self.held.push_back(ModelEvent::Opaque { slot, raw });
            }
        }
    }

    fn delta(&mut self, slot: u32, delta: Delta<'_>, out: &mut Queue) {
        let out = if self.held.is_empty() { out } else { &mut self.held };
        match delta.kind.as_str() {
            "text_delta" => out.extend(delta.text.some().map(|text| ModelEvent::Text { slot, text })),
            "input_json_delta" => {
                let Some(more) = delta.partial_json.some() else { return };
                match self.open.iter_mut().find(|o| o.slot == slot).map(|o| &mut o.input) {
                    Some(Input::Opaque { pieces, .. }) => return pieces.push_str(&more),
                    Some(Input::Tool(input)) => *input = None,
                    None => {}
                }
                let input = Some(more);
                out.push_back(ModelEvent::Tool(ToolFragment { slot, input, ..ToolFragment::default() }));
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
        self.release(slot, out);
        let out = if self.held.is_empty() { out } else { &mut self.held };
        out.push_back(ModelEvent::BlockStop { slot });
    }

    /// Gives out what is held back of the block in `slot`.
    fn release(&mut self, slot: u32, out: &mut Queue) {
        let Some(place) = self.open.iter().position(|o| o.slot == slot) else { return };
        match self.open.swap_remove(place).input {
            Input::Tool(None) => {}
            Input::Tool(input) => {
                let out = if self.held.is_empty() { &mut *out } else { &mut self.held };
                out.push_back(ModelEvent::Tool(ToolFragment { slot, input, ..ToolFragment::default() }));
            }
            Input::Opaque { at, pieces } => {
                if let Some(ModelEvent::Opaque { raw, .. }) = self.held.get_mut(at)
                    && let Some(whole) = with_input(raw.get(), &pieces)
                {
                    *raw = whole;
                }
            }
        }
        if !self.open.iter().any(|o| matches!(o.input, Input::Opaque { .. })) {
            out.append(&mut self.held);
        }
    }

    fn blocks<'b>(&mut self, blocks: impl Iterator<Item = &'b str>, out: &mut Queue) {
        for (slot, raw) in (0..).zip(blocks) {
            self.block_start(slot, raw, out);
            self.block_stop(slot, out);
        }
    }

    fn release_all(&mut self, out: &mut Queue) {
        let early = std::mem::take(&mut self.early);
        self.blocks(early.iter().map(String::as_str), out);
        while let Some(slot) = self.open.first().map(|o| o.slot) {
            self.release(slot, out);
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
            other => StopReason::Other(self.site.hide(other)),
        };
        self.stopped = true;
        if reason == StopReason::StopSequence && !sequence.is_empty() {
            out.push_back(ModelEvent::StopSequence(sequence.as_str().to_owned()));
        }
        out.push_back(ModelEvent::Stop(reason));
    }
}

impl Decode for Decoder {
    fn frame(&mut self, name: &str, json: &[u8], out: &mut Queue) -> Read {
        let frame: Frame<'_> = serde_json::from_slice(json)?;
        let kind = if frame.kind.is_empty() { name } else { frame.kind.as_str() };
        if name == "error" || kind == "error" || frame.error.is_some_and(says_something) {
            return Ok(Err(self.site.in_stream(json)));
        }
        let slot = frame.index.0.and_then(|i| u32::try_from(i).ok()).unwrap_or_default();
        let begun = std::mem::replace(&mut self.begun, true);
        match kind {
            "content_block_delta" => {
                if let Some(delta) = frame.delta.0 {
                    self.early.clear();
                    self.delta(slot, delta, out);
                }
            }
            "content_block_start" => {
                if let Some(raw) = frame.content_block {
                    self.early.clear();
                    self.block_start(slot, raw.get(), out);
                }
            }
            "content_block_stop" => self.block_stop(slot, out),
            "message_start" => {
                if let Some(raw) = frame.message {
                    self.start(raw.get(), out);
                }
            }
            "message_delta" => {
                out.extend(frame.usage.0.map(|u| ModelEvent::Usage(u.update())));
                if let Some(delta) = frame.delta.0 {
                    if !delta.stop_reason.is_empty() {
                        self.release_all(out);
                    }
                    self.stop(delta.stop_reason, &delta.stop_sequence, out);
                }
            }
            "message_stop" => {
                self.release_all(out);
                self.ended = true;
                out.push_back(ModelEvent::End);
            }
            "ping" => {
                self.begun = begun;
                out.push_back(ModelEvent::Ping);
            }
            other => {
                self.begun = begun;
                // Only what has no type of its own, or one that says so: other types may come to be.
                let may_fail = frame.kind.is_empty() || frame.kind.as_str().contains("error");
                if may_fail && inband::is_error(json) {
                    return Ok(Err(self.site.in_stream(json)));
                }
                tracing::debug!(kind = other, "an event of an unknown type is skipped");
                return Ok(if begun { Ok(()) } else { self.site.not_foreign(json) });
            }
        }
        Ok(Ok(()))
    }

    fn whole(&mut self, json: &[u8], out: &mut Queue) -> Read {
        let message: Whole<'_> = serde_json::from_slice(json)?;
        if message.error.is_some_and(says_something) || message.kind.as_str() == "error" {
            return Ok(Err(self.site.in_stream(json)));
        }
        if message.stop_reason.is_empty() && message.content.0.is_empty() {
            if inband::is_error(json) {
                return Ok(Err(self.site.in_stream(json)));
            }
            return Ok(Err(self.site.senseless("an answer without a message", json)));
        }
        out.push_back(self.begin(message.id, message.model));
        self.blocks(message.content.0.iter().map(Cow::as_ref), out);
        out.extend(message.usage.0.map(|u| ModelEvent::Usage(u.update())));
        self.stop(message.stop_reason, &message.stop_sequence, out);
        out.push_back(ModelEvent::End);
        Ok(Ok(()))
    }

    fn close(&mut self, out: &mut Queue) -> bool {
        self.release_all(out);
        self.stopped || self.ended
    }
}

impl Usage {
    fn update(&self) -> UsageUpdate {
        let split = self.cache_creation.0.as_ref();
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
fn with_input(block: &str, input: &str) -> Option<RawJson> {
    if !is_json(input.as_bytes()) {
        return None;
    }
    let Fields(fields) = serde_json::from_str(block).ok()?;
    let added = fields.iter().all(|(key, _)| key != "input").then_some(("input", input));
    let replaced = fields.iter().map(|(key, value)| {
        let value = if key == "input" { input } else { value.get() };
        (key.as_ref(), value)
    });
    RawJson::parse(object(replaced.chain(added))).ok()
}

/// Reads an object once more that failed our readers, if it can be made plain.
fn again(json: &str, mut read: impl FnMut(&str)) {
    let plain = plain(json);
    if plain == json {
        tracing::debug!("a part of an event that is no object is skipped");
    } else {
        read(&plain);
    }
}
