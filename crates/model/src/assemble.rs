//! The one assembler: stream events in, a whole message out. Owns all tolerance for what servers do to tool calls
//! (missing, empty or repeated ids, one index for all, names that come late, arguments that are no JSON). Does no IO.

use std::collections::HashMap;

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
    id: Option<String>,
    model: Option<String>,
    usage: UsageUpdate,
    stop: Option<StopReason>,
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
    Tool { id: String, name: String, input: String },
    Opaque(RawJson),
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
            Kind::Tool { name, input, .. } => name.len() + input.len(),
            Kind::Opaque(raw) => raw.get().len(),
        };
        self.blocks.iter().map(size).sum()
    }

    /// The answer, once the stream is over. A stream that ended before the vendor said why is an error.
    pub fn finish(self) -> Result<Assembled, ProviderError> {
        let calls = self.blocks.iter().filter(|b| matches!(b, Kind::Tool { .. })).count();
        let nameless = self.blocks.iter().any(|b| matches!(b, Kind::Tool { name, .. } if name.is_empty()));
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
        let content = self.blocks.into_iter().filter_map(|b| close(b, cut)).collect();
        Ok(Assembled { content, stop, usage: self.usage, id: self.id, model: self.model })
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
        let last = self.newest(f.slot, Class::Tool);
        if let Some(index) = last
            && let Some(Kind::Tool { id, name, input }) = self.blocks.get_mut(index)
        {
            // Some servers give each piece of a call an id of its own.
            let goes_on = new_name.is_none() && !is_whole_object(input);
            let other_id = new_id.as_ref().is_some_and(|n| !id.is_empty() && n != id) && !goes_on;
            // Servers without ids begin the next call under the same index with a name of its own.
            let next_call =
                new_id.is_none() && new_name.is_some() && !name.is_empty() && is_whole_object(input);
            if !other_id && !next_call {
                if let Some(new) = new_id
                    && id.is_empty()
                {
                    *id = new;
                }
                if let Some(new) = new_name
                    && name.is_empty()
                {
                    *name = new;
                }
                input.push_str(more);
                return Some(Landed { index, opened: false });
            }
        }
        let kind = Kind::Tool {
            id: new_id.unwrap_or_default(),
            name: new_name.unwrap_or_default(),
            input: more.to_owned(),
        };
        self.open(f.slot, kind)
    }
}

