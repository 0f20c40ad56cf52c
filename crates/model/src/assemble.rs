//! The one assembler: stream events in, a whole message out. Owns all tolerance for what servers do to tool calls
//! (missing, empty or repeated ids, one index for all, names that come late, arguments that are no JSON). Does no IO.

use std::collections::{HashMap, HashSet};
use std::mem;

use serde_json::value::RawValue;

use crate::{
    Block, BrokenInput, ModelEvent, ProviderError, ProviderErrorKind, RawJson, StopReason, Thinking,
    ToolFragment, ToolUse, ToolUseId, UsageUpdate,
};

/// How deep arguments may be nested: the limit of common JSON readers, and far more than any tool takes.
const MAX_DEPTH: usize = 100;

/// Collects the events of one answer.
#[derive(Debug, Default)]
pub struct Assembler {
    blocks: Vec<Kind>,
    /// The newest block of a kind in a slot: answers of very many blocks must not be searched through for each piece.
    newest: HashMap<(u32, Class), usize>,
    /// The newest call of an id.
    calls: HashMap<String, usize>,
    id: Option<String>,
    model: Option<String>,
    usage: UsageUpdate,
    stop: Option<StopReason>,
    stop_sequence: Option<String>,
    ended: bool,
}

/// Where an event landed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landed {
    /// The block, counted from 0 in the message.
    pub index: usize,
    /// The event began it.
    pub opened: bool,
}

/// A whole answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Assembled {
    /// Its blocks; none is empty.
    pub content: Vec<Block>,
    /// Why it ended.
    pub stop: StopReason,
    /// The stop sequence that the model wrote, where the vendor says which one.
    pub stop_sequence: Option<String>,
    /// The counts the vendor gave.
    pub usage: UsageUpdate,
    /// The vendor's id.
    pub id: Option<String>,
    /// The model that really answered.
    pub model: Option<String>,
}

/// Kinds whose blocks are continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Class {
    Text,
    Thinking,
    Tool,
    Whole,
}

#[derive(Debug)]
enum Kind {
    Text(String),
    Thinking { text: String, signature: Option<String>, details: Vec<RawJson> },
    Redacted(String),
    Tool(Call),
    Opaque(RawJson),
}

#[derive(Debug, Default)]
struct Call {
    /// Where it began.
    slot: u32,
    id: String,
    name: String,
    /// All pieces, one after the other.
    input: String,
    /// Where the newest piece begins.
    last: usize,
    pieces: usize,
    /// Each piece so far begins with the one before it.
    grows: bool,
}

impl Assembler {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes one event. `None` for events that belong to no block.
    pub fn push(&mut self, event: &ModelEvent) -> Option<Landed> {
        match event {
            ModelEvent::Start { id, model } => {
                self.id = id.clone().or(self.id.take());
                self.model = model.clone().or(self.model.take());
                None
            }
            ModelEvent::Text { slot, text } => self.push_text(*slot, text),
            ModelEvent::Thinking { slot, text } => {
                self.leave_signed(*slot);
                self.push_thinking(*slot, |t, _, _| t.push_str(text))
            }
            ModelEvent::Signature { slot, signature } => self.push_thinking(*slot, |_, s, _| {
                // Some servers tell it at the block's start and once more at its end.
                if s.as_ref() != Some(signature) {
                    s.get_or_insert_default().push_str(signature);
                }
            }),
            ModelEvent::ThinkingDetail { slot, raw } => {
                self.push_thinking(*slot, |_, _, d| d.push(raw.clone()))
            }
            ModelEvent::Redacted { slot, data } => self.open(*slot, Kind::Redacted(data.clone())),
            ModelEvent::Tool(fragment) => self.push_tool(fragment),
            ModelEvent::Opaque { slot, raw } => self.open(*slot, Kind::Opaque(raw.clone())),
            ModelEvent::Usage(update) => {
                self.usage.merge(update);
                None
            }
            ModelEvent::Stop(reason) => {
                self.stop.get_or_insert_with(|| reason.clone());
                None
            }
            ModelEvent::StopSequence(text) => {
                self.stop_sequence.get_or_insert_with(|| text.clone());
                None
            }
            ModelEvent::End => {
                self.ended = true;
                None
            }
            ModelEvent::BlockStop { .. } | ModelEvent::Ping => None,
        }
    }

    /// Token counts known so far.
    #[must_use]
    pub fn usage(&self) -> &UsageUpdate {
        &self.usage
    }

