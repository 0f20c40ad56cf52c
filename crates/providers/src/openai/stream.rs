//! Frames of chat completions into events. Owns what a frame means; the assembler makes a message of the events and
//! owns all tolerance about tool calls. Blocks have fixed slots here: thinking 0, text 1, calls from 2.

use std::collections::BTreeSet;
use std::sync::Arc;

use open_agent_model::{ModelEvent, ProviderError, RawJson, StopReason, ToolFragment, UsageUpdate};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::details::Details;
use crate::failure::Site;
use crate::frame::{Decode, Queue, Read};
use crate::inband;
use crate::wire::{Many, Maybe, Num, Objects, Parts, Text, object, says_something};

/// Finish reasons by which a server or router says that the answer failed.
const FAILED: &[&str] = &["error", "abort", "cancelled"];

const THINKING: u32 = 0;
const TEXT: u32 = 1;
const FIRST_CALL: u32 = 2;

pub(crate) struct Decoder {
    site: Arc<Site>,
    /// A word of this API has come.
    begun: bool,
    place: Place,
    id_told: bool,
    model_told: bool,
    stopped: bool,
    ended: bool,
    thinking_open: bool,
    text_open: bool,
    calls: BTreeSet<u32>,
    /// All that came in pieces, to compare with a message that comes whole at the end.
    thought: String,
    text: String,
    called: bool,
    details: Details,
    /// The model declined in words; the reason for its stop does not say so.
    refused: bool,
}

