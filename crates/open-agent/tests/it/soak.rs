//! Many runs against a server that fails at random: each ends, as a success or as a failure that says what it is, nothing
//! that was sent was wrong, and nothing is left behind.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::StreamExt;
use open_agent::model::ProviderErrorKind;
use open_agent::{
    Agent, AgentBuilder, AgentEvent, AgentOptions, Env, QueryResult, RetryConfig, RunStatus, ToolError,
    ToolScheduling, read_only_tool_fn, tool_fn,
};
use open_agent_testkit::cases;
use open_agent_testkit::server::{Chaos, ChaosTool, Fault, ModelServer, Script};
use serde_json::json;
use tokio::runtime::Handle;

const SEED: u64 = 0x00C0_FFEE;
/// Each has its own server and its own connections, and leaves nothing behind. That the process does not grow shows only
/// when there are enough of them to fill all pools.
fn rounds() -> u64 {
    cases(2, 5)
}

/// Conversations of a round, each of two runs: what a failure leaves in a conversation is sent again by the second. Some
/// have a third one before.
const CONVERSATIONS: u64 = 50;
const AT_ONCE: usize = 12;

const MAX_TURNS: u32 = 6;
const MAX_MODEL_CALLS: u32 = 15;
/// A server under load may be late for this, and is asked again: that, too, ends in one of the two ways.
const SILENCE: Duration = Duration::from_millis(250);
/// How much the memory of the process may have grown by a round, when the rounds before it have filled all pools.
const GROWTH: u64 = 16 << 20;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Numbers {
    a: i64,
    b: i64,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Note {
    text: String,
}

fn tools() -> Vec<ChaosTool> {
    let tool = |name: &str, input| ChaosTool { name: name.into(), input };
    vec![
        tool("add", json!({ "a": 1, "b": 2 })),
        tool("note", json!({ "text": "Grüße 🦀" })),
        tool("note", json!({ "text": "fail" })),
    ]
}

/// What the conversations of one format share: options, tools, connections.
fn builder(provider: &str, url: String) -> AgentBuilder {
    let add = read_only_tool_fn("add", "Adds.", async |input: Numbers, _| {
        Ok::<_, ToolError>((input.a + input.b).to_string())
    });
    let note = tool_fn("note", "Takes a note.", async |input: Note, _| match input.text.as_str() {
        "fail" => Err(ToolError::new("the paper is full")),
        text => Ok(format!("noted: {text}")),
    });
    let mut options = AgentOptions::default();
    options.persist_session = false;
    options.model = Some("chaos".into());
    options.provider = Some(provider.into());
    options.base_url = Some(url);
    options.system_prompt = Some("Be calm.".into());
    options.tools = Some(vec!["add".into(), "note".into()]);
    options.allowed_tools = vec!["note".into()];
    options.max_turns = Some(MAX_TURNS);
    options.max_model_calls = MAX_MODEL_CALLS;
    options.idle_timeout = SILENCE;
    options.retry = RetryConfig {
        base_delay: Duration::from_millis(1),
        max_delay: Duration::from_millis(5),
        max_server_delay: Duration::from_millis(50),
        ..RetryConfig::default()
    };
    AgentBuilder::with_env(Env::default()).tool(add).tool(note).options(options)
}

/// A run that is not let be: interrupted after some events, or given up by whoever waits for it. What it leaves in the
/// conversation is sent by the runs after it.
async fn disturb(agent: &Agent, n: u64, text: String) {
    if n % 5 == 3 {
        let mut stream = agent.stream(text.clone());
        for _ in 0..n % 11 {
            stream.next().await;
        }
        stream.interrupt();
        let status = stream.result().await.unwrap_or_else(|e| panic!("{text}: {e}")).status;
        assert_ne!(status, RunStatus::Waiting, "{text}");
    }
    if n % 5 == 4 {
        let mut polls = n * 3;
        tokio::select! {
            _ = agent.prompt(text) => {}
            () = std::future::poll_fn(|cx| {
                polls = polls.saturating_sub(1);
                cx.waker().wake_by_ref();
                if polls == 0 { Poll::Ready(()) } else { Poll::Pending }
            }) => {}
        }
    }
}

/// How runs ended, by status and by the last failure of the model.
type Ends = BTreeMap<String, usize>;

/// One run; it is checked by itself.
async fn run(agent: &Agent, text: String, ends: &mut Ends) {
    let mut stream = agent.stream_messages(text.clone());
    let (mut last, mut failures, mut ended) = (None, 0, 0);
    while let Some(envelope) = stream.next().await {
        match envelope.event {
            AgentEvent::ModelFailed(failed) => {
                failures += 1;
                last = failed.error.filter(|_| failed.retry.is_none()).and_then(|e| e.kind.known().copied());
            }
            AgentEvent::RunEnded(_) => ended += 1,
            _ => {}
        }
    }
    let result = stream.result().await.unwrap_or_else(|e| panic!("{text}: {e}"));
    assert_eq!(ended, 1, "{text}: it ended {ended} times");
    check(&text, &result, last, failures);
    let end = last.map_or_else(String::new, |kind| format!(" {}", kind.as_str()));
    *ends.entry(format!("{}{end}", result.status.as_str())).or_default() += 1;
}

fn check(text: &str, result: &QueryResult, last: Option<ProviderErrorKind>, failures: u32) {
    let (status, errors) = (result.status, &result.errors);
    let shown = format!("{text}: {status:?} {errors:?} after {failures} failures, last {last:?}");
    assert!(result.turns <= MAX_TURNS && result.model_calls <= MAX_MODEL_CALLS, "{shown}");
    assert!(failures <= result.model_calls, "{shown}");
    match status {
        RunStatus::Success => assert!(errors.is_empty() && last.is_none(), "{shown}"),
        RunStatus::ErrorMaxTurns => assert_eq!(result.turns, MAX_TURNS, "{shown}"),
        RunStatus::ErrorMaxModelCalls => assert_eq!(result.model_calls, MAX_MODEL_CALLS, "{shown}"),
        RunStatus::Refusal => assert!(last.is_none(), "{shown}"),
        RunStatus::ErrorDuringExecution => {
            assert!(!errors.is_empty() && errors.iter().all(|e| !e.trim().is_empty()), "{shown}");
            // Never sent, so the server could not object.
            assert!(!errors.iter().any(|e| e.contains("would not be valid")), "{shown}");
        }
        _ => panic!("{shown}"),
    }
}

async fn round(number: u64, faults: &mut HashMap<Fault, usize>) -> Ends {
    let chaos = Arc::new(Chaos::new(SEED ^ number, tools()));
    let server = ModelServer::start(Script::chaos(Arc::clone(&chaos))).unwrap();
    let builders = ["anthropic", "generic"].map(|provider| builder(provider, server.url()));
    let conversation = |n: u64| {
        let half = if n.is_multiple_of(2) { 0 } else { 1 };
        let ordered = !n.is_multiple_of(3);
        let builder = builders[half].clone().configure(|o| {
            o.tool_scheduling = if ordered { ToolScheduling::Ordered } else { ToolScheduling::ReadsFirst };
        });
        async move {
            let agent = builder.build().unwrap();
            let mut ends = Ends::new();
            disturb(&agent, n, format!("disturbed {n} of round {number}")).await;
            run(&agent, format!("conversation {n} of round {number}"), &mut ends).await;
            run(&agent, format!("go on with {n} of round {number}"), &mut ends).await;
            ends
        }
    };
    let all = futures_util::stream::iter((0..CONVERSATIONS).map(conversation));
    let ends: Vec<Ends> = all.map(tokio::spawn).buffer_unordered(AT_ONCE).map(Result::unwrap).collect().await;
    assert_eq!(server.violations(), Vec::<String>::new(), "requests that were not valid");
    for (fault, count) in chaos.faults() {
        *faults.entry(fault).or_default() += count;
    }
    let mut sum = Ends::new();
    for (end, count) in ends.into_iter().flatten() {
        *sum.entry(end).or_default() += count;
    }
    sum
}

/// What the process holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    tasks: usize,
    /// Open files and sockets; known on Linux only.
    files: usize,
}

