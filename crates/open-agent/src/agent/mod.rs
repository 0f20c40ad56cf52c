//! The agent: a conversation that goes on over several prompts. Owns the session's driver between runs and the tasks that
//! runs live on; decides nothing about a run.

mod idle;
mod stream;

use std::future::poll_fn;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_core::Stream;
use open_agent_engine::{
    Budget, Command, Driver, EngineError, EventSink, EventStream, Inbox, Mailbox, Receipt, RunSpec,
    Subscribers, TokenCount, mailbox,
};
use open_agent_model::{
    Answer, AskId, BackgroundId, BackgroundOwner, Block, Effort, QueueId, Seq, SessionId, ThinkingMode,
};
use open_agent_session::{ModelSettings, RunLimits, StoreError};
use open_agent_tool::BackgroundStatus;
use tokio::sync::{Mutex as AsyncMutex, OnceCell, oneshot, watch};
use tokio_util::sync::CancellationToken;

use self::stream::Run;
pub use self::stream::{Interrupter, RunStream};
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
    /// Boxed: a run's future would hold several copies of what moves through it.
    driver: AsyncMutex<Option<Box<Driver>>>,
    running: Mutex<Option<Running>>,
    refresh_prefix: AtomicBool,
    settings: watch::Sender<ModelSettings>,
    /// Those who hear of all runs.
    subscribers: Arc<Subscribers>,
    /// A task waits for the end of background work. Written only by whoever has the driver.
    is_watched: AtomicBool,
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

/// A message that was sent with [`Agent::send`] or [`Agent::queue`] and is in the session's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Its name in the queue, by which [`Agent::unqueue`] takes it back.
    pub id: QueueId,
    /// The record that holds it.
    pub seq: Seq,
}

/// The run that goes on, as far as it can be reached from outside.
#[derive(Clone)]
struct Running {
    cancel: CancellationToken,
    sink: EventSink,
    mailbox: Mailbox,
}