/// Which of several answers is ours: one was asked for, and by the book its number is 0.
enum Place {
    /// Number 0 has not come. What came of others is kept, for servers that number otherwise.
    Open(Vec<Vec<u8>>),
    Known(u64),
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Chunk<'a> {
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    model: Text<'a>,
    #[serde(borrow)]
    choices: Objects<Choice<'a>>,
    usage: Maybe<Usage>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Choice<'a> {
    index: Num,
    #[serde(borrow)]
    delta: Maybe<Delta<'a>>,
    /// Where the answer came whole.
    #[serde(borrow)]
    message: Maybe<Delta<'a>>,
    #[serde(borrow)]
    finish_reason: Text<'a>,
    /// Of a router whose host failed.
    #[serde(borrow)]
    error: Option<&'a RawValue>,
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
    tool_calls: Objects<Call<'a>>,
    /// How a call came before there were several.
    #[serde(borrow)]
    function_call: Maybe<Function<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Call<'a> {
    index: Num,
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    function: Maybe<Function<'a>>,
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
    /// The same by the names of the Messages API, as some gateways have it.
    input_tokens: Num,
    output_tokens: Num,
    prompt_tokens_details: Maybe<PromptDetails>,
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
            begun: false,
            place: Place::Open(Vec::new()),
            id_told: false,
            model_told: false,
            stopped: false,
            ended: false,
            thinking_open: false,
            text_open: false,
            calls: BTreeSet::new(),
            thought: String::new(),
            text: String::new(),
            called: false,
            details: Details::default(),
            refused: false,
        }
    }

    fn take(&mut self, chunk: Chunk<'_>, json: &[u8], out: &mut Queue) {
        let news = (!chunk.id.is_empty() && !self.id_told) || (!chunk.model.is_empty() && !self.model_told);
        if news {
            self.id_told |= !chunk.id.is_empty();
            self.model_told |= !chunk.model.is_empty();
            out.push_back(ModelEvent::Start {
                id: chunk.id.some().map(|id| self.site.hide(&id)),
                model: chunk.model.some().map(|model| self.site.hide(&model)),
            });
        }
        let ours = if let Place::Known(place) = self.place { place } else { 0 };
        let any = !chunk.choices.0.is_empty();
        if let Some(choice) = chunk.choices.0.into_iter().find(|c| c.number() == ours) {
            self.place = Place::Known(ours);
            if let Some(delta) = choice.delta.0 {
                self.delta(delta, out);
            }
            if let Some(message) = choice.message.0 {
                let new = self.new_in(message);
                let before = (self.thought.len(), self.text.len(), self.called);
                self.delta(new, out);
                // Only pieces count as what came before.
                self.thought.truncate(before.0);
                self.text.truncate(before.1);
                self.called = before.2;
            }
            self.stop(choice.finish_reason, out);
        } else if any && let Place::Open(kept) = &mut self.place {
            kept.push(json.to_vec());
        }
        out.extend(chunk.usage.0.map(|u| ModelEvent::Usage(u.update())));
    }

    /// What a choice says of its own failure. Its content so far is content all the same.
    fn failure(&self, chunk: &Chunk<'_>, json: &[u8]) -> Result<(), ProviderError> {
        for choice in &chunk.choices.0 {
            if let Some(error) = choice.error.filter(|error| says_something(error)) {
                return Err(self.site.in_stream(object([("error", error.get())]).as_bytes()));
            }
            if FAILED.contains(&choice.finish_reason.as_str()) {
                return Err(self.site.in_stream(json));
            }
        }
        Ok(())
    }

    /// Number 0 comes no more: the first of the others is the answer.
    fn take_other(&mut self, out: &mut Queue) {
        let Place::Open(kept) = &mut self.place else { return };
        for json in std::mem::take(kept) {
            let Ok(chunk) = serde_json::from_slice::<Chunk<'_>>(&json) else { continue };
            if let (Place::Open(_), Some(first)) = (&self.place, chunk.choices.0.first()) {
                self.place = Place::Known(first.number());
            }
            self.take(chunk, &json, out);
        }
    }

    /// What a whole message adds to the pieces that came before it: some servers close with one.
    fn new_in<'a>(&self, mut message: Delta<'a>) -> Delta<'a> {
        let thought = [&mut message.reasoning_content, &mut message.reasoning];
        for text in thought.into_iter().filter(|_| !self.thought.is_empty()) {
            *text = beyond(&self.thought, std::mem::take(text));
        }
        if !self.thought.is_empty() {
            message.reasoning_details.0.clear();
        }
        if !self.text.is_empty() {
            let whole: String = std::mem::take(&mut message.content).texts().collect();
            message.content = Parts::One(beyond(&self.text, Text(whole.into())));
            message.refusal = beyond(&self.text, message.refusal);
        }
        if self.called {
            // The assembler knows a call that comes twice by its id.
            message.tool_calls.0.retain(|call| !call.id.is_empty());
            message.function_call = Maybe::default();
        }
        message
    }

    fn delta(&mut self, delta: Delta<'_>, out: &mut Queue) {
        // Some servers send the same thought under both names.
        let thought =
            if delta.reasoning_content.is_empty() { delta.reasoning } else { delta.reasoning_content };
        if let Some(text) = thought.some() {
            self.thinking_open = true;
            self.thought.push_str(&text);
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
            self.text.push_str(&text);
            out.push_back(ModelEvent::Text { slot: TEXT, text });
        }
        if delta.tool_calls.0.is_empty()
            && let Some(function) = delta.function_call.0
        {
            self.call(FIRST_CALL, Text::default(), function, out);
        }
        for (place, call) in (0u32..).zip(delta.tool_calls.0) {
            let index = call.index.0.and_then(|i| u32::try_from(i).ok()).unwrap_or(place);
            let slot = FIRST_CALL.saturating_add(index);
            self.call(slot, call.id, call.function.0.unwrap_or_default(), out);
        }
    }

    fn call(&mut self, slot: u32, id: Text<'_>, function: Function<'_>, out: &mut Queue) {
        let (id, name, input) = (id.some(), function.name.some(), function.arguments.and_then(arguments));
        if id.is_none() && name.is_none() && input.is_none() {
            return;
        }
        self.end_thinking(out);
        self.called = true;
        self.calls.insert(slot);
        out.push_back(ModelEvent::Tool(ToolFragment { slot, id, name, input }));
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
            other => StopReason::Other(self.site.hide(other)),
        };
        self.end_blocks(out);
        self.stopped = true;
        out.push_back(ModelEvent::Stop(reason));
    }
}

