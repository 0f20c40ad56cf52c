//! Carries out what the machine says. Owns a session's lease, its live calls and the cancellation of a run; decides nothing
//! that the log does not say.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use open_agent_model::{
    Answer, AskId, Block, CallId, Change, Message, MessageId, Prefix, ProviderError, Role, RunId, SessionId,
    Timestamp,
};
use open_agent_session::{
    Durability, ModelSettings, Origin, RunStarted, SessionEntry, SessionWriter, UserMessage,
};
use open_agent_tool::{PreparedCall, ToolSet};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::event::{envelope, event_of, turn_of};
use crate::{EngineError, EventSink, Host, Machine, RunSpec, Step};

mod bound;
mod fit;
mod model;
mod tasks;
mod tell;
mod tokens;
mod tools;
mod withheld;

use tell::Teller;
pub use tokens::TokenCount;
use tools::LiveCalls;

/// Works on one session.
pub struct Driver {
    host: Arc<Host>,
    writer: SessionWriter,
    machine: Machine,
    sink: EventSink,
    cancel: CancellationToken,
    /// What the user wants now; the log says what the run goes by.
    wanted: Option<watch::Receiver<ModelSettings>>,
    /// The tools as the model saw them in the last request.
    tools: Option<Arc<ToolSet>>,
    /// Calls that were ruled and not started: a cache, the log can make them again.
    prepared: HashMap<CallId, Prepared>,
    live: LiveCalls,
    fit: fit::Fit,
    /// The failure of the last request, unless it is made again.
    failure: Option<ProviderError>,
    /// The moment before which no request is to be made, and when that is at the latest, whatever becomes of the clock.
    waits: Option<(Timestamp, Instant)>,
}

/// A call that was ruled, and where.
struct Prepared {
    call: Box<dyn PreparedCall>,
    cwd: PathBuf,
}

/// What a step came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It was done; there is more to do.
    Stepped,
    /// Nothing can be done before one of these is answered.
    Waiting(Vec<AskId>),
    /// Nothing is to be done before this moment.
    Sleeping(Timestamp),
    /// No run is going on.
    Done,
}

impl Driver {
    /// Claims a session and takes up where its log ends. An unfinished run goes on with [`Driver::advance`].
    pub async fn open(host: Arc<Host>, id: SessionId, sink: EventSink) -> Result<Self, EngineError> {
        let clock = Arc::clone(&host.ports.clock);
        let (writer, records) =
            SessionWriter::open(Arc::clone(&host.store), id, host.owner.clone(), clock.now()).await?;
        let mut machine = Machine::default();
        for record in &records {
            machine.apply(record);
        }
        if let Some(run) = machine.run().filter(|r| r.ended.is_none()) {
            // A run that is taken up again has spent this much of its budget.
            host.budget.at_least(run.totals.cost.unwrap_or_default());
        }
        Ok(Self {
            host,
            writer,
            machine,
            sink,
            cancel: CancellationToken::new(),
            wanted: None,
            tools: None,
            prepared: HashMap::new(),
            live: LiveCalls::default(),
            fit: fit::Fit::default(),
            failure: None,
            waits: None,
        })
    }

    /// The session.
    #[must_use]
    pub fn id(&self) -> &SessionId {
        self.writer.id()
    }

    /// The session's state.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The failure of the provider that ended the run, as it came, with what the user could change. Known to the driver
    /// that made the request only; the log holds its kind and message.
    #[must_use]
    pub fn failure(&self) -> Option<&ProviderError> {
        self.failure.as_ref()
    }

    /// Sends events there from now on.
    pub fn set_sink(&mut self, sink: EventSink) {
        self.sink = sink;
    }

    /// Interrupts the run when `cancel` is cancelled.
    pub fn set_cancel(&mut self, cancel: CancellationToken) {
        self.cancel = cancel;
    }

    /// Asks as `wanted` says, from the next request on, whenever it changes.
    pub fn set_wanted(&mut self, wanted: watch::Receiver<ModelSettings>) {
        self.wanted = Some(wanted);
    }