    /// How many bytes of text, thinking and arguments came so far.
    #[must_use]
    pub fn output_bytes(&self) -> usize {
        let size = |kind: &Kind| match kind {
            Kind::Text(text) | Kind::Redacted(text) => text.len(),
            Kind::Thinking { text, .. } => text.len(),
            Kind::Tool(call) => call.name.len() + call.input.len(),
            Kind::Opaque(raw) => raw.get().len(),
        };
        self.blocks.iter().map(size).sum()
    }

    /// The answer, once the stream is over. A stream that ended before the vendor said why is an error.
    pub fn finish(self) -> Result<Assembled, ProviderError> {
        let calls = self.blocks.iter().filter(|b| matches!(b, Kind::Tool(_))).count();
        let nameless = self.blocks.iter().any(|b| matches!(b, Kind::Tool(call) if call.name.is_empty()));
        let stop = match self.stop {
            Some(stop) => stop,
            None if self.ended && calls > 0 => StopReason::ToolUse,
            None if self.ended => StopReason::EndTurn,
            None => return Err(protocol("the stream ended before its final event")),
        };
        if nameless {
            return Err(protocol("a tool call came without the tool's name"));
        }
        let cut = matches!(stop, StopReason::MaxTokens | StopReason::ContextWindowExceeded);
        let mut content = without_repeats(self.blocks.into_iter().filter_map(|b| close(b, cut)).collect());
        if cut && let Some(Block::ToolUse(last)) = content.last_mut() {
            distrust(last);
        }
        // It was made in the place of the assembler's blocks, and is kept as long as the session.
        content.shrink_to_fit();
        let Self { stop_sequence, usage, id, model, .. } = self;
        Ok(Assembled { content, stop, stop_sequence, usage, id, model })
    }

    /// What can be kept of an answer that was cut off: its text. Thinking goes back whole or not at all, and a call
    /// that was not finished must not run.
    #[must_use]
    pub fn partial(&self) -> Vec<Block> {
        let texts = self.blocks.iter().filter_map(|b| match b {
            Kind::Text(text) if !text.trim().is_empty() => Some(Block::Text(text.clone())),
            _ => None,
        });
        texts.collect()
    }

    fn open(&mut self, slot: u32, kind: Kind) -> Option<Landed> {
        let index = self.blocks.len();
        self.newest.insert((slot, kind.class()), index);
        self.blocks.push(kind);
        Some(Landed { index, opened: true })
    }

    fn push_text(&mut self, slot: u32, more: &str) -> Option<Landed> {
        if let Some(index) = self.newest(slot, Class::Text)
            && let Some(Kind::Text(text)) = self.blocks.get_mut(index)
        {
            text.push_str(more);
            return Some(Landed { index, opened: false });
        }
        if more.is_empty() { None } else { self.open(slot, Kind::Text(more.to_owned())) }
    }

    fn push_thinking(
        &mut self,
        slot: u32,
        add: impl FnOnce(&mut String, &mut Option<String>, &mut Vec<RawJson>),
    ) -> Option<Landed> {
        let landed = match self.newest(slot, Class::Thinking) {
            Some(index) => Landed { index, opened: false },
            None => {
                let kind = Kind::Thinking { text: String::new(), signature: None, details: Vec::new() };
                self.open(slot, kind)?
            }
        };
        if let Some(Kind::Thinking { text, signature, details }) = self.blocks.get_mut(landed.index) {
            add(text, signature, details);
        }
        Some(landed)
    }

    /// A block that is signed is over: what comes under the same number is another one.
    fn leave_signed(&mut self, slot: u32) {
        let newest = self.newest(slot, Class::Thinking).and_then(|index| self.blocks.get(index));
        if let Some(Kind::Thinking { signature: Some(_), .. }) = newest {
            self.newest.remove(&(slot, Class::Thinking));
        }
    }

    fn newest(&self, slot: u32, class: Class) -> Option<usize> {
        self.newest.get(&(slot, class)).copied()
    }