enum Task {
    Prompt(Prompt),
    /// A message to an idle agent, and the way to tell that it is in the log.
    Send(Prompt, oneshot::Sender<Receipt>),
    /// The messages that are left in the queue.
    Next,
    /// Background work that has ended.
    Wake,
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
        let inner = Inner {
            wiring,
            live,
            driver,
            running,
            refresh_prefix: AtomicBool::new(false),
            settings,
            subscribers: Arc::default(),
            is_watched: AtomicBool::new(false),
            closed,
        };
        Self { inner: Arc::new(inner) }
    }

    /// The session's name.
    #[must_use]
    pub fn session_id(&self) -> &SessionId {
        &self.inner.wiring.session_id
    }

    /// Returns the folder in which the session's log and outputs are kept; `None` if it is not kept on disk.
    #[must_use]
    pub fn session_folder(&self) -> Option<PathBuf> {
        self.inner.wiring.session_folder()
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

    /// Returns all events of the agent from now on: those of every run, whoever begins it, text in pieces included, and what
    /// happens between runs. The stream ends when the agent is closed or its last clone is dropped.
    ///
    /// When background work ends while no run goes on, this is where a program hears of it, by
    /// [`AgentEvent::BackgroundEnded`](crate::AgentEvent::BackgroundEnded). With [`AgentBuilder::wake_on_task_end`] the agent begins a
    /// run by itself then; its events come here too, and [`Agent::resume`] waits for it and returns its result.
    ///
    /// Read the stream on a task of its own, or drop it: a run waits for a reader that is 1,024 whole messages and results
    /// behind.
    ///
    /// # Examples
    ///
    /// ```
    /// # use open_agent::{Agent, AgentEvent, testing::{Reply, Scripted}};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = Scripted::new([Reply::text("Done.")]);
    /// let agent = Agent::builder().provider(model).configure(|o| o.persist_session = false).build()?;
    /// let mut events = agent.events();
    /// agent.prompt("Go.").await?;
    /// agent.close().await;
    /// let mut answers = 0;
    /// while let Some(event) = events.next().await {
    ///     answers += usize::from(matches!(event.event, AgentEvent::AssistantMessage(_)));
    /// }
    /// assert_eq!(answers, 1);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn events(&self) -> EventStream {
        self.inner.subscribers.subscribe()
    }

    /// Sends a message while a run goes on: the run's next request carries it, after the results of the tools that run
    /// now. Returns as soon as the message is in the session's log; it survives the end of the process.
    ///
    /// A message that comes too late for the run starts the next one, before the call that started the first run returns:
    /// its result is that of the last run then. After an interrupt or at the end of the budget, messages wait for the next
    /// call instead. An idle agent starts a run in the background. A run that waits for an answer to a question is idle: as
    /// a prompt would, the message closes the question and goes on without it.
    ///
    /// # Errors
    ///
    /// Returns [`AgentError::Engine`] for an empty message or a log that cannot be written, and [`AgentError::Closed`] after
    /// [`Agent::close`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use open_agent::{Agent, testing::{Reply, Scripted}};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = Scripted::new([Reply::text("Done.")]);
    /// let agent = Agent::builder().provider(model).configure(|o| o.persist_session = false).build()?;
    /// let sent = agent.send("Only look at the tests.").await?;
    /// assert!(sent.seq.0 > 0);
    /// # Ok(()) }
    /// ```
    pub async fn send(&self, prompt: impl Into<Prompt>) -> Result<Sent, AgentError> {
        self.send_as(prompt.into(), true).await
    }

    /// Queues a message that starts the next run when the one that goes on has ended. Otherwise like [`Agent::send`].
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Agent::send`].
    pub async fn queue(&self, prompt: impl Into<Prompt>) -> Result<Sent, AgentError> {
        self.send_as(prompt.into(), false).await
    }

    async fn send_as(&self, prompt: Prompt, steer: bool) -> Result<Sent, AgentError> {
        let running = self.inner.running().clone();
        if let Some(running) = running {
            match running.mailbox.send(Command::Send { prompt: prompt.0.clone(), steer }).await {
                // It has ended in this moment.
                Err(EngineError::NoRun) => {}
                accepted => return Ok(sent(accepted?)?),
            }
        }
        let (receipt, received) = oneshot::channel();
        let run = self.start(Task::Send(prompt, receipt), EventSink::none());
        match received.await {
            Ok(accepted) => Ok(sent(accepted)?),
            // The message was not accepted, or the session could not be opened: the run says why.
            Err(_) => match run.handle.await {
                Ok(Err(error)) => Err(error),
                _ => Err(AgentError::Lost),
            },
        }
    }

    /// Takes a message back that was not delivered yet.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::NotQueued`] within [`AgentError::Engine`] if it was delivered or taken back before.
    pub async fn unqueue(&self, id: QueueId) -> Result<(), AgentError> {
        let running = self.inner.running().clone();
        if let Some(running) = running {
            match running.mailbox.send(Command::Unqueue(id)).await {
                Err(EngineError::NoRun) => {}
                accepted => return Ok(accepted.map(|_| ())?),
            }
        }
        let mut place = self.inner.driver.lock().await;
        let mut driver = self.inner.open(&mut place).await?;
        let accepted = driver.command(Command::Unqueue(id)).await;
        if !matches!(accepted, Err(EngineError::Store(_))) {
            driver.park().await;
            *place = Some(driver);
        }
        Ok(accepted.map(|_| ())?)
    }

    /// Renders the system prompt and the tools anew at the next prompt. Without it they stay as they were when the session
    /// began, so that the provider's cache of the conversation stays valid.
    pub fn refresh_prefix(&self) {
        self.inner.refresh_prefix.store(true, Ordering::Relaxed);
    }

    /// Answers a question and goes on with the run that waits for it. Returns the result of that run.
    ///
    /// A process that did not see the question asked learns of it by [`Agent::resume`], whose result has the status
    /// `Waiting` and the open questions.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::NoQuestion`] if no such question is open, [`EngineError::RunLost`] if the log no longer says
    /// what the run was to do, [`EngineError::Store`] if the session is in use, was written by a later version, or cannot be
    /// written, and [`AgentError::Closed`] after [`Agent::close`].
    pub async fn answer(&self, ask: AskId, answer: Answer) -> Result<QueryResult, AgentError> {
        let running = self.inner.running().clone();
        if let Some(running) = running {
            match running.mailbox.send(Command::Answer(ask, answer.clone())).await {
                // It has ended in this moment, or waits: the answer lets it go on.
                Err(EngineError::NoRun) => {}
                Err(error) => return Err(error.into()),
                // The run goes on with the answer; its result is that of the run.
                Ok(_) => return self.start(Task::Resume, EventSink::none()).await_guarded().await,
            }
        }
        self.start(Task::Answer(ask, answer), EventSink::none()).await_guarded().await
    }

    /// Goes on with a run that a crash left unfinished. Without one it gives the last run's result.
    ///
    /// A call that was running when the process ended is not run again unless that does no harm; the model is told that its
    /// outcome is not known. A new prompt instead of this closes the unfinished run in the same words.
    ///
    /// # Errors
    ///
    /// Returns [`AgentError::NothingToResume`] if the session has no run, and otherwise the errors of [`Agent::answer`].
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
        driver.park().await;
        *place = Some(driver);
        counted
    }

    /// Asks this model from the next request on, also in a run that goes on. Any name is taken; costs are kept apart.
    pub fn switch_model(&self, name: &str) -> Result<(), ConfigError> {
        let model = self.inner.wiring.check_model(name)?;
        tracing::info!(from = %self.model(), to = %model, "the model is switched");
        self.inner.change_settings(|s| s.model = model);
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
        self.inner.change_settings(|s| s.thinking = thinking);
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
        self.inner.change_settings(|s| s.effort = effort);
    }

    /// Interrupts the run that goes on. `false` if there is none.
    pub fn interrupt(&self) -> bool {
        let running = self.inner.running().clone();
        running.map(|running| running.cancel.cancel()).is_some()
    }

    /// Background work of this agent, also what has ended, in the order in which it was started.
    #[must_use]
    pub fn background_work(&self) -> Vec<BackgroundStatus> {
        let list = |live: &Live| live.host.ports.background.list(&self.inner.owner(live));
        self.inner.live.get().map(list).unwrap_or_default()
    }

    /// Stops background work and all its processes, and waits for their end. Nothing happens to work that has ended. The
    /// model is told of the end as of any other.
    ///
    /// # Errors
    ///
    /// Returns [`AgentError::NoBackgroundWork`] if this agent has started no work of that name.
    pub async fn stop_task(&self, id: &str) -> Result<BackgroundStatus, AgentError> {
        let id = BackgroundId(id.to_owned());
        let running = self.inner.running().clone();
        if let Some(running) = running {
            // A run that goes on takes it as any other command. Without one, or if there is no such work, it is found below.
            match running.mailbox.send(Command::StopBackground(id.clone())).await {
                Ok(_) | Err(EngineError::NoRun | EngineError::NoBackgroundWork(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let stopped = match self.inner.live.get() {
            Some(live) => live.host.ports.background.stop(&self.inner.owner(live), &id).await,
            None => None,
        };
        stopped.ok_or_else(|| {
            let known = self.background_work().into_iter().map(|status| status.work.id.0).collect();
            AgentError::NoBackgroundWork { id: id.0, known }
        })
    }

    /// Ends the agent: interrupts the run, waits for its end, then ends everything that its commands started and that still
    /// runs. Asked again, clones included, it answers [`AgentError::Closed`]. The session stays, and another agent can go
    /// on with it. Not to be awaited in one of the agent's own tools.
    pub async fn close(&self) {
        self.inner.closed.cancel();
        let running = self.inner.running().clone();
        if let Some(running) = running {
            running.cancel.cancel();
            // Its reader may be the one who waits here.
            running.sink.hurry();
        }
        EventSink::of(&self.inner.subscribers).hurry();
        // Whoever has it, the run or a prompt that waited, gives it back.
        drop(self.inner.driver.lock().await.take());
        if let Some(live) = self.inner.live.get() {
            live.host.ports.background.stop_all(&self.inner.owner(live)).await;
            live.runner.end_all().await;
            live.end_passing();
        }
        self.inner.subscribers.finish();
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

fn sent(receipt: Receipt) -> Result<Sent, EngineError> {
    let id = receipt.queued.ok_or(EngineError::NoRun)?;
    Ok(Sent { id, seq: receipt.seq })
}

/// The run's own ends of the ways in which it is reached from outside.
struct Reach<'a> {
    _registered: Registered<'a>,
    inbox: Inbox,
    sink: EventSink,
    cancel: CancellationToken,
}

/// Forgets the run that can be reached from outside when it is over.
struct Registered<'a>(&'a Inner);

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        *self.0.running() = None;
    }
}

impl Inner {
    async fn run(
        self: &Arc<Self>,
        task: Task,
        sink: EventSink,
        cancel: CancellationToken,
    ) -> Result<QueryResult, AgentError> {
        let mut place = tokio::select! {
            biased;
            place = self.driver.lock() => place,
            () = cancel.cancelled() => return Err(AgentError::Interrupted),
        };
        let sink = sink.with(&self.subscribers);
        let reach = self.register(cancel, sink);
        // After the token is there for all to see: either it is cancelled by whoever closes, or `open` sees that.
        let driver = self.open(&mut place).await?;
        self.drive_all(driver, &mut place, task, reach).await
    }

    /// Does the task and the runs that follow from it, then puts the driver in its place.
    async fn drive_all(
        self: &Arc<Self>,
        mut driver: Box<Driver>,
        place: &mut Option<Box<Driver>>,
        task: Task,
        Reach { _registered, inbox, sink, cancel }: Reach<'_>,
    ) -> Result<QueryResult, AgentError> {
        driver.set_sink(sink.clone());
        driver.set_cancel(cancel.clone());
        driver.set_inbox(inbox);
        let mut task = task;
        let result = loop {
            let result = self.drive(&mut driver, task).await;
            // What was sent too late for that run starts the next one.
            if result.is_err() || !driver.machine().has_next_run() || self.closed.is_cancelled() {
                break result;
            }
            driver.set_inbox(self.reachable(cancel.clone(), sink.clone()));
            task = Task::Next;
        };
        // A run that could not begin has left its mailbox open: a message in it has to find another way.
        driver.refuse_inbox();
        if !matches!(result, Err(AgentError::Engine(EngineError::Store(_)))) {
            self.leave(driver, place).await;
        }
        result
    }

    /// Takes the driver out: one that panics, or whose log fails under it, is no good any more, and the next prompt opens
    /// the session anew. So does a prompt that finds that another process has gone on with the session since the last one.
    async fn open(&self, place: &mut Option<Box<Driver>>) -> Result<Box<Driver>, AgentError> {
        if self.closed.is_cancelled() {
            return Err(AgentError::Closed);
        }
        let live = self.live.get_or_try_init(|| async { self.wiring.host() }).await?;
        if let Some(mut driver) = place.take() {
            match driver.unpark().await {
                Ok(()) => return Ok(driver),
                Err(EngineError::Store(StoreError::Fenced { .. })) => {
                    tracing::info!(session = %driver.id(), "another process went on with the session; it is read again");
                }
                Err(error) => return Err(error.into()),
            }
        }
        let id = self.wiring.session_id.clone();
        Ok(Box::new(Driver::open(Arc::clone(&live.host), id, EventSink::none()).await?))
    }

    async fn run_all<S>(
        self: &Arc<Self>,
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

    /// Makes the run that begins reachable from outside.
    fn register(&self, cancel: CancellationToken, sink: EventSink) -> Reach<'_> {
        let inbox = self.reachable(cancel.clone(), sink.clone());
        Reach { _registered: Registered(self), inbox, sink, cancel }
    }

    /// Puts a mailbox for the run that begins where everybody finds it.
    fn reachable(&self, cancel: CancellationToken, sink: EventSink) -> Inbox {
        let (mailbox, inbox) = mailbox();
        *self.running() = Some(Running { cancel, sink, mailbox });
        inbox
    }

    /// Changes what the next request asks for, also in the run that goes on.
    fn change_settings(&self, change: impl FnOnce(&mut ModelSettings)) {
        self.settings.send_modify(change);
        let running = self.running().clone();
        if let Some(running) = running {
            let command = Command::Configure(self.settings.borrow().clone());
            if !running.mailbox.post(command.clone())
                && let Ok(runtime) = tokio::runtime::Handle::try_current()
            {
                // Full: it is told later. A run that has ended needs to know nothing any more.
                runtime.spawn(async move { running.mailbox.send(command).await });
            }
        }
    }

    async fn drive(&self, driver: &mut Driver, task: Task) -> Result<QueryResult, AgentError> {
        match task {
            Task::Prompt(prompt) => {
                driver.begin(self.spec(prompt)).await?;
            }
            Task::Send(prompt, receipt) => {
                // A message that is refused begins no run, nor does it let one go on.
                let accepted = driver.command(Command::Send { prompt: prompt.0, steer: false }).await?;
                // Whoever sent it may have gone away.
                let _ = receipt.send(accepted);
                driver.begin_queued(self.spec(Prompt(Vec::new()))).await?;
            }
            Task::Next => {
                driver.begin_queued(self.spec(Prompt(Vec::new()))).await?;
            }
            Task::Wake => {
                driver.begin_woken(self.spec(Prompt(Vec::new()))).await?;
            }
            Task::Answer(ask, answer) => driver.answer(ask, answer).await?,
            Task::Resume if driver.machine().is_run_lost() => return Err(EngineError::RunLost.into()),
            Task::Resume if driver.machine().run().is_none() => return Err(AgentError::NothingToResume),
            Task::Resume => {}
        }
        let settings = self.settings.borrow().clone();
        driver.configure(settings).await?;
        driver.run().await?;
        driver.close_inbox().await?;
        Ok(QueryResult::of(driver))
    }

    fn spec(&self, prompt: Prompt) -> RunSpec {
        let options = &self.wiring.options;
        RunSpec {
            prompt: prompt.0,
            settings: self.settings.borrow().clone(),
            refresh_prefix: self.refresh_prefix.swap(false, Ordering::Relaxed),
            limits: RunLimits {
                max_turns: options.max_turns,
                max_model_calls: options.max_model_calls,
                scheduling: options.tool_scheduling,
            },
        }
    }

    /// Whose background work it is that this agent sees.
    fn owner(&self, live: &Live) -> BackgroundOwner {
        BackgroundOwner { session: self.wiring.session_id.clone(), agent: live.host.identity.agent.clone() }
    }

    fn running(&self) -> std::sync::MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
