//! Frames of chat completions into events. Owns what a frame means; the assembler makes a message of the events and
//! owns all tolerance about tool calls. Blocks have fixed slots here: thinking 0, text 1, calls from 2.

use std::collections::BTreeSet;
use std::sync::Arc;

use open_agent_model::{ModelEvent, ProviderError, RawJson, StopReason, ToolFragment, UsageUpdate};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::details::Details;
use crate::events::{Decode, Queue, is_json};
use crate::failure::Site;
use crate::halves::Halves;
use crate::wire::{Many, Num, Parts, Text};

/// Finish reasons by which a server or router says that the answer failed.
const FAILED: &[&str] = &["error", "abort", "cancelled"];

const THINKING: u32 = 0;
const TEXT: u32 = 1;
const FIRST_CALL: u32 = 2;

pub(crate) struct Decoder {
    site: Arc<Site>,
    halves: Halves,
    id_told: bool,
    model_told: bool,
    stopped: bool,
    ended: bool,
    thinking_open: bool,
    text_open: bool,
    calls: BTreeSet<u32>,
    details: Details,
    /// The model declined in words; the reason for its stop does not say so.
    refused: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Chunk<'a> {
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    model: Text<'a>,
    #[serde(borrow)]
    choices: Many<Choice<'a>>,
    usage: Option<Usage>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    /// Of an error that is not wrapped.
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    object: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Choice<'a> {
    index: Num,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    /// Where the answer came whole.
    #[serde(borrow)]
    message: Option<Delta<'a>>,
    #[serde(borrow)]
    finish_reason: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Delta<'a> {
    #[serde(borrow)]
    content: Parts<'a>,
    #[serde(borrow)]
    reasoning_content: Text<'a>,
    #[serde(borrow)]
    reasoning: Text<'a>,
    #[serde(borrow)]
    reasoning_details: Many<&'a RawValue>,
    #[serde(borrow)]
    refusal: Text<'a>,
    #[serde(borrow)]
    tool_calls: Many<Call<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Call<'a> {
    index: Num,
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    function: Option<Function<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Function<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Usage {
    prompt_tokens: Num,
    completion_tokens: Num,
    prompt_tokens_details: Option<PromptDetails>,
    prompt_cache_hit_tokens: Num,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PromptDetails {
    cached_tokens: Num,
    cache_write_tokens: Num,
}

impl Decoder {
    pub(crate) fn new(site: Arc<Site>) -> Self {
        Self {
            site,
            halves: Halves::default(),
            id_told: false,
            model_told: false,
            stopped: false,
            ended: false,
            thinking_open: false,
            text_open: false,
            calls: BTreeSet::new(),
            details: Details::default(),
            refused: false,
        }
    }

    fn take(&mut self, chunk: Chunk<'_>, out: &mut Queue) {
        let news = (!chunk.id.is_empty() && !self.id_told) || (!chunk.model.is_empty() && !self.model_told);
        if news {
            self.id_told |= !chunk.id.is_empty();
            self.model_told |= !chunk.model.is_empty();
            out.push_back(ModelEvent::Start { id: chunk.id.some(), model: chunk.model.some() });
        }
        // Only one choice was asked for.
        if let Some(choice) = chunk.choices.0.into_iter().find(|c| c.index.0.unwrap_or_default() == 0) {
            if let Some(delta) = choice.delta.or(choice.message) {
                self.delta(delta, out);
            }
            self.stop(choice.finish_reason, out);
        }
        out.extend(chunk.usage.map(|u| ModelEvent::Usage(u.update())));
    }

    fn delta(&mut self, delta: Delta<'_>, out: &mut Queue) {
        // Some servers send the same thought under both names.
        let thought =
            if delta.reasoning_content.is_empty() { delta.reasoning } else { delta.reasoning_content };
        if let Some(text) = thought.some() {
            self.thinking_open = true;
            out.push_back(ModelEvent::Thinking { slot: THINKING, text });
        }
        for raw in delta.reasoning_details.0 {
            self.thinking_open = true;
            self.details.push(raw.get());
        }
        self.refused |= !delta.refusal.is_empty();
        for text in delta.content.texts().chain(delta.refusal.some()) {
            self.end_thinking(out);
            self.text_open = true;
            out.push_back(ModelEvent::Text { slot: TEXT, text });
        }
        for (place, call) in (0u32..).zip(delta.tool_calls.0) {
            self.end_thinking(out);
            let function = call.function.unwrap_or_default();
            let index = call.index.0.and_then(|i| u32::try_from(i).ok()).unwrap_or(place);
            let slot = FIRST_CALL.saturating_add(index);
            self.calls.insert(slot);
            out.push_back(ModelEvent::Tool(ToolFragment {
                slot,
                id: call.id.some(),
                name: function.name.some(),
                input: function.arguments.and_then(arguments),
            }));
        }
    }

    /// Thinking comes before the rest of an answer.
    fn end_thinking(&mut self, out: &mut Queue) {
        if std::mem::take(&mut self.thinking_open) {
            self.release_details(out);
            out.push_back(ModelEvent::BlockStop { slot: THINKING });
        }
    }

    fn release_details(&mut self, out: &mut Queue) {
        for raw in self.details.take() {
            out.extend(
                RawJson::parse(raw).ok().map(|raw| ModelEvent::ThinkingDetail { slot: THINKING, raw }),
            );
        }
    }

    /// Calls end only here: pieces of several calls may come mixed.
    fn end_blocks(&mut self, out: &mut Queue) {
        self.end_thinking(out);
        if std::mem::take(&mut self.text_open) {
            out.push_back(ModelEvent::BlockStop { slot: TEXT });
        }
        for slot in std::mem::take(&mut self.calls) {
            out.push_back(ModelEvent::BlockStop { slot });
        }
    }

    fn stop(&mut self, reason: Text<'_>, out: &mut Queue) {
        let reason = match reason.as_str() {
            "" => return,
            "stop" if self.refused => StopReason::Refusal,
            "stop" | "eos" => StopReason::EndTurn,
            "tool_calls" | "function_call" => StopReason::ToolUse,
            "length" => StopReason::MaxTokens,
            "content_filter" => StopReason::Refusal,
            "model_context_window_exceeded" => StopReason::ContextWindowExceeded,
            other => StopReason::Other(other.to_owned()),
        };
        self.end_blocks(out);
        self.stopped = true;
        out.push_back(ModelEvent::Stop(reason));
    }
}

impl Decode for Decoder {
    fn frame(&mut self, name: &str, data: &[u8], out: &mut Queue) -> Result<(), ProviderError> {
        if let Some(mended) = self.halves.mend(data) {
            return self.frame(name, &mended, out);
        }
        let data = data.trim_ascii();
        if data == b"[DONE]" {
            self.end_blocks(out);
            self.ended = true;
            out.push_back(ModelEvent::End);
            return Ok(());
        }
        if !data.starts_with(b"{") {
            tracing::debug!(name, "an event without a JSON object is skipped");
            return Ok(());
        }
        let chunk: Chunk<'_> = match serde_json::from_slice(data) {
            Ok(chunk) => chunk,
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
        if name == "error" || chunk.is_error() {
            return Err(self.site.in_stream(data));
        }
        let failed = chunk.choices.0.iter().any(|c| FAILED.contains(&c.finish_reason.as_str()));
        self.take(chunk, out);
        if failed { Err(self.site.in_stream(data)) } else { Ok(()) }
    }

    fn whole(&mut self, body: &[u8], out: &mut Queue) -> Result<(), ProviderError> {
        let chunk: Chunk<'_> =
            serde_json::from_slice(body).map_err(|_| self.site.senseless("no JSON that we know", body))?;
        if chunk.is_error() {
            return Err(self.site.in_stream(body));
        }
        if chunk.choices.0.is_empty() {
            return Err(self.site.senseless("an answer without a message", body));
        }
        self.take(chunk, out);
        self.end_blocks(out);
        out.push_back(ModelEvent::End);
        Ok(())
    }

    fn close(&mut self, out: &mut Queue) -> bool {
        let done = self.stopped || self.ended;
        if done {
            self.end_blocks(out);
        }
        done
    }
}

impl Chunk<'_> {
    fn is_error(&self) -> bool {
        let bare = self.message.is_some_and(|m| m.get().starts_with('"'))
            && self.choices.0.is_empty()
            && self.usage.is_none();
        self.error.is_some() || bare || self.object.as_str() == "error"
    }
}

/// Arguments are a string of JSON by the book, and JSON itself on some servers.
fn arguments(raw: &RawValue) -> Option<String> {
    let text = raw.get();
    if text == "null" {
        None
    } else if text.starts_with('"') {
        serde_json::from_str::<Text<'_>>(text).ok()?.some()
    } else {
        Some(text.to_owned())
    }
}

impl Usage {
    /// These vendors count what came from a cache inside the input.
    fn update(&self) -> UsageUpdate {
        let details = self.prompt_tokens_details.as_ref();
        let cached = details.and_then(|d| d.cached_tokens.0).or(self.prompt_cache_hit_tokens.0);
        let written = details.and_then(|d| d.cache_write_tokens.0);
        let input = self.prompt_tokens.0.map(|i| i.saturating_sub(written.unwrap_or_default()));
        UsageUpdate {
            cache_write_5m_input_tokens: written,
            ..UsageUpdate::inclusive(input, self.completion_tokens.0, cached)
        }
    }
}
