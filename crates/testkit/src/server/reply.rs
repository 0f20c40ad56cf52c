//! One reply: what is said and what goes wrong on the way. Owns its description; `render` writes it in a wire format,
//! `play` sends it.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

/// A reply to one request.
#[derive(Clone, Debug)]
pub struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Body,
    pub(super) pace: Pace,
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    Answer(Answer),
    Raw(Bytes),
}

/// How the body is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pace {
    /// At once.
    #[default]
    Whole,
    /// The connection breaks after so many bytes.
    Cut(usize),
    /// Nothing comes after so many bytes, and the connection stays open.
    Stall(usize),
    /// In two pieces.
    Split(usize),
    /// In pieces of `size` bytes, with a pause after each.
    Drip {
        /// Bytes of a piece.
        size: usize,
        /// The pause.
        pause: Duration,
    },
}

/// A model's answer.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) parts: Vec<Part>,
    /// In the Messages API's words; chosen by the parts if not set.
    pub(super) stop: Option<String>,
    pub(super) input_tokens: u64,
    pub(super) cached_tokens: u64,
    pub(super) output_tokens: u64,
    /// Counts come although they were not asked for.
    pub(super) usage_unasked: bool,
    /// Characters of a delta.
    pub(super) delta: usize,
    /// One JSON object although a stream was asked for.
    pub(super) plain: bool,
    /// After so many events the stream goes on with this error and ends.
    pub(super) error_after: Option<(usize, Value)>,
}

#[derive(Clone, Debug)]
pub(super) enum Part {
    Text(String),
    Thinking { text: String, signature: String },
    Tool { id: String, name: String, input: Value },
}

impl Reply {
    /// An answer without content; add parts to it.
    #[must_use]
    pub fn answer() -> Self {
        let answer = Answer {
            parts: Vec::new(),
            stop: None,
            input_tokens: 10,
            cached_tokens: 0,
            output_tokens: 5,
            usage_unasked: false,
            delta: 8,
            plain: false,
            error_after: None,
        };
        Self { status: 200, headers: Vec::new(), body: Body::Answer(answer), pace: Pace::Whole }
    }

    /// An answer of text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::answer().and_text(text)
    }

    /// An answer that calls a tool.
    #[must_use]
    pub fn tool(name: impl Into<String>, input: Value) -> Self {
        Self::answer().and_tool(name, input)
    }

    /// A status with a JSON body.
    #[must_use]
    pub fn status(status: u16, body: &Value) -> Self {
        Self::raw(status, "application/json", body.to_string())
    }

    /// An error as vendors write it.
    #[must_use]
    pub fn error(status: u16, kind: &str, message: &str) -> Self {
        Self::status(status, &json!({ "type": "error", "error": { "type": kind, "message": message } }))
    }

    /// Any bytes.
    #[must_use]
    pub fn raw(status: u16, content_type: &str, body: impl Into<Bytes>) -> Self {
        let headers = vec![("content-type".to_owned(), content_type.to_owned())];
        Self { status, headers, body: Body::Raw(body.into()), pace: Pace::Whole }
    }

    /// An event stream as it is.
    #[must_use]
    pub fn sse(body: impl Into<Bytes>) -> Self {
        Self::raw(200, "text/event-stream", body)
    }

    /// Adds text to the answer.
    #[must_use]
    pub fn and_text(self, text: impl Into<String>) -> Self {
        let part = Part::Text(text.into());
        self.set(|a| a.parts.push(part))
    }

    /// Adds thinking to the answer.
    #[must_use]
    pub fn and_thinking(self, text: impl Into<String>, signature: impl Into<String>) -> Self {
        let part = Part::Thinking { text: text.into(), signature: signature.into() };
        self.set(|a| a.parts.push(part))
    }

    /// Adds a tool call to the answer.
    #[must_use]
    pub fn and_tool(self, name: impl Into<String>, input: Value) -> Self {
        let name = name.into();
        self.set(|a| a.parts.push(Part::Tool { id: String::new(), name, input }))
    }

    /// Gives the last tool call an id of its own; otherwise it is numbered.
    #[must_use]
    pub fn with_id(self, new: impl Into<String>) -> Self {
        let new = new.into();
        self.set(|a| {
            if let Some(Part::Tool { id, .. }) = a.parts.last_mut() {
                *id = new;
            }
        })
    }

    /// Sets why the model stopped, in the Messages API's words; chat completions get their word for it.
    #[must_use]
    pub fn stop(self, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        self.set(|a| a.stop = Some(reason))
    }

    /// Sets the token counts: input without cached tokens, cached input, output.
    #[must_use]
    pub fn usage(self, input: u64, cached: u64, output: u64) -> Self {
        self.set(|a| (a.input_tokens, a.cached_tokens, a.output_tokens) = (input, cached, output))
    }

    /// Sends token counts although they were not asked for, as some servers do.
    #[must_use]
    pub fn usage_unasked(self) -> Self {
        self.set(|a| a.usage_unasked = true)
    }

    /// Sets the characters of a delta.
    #[must_use]
    pub fn delta(self, characters: usize) -> Self {
        self.set(|a| a.delta = characters.max(1))
    }

    /// Answers with one JSON object although a stream was asked for.
    #[must_use]
    pub fn plain(self) -> Self {
        self.set(|a| a.plain = true)
    }

    /// After `events` events the stream goes on with an error and ends.
    #[must_use]
    pub fn error_after(self, events: usize, kind: &str, message: &str) -> Self {
        let error = json!({ "type": kind, "message": message });
        self.set(|a| a.error_after = Some((events, error)))
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets how the body is sent.
    #[must_use]
    pub fn pace(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    fn set(mut self, change: impl FnOnce(&mut Answer)) -> Self {
        if let Body::Answer(answer) = &mut self.body {
            change(answer);
        }
        self
    }
}
