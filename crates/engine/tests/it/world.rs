//! A small world to run agents in: toy tools that count what they do, a memory store, a scripted model.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use open_agent_engine::{
    AgentBudget, BackgroundSet, BudgetScope, Driver, Envelope, EventSink, EventStream, FixedSection, Host,
    Identity, Progress, RetryConfig, RunFold, RunSpec, SystemClock,
};
use open_agent_model::scripted::Scripted;
use open_agent_model::{
    AgentId, BackgroundEnd, BackgroundKind, BackgroundOutcome, BackgroundOwner, Block, BoxFuture, CallId,
    Catalogue, Change, PermissionMode, Question, RawJson, RequestOptions, ResultBlock, RunStatus, SessionId,
    Slot, Source, Timestamp,
};
use open_agent_policy::{Gate, Policy};
use open_agent_session::{MemoryStore, ModelSettings, Owner, RunLimits, SessionStore};
use open_agent_tool::{
    Absent, BackgroundSpec, Clock, DynTool, Ports, ToolError, ToolOutput, ToolSet, ToolSource,
    read_only_tool_fn, tool_fn,
};

#[derive(serde::Deserialize, schemars::JsonSchema)]
pub(crate) struct Input {
    #[serde(default)]
    pub n: u32,
}

/// How often each call took effect.
#[derive(Clone, Default)]
pub(crate) struct Effects(pub Arc<Mutex<HashMap<CallId, u32>>>);

impl Effects {
    fn add(&self, call: CallId) {
        *self.0.lock().unwrap().entry(call).or_default() += 1;
    }

    pub(crate) fn take(&self) -> HashMap<CallId, u32> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

pub(crate) fn picture() -> Source {
    Source::Inline { media_type: "image/png".into(), data: "iVBORw0KGgo=".into() }
}

/// `read` and `write` yield a few times, so that calls overlap and can be killed half way.
pub(crate) fn toy_tools(effects: &Effects) -> Vec<Arc<dyn DynTool>> {
    let reads = effects.clone();
    let read = read_only_tool_fn("read", "Reads.", move |input: Input, cx| {
        let effects = reads.clone();
        async move {
            for _ in 0..input.n % 4 {
                tokio::task::yield_now().await;
            }
            effects.add(cx.call());
            Ok(format!("read {}", input.n))
        }
    });
    let writes = effects.clone();
    let write = tool_fn("write", "Writes.", move |input: Input, cx| {
        let effects = writes.clone();
        async move {
            tokio::task::yield_now().await;
            effects.add(cx.call());
            tokio::task::yield_now().await;
            let sum = cx.state::<u32>("sum").unwrap_or_default() + input.n;
            let value = RawJson::of(&sum)?;
            Ok(ToolOutput::text(format!("sum {sum}"))
                .with_change(Change::Put { slot: Slot("sum".into()), value }))
        }
    });
    let asks = effects.clone();
    let ask = tool_fn("ask", "Asks twice.", move |_: Input, cx| {
        let effects = asks.clone();
        async move {
            let question = |text: &str| Question::text(text);
            let first = cx.ask(question("first?")).await?;
            tokio::task::yield_now().await;
            let second = cx.ask(question("second?")).await?;
            effects.add(cx.call());
            Ok(format!("{} and {}", first.to_text(), second.to_text()))
        }
    });
    let fail = tool_fn("fail", "Fails.", |_: Input, _| async { Err::<String, _>(ToolError::new("no luck")) });
    let panic = tool_fn("panic", "Panics.", |input: Input, _| async move {
        assert!(input.n == u32::MAX, "boom {}", input.n);
        Ok("")
    });
    let forever = tool_fn("forever", "Never ends.", |_: Input, cx| async move {
        cx.progress("waiting");
        cx.cancel().cancelled().await;
        Err::<String, _>(ToolError::new("stopped in time"))
    });
    let background = tool_fn("background", "Goes on.", |input: Input, cx| async move {
        let spec = BackgroundSpec {
            owner: cx.owner(),
            kind: BackgroundKind::Bash,
            description: "work".into(),
            call: cx.call(),
            output: Some("/out.txt".into()),
        };
        let work = move |_| {
            let work: BoxFuture<'static, BackgroundEnd> = Box::pin(async move {
                for _ in 0..input.n * 3 {
                    tokio::task::yield_now().await;
                }
                BackgroundEnd::with_detail(BackgroundOutcome::Completed, "ended with exit code 0")
            });
            work
        };
        Ok(cx.background().start(spec, Box::new(work))?.id.0)
    });
    let picture = read_only_tool_fn("picture", "Shows a picture.", |_: Input, _| async {
        Ok(ToolOutput { content: vec![ResultBlock::Image { source: picture() }], ..ToolOutput::text("") })
    });
    vec![read, write, ask, fail, panic, forever, background, picture]
}

/// A second passes at each look; ids count up.
#[derive(Default)]
pub(crate) struct CountingClock(AtomicU32);