    /// Begins a run. Whatever is still open of an earlier one is closed.
    pub async fn begin(&mut self, spec: RunSpec) -> Result<RunId, EngineError> {
        let content = prompt_content(spec.prompt)?;
        self.prepared.clear();
        self.failure = None;
        // Only a caller who drives by hand can have left calls running.
        let mut entries = self.stop_calls().await;
        if !entries.is_empty() {
            self.record(std::mem::take(&mut entries), Durability::Written).await?;
        }
        entries.extend(self.machine.give_up());
        let clock = &self.host.ports.clock;
        let run = RunId::from_number(clock.new_id());
        let message =
            Message { id: MessageId::from_number(clock.new_id()), role: Role::User, content, model: None };
        if let Some(prefix) = self.changed_prefix().await {
            entries.push(SessionEntry::Prefix(Arc::new(prefix)));
        }
        entries.push(SessionEntry::RunStarted(RunStarted {
            run,
            settings: spec.settings,
            root: spec.root,
            mode: self.host.gate.policy().mode,
            limits: spec.limits,
        }));
        let message = Arc::new(message);
        entries.push(SessionEntry::User(UserMessage { message, origin: Origin::Prompt }));
        self.record(entries, Durability::Written).await?;
        Ok(run)
    }

    /// Answers a question; the call that asked runs again.
    pub async fn answer(&mut self, ask: AskId, answer: Answer) -> Result<(), EngineError> {
        if !self.machine.questions().iter().any(|(open, _)| *open == ask) {
            return Err(EngineError::NoQuestion(ask));
        }
        self.record(vec![SessionEntry::Answered { ask, answer }], Durability::Synced).await
    }

    /// Does the next step. A future that is dropped half way may leave the driver behind its log: open the session anew
    /// then. Any process that holds the lease may call it; nothing but the log is needed to go on.
    pub async fn advance(&mut self) -> Result<Progress, EngineError> {
        if self.cancel.is_cancelled() && self.machine.next() != Step::Done {
            // A fresh token: this interrupt is dealt with, and closing the run must not be cancelled by it.
            self.cancel = CancellationToken::new();
            self.interrupt(Vec::new()).await?;
        }
        match self.machine.next() {
            Step::CallModel { not_before } => {
                let early = not_before.filter(|until| self.is_early(*until));
                match (self.changed_settings(), early) {
                    (Some(settings), _) => {
                        self.record(vec![SessionEntry::Configured(settings)], Durability::Written).await?;
                    }
                    (None, Some(until)) => return Ok(Progress::Sleeping(until)),
                    (None, None) => match self.task_news() {
                        news if news.is_empty() => self.call_model().await?,
                        news => self.record(news, Durability::Written).await?,
                    },
                }
            }
            Step::Rule(calls) => self.rule(calls).await?,
            Step::Run(calls) => self.run_calls(calls).await?,
            Step::Record(entries) => self.record(entries, Durability::Written).await?,
            Step::Wait(asks) => return Ok(Progress::Waiting(asks)),
            Step::Done => return Ok(Progress::Done),
        }
        Ok(Progress::Stepped)
    }

    /// Advances until nothing can be done without somebody else, sleeping where that is needed.
    pub async fn run(&mut self) -> Result<Progress, EngineError> {
        loop {
            match self.advance().await? {
                Progress::Stepped => {}
                Progress::Sleeping(until) => self.sleep(until).await,
                end => return Ok(end),
            }
        }
    }

    /// Whether `until` is still to come. A wall clock that is set back must not make a wait longer than any that is
    /// allowed.
    fn is_early(&mut self, until: Timestamp) -> bool {
        let left = self.left(until);
        let (_, latest) = match self.waits {
            Some(known) if known.0 == until => known,
            _ => *self.waits.insert((until, Instant::now() + left.min(self.host.retry.longest()))),
        };
        !left.is_zero() && Instant::now() < latest
    }

    fn left(&self, until: Timestamp) -> Duration {
        let left = until.0.saturating_sub(self.host.ports.clock.now().0);
        Duration::from_millis(u64::try_from(left).unwrap_or_default())
    }

    /// Sleeps; an interrupt wakes it.
    async fn sleep(&mut self, until: Timestamp) {
        let latest = self.waits.map(|(_, latest)| latest.saturating_duration_since(Instant::now()));
        let left = self.left(until).min(latest.unwrap_or(Duration::MAX));
        tokio::select! {
            () = self.cancel.cancelled() => {}
            () = changed(self.wanted.as_mut()) => {}
            () = tokio::time::sleep(left) => {}
        }
    }

