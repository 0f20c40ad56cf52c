//! Carries out what the machine says. Owns a session's lease, its live calls, the run's mailbox and its cancellation; decides
//! nothing that the log does not say.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use open_agent_model::{
    Answer, AskId, Block, CallId, Change, Checker, Cost, Message, MessageId, Prefix, ProviderError, QueueId,
    Role, RunId, SessionId, Timestamp,
};
use open_agent_session::{
    Durability, Log, ModelSettings, Moved, Notice, NoticeKind, Origin, RunStarted, SessionEntry,
    SessionStarted, SessionWriter, UserMessage,
};
use open_agent_tool::{PreparedCall, ToolSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::command::Letter;
use crate::event::{EventPlace, envelope, event_of, turn_of};
use crate::{EngineError, EventSink, Host, Identity, Inbox, Machine, RunSpec, Step, logged_cost};

mod blobs;
mod bound;
mod commands;
mod fit;
mod idle;
mod model;
mod news;
mod reserve;
mod tell;
#[cfg(test)]
mod tests;
mod tokens;
mod tools;

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
    /// Commands from outside.
    inbox: Option<Inbox>,
    /// The tools as the model saw them in the last request.
    tools: Option<Arc<ToolSet>>,
    /// Calls that were ruled and not started: a cache, the log can make them again.
    prepared: HashMap<CallId, Prepared>,
    live: LiveCalls,
    fit: fit::Fit,
    /// The first damage of the log, told before or not.
    damage: Option<String>,
    /// Notices of damage that belong to the next run.
    untold: Vec<SessionEntry>,
    /// Messages may refer to blobs whose content this process has not read.
    has_unread_blobs: bool,
    /// What is known of the last request's messages, so that the next request costs what is new in it.
    checker: Checker,
    estimator: tokens::Estimator,
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
    ///
    /// A session that does not exist begins here. What is damaged in the log is told once, by a notice of the run that goes
    /// on or begins next.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::Store`] if the session is in use, cannot be read or written, or was written by a later
    /// version.
    pub async fn open(host: Arc<Host>, id: SessionId, sink: EventSink) -> Result<Self, EngineError> {
        let now = host.ports.clock.now();
        let Identity { agent, root, product, .. } = &host.identity;
        let started = SessionStarted {
            root: root.clone(),
            agent: agent.clone(),
            parent: host.identity.parent.clone(),
            forked_from: None,
            product: product.clone(),
        };
        let (store, owner) = (Arc::clone(&host.store), host.owner.clone());
        let (writer, log) = SessionWriter::open_or_start(store, id, owner, now, started).await?;
        let mut machine = Machine::default();
        for record in &log.records {
            machine.apply(record);
        }
        let price_of = |model: &str| host.catalogue.find(model).and_then(|m| m.price);
        host.budget.open_session(logged_cost(log.records.iter().map(|r| &r.entry), price_of));
        let damage = log.damage.first().map(ToString::to_string);
        let untold = untold_damage(&log);
        let mut driver = Self {
            host,
            writer,
            machine,
            sink,
            cancel: CancellationToken::new(),
            inbox: None,
            tools: None,
            prepared: HashMap::new(),
            live: LiveCalls::default(),
            fit: fit::Fit::default(),
            has_unread_blobs: true,
            damage,
            untold,
            checker: Checker::default(),
            estimator: tokens::Estimator::default(),
            failure: None,
            waits: None,
        };
        if driver.machine.root().is_none() {
            // The record that held it is lost.
            let root = driver.host.identity.root.clone();
            driver.record(vec![SessionEntry::Moved(Moved { root })], Durability::Written).await?;
        }
        Ok(driver)
    }

    /// The session.
    #[must_use]
    pub fn id(&self) -> &SessionId {
        self.writer.id()
    }

    /// Releases the session's file handle and lock while no run goes on. What is appended next takes them up again.
    ///
    /// While it is parked, another process may claim the session and go on with it.
    pub async fn park(&mut self) {
        self.writer.park().await;
    }

    /// Takes a parked session up again. Does nothing if it is not parked.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Fenced`](open_agent_session::StoreError::Fenced) if another process has claimed the session in
    /// the meantime. This driver does not know what that one did: open a new one.
    pub async fn unpark(&mut self) -> Result<(), EngineError> {
        Ok(self.writer.unpark().await?)
    }

    /// The session's state.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// What the session had cost before this driver's agent opened it.
    #[must_use]
    pub fn spent_before(&self) -> Cost {
        self.host.budget.spent_before()
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

    /// Takes commands from there from now on.
    pub fn set_inbox(&mut self, inbox: Inbox) {
        self.inbox = Some(inbox);
    }

    /// Begins a run. Whatever is still open of an earlier one is closed. Messages that wait in the queue were sent before
    /// this prompt, so they come before it.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::EmptyPrompt`] or [`EngineError::BadPrompt`] for a prompt that cannot be sent, and
    /// [`EngineError::Store`] if the log cannot be written.
    pub async fn begin(&mut self, spec: RunSpec) -> Result<RunId, EngineError> {
        let content = prompt_content(spec.prompt.clone())?;
        let (run, mut entries) = self.run_start(&spec).await?;
        let clock = &self.host.ports.clock;
        let message =
            Message { id: MessageId::from_number(clock.new_id()), role: Role::User, content, model: None };
        let ids = self.queued_ids();
        if !ids.is_empty() {
            entries.push(SessionEntry::Delivered { ids });
        }
        let message = Arc::new(message);
        entries.push(SessionEntry::User(UserMessage { message, origin: Origin::Prompt.into() }));
        self.record(entries, Durability::Written).await?;
        Ok(run)
    }

    /// Begins a run with the messages that wait in the queue; `spec.prompt` is not used. Returns `None`, and begins
    /// nothing, if the queue is empty.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::Store`] if the log cannot be written.
    pub async fn begin_queued(&mut self, spec: RunSpec) -> Result<Option<RunId>, EngineError> {
        let ids = self.queued_ids();
        if ids.is_empty() {
            return Ok(None);
        }
        let (run, mut entries) = self.run_start(&spec).await?;
        entries.push(SessionEntry::Delivered { ids });
        self.record(entries, Durability::Written).await?;
        Ok(Some(run))
    }

    fn queued_ids(&self) -> Vec<QueueId> {
        self.machine.queue().iter().map(|queued| queued.id).collect()
    }

    /// Forgets what belongs to the last run and returns the entries that close what is open of it.
    async fn give_up(&mut self) -> Result<Vec<SessionEntry>, EngineError> {
        self.prepared.clear();
        self.failure = None;
        // Only a caller who drives by hand can have left calls running.
        let stopped = self.stop_calls().await;
        if !stopped.is_empty() {
            self.record(stopped, Durability::Written).await?;
        }
        Ok(self.machine.give_up())
    }

    /// Names a run and returns the entries with which it begins, but for its first message.
    async fn run_start(&mut self, spec: &RunSpec) -> Result<(RunId, Vec<SessionEntry>), EngineError> {
        let mut entries = self.give_up().await?;
        let run = RunId::from_number(self.host.ports.clock.new_id());
        let host = Arc::clone(&self.host);
        let root = &host.identity.root;
        let is_moved = self.machine.root() != Some(root);
        if is_moved {
            entries.push(SessionEntry::Moved(Moved { root: root.clone() }));
        }
        // Frozen from then on: what the provider has cached stays valid.
        if spec.refresh_prefix || is_moved || self.machine.prefix().is_none() {
            entries.push(SessionEntry::Prefix(Arc::new(self.rendered_prefix().await)));
        }
        entries.push(SessionEntry::RunStarted(RunStarted {
            run,
            settings: spec.settings.clone(),
            mode: self.host.gate.policy().mode,
            limits: spec.limits.clone(),
        }));
        Ok((run, entries))
    }

    /// Uses these settings from the next request on, if they are others than those of the run that goes on.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::Store`] if the log cannot be written.
    pub async fn configure(&mut self, settings: ModelSettings) -> Result<(), EngineError> {
        let is_new = self.machine.run().is_some_and(|run| run.is_open() && run.settings != settings);
        if is_new {
            self.record(vec![SessionEntry::Configured(settings)], Durability::Written).await?;
        }
        Ok(())
    }

    /// Answers a question; the call that asked runs again.
    pub async fn answer(&mut self, ask: AskId, answer: Answer) -> Result<(), EngineError> {
        if self.machine.is_run_lost() {
            return Err(EngineError::RunLost);
        }
        if !self.machine.questions().iter().any(|(open, _)| *open == ask) {
            return Err(EngineError::NoQuestion { ask, damage: self.damage.clone() });
        }
        self.record(vec![SessionEntry::Answered { ask, answer }], Durability::Synced).await
    }

    /// Does the next step. A future that is dropped half way may leave the driver behind its log: open the session anew
    /// then. Any process that holds the lease may call it; nothing but the log is needed to go on.
    pub async fn advance(&mut self) -> Result<Progress, EngineError> {
        while let Some(letter) = self.inbox.as_mut().and_then(Inbox::try_next) {
            self.obey(letter).await?;
        }
        if self.cancel.is_cancelled() && self.machine.next() != Step::Done {
            // A fresh token: this interrupt is dealt with, and closing the run must not be cancelled by it.
            self.cancel = CancellationToken::new();
            self.interrupt(Vec::new()).await?;
        }
        if !self.untold.is_empty() {
            let notices = std::mem::take(&mut self.untold);
            self.record(notices, Durability::Written).await?;
            return Ok(Progress::Stepped);
        }
        match self.machine.next() {
            Step::CallModel { not_before } => {
                let early = not_before.filter(|until| self.is_early(*until));
                if let Some(until) = early {
                    return Ok(Progress::Sleeping(until));
                }
                let mut news = self.news().await;
                news.extend(self.read_blobs().await?);
                if news.is_empty() {
                    self.call_model().await?;
                } else {
                    self.record(news, Durability::Written).await?;
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
                Progress::Sleeping(until) => self.sleep(until).await?,
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

    /// Sleeps until then; an interrupt or a command wakes it.
    async fn sleep(&mut self, until: Timestamp) -> Result<(), EngineError> {
        let latest = self.waits.map(|(_, latest)| latest.saturating_duration_since(Instant::now()));
        let left = self.left(until).min(latest.unwrap_or(Duration::MAX));
        tokio::select! {
            () = self.cancel.cancelled() => {}
            letter = next_letter(self.inbox.as_mut()) => return self.obey(letter).await,
            () = tokio::time::sleep(left) => {}
        }
        Ok(())
    }

    /// Writes entries, then applies and tells them.
    async fn record(
        &mut self,
        entries: Vec<SessionEntry>,
        durability: Durability,
    ) -> Result<(), EngineError> {
        for text in self.live.take_cut_texts() {
            self.writer.keep(&text).await?;
        }
        let now = self.host.ports.clock.now();
        let records = self.writer.append(entries, now, durability).await?;
        let watched = self.sink.wants_durable();
        for record in records {
            let event = if watched { event_of(&record, &self.machine) } else { None };
            let turn = turn_of(&record, &self.machine);
            if matches!(record.entry, SessionEntry::Delivered { .. }) {
                let mut queued = self.machine.queue().iter().flat_map(|queued| queued.message.blobs());
                self.has_unread_blobs |= queued.any(|used| used.blob().content().is_none());
            }
            self.machine.apply(&record);
            if let Some(event) = event {
                let Identity { agent, parent, .. } = &self.host.identity;
                let place = EventPlace { session: self.writer.id(), agent, parent: parent.as_ref(), turn };
                self.sink.durable_event(envelope(place, &self.machine, &record, event)).await;
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
        if done.is_empty() { done } else { self.started_background().into_iter().chain(done).collect() }
    }

    fn teller(&self) -> Teller {
        Teller {
            sink: self.sink.clone(),
            clock: Arc::clone(&self.host.ports.clock),
            session: self.writer.id().clone(),
            run: self.machine.run().map(crate::RunFold::id),
            agent: self.host.identity.agent.clone(),
            parent: self.host.identity.parent.clone(),
            turn: self.machine.transcript().next_turn(),
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

    /// Renders the system prompt and the tools as they are now.
    async fn rendered_prefix(&mut self) -> Prefix {
        let mut system = Vec::new();
        let host = Arc::clone(&self.host);
        for source in &host.sections {
            system.extend(source.load().await);
        }
        Prefix { system, tools: self.snapshot().specs() }
    }
}

/// Returns a notice for each damage of the log that no earlier notice told.
fn untold_damage(log: &Log) -> Vec<SessionEntry> {
    let told = log.records.iter().filter_map(|record| match &record.entry {
        SessionEntry::Noticed(notice) if notice.kind == NoticeKind::LogDamaged => Some(&notice.text),
        _ => None,
    });
    let told: HashSet<&String> = told.collect();
    let texts = log.damage.iter().map(|damage| format!("the session's log is damaged: {damage}"));
    let new = texts.filter(|text| !told.contains(text));
    new.map(|text| SessionEntry::Noticed(Notice { kind: NoticeKind::LogDamaged.into(), text })).collect()
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

/// Waits for the next command; for ever if nobody can send one.
async fn next_letter(inbox: Option<&mut Inbox>) -> Letter {
    match inbox {
        Some(inbox) => inbox.next().await,
        None => std::future::pending().await,
    }
}

/// A call that failed changes nothing in the session's state.
fn changes_of(is_error: bool, changes: Vec<Change>) -> Vec<Change> {
    // A shell's folder and what was read are true even if the command failed.
    let keeps = |c: &Change| !is_error || matches!(c, Change::Cwd(_) | Change::FileSeen(_));
    changes.into_iter().filter(keeps).collect()
}