    fn push_tool(&mut self, f: &ToolFragment) -> Option<Landed> {
        let given = |text: &Option<String>| text.clone().filter(|t| !t.is_empty());
        let (new_id, new_name) = (given(&f.id), given(&f.name));
        let more = f.input.as_deref().unwrap_or_default();
        if let Some(index) = self.call_of(f.slot, new_id.as_deref(), new_name.is_some())
            && let Some(Kind::Tool(call)) = self.blocks.get_mut(index)
        {
            // Some servers give each piece of a call an id of its own.
            let other_id = new_id.as_ref().is_some_and(|n| !call.id.is_empty() && *n != call.id)
                && (new_name.is_some() || is_whole_object(&call.input));
            // Servers without ids, or with one id for all, begin the next call under the same index with a name of its own.
            let next_call = new_name.is_some()
                && !call.name.is_empty()
                && is_whole_object(&call.input)
                && (new_id.is_none() || call.is_followed_by(more));
            if !other_id && !next_call {
                // Pieces that follow without an id belong where this one does.
                self.newest.insert((f.slot, Class::Tool), index);
                if let Some(new) = new_id
                    && call.id.is_empty()
                {
                    self.calls.insert(new.clone(), index);
                    call.id = new;
                }
                if let Some(new) = new_name
                    && call.name.is_empty()
                {
                    call.name = new;
                }
                return call.push(more).then_some(Landed { index, opened: false });
            }
        }
        let mut call = Call {
            slot: f.slot,
            id: new_id.unwrap_or_default(),
            name: new_name.unwrap_or_default(),
            ..Call::default()
        };
        call.push(more);
        if !call.id.is_empty() {
            self.calls.insert(call.id.clone(), self.blocks.len());
        }
        self.open(f.slot, Kind::Tool(call))
    }

    /// The call that a piece may belong to: where ids are known they say more than the slot, which may be one for all
    /// calls or only a place in a list. A name under another slot begins a call, for some servers have one id for all.
    fn call_of(&self, slot: u32, id: Option<&str>, named: bool) -> Option<usize> {
        let here = self.newest(slot, Class::Tool);
        let known = id.and_then(|id| self.calls.get(id)).copied();
        let is_here = |index: usize| match self.blocks.get(index) {
            Some(Kind::Tool(call)) => call.slot == slot,
            _ => false,
        };
        let of_same_id = |index: usize| match self.blocks.get(index) {
            Some(Kind::Tool(call)) => id == Some(call.id.as_str()),
            _ => false,
        };
        match (here, known) {
            (Some(here), _) if of_same_id(here) => Some(here),
            (_, Some(known)) if !named || is_here(known) => Some(known),
            _ => here,
        }
    }
}

impl Call {
    /// Takes more of the arguments. False if they are there already: some servers send a call once more when it is whole.
    fn push(&mut self, more: &str) -> bool {
        if more.is_empty() {
            return true;
        }
        let newest = self.input.get(self.last..).unwrap_or_default();
        if more.trim() == self.input.trim() && is_whole_object(more) {
            return false;
        }
        self.grows = self.pieces == 0 || (self.grows && more.starts_with(newest));
        self.last = self.input.len();
        self.pieces += 1;
        self.input.push_str(more);
        true
    }

    /// More that begins another object, where this one is whole and has something in it. An empty one may stand for
    /// arguments that are still to come.
    fn is_followed_by(&self, more: &str) -> bool {
        more.trim_start().starts_with('{') && more.trim() != self.input.trim() && self.input.trim() != "{}"
    }

    /// The arguments' text. Where the pieces one after the other are no JSON, each may have held all that came before it,
    /// or the whole may have come several times.
    fn arguments(mut self) -> String {
        if self.pieces < 2 || is_whole_object(&self.input) {
            return self.input;
        }
        let newest = self.input.get(self.last..).unwrap_or_default();
        if self.grows && is_whole_object(newest) {
            return self.input.split_off(self.last);
        }
        once(&self.input).unwrap_or(self.input)
    }
}

/// The one object of which `text` holds nothing but repetitions, besides empty ones before it.
fn once(text: &str) -> Option<String> {
    let values = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    let values: Vec<&str> = values.map(|v| v.map(RawValue::get)).collect::<Result<_, _>>().ok()?;
    let last = values.last().filter(|v| v.starts_with('{'))?;
    values.iter().skip_while(|v| **v == "{}").all(|v| v == last).then(|| (*last).to_owned())
}

/// Without calls that are there already, number for number and byte for byte: a server that sends a call twice under one id
/// wants it run once.
fn without_repeats(mut content: Vec<Block>) -> Vec<Block> {
    let mut seen = HashSet::new();
    content.retain(|block| match block {
        Block::ToolUse(u) if !u.id.as_str().is_empty() && u.broken.is_none() => {
            seen.insert((u.id.clone(), u.name.clone(), u.input.get().to_owned()))
        }
        _ => true,
    });
    content
}

