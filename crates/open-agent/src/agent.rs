//! The agent: a conversation that goes on over several prompts. Owns the session's driver between runs and the tasks that
//! runs live on; decides nothing about a run.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_core::Stream;
use open_agent_engine::{Budget, Driver, EngineError, Envelope, EventSink, EventStream, RunSpec, TokenCount};
use open_agent_model::{Answer, AskId, Block, Effort, SessionId, TaskId, ThinkingMode};
use open_agent_session::{ModelSettings, RunLimits};
use open_agent_tool::TaskStatus;
use tokio::sync::{Mutex as AsyncMutex, OnceCell, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::builder::{Live, Wiring};
use crate::{AgentBuilder, AgentError, ConfigError, QueryResult};

/// An agent. Clones share the conversation; prompts that overlap wait for each other.
///
/// Whatever its commands started ends with the last clone: it is asked to, and killed half a second later. Dropping waits
/// for that and blocks meanwhile, if there is anything to end; [`Agent::close`] does not block.
#[derive(Clone)]
pub struct Agent {
    inner: Arc<Inner>,
}

struct Inner {
    wiring: Wiring,
    /// Made at the first prompt, since making an agent does no IO.
    live: OnceCell<Live>,
    driver: AsyncMutex<Option<Driver>>,
    running: Mutex<Option<(CancellationToken, EventSink)>>,
    settings: watch::Sender<ModelSettings>,
    closed: CancellationToken,
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
        let settings = watch::Sender::new(wiring.settings());
        let (live, closed) = (OnceCell::new(), CancellationToken::new());
        Self { inner: Arc::new(Inner { wiring, live, driver, running, settings, closed }) }
    }

    /// The session's name.
    #[must_use]
    pub fn session_id(&self) -> &SessionId {
        &self.inner.wiring.session_id
    }

    /// Where the key comes from: the name of a variable, `option`, or `none`.
    #[must_use]
    pub fn key_source(&self) -> &'static str {
        self.inner.wiring.key_source
    }

    /// The agent's own budget. It counts what this agent spends, also if it has no limit; with
    /// [`AgentBuilder::budget`] it is a child of the shared one. It can be the parent of further budgets.
    #[must_use]
    pub fn budget(&self) -> &Arc<Budget> {
        self.inner.wiring.budget.node()
    }

    /// Asks, and waits for the end. Dropping the future interrupts the run. Not to be awaited in one of the agent's own
    /// tools: the prompt waits for the run, and the run for the tool.
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

    /// Takes user messages from a stream, each a run of its own, one after the other. The results come in the end, one for
    /// each message; an interrupt ends the run that goes on, and the next message is taken.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn stream_input<S>(&self, input: S) -> RunStream<Vec<Result<QueryResult, AgentError>>>
    where
        S: Stream + Send + 'static,
        S::Item: Into<Prompt> + Send,
    {
        let (sink, events) = EventSink::live();
        let cancel = CancellationToken::new();
        let (inner, all) = (Arc::clone(&self.inner), cancel.clone());
        let handle = tokio::spawn(async move {
            let end = EndOfEvents(sink);
            Ok(inner.run_all(Box::pin(input), &end.0, &all).await)
        });
        RunStream { events, run: Run { handle, cancel } }
    }

    /// How many input tokens a request with this prompt would have now, conversation, instructions and tools included.
    /// Waits for a run that goes on; writes nothing of the prompt down.
    pub async fn count_tokens(&self, prompt: impl Into<Prompt>) -> Result<TokenCount, AgentError> {
        let inner = &self.inner;
        let mut place = inner.driver.lock().await;
        let mut driver = inner.open(&mut place).await?;
        let settings = inner.settings.borrow().clone();
        let counted = tokio::select! {
            counted = driver.count_tokens(prompt.into().0, settings) => counted.map_err(AgentError::from),
            () = inner.closed.cancelled() => Err(AgentError::Closed),
        };
        *place = Some(driver);
        counted
    }

    /// Asks this model from the next request on, also in a run that goes on. Any name is taken; costs are kept apart.
    pub fn switch_model(&self, name: &str) -> Result<(), ConfigError> {
        let model = self.inner.wiring.check_model(name)?;
        tracing::info!(from = %self.model(), to = %model, "the model is switched");
        self.inner.settings.send_modify(|s| s.model = model);
        Ok(())
    }

    /// The model that the next request asks.
    #[must_use]
    pub fn model(&self) -> Arc<str> {
        Arc::clone(&self.inner.settings.borrow().model)
    }

    /// Thinks so from the next request on, also in a run that goes on; `None` = the vendor's default.
    pub fn set_thinking(&self, thinking: Option<ThinkingMode>) -> Result<(), ConfigError> {
        if thinking == Some(ThinkingMode::Enabled { budget_tokens: 0 }) {
            return Err(ConfigError::NotPositive { option: "thinking" });
        }
        self.inner.settings.send_modify(|s| s.thinking = thinking);
        Ok(())
    }

    /// As [`Agent::set_thinking`], with a number of tokens. 0 and less is refused.
    pub fn set_max_thinking_tokens(&self, tokens: Option<i64>) -> Result<(), ConfigError> {
        let budget = tokens.map(u64::try_from).transpose();
        let budget = budget.map_err(|_| ConfigError::NotPositive { option: "max_thinking_tokens" })?;
        self.set_thinking(budget.map(|budget_tokens| ThinkingMode::Enabled { budget_tokens }))
    }

    /// Puts so much work into answers from the next request on; `None` = the vendor's default.
    pub fn set_effort(&self, effort: Option<Effort>) {
        self.inner.settings.send_modify(|s| s.effort = effort);
    }

    /// Interrupts the run that goes on. `false` if there is none.
    pub fn interrupt(&self) -> bool {
        let running = self.inner.running().clone();
        running.map(|(token, _)| token.cancel()).is_some()
    }

    /// Background work of this agent, also what has ended, in the order in which it was started.
    #[must_use]
    pub fn tasks(&self) -> Vec<TaskStatus> {
        self.inner.live.get().map(|live| live.host.ports.tasks.list()).unwrap_or_default()
    }

    /// Stops background work and all its processes, and waits for their end. Nothing happens to work that has ended.
    pub async fn stop_task(&self, id: &str) -> Result<TaskStatus, AgentError> {
        let stopped = match self.inner.live.get() {
            Some(live) => live.host.ports.tasks.stop(&TaskId(id.to_owned())).await,
            None => None,
        };
        stopped.ok_or_else(|| {
            let known = self.tasks().into_iter().map(|status| status.task.id.0).collect();
            AgentError::NoTask { id: id.to_owned(), known }
        })
    }

    /// Ends the agent: interrupts the run, waits for its end, then ends everything that its commands started and that still
    /// runs. Asked again, clones included, it answers [`AgentError::Closed`]. The session stays, and another agent can go
    /// on with it. Not to be awaited in one of the agent's own tools.
    pub async fn close(&self) {
        self.inner.closed.cancel();
        let running = self.inner.running().clone();
        if let Some((token, sink)) = running {
            token.cancel();
            // Its reader may be the one who waits here.
            sink.hurry();
        }
        // Whoever has it, the run or a prompt that waited, gives it back.
        drop(self.inner.driver.lock().await.take());
        if let Some(live) = self.inner.live.get() {
            live.host.ports.tasks.stop_all().await;
            live.runner.end_all().await;
            live.end_passing();
        }
    }

    /// Kills every process that the agent's commands started, before it returns; once a prompt has begun, none is started
    /// any more. For a program that has to end now and cannot wait for [`Agent::close`]. May be called from any thread.
    pub fn kill_processes(&self) {
        if let Some(live) = self.inner.live.get() {
            live.runner.kill_all();
            live.end_passing();
        }
    }

    /// A run lives on a task of its own: whoever waits for it may leave at any moment without tearing the log.
    fn start(&self, task: Task, sink: EventSink) -> Run<QueryResult> {
        let cancel = CancellationToken::new();
        let inner = Arc::clone(&self.inner);
        let token = cancel.clone();
        let handle = tokio::spawn(async move {
            let end = EndOfEvents(sink);
            inner.run(task, end.0.clone(), token).await
        });
        Run { handle, cancel }
    }
}