impl Held {
    fn now() -> Self {
        let files = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        Self { tasks: Handle::current().metrics().num_alive_tasks(), files }
    }

    fn is_within(self, base: Self) -> bool {
        self.tasks <= base.tasks && self.files <= base.files
    }
}

/// Bytes of memory that are in use; 0 where that is not known.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or_default() << 10
}

/// Waits until the process holds no more than `base`: connections end on tasks of their own, a little later than those
/// who used them. If there is a leak, this never returns, and the last line of the output shows it.
async fn settle(base: Held, number: u64) {
    let mut shown = String::new();
    loop {
        let held = Held::now();
        if held.is_within(base) {
            return;
        }
        let now = format!("round {number} holds {held:?}, before it there was {base:?}");
        if now != shown {
            println!("{now}");
            shown = now;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_run_ends_well_or_says_why_and_nothing_is_left_behind() {
    // The files and the memory of the process are measured.
    open_agent_testkit::in_own_process!();
    let base = Held::now();
    let mut faults = HashMap::new();
    let mut ends = Ends::new();
    let mut sizes = Vec::new();
    for number in 0..rounds() {
        for (end, count) in round(number, &mut faults).await {
            *ends.entry(end).or_default() += count;
        }
        settle(base, number).await;
        sizes.push(memory());
    }
    println!("{ends:#?}\n{faults:?}\n{sizes:?}");
    assert_eq!(ends.values().sum::<usize>() as u64, rounds() * CONVERSATIONS * 2);
    // The rounds are of one size. The first ones fill pools and caches.
    if let [_, _, before, _, after] = sizes[..] {
        let growth = after.saturating_sub(before);
        assert!(growth < GROWTH, "two rounds took {growth} bytes for good: {sizes:?}");
    }
    assert!(ends["success"] as u64 > rounds() * CONVERSATIONS / 3, "{ends:?}");
    assert!(ends.len() >= 5, "the failures are all alike: {ends:?}");
    assert_eq!(faults.len(), 16, "not every fault was met: {faults:?}");
}