impl Kind {
    fn class(&self) -> Class {
        match self {
            Self::Text(_) => Class::Text,
            Self::Thinking { .. } => Class::Thinking,
            Self::Tool(_) => Class::Tool,
            Self::Redacted(_) | Self::Opaque(_) => Class::Whole,
        }
    }
}

fn close(kind: Kind, cut: bool) -> Option<Block> {
    match kind {
        // A block of white space only is refused by some vendors, as an empty one is.
        Kind::Text(text) => (!text.trim().is_empty()).then_some(Block::Text(text)),
        Kind::Thinking { text, signature, details } => {
            let details = if details.is_empty() { None } else { RawJson::of(&details).ok() };
            let empty = text.is_empty() && signature.is_none() && details.is_none();
            (!empty).then_some(Block::Thinking(Thinking { text, signature, details }))
        }
        Kind::Redacted(data) => Some(Block::RedactedThinking { data }),
        Kind::Tool(mut call) => {
            let (id, name) = (ToolUseId::new(mem::take(&mut call.id)), mem::take(&mut call.name));
            let (input, broken) = read_input(call.arguments(), cut);
            Some(Block::ToolUse(ToolUse { id, name, input, broken }))
        }
        Kind::Opaque(raw) => Some(Block::Opaque { raw }),
    }
}

/// Some servers close the brackets of a call that they cut: half a file would be written as if it were whole.
fn distrust(call: &mut ToolUse) {
    if call.broken.is_none() {
        let input = std::mem::replace(&mut call.input, RawJson::object());
        let error = "the answer ended at the output limit, so it may not be whole".to_owned();
        call.broken = Some(BrokenInput { raw: input.get().to_owned(), error, cut: true });
    }
}

/// Nothing, white space and `null` mean "no arguments"; a JSON object is one; a string that holds a JSON object is what
/// some models send instead of it; all else is broken and the tool must not run.
fn read_input(text: String, cut: bool) -> (RawJson, Option<BrokenInput>) {
    let trimmed = text.trim();
    if (trimmed.is_empty() && !cut) || trimmed == "null" {
        return (RawJson::object(), None);
    }
    let broken = |error: String, raw: String| (RawJson::object(), Some(BrokenInput { raw, error, cut }));
    match RawJson::parse(trimmed) {
        Ok(raw) if raw.is_object() => match unsendable(raw.get()) {
            None => (raw, None),
            Some(error) => broken(error, text),
        },
        Ok(raw) => match raw.to::<String>().ok().and_then(|inner| RawJson::parse(inner.trim()).ok()) {
            Some(inner) if inner.is_object() && unsendable(inner.get()).is_none() => (inner, None),
            _ => broken("the arguments are not a JSON object".into(), text),
        },
        // Some servers say that the answer ended as it should when it was cut within a call.
        Err(error) if error.is_eof() => {
            (RawJson::object(), Some(BrokenInput { raw: text, error: error.to_string(), cut: true }))
        }
        Err(error) => broken(error.to_string(), text),
    }
}

/// JSON that we can read and others cannot: it would go back with every later request.
fn unsendable(text: &str) -> Option<String> {
    let (mut depth, mut in_string, mut first_half) = (0_usize, false, false);
    let mut bytes = text.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        let escaped = in_string && byte == b'\\';
        let code = text.get(at + 2..at + 6).filter(|_| escaped && text.as_bytes().get(at + 1) == Some(&b'u'));
        let code = code.and_then(|digits| u16::from_str_radix(digits, 16).ok());
        let second = code.is_some_and(|c| (0xDC00..=0xDFFF).contains(&c));
        if first_half != second {
            return Some(format!("half of a character stands alone at byte {at}"));
        }
        first_half = code.is_some_and(|c| (0xD800..=0xDBFF).contains(&c));
        match (byte, in_string) {
            (b'\\', true) => {
                let skip = if code.is_some() { 5 } else { 1 };
                bytes.nth(skip - 1);
            }
            (b'"', _) => in_string = !in_string,
            (b'{' | b'[', false) => depth += 1,
            (b'}' | b']', false) => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Some(format!("nested deeper than {MAX_DEPTH} levels"));
        }
    }
    None
}

fn is_whole_object(text: &str) -> bool {
    // Asked about each piece of a call: most are not worth parsing.
    text.trim_end().ends_with('}') && RawJson::parse(text.trim()).is_ok_and(|raw| raw.is_object())
}

fn protocol(what: &str) -> ProviderError {
    ProviderError::new(ProviderErrorKind::Protocol, what)
}

#[cfg(test)]
mod tests;
