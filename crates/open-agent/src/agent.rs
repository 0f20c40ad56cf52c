//! The agent: a conversation that goes on over several prompts. Owns the session's driver between runs and the tasks that
//! runs live on; decides nothing about a run.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_core::Stream;
use open_agent_engine::{Driver, Envelope, EventSink, EventStream, Host, RunSpec};
use open_agent_model::{Answer, AskId, Block, SessionId};
use open_agent_session::RunLimits;
use tokio::sync::{Mutex as AsyncMutex, OnceCell};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::builder::Wiring;
use crate::{AgentBuilder, AgentError, QueryResult};

/// An agent. Clones share the conversation; prompts that overlap wait for each other.
#[derive(Clone)]
pub struct Agent {
    inner: Arc<Inner>,
}

struct Inner {
    wiring: Wiring,
    /// Made at the first prompt, since making an agent does no IO.
    host: OnceCell<Arc<Host>>,
    driver: AsyncMutex<Option<Driver>>,
    running: Mutex<Option<CancellationToken>>,
}

/// What is asked: text, or content blocks.
#[derive(Clone, Debug)]
pub struct Prompt(pub Vec<Block>);

impl<T: Into<String>> From<T> for Prompt {
    fn from(text: T) -> Self {
        Self(vec![Block::Text(text.into())])
    }
}

enum Task {
    Prompt(Prompt),
    Answer(AskId, Answer),
    Resume,
}

impl Agent {
    /// Begins to describe an agent; keys and addresses come from the process's environment.
    #[must_use]
    pub fn builder() -> AgentBuilder {
        AgentBuilder::from_environment()
    }

    pub(crate) fn new(wiring: Wiring) -> Self {
        let (driver, running) = (AsyncMutex::new(None), Mutex::new(None));
        Self { inner: Arc::new(Inner { wiring, host: OnceCell::new(), driver, running }) }
    }

    /// The session's name.
    #[must_use]
    pub fn session_id(&self) -> &SessionId {
        &self.inner.wiring.session_id
    }

    /// Asks, and waits for the end. Dropping the future interrupts the run.
    pub async fn prompt(&self, prompt: impl Into<Prompt>) -> Result<QueryResult, AgentError> {
        self.start(Task::Prompt(prompt.into()), EventSink::none()).await_guarded().await
    }

    /// Asks, and gives the events as they come, text in pieces included. The run goes on if the stream is dropped.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn stream(&self, prompt: impl Into<Prompt>) -> RunStream {
        let (sink, events) = EventSink::live();
        RunStream { events, run: self.start(Task::Prompt(prompt.into()), sink) }
    }

    /// As [`Agent::stream`], without the pieces of text: only whole messages and results.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn stream_messages(&self, prompt: impl Into<Prompt>) -> RunStream {
        let (sink, events) = EventSink::durable();
        RunStream { events, run: self.start(Task::Prompt(prompt.into()), sink) }
    }

    /// Answers a question and goes on with the run that waits for it.
    pub async fn answer(&self, ask: AskId, answer: Answer) -> Result<QueryResult, AgentError> {
        self.start(Task::Answer(ask, answer), EventSink::none()).await_guarded().await
    }

    /// Goes on with a run that a crash left unfinished. Without one it gives the last run's result.
    pub async fn resume(&self) -> Result<QueryResult, AgentError> {
        self.start(Task::Resume, EventSink::none()).await_guarded().await
    }

    /// Interrupts the run that goes on. `false` if there is none.
    pub fn interrupt(&self) -> bool {
        let running = self.inner.running().clone();
        running.map(|token| token.cancel()).is_some()
    }

    /// A run lives on a task of its own: whoever waits for it may leave at any moment without tearing the log.
    fn start(&self, task: Task, sink: EventSink) -> Run {
        let cancel = CancellationToken::new();
        let inner = Arc::clone(&self.inner);
        let token = cancel.clone();
        let handle = tokio::spawn(async move {
            let result = inner.run(task, sink.clone(), token).await;
            sink.finish();
            result
        });
        Run { handle, cancel }
    }
}

impl Inner {
    async fn run(
        &self,
        task: Task,
        sink: EventSink,
        cancel: CancellationToken,
    ) -> Result<QueryResult, AgentError> {
        let mut place = self.driver.lock().await;
        *self.running() = Some(cancel.clone());
        let result = self.drive(&mut place, task, sink, cancel).await;
        *self.running() = None;
        if result.is_err() {
            // A driver whose log failed under it is no good; the next prompt opens the session anew.
            *place = None;
        }
        result
    }

    async fn drive(
        &self,
        place: &mut Option<Driver>,
        task: Task,
        sink: EventSink,
        cancel: CancellationToken,
    ) -> Result<QueryResult, AgentError> {
        let host = self.host.get_or_try_init(|| async { self.wiring.host().map(Arc::new) }).await?;
        let driver = match place {
            Some(driver) => driver,
            None => place.insert(
                Driver::open(Arc::clone(host), self.wiring.session_id.clone(), EventSink::none()).await?,
            ),
        };
        driver.set_sink(sink);
        driver.set_cancel(cancel);
        let before = driver.machine().transcript().messages().len();
        match task {
            Task::Prompt(prompt) => {
                driver.begin(self.spec(prompt)?).await?;
            }
            Task::Answer(ask, answer) => driver.answer(ask, answer).await?,
            Task::Resume => {}
        }
        driver.run().await?;
        driver.set_sink(EventSink::none());
        Ok(QueryResult::of(driver, before))
    }

    fn spec(&self, prompt: Prompt) -> Result<RunSpec, AgentError> {
        let options = &self.wiring.options;
        Ok(RunSpec {
            prompt: prompt.0,
            model: Arc::clone(&self.wiring.model),
            root: self.wiring.root()?,
            limits: RunLimits {
                max_turns: options.max_turns,
                max_model_calls: options.max_model_calls,
                scheduling: options.tool_scheduling,
            },
        })
    }

    fn running(&self) -> std::sync::MutexGuard<'_, Option<CancellationToken>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Run {
    handle: JoinHandle<Result<QueryResult, AgentError>>,
    cancel: CancellationToken,
}

impl Run {
    async fn await_guarded(self) -> Result<QueryResult, AgentError> {
        let guard: DropGuard = self.cancel.drop_guard();
        let result = self.handle.await.unwrap_or(Err(AgentError::Lost));
        let _spent = guard.disarm();
        result
    }
}

/// A run's events, and in the end its result.
pub struct RunStream {
    events: EventStream,
    run: Run,
}

impl RunStream {
    /// Interrupts the run.
    pub fn interrupt(&self) {
        self.run.cancel.cancel();
    }

    /// Waits for the result; events that were not read are dropped.
    pub async fn result(self) -> Result<QueryResult, AgentError> {
        drop(self.events);
        self.run.handle.await.unwrap_or(Err(AgentError::Lost))
    }
}

impl Stream for RunStream {
    type Item = Envelope;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Envelope>> {
        Pin::new(&mut self.events).poll_next(cx)
    }
}