impl Decode for Decoder {
    fn frame(&mut self, name: &str, json: &[u8], out: &mut Queue) -> Read {
        let chunk: Chunk<'_> = serde_json::from_slice(json)?;
        if name == "error" || chunk.is_error(json) {
            return Ok(Err(self.site.in_stream(json)));
        }
        if !self.begun {
            self.begun = chunk.choices.0.iter().any(Choice::has_message);
            if !self.begun
                && let Err(foreign) = self.site.not_foreign(json)
            {
                return Ok(Err(foreign));
            }
        }
        let failed = self.failure(&chunk, json);
        self.take(chunk, json, out);
        Ok(failed)
    }

    fn word(&mut self, word: &[u8], out: &mut Queue) -> bool {
        let is_end = word == b"[DONE]";
        if is_end {
            self.take_other(out);
            self.end_blocks(out);
            self.ended = true;
            out.push_back(ModelEvent::End);
        }
        is_end
    }

    fn whole(&mut self, json: &[u8], out: &mut Queue) -> Read {
        let chunk: Chunk<'_> = serde_json::from_slice(json)?;
        if chunk.is_error(json) {
            return Ok(Err(self.site.in_stream(json)));
        }
        if !chunk.choices.0.iter().any(Choice::has_message) {
            return Ok(Err(self.site.senseless("an answer without a message", json)));
        }
        let failed = self.failure(&chunk, json);
        self.take(chunk, json, out);
        self.take_other(out);
        self.end_blocks(out);
        if failed.is_err() {
            return Ok(failed);
        }
        out.push_back(ModelEvent::End);
        Ok(Ok(()))
    }

    fn close(&mut self, out: &mut Queue) -> bool {
        self.take_other(out);
        let done = self.stopped || self.ended;
        if done {
            self.end_blocks(out);
        }
        done
    }
}

impl Chunk<'_> {
    /// What comes beside content is no error, but for the field that is made for one.
    fn is_error(&self, json: &[u8]) -> bool {
        if self.error.is_some_and(says_something) {
            return true;
        }
        if self.choices.0.is_empty() {
            return inband::is_error(json);
        }
        !self.choices.0.iter().any(Choice::says_something) && inband::has_failed_status(json)
    }
}

impl Choice<'_> {
    fn number(&self) -> u64 {
        self.index.0.unwrap_or_default()
    }

    fn says_something(&self) -> bool {
        let parts = [&self.delta, &self.message].into_iter().filter_map(|part| part.0.as_ref());
        !self.finish_reason.is_empty() || parts.into_iter().any(Delta::says_something)
    }

    fn has_message(&self) -> bool {
        self.delta.0.is_some() || self.message.0.is_some()
    }
}

impl Delta<'_> {
    fn says_something(&self) -> bool {
        let content = match &self.content {
            Parts::One(text) => !text.is_empty(),
            Parts::Many(parts) => !parts.is_empty(),
        };
        let texts = [&self.reasoning_content, &self.reasoning, &self.refusal];
        content
            || texts.iter().any(|text| !text.is_empty())
            || !self.tool_calls.0.is_empty()
            || self.function_call.0.is_some()
    }
}

/// What `whole` says beyond `so_far`; all of it if it begins otherwise.
fn beyond<'a>(so_far: &str, whole: Text<'a>) -> Text<'a> {
    match whole.as_str().strip_prefix(so_far) {
        Some(rest) => Text(rest.to_owned().into()),
        None => whole,
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
        let details = self.prompt_tokens_details.0.as_ref();
        let cached = details.and_then(|d| d.cached_tokens.0).or(self.prompt_cache_hit_tokens.0);
        let written = details.and_then(|d| d.cache_write_tokens.0);
        let input = self
            .prompt_tokens
            .0
            .or(self.input_tokens.0)
            .map(|i| i.saturating_sub(written.unwrap_or_default()));
        UsageUpdate {
            cache_write_5m_input_tokens: written,
            ..UsageUpdate::inclusive(input, self.completion_tokens.0.or(self.output_tokens.0), cached)
        }
    }
}