/// Says that no more events come, also if the run's task panics: a reader must not wait for ever.
struct EndOfEvents(EventSink);

impl Drop for EndOfEvents {
    fn drop(&mut self) {
        self.0.finish();
    }
}

/// The run that can be interrupted from outside, as long as it goes on.
struct Running<'a>(&'a Inner);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        *self.0.running() = None;
    }
}

impl Inner {
    async fn run(
        &self,
        task: Task,
        sink: EventSink,
        cancel: CancellationToken,
    ) -> Result<QueryResult, AgentError> {
        let mut place = tokio::select! {
            biased;
            place = self.driver.lock() => place,
            () = cancel.cancelled() => return Err(AgentError::Interrupted),
        };
        *self.running() = Some((cancel.clone(), sink.clone()));
        let _running = Running(self);
        // After the token is there for all to see: either it is cancelled by whoever closes, or `open` sees that.
        let mut driver = self.open(&mut place).await?;
        driver.set_sink(sink);
        driver.set_cancel(cancel);
        driver.set_wanted(self.settings.subscribe());
        let result = self.drive(&mut driver, task).await;
        driver.set_sink(EventSink::none());
        if !matches!(result, Err(AgentError::Engine(EngineError::Store(_)))) {
            *place = Some(driver);
        }
        result
    }