impl Kind {
    fn class(&self) -> Class {
        match self {
            Self::Text(_) => Class::Text,
            Self::Thinking { .. } => Class::Thinking,
            Self::Tool { .. } => Class::Tool,
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
        Kind::Tool { id, name, input } => {
            let (input, broken) = read_input(input, cut);
            Some(Block::ToolUse(ToolUse { id: ToolUseId::new(id), name, input, broken }))
        }
        Kind::Opaque(raw) => Some(Block::Opaque { raw }),
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
    RawJson::parse(text.trim()).is_ok_and(|raw| raw.is_object())
}

fn protocol(what: &str) -> ProviderError {
    ProviderError::new(ProviderErrorKind::Protocol, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragment(slot: u32, id: &str, name: &str, input: &str) -> ModelEvent {
        let some = |t: &str| (!t.is_empty()).then(|| t.to_owned());
        ModelEvent::Tool(ToolFragment { slot, id: some(id), name: some(name), input: some(input) })
    }

    fn run(events: &[ModelEvent]) -> Result<Assembled, ProviderError> {
        let mut a = Assembler::new();
        for event in events {
            a.push(event);
        }
        a.finish()
    }

    fn calls(a: &Assembled) -> Vec<(String, String, String)> {
        let uses = a.content.iter().filter_map(|b| if let Block::ToolUse(u) = b { Some(u) } else { None });
        uses.map(|u| (u.id.as_str().to_owned(), u.name.clone(), u.input.get().to_owned())).collect()
    }

    fn call(id: &str, name: &str, input: &str) -> (String, String, String) {
        (id.into(), name.into(), input.into())
    }

    #[test]
    fn h_str_02_empty_id_and_name_continue_the_call() {
        let a = run(&[
            fragment(0, "c1", "Read", "{\"a\""),
            ModelEvent::Tool(ToolFragment {
                slot: 0,
                id: Some(String::new()),
                name: Some(String::new()),
                input: Some(":1}".into()),
            }),
            ModelEvent::Stop(StopReason::ToolUse),
        ])
        .unwrap();
        assert_eq!(calls(&a), [call("c1", "Read", "{\"a\":1}")]);
    }

    #[test]
    fn h_str_03_one_index_for_all_calls() {
        let a = run(&[
            fragment(0, "c1", "Read", "{\"a\":1}"),
            fragment(0, "c2", "Read", "{\"a\":2}"),
            ModelEvent::Stop(StopReason::ToolUse),
        ])
        .unwrap();
        assert_eq!(calls(&a), [call("c1", "Read", "{\"a\":1}"), call("c2", "Read", "{\"a\":2}")]);
        let no_ids = run(&[
            fragment(0, "", "Read", "{\"a\":1}"),
            fragment(0, "", "Glob", "{\"a\":2}"),
            ModelEvent::End,
        ])
        .unwrap();
        assert_eq!(calls(&no_ids), [call("", "Read", "{\"a\":1}"), call("", "Glob", "{\"a\":2}")]);
    }

    #[test]
    fn h_str_04_a_name_may_come_late_but_must_come() {
        let a = run(&[fragment(0, "c1", "", "{"), fragment(0, "", "Read", "}"), ModelEvent::End]).unwrap();
        assert_eq!(calls(&a), [call("c1", "Read", "{}")]);
        let error = run(&[fragment(0, "c1", "", "{}"), ModelEvent::End]).unwrap_err();
        assert_eq!(error.kind, ProviderErrorKind::Protocol);
    }

    #[test]
    fn h_str_05_no_arguments_are_an_empty_object() {
        for input in ["", " \n", "null"] {
            let a = run(&[fragment(0, "c1", "List", input), ModelEvent::Stop(StopReason::ToolUse)]).unwrap();
            assert_eq!(calls(&a), [call("c1", "List", "{}")], "{input:?}");
        }
    }

    #[test]
    fn h_str_06_invalid_arguments_are_kept_and_marked() {
        let a =
            run(&[fragment(0, "c1", "Read", "{\"a\": tru"), ModelEvent::Stop(StopReason::ToolUse)]).unwrap();
        let Block::ToolUse(u) = &a.content[0] else { panic!() };
        let broken = u.broken.as_ref().unwrap();
        assert_eq!(broken.raw, "{\"a\": tru");
        assert!(broken.error.contains("column"), "{}", broken.error);
        assert_eq!(u.input.get(), "{}");
    }

    #[test]
    fn arguments_that_others_cannot_read_are_broken() {
        let deep = format!("{{\"x\":{}{}}}", "[".repeat(200), "]".repeat(200));
        for (input, why) in [
            (r#"{"a":"\ud83d"}"#, "half of a character"),
            (r#"{"a":"\ude00"}"#, "half of a character"),
            (r#"{"a":"\ud83dx"}"#, "half of a character"),
            (&deep, "nested deeper"),
        ] {
            let a = run(&[fragment(0, "c", "Read", input), ModelEvent::End]).unwrap();
            let Block::ToolUse(u) = &a.content[0] else { panic!() };
            let error = &u.broken.as_ref().unwrap_or_else(|| panic!("{input}")).error;
            assert!(error.contains(why), "{error}");
        }
        for fine in [r#"{"a":"\ud83d\ude00 \\ud83d \u0041"}"#, r#"{"a":"[[[{{{","b":[[1]]}"#] {
            let a = run(&[fragment(0, "c", "Read", fine), ModelEvent::End]).unwrap();
            assert_eq!(calls(&a), [call("c", "Read", fine)]);
        }
    }

    #[test]
    fn pieces_of_a_call_may_each_have_another_id() {
        let events =
            [fragment(0, "c1", "Read", ""), fragment(0, "c2", "", "{\"a\""), fragment(0, "c3", "", ":1}")];
        let a = run(&[events.as_slice(), &[ModelEvent::End]].concat()).unwrap();
        assert_eq!(calls(&a), [call("c1", "Read", "{\"a\":1}")]);
    }

    #[test]
    fn signed_blocks_under_one_number_stay_apart() {
        let thinking = |text: &str| ModelEvent::Thinking { slot: 0, text: text.into() };
        let signature = |s: &str| ModelEvent::Signature { slot: 0, signature: s.into() };
        let a = run(&[
            thinking("a"),
            signature("s"),
            signature("s"),
            thinking("b"),
            signature("t"),
            ModelEvent::End,
        ])
        .unwrap();
        let block = |text: &str, s: &str| {
            Block::Thinking(Thinking { text: text.into(), signature: Some(s.into()), details: None })
        };
        assert_eq!(a.content, [block("a", "s"), block("b", "t")]);
    }

    #[test]
    fn arguments_sent_as_a_string_are_unwrapped_once() {
        let a = run(&[fragment(0, "c", "Read", r#""{\"a\":1}""#), ModelEvent::End]).unwrap();
        assert_eq!(calls(&a), [call("c", "Read", "{\"a\":1}")]);
    }

    #[test]
    fn a_stream_without_an_end_is_an_error_and_keeps_its_text() {
        let mut a = Assembler::new();
        a.push(&ModelEvent::Text { slot: 0, text: "half".into() });
        a.push(&fragment(1, "c", "Read", "{"));
        assert_eq!(a.partial(), [Block::Text("half".into())]);
        assert_eq!(a.finish().unwrap_err().kind, ProviderErrorKind::Protocol);
    }

    #[test]
    fn signed_thinking_is_whole() {
        let a = run(&[
            ModelEvent::Thinking { slot: 0, text: "a".into() },
            ModelEvent::Thinking { slot: 0, text: "b".into() },
            ModelEvent::Signature { slot: 0, signature: "s".into() },
            ModelEvent::Text { slot: 1, text: "c".into() },
            ModelEvent::End,
        ])
        .unwrap();
        let thinking = Thinking { text: "ab".into(), signature: Some("s".into()), details: None };
        assert_eq!(a.content, [Block::Thinking(thinking), Block::Text("c".into())]);
        assert_eq!(a.stop, StopReason::EndTurn);
    }
}
