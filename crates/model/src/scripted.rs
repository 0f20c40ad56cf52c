//! A provider that plays a script in process. It checks every request with the validator and refuses invalid ones, so that
//! a test that passes proves that what was sent was valid. Owns no clock and no thread: a reply that stalls never wakes.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_core::Stream;

use crate::{
    BoxFuture, ModelEvent, ModelRequest, ModelStream, Provider, ProviderError, ProviderErrorKind, RawJson,
    StopReason, ToolFragment, UsageUpdate,
};

/// The script of one answer.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    events: Vec<ModelEvent>,
    calls: u32,
    stop: Option<StopReason>,
    usage: UsageUpdate,
    failure: Option<ProviderError>,
    stalls: bool,
}

impl Reply {
    /// An answer that says `text`.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::default().and_text(text)
    }

    /// An answer that calls a tool. `input` is JSON, or what a model might write instead.
    #[must_use]
    pub fn call(tool: &str, input: &str) -> Self {
        Self::default().and_call(tool, input)
    }

    /// An answer that fails.
    #[must_use]
    pub fn failure(kind: ProviderErrorKind, message: &str) -> Self {
        Self { failure: Some(ProviderError::new(kind, message)), ..Self::default() }
    }

    /// Says more, word by word.
    #[must_use]
    pub fn and_text(mut self, text: &str) -> Self {
        let slot = self.next_slot();
        let words = text.split_inclusive(' ').map(|word| ModelEvent::Text { slot, text: word.to_owned() });
        self.events.extend(words);
        self.events.push(ModelEvent::BlockStop { slot });
        self
    }

    /// Thinks, with a signature.
    #[must_use]
    pub fn and_thinking(mut self, text: &str) -> Self {
        let slot = self.next_slot();
        self.events.push(ModelEvent::Thinking { slot, text: text.to_owned() });
        self.events.push(ModelEvent::Signature { slot, signature: "scripted".to_owned() });
        self.events.push(ModelEvent::BlockStop { slot });
        self
    }

    /// Calls another tool.
    #[must_use]
    pub fn and_call(mut self, tool: &str, input: &str) -> Self {
        let slot = self.next_slot();
        self.calls += 1;
        let (id, name) = (Some(String::new()), Some(tool.to_owned()));
        self.events.push(ModelEvent::Tool(ToolFragment { slot, id, name, input: None }));
        let input = Some(input.to_owned());
        self.events.push(ModelEvent::Tool(ToolFragment { slot, id: None, name: None, input }));
        self.events.push(ModelEvent::BlockStop { slot });
        self
    }

    /// Stops for this reason instead of the fitting one.
    #[must_use]
    pub fn stop(mut self, reason: StopReason) -> Self {
        self.stop = Some(reason);
        self
    }

    /// Counts tokens.
    #[must_use]
    pub fn usage(mut self, input: u64, output: u64) -> Self {
        self.usage =
            UsageUpdate { input_tokens: Some(input), output_tokens: Some(output), ..UsageUpdate::default() };
        self
    }

    /// Says so much and then nothing, until the request is dropped.
    #[must_use]
    pub fn then_stalls(mut self) -> Self {
        self.stalls = true;
        self
    }

    /// Says so much and then fails.
    #[must_use]
    pub fn then_fails(mut self, kind: ProviderErrorKind, message: &str) -> Self {
        self.failure = Some(ProviderError::new(kind, message));
        self
    }

    fn next_slot(&self) -> u32 {
        u32::try_from(self.events.iter().filter(|e| matches!(e, ModelEvent::BlockStop { .. })).count())
            .unwrap_or(u32::MAX)
    }

    fn into_items(self) -> Play {
        let begin = ModelEvent::Start { id: Some("scripted".to_owned()), model: None };
        let mut items: VecDeque<Result<ModelEvent, ProviderError>> =
            std::iter::once(begin).chain(self.events).map(Ok).collect();
        items.push_back(Ok(ModelEvent::Usage(self.usage)));
        if let Some(error) = self.failure {
            items.push_back(Err(error));
        } else if !self.stalls {
            let fitting = if self.calls > 0 { StopReason::ToolUse } else { StopReason::EndTurn };
            items.push_back(Ok(ModelEvent::Stop(self.stop.unwrap_or(fitting))));
            items.push_back(Ok(ModelEvent::End));
        }
        Play { items, stalls: self.stalls }
    }
}

struct Play {
    items: VecDeque<Result<ModelEvent, ProviderError>>,
    stalls: bool,
}

impl Stream for Play {
    type Item = Result<ModelEvent, ProviderError>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.items.pop_front() {
            Some(item) => Poll::Ready(Some(item)),
            None if self.stalls => Poll::Pending,
            None => Poll::Ready(None),
        }
    }
}

type Respond = Box<dyn FnMut(&ModelRequest) -> Reply + Send>;

/// A provider that plays a script. Clones share it.
#[derive(Clone)]
pub struct Scripted(Arc<Mutex<State>>);

struct State {
    respond: Respond,
    requests: Vec<ModelRequest>,
}

impl Scripted {
    /// Gives these answers, one a request; then it fails, saying that the script is over.
    #[must_use]
    pub fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        let mut replies: VecDeque<Reply> = replies.into_iter().collect();
        Self::responding(move |_| {
            let over =
                || Reply::failure(ProviderErrorKind::InvalidRequest, "the script has no further answer");
            replies.pop_front().unwrap_or_else(over)
        })
    }

    /// Makes each answer from its request.
    #[must_use]
    pub fn responding(respond: impl FnMut(&ModelRequest) -> Reply + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(State { respond: Box::new(respond), requests: Vec::new() })))
    }

    /// The requests so far, invalid ones too.
    #[must_use]
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.state().requests.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted").field("requests", &self.state().requests.len()).finish_non_exhaustive()
    }
}

impl Provider for Scripted {
    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ProviderError>> {
        let mut state = self.state();
        let checked = request.check();
        let reply = match &checked {
            Ok(()) => (state.respond)(&request),
            Err(invalid) => {
                Reply::failure(ProviderErrorKind::InvalidRequest, &format!("invalid request: {invalid}"))
            }
        };
        state.requests.push(request);
        let stream: ModelStream = Box::pin(reply.into_items());
        Box::pin(std::future::ready(Ok(stream)))
    }
}

/// The text of the results that the newest message brings, one each: what a scripted answer can go by.
#[must_use]
pub fn newest_results(request: &ModelRequest) -> Vec<String> {
    let Some(message) = request.messages.last() else { return Vec::new() };
    let text = |blocks: &[crate::ResultBlock]| {
        let texts = blocks.iter().filter_map(|b| match b {
            crate::ResultBlock::Text { text } => Some(text.as_str()),
            _ => None,
        });
        texts.collect::<String>()
    };
    let results = message.content.iter().filter_map(|b| match b {
        crate::Block::ToolResult(r) => Some(text(&r.content)),
        _ => None,
    });
    results.collect()
}

/// A call's input, rendered.
#[must_use]
pub fn input<T: serde::Serialize>(value: &T) -> String {
    RawJson::of(value).map_or_else(|_| "{}".to_owned(), |raw| raw.get().to_owned())
}