impl Clock for CountingClock {
    fn now(&self) -> Timestamp {
        Timestamp(i64::from(self.0.fetch_add(1, Ordering::Relaxed)) * 1_000)
    }

    fn new_id(&self) -> u128 {
        u128::from(self.0.fetch_add(1, Ordering::Relaxed)) << 64
    }
}

/// The paused clock of tokio: sleeping moves it.
pub(crate) struct PausedClock {
    began: tokio::time::Instant,
    ids: AtomicU32,
}

impl PausedClock {
    pub(crate) fn new() -> Self {
        Self { began: tokio::time::Instant::now(), ids: AtomicU32::new(1) }
    }
}

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        Timestamp(i64::try_from(self.began.elapsed().as_millis()).unwrap())
    }

    fn new_id(&self) -> u128 {
        // In the middle of the chances that are drawn from it.
        (u128::from(self.ids.fetch_add(1, Ordering::Relaxed)) << 64) | 0x7FFF
    }
}

pub(crate) struct World {
    pub host: Arc<Host>,
    pub model: Scripted,
    pub effects: Effects,
}

pub(crate) struct Options {
    pub store: Arc<dyn SessionStore>,
    pub policy: Policy,
    pub budget: AgentBudget,
    pub extra: Vec<Arc<dyn ToolSource>>,
    pub request: RequestOptions,
    pub clock: Arc<dyn Clock>,
    pub retry: RetryConfig,
    pub fallback_model: Option<Arc<str>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            store: Arc::new(MemoryStore::new()),
            policy: Policy { mode: PermissionMode::BypassPermissions, ..Policy::default() },
            budget: AgentBudget::new(None, None, BudgetScope::Agent),
            extra: Vec::new(),
            request: RequestOptions::default(),
            clock: Arc::new(SystemClock),
            retry: RetryConfig { max_retries: 0, ..RetryConfig::default() },
            fallback_model: None,
        }
    }
}

impl World {
    pub(crate) fn new(model: Scripted) -> Self {
        Self::with(model, Options::default())
    }

    pub(crate) fn with(model: Scripted, options: Options) -> Self {
        let effects = Effects::default();
        let mut tools: Vec<Arc<dyn ToolSource>> = vec![Arc::new(Arc::new(ToolSet::new(toy_tools(&effects))))];
        tools.extend(options.extra);
        let host = Host {
            provider: Arc::new(model.clone()),
            store: options.store,
            tools,
            gate: Gate::new(options.policy),
            ports: Ports {
                files: Arc::new(Absent),
                runner: Arc::new(Absent),
                background: Arc::new(BackgroundSet::new(Arc::clone(&options.clock))),
                clock: options.clock,
            },
            sections: vec![Arc::new(FixedSection::custom("Be a test."))],
            catalogue: Catalogue::default(),
            budget: Arc::new(options.budget),
            owner: Owner("test".into()),
            identity: identity(),
            request: options.request,
            retry: options.retry,
            fallback_model: options.fallback_model,
        };
        Self { host: Arc::new(host), model, effects }
    }

    pub(crate) async fn open(&self) -> Driver {
        Driver::open(Arc::clone(&self.host), session(), EventSink::none()).await.unwrap()
    }

    /// Runs a prompt to its end and gives the driver and all events.
    pub(crate) async fn run(&self, limits: RunLimits) -> (Driver, Vec<Envelope>) {
        let mut driver = self.open().await;
        let (sink, stream) = EventSink::live();
        driver.set_sink(sink.clone());
        driver.begin(spec("go", limits)).await.unwrap();
        finish(&mut driver).await;
        sink.finish();
        (driver, collect(stream).await)
    }
}

/// The main agent, in a project that does not exist on disk.
pub(crate) fn identity() -> Identity {
    Identity {
        agent: AgentId::main(),
        parent: None,
        root: "/project".into(),
        folder: None,
        product: "test".into(),
    }
}

pub(crate) fn session() -> SessionId {
    SessionId::new("s").unwrap()
}

/// Whose background work it is.
pub(crate) fn owner() -> BackgroundOwner {
    BackgroundOwner { session: session(), agent: AgentId::main() }
}

pub(crate) fn settings(model: &str) -> ModelSettings {
    ModelSettings { model: model.into(), thinking: None, effort: None }
}

pub(crate) fn spec(prompt: &str, limits: RunLimits) -> RunSpec {
    RunSpec {
        prompt: vec![Block::Text(prompt.into())],
        settings: settings("claude-sonnet-4-6"),
        limits,
        refresh_prefix: false,
    }
}

pub(crate) fn status(run: &RunFold) -> RunStatus {
    run.ended.as_ref().unwrap().status
}

pub(crate) async fn finish(driver: &mut Driver) -> Progress {
    driver.run().await.unwrap()
}

pub(crate) async fn collect(mut stream: EventStream) -> Vec<Envelope> {
    let mut all = Vec::new();
    while let Some(event) = std::future::poll_fn(|cx| {
        use futures_core::Stream;
        Pin::new(&mut stream).poll_next(cx)
    })
    .await
    {
        all.push(event);
    }
    all
}