    /// Takes the driver out: one that panics, or whose log fails under it, is no good any more, and the next prompt opens
    /// the session anew.
    async fn open(&self, place: &mut Option<Driver>) -> Result<Driver, AgentError> {
        if self.closed.is_cancelled() {
            return Err(AgentError::Closed);
        }
        let live = self.live.get_or_try_init(|| async { self.wiring.host() }).await?;
        match place.take() {
            Some(driver) => Ok(driver),
            None => {
                let id = self.wiring.session_id.clone();
                Ok(Driver::open(Arc::clone(&live.host), id, EventSink::none()).await?)
            }
        }
    }

    async fn run_all<S>(
        &self,
        mut input: Pin<Box<S>>,
        sink: &EventSink,
        all: &CancellationToken,
    ) -> Vec<Result<QueryResult, AgentError>>
    where
        S: Stream + Send,
        S::Item: Into<Prompt> + Send,
    {
        let mut results = Vec::new();
        loop {
            let next = tokio::select! {
                biased;
                () = all.cancelled() => None,
                () = self.closed.cancelled() => None,
                next = poll_fn(|cx| input.as_mut().poll_next(cx)) => next,
            };
            let Some(prompt) = next.map(Into::into) else { return results };
            results.push(self.run(Task::Prompt(prompt), sink.clone(), all.child_token()).await);
        }
    }

    async fn drive(&self, driver: &mut Driver, task: Task) -> Result<QueryResult, AgentError> {
        match task {
            Task::Prompt(prompt) => {
                driver.begin(self.spec(prompt)?).await?;
            }
            Task::Answer(ask, answer) => driver.answer(ask, answer).await?,
            Task::Resume if driver.machine().run().is_none() => return Err(AgentError::NothingToResume),
            Task::Resume => {}
        }
        driver.run().await?;
        Ok(QueryResult::of(driver))
    }

    fn spec(&self, prompt: Prompt) -> Result<RunSpec, AgentError> {
        let options = &self.wiring.options;
        Ok(RunSpec {
            prompt: prompt.0,
            settings: self.settings.borrow().clone(),
            root: self.wiring.root()?,
            limits: RunLimits {
                max_turns: options.max_turns,
                max_model_calls: options.max_model_calls,
                scheduling: options.tool_scheduling,
            },
        })
    }

    fn running(&self) -> std::sync::MutexGuard<'_, Option<(CancellationToken, EventSink)>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Run<T> {
    handle: JoinHandle<Result<T, AgentError>>,
    cancel: CancellationToken,
}

impl<T> Run<T> {
    async fn await_guarded(self) -> Result<T, AgentError> {
        let guard: DropGuard = self.cancel.drop_guard();
        let result = self.handle.await.unwrap_or(Err(AgentError::Lost));
        let _spent = guard.disarm();
        result
    }
}

/// A run's events, and in the end its result.
pub struct RunStream<T = QueryResult> {
    events: EventStream,
    run: Run<T>,
}

/// Interrupts one run, whoever waits for it.
#[derive(Clone, Debug)]
pub struct Interrupter(CancellationToken);

impl Interrupter {
    /// Interrupts the run; at any moment, before it has begun too.
    pub fn interrupt(&self) {
        self.0.cancel();
    }
}

impl<T> RunStream<T> {
    /// Interrupts the run, and takes no further input.
    pub fn interrupt(&self) {
        self.run.cancel.cancel();
    }

    /// To interrupt the run while its result is waited for.
    #[must_use]
    pub fn interrupter(&self) -> Interrupter {
        Interrupter(self.run.cancel.clone())
    }

    /// The next event; `None` once there are no more. Not to be confused with `StreamExt::next`, which does the same.
    pub async fn next(&mut self) -> Option<Envelope> {
        poll_fn(|cx| Pin::new(&mut self.events).poll_next(cx)).await
    }

    /// Waits for the result; events that were not read are dropped.
    pub async fn result(self) -> Result<T, AgentError> {
        drop(self.events);
        self.run.handle.await.unwrap_or(Err(AgentError::Lost))
    }
}

impl<T> Stream for RunStream<T> {
    type Item = Envelope;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Envelope>> {
        Pin::new(&mut self.events).poll_next(cx)
    }
}