    /// Writes entries, then applies and tells them.
    async fn record(
        &mut self,
        entries: Vec<SessionEntry>,
        durability: Durability,
    ) -> Result<(), EngineError> {
        let now = self.host.ports.clock.now();
        let records = self.writer.append(entries, now, durability).await?;
        let watched = self.sink.wants_durable();
        for record in records {
            let event = if watched { event_of(&record, &self.machine) } else { None };
            let turn = turn_of(&record, &self.machine);
            self.machine.apply(&record);
            if let Some(event) = event {
                self.sink
                    .durable_event(envelope((self.writer.id(), turn), &self.machine, &record, event))
                    .await;
            }
        }
        Ok(())
    }

    /// Ends live calls and writes that the run is to stop. What the calls brought in time is kept.
    async fn interrupt(&mut self, mut entries: Vec<SessionEntry>) -> Result<(), EngineError> {
        self.prepared.clear();
        entries.extend(self.stop_calls().await);
        entries.push(SessionEntry::Interrupted {});
        self.record(entries, Durability::Written).await
    }

    /// Ends live calls. What they had started in the background is known before their results say so.
    async fn stop_calls(&mut self) -> Vec<SessionEntry> {
        let done = self.live.stop().await;
        if done.is_empty() { done } else { self.started_tasks().into_iter().chain(done).collect() }
    }

    fn changed_settings(&self) -> Option<ModelSettings> {
        let wanted = self.wanted.as_ref()?.borrow().clone();
        let run = self.machine.run()?;
        (run.settings != wanted).then_some(wanted)
    }

    fn teller(&self) -> Teller {
        Teller {
            sink: self.sink.clone(),
            clock: Arc::clone(&self.host.ports.clock),
            session: self.writer.id().clone(),
            run: self.machine.run().map(crate::RunFold::id),
            turn: self.machine.transcript().turns(),
        }
    }

    fn snapshot(&self) -> Arc<ToolSet> {
        match self.host.tools.as_slice() {
            [only] => only.snapshot().1,
            sources => {
                let sets: Vec<Arc<ToolSet>> = sources.iter().map(|s| s.snapshot().1).collect();
                Arc::new(ToolSet::new(sets.iter().flat_map(|set| set.iter().cloned())))
            }
        }
    }

    /// The prefix as it would be rendered now, if it differs from the one in the log.
    async fn changed_prefix(&mut self) -> Option<Prefix> {
        let mut system = Vec::new();
        for source in &self.host.sections {
            system.extend(source.load().await);
        }
        let tools = self.snapshot();
        let prefix = Prefix { system, tools: tools.specs() };
        let same = self.machine.prefix().is_some_and(|old| **old == prefix);
        (!same).then_some(prefix)
    }
}

/// A prompt's blocks that say something. What only a model or a tool can say would make the history invalid.
fn prompt_content(prompt: Vec<Block>) -> Result<Vec<Block>, EngineError> {
    let says_something = |b: &Block| !matches!(b, Block::Text(text) if text.trim().is_empty());
    let content: Vec<Block> = prompt.into_iter().filter(says_something).collect();
    if content.is_empty() {
        return Err(EngineError::EmptyPrompt);
    }
    let fits = |b: &Block| matches!(b, Block::Text(_) | Block::Image(_) | Block::Document { .. });
    if content.iter().all(fits) { Ok(content) } else { Err(EngineError::BadPrompt) }
}

/// Waits until the user wants something else; for ever if nobody can.
async fn changed(wanted: Option<&mut watch::Receiver<ModelSettings>>) {
    let changed = match wanted {
        Some(wanted) => wanted.changed().await.is_ok(),
        None => false,
    };
    if !changed {
        std::future::pending::<()>().await;
    }
}

/// A call that failed changes nothing in the session's state.
fn changes_of(is_error: bool, changes: Vec<Change>) -> Vec<Change> {
    // A shell's folder and what was read are true even if the command failed.
    let keeps = |c: &Change| !is_error || matches!(c, Change::Cwd(_) | Change::FileSeen(_));
    changes.into_iter().filter(keeps).collect()
}
