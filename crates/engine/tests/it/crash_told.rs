//! What the model is told about the calls of killed processes, against what had really happened.
//!
//! A real process is killed with SIGKILL, and the next ones go on by turns with nothing but the log, with a new prompt and
//! with an answer. The tools write down outside of the log that they began and that they took effect.

use std::collections::{HashMap, HashSet};
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use open_agent_engine::{Command as Order, Driver, Machine, Progress};
use open_agent_model::scripted::{Reply, Scripted};
use open_agent_model::{Answer, Block, CallId, Outcome, Question, ResultBlock, Role, RunStatus, Seq};
use open_agent_session::{Done, JsonlStore, RunLimits, SessionEntry, SessionStore, Stored};
use open_agent_testkit::cases;
use open_agent_tool::{ToolSet, ToolSource, tool_fn};

use crate::world::{Input, Options, World, session, spec};

const DIR: &str = "OPEN_AGENT_TEST_TOLD_DIR";
/// How the process goes on: one of `WAYS`.
const WAY: &str = "OPEN_AGENT_TEST_TOLD_WAY";
/// The process stops for ever after it has said this for the n-th time: `n what`.
const HOLD: &str = "OPEN_AGENT_TEST_TOLD_HOLD";

const WAYS: [&str; 3] = ["prompt", "resume", "answer"];
const TURNS: usize = 8;

const BEGINS: &str = "tool begins";
const TOOK_EFFECT: &str = "tool took effect";
const RESUMED: &str = "answered tool goes on";
const STEP: &str = "before a step";
const WAITS: &str = "waits for an answer";

// ---- the process that is killed ----

/// Says what it does, so that whoever reads along can kill it there. Where it is to be killed exactly there, it goes no
/// further.
fn say(what: &str) {
    static SAID: AtomicUsize = AtomicUsize::new(0);
    let mut out = std::io::stdout().lock();
    writeln!(out, "step {what}").unwrap();
    out.flush().unwrap();
    let hold = std::env::var(HOLD).unwrap_or_default();
    if let Some((n, held)) = hold.split_once(' ')
        && held == what
        && SAID.fetch_add(1, Ordering::SeqCst) + 1 == n.parse::<usize>().unwrap()
    {
        loop {
            std::thread::park();
        }
    }
}

fn note(path: &Path, line: &str) -> std::io::Result<()> {
    OpenOptions::new().create(true).append(true).open(path)?.write_all(format!("{line}\n").as_bytes())
}

/// Two tools that must not run twice. One asks before it takes effect.
fn tools(dir: &Path) -> Arc<dyn ToolSource> {
    let path = dir.join("effects");
    let append = tool_fn("append", "Appends a line to a file.", move |_: Input, cx| {
        let path = path.clone();
        async move {
            note(&path, &format!("began {}", cx.call()))?;
            say(BEGINS);
            note(&path, &format!("effect {}", cx.call()))?;
            say(TOOK_EFFECT);
            Ok("appended")
        }
    });
    let path = dir.join("effects");
    let ask = tool_fn("ask_first", "Asks, then appends a line to a file.", move |_: Input, cx| {
        let path = path.clone();
        async move {
            cx.ask(Question::text("sure?")).await?;
            note(&path, &format!("began {}", cx.call()))?;
            say(RESUMED);
            note(&path, &format!("effect {}", cx.call()))?;
            say(TOOK_EFFECT);
            Ok("appended")
        }
    });
    Arc::new(Arc::new(ToolSet::new([append, ask])))
}

/// Turns with calls that read, that must not run twice and that ask, then the end.
fn model() -> Scripted {
    Scripted::responding(|request| {
        let turn = request.messages.iter().filter(|m| m.role == Role::Assistant).count();
        match turn {
            TURNS.. => Reply::text("all done"),
            _ if turn % 2 == 1 => {
                Reply::call("read", "{}").and_call("ask_first", "{}").and_call("append", "{}")
            }
            _ => Reply::call("read", r#"{"n":1}"#).and_call("append", "{}").and_call("append", r#"{"n":7}"#),
        }
    })
}

/// A message that is queued; what was accepted is known outside of the log too.
async fn send(driver: &mut Driver, dir: &Path) {
    let text = format!("message {}", driver.machine().seq().0);
    let prompt = vec![Block::Text(text.clone())];
    driver.command(Order::Send { prompt, steer: true }).await.unwrap();
    note(&dir.join("accepted"), &text).unwrap();
}

#[test]
fn the_killed_process() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else { return };
    let way = std::env::var(WAY).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let store: Arc<dyn SessionStore> = Arc::new(JsonlStore::new(dir.join("sessions")));
        let world = World::with(model(), Options { store, extra: vec![tools(&dir)], ..Options::default() });
        let mut driver = world.open().await;
        let begin = spec("go on", RunLimits { max_turns: None, ..RunLimits::default() });
        if way == "prompt" || driver.machine().run().is_none() {
            driver.begin(begin.clone()).await.unwrap();
        }
        send(&mut driver, &dir).await;
        loop {
            say(STEP);
            match driver.advance().await.unwrap() {
                Progress::Waiting(asks) => {
                    say(WAITS);
                    match way.as_str() {
                        "prompt" => _ = driver.begin(begin.clone()).await.unwrap(),
                        "answer" => driver.answer(asks[0], Answer::text("yes")).await.unwrap(),
                        _ => break,
                    }
                }
                Progress::Stepped => {}
                _ => break,
            }
        }
    });
}

// ---- the test ----

fn start(dir: &Path, way: &str, hold: Option<&(usize, &str)>) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash_told::the_killed_process", "--nocapture"])
        .env(DIR, dir)
        .env(WAY, way)
        .env(HOLD, hold.map(|(n, what)| format!("{n} {what}")).unwrap_or_default())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Kills the child after it has said `what` for the `n`-th time; after any `n` things if `what` is empty.
/// `false` if it ended before.
fn kill_after(mut child: Child, (n, what): (usize, &str)) -> bool {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut said = lines.filter(|l| l.strip_prefix("step ").is_some_and(|l| what.is_empty() || l == what));
    let reached = n > 0 && said.nth(n - 1).is_some();
    if reached {
        child.kill().unwrap();
    } else {
        said.for_each(drop);
    }
    let status = child.wait().unwrap();
    assert!(reached || status.success(), "a process that was not killed failed");
    reached
}

fn records(store: &JsonlStore) -> Vec<Stored> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(store.read(&session(), Seq(0), usize::MAX)).unwrap()
}

fn text(done: &Done) -> String {
    let texts = done.content.iter().map(|b| match b {
        ResultBlock::Text { text } => text.as_str(),
        _ => "",
    });
    texts.collect()
}

/// How often each kind of end was seen.
#[derive(Debug, Default)]
struct Seen {
    finished: usize,
    lost_with_effect: usize,
    lost_without_effect: usize,
    not_run: usize,
    not_answered: usize,
}

/// What really happened, as the tools wrote it down.
struct Facts {
    began: HashSet<String>,
    effects: HashMap<String, usize>,
}

fn facts(dir: &Path) -> Facts {
    let text = fs::read_to_string(dir.join("effects")).unwrap_or_default();
    let (mut began, mut effects) = (HashSet::new(), HashMap::new());
    for line in text.lines() {
        match line.split_once(' ').unwrap() {
            ("began", call) => assert!(began.insert(call.to_owned()), "{call} began twice"),
            (_, call) => *effects.entry(call.to_owned()).or_default() += 1,
        }
    }
    Facts { began, effects }
}

/// Compares what the log tells the model about each call with what happened.
fn compare(records: &[Stored], facts: &Facts, seen: &mut Seen) {
    let mut tools: HashMap<CallId, String> = HashMap::new();
    let (mut started, mut told) = (HashSet::new(), HashSet::new());
    for record in records {
        match &record.entry {
            SessionEntry::ModelDone(answer) => {
                let calls = (0..).map(|index| CallId { turn: answer.turn, index });
                tools.extend(calls.zip(answer.message.tool_uses().map(|u| u.name.clone())));
            }
            SessionEntry::Started { call } => _ = started.insert(*call),
            SessionEntry::Done(done) => {
                assert!(told.insert(done.call), "{} has two results", done.call);
                let is_read = tools[&done.call] == "read";
                compare_call(done, is_read, started.contains(&done.call), facts, seen);
            }
            _ => {}
        }
    }
    assert_eq!(told.len(), tools.len(), "each call has a result");
    assert!(facts.effects.values().all(|n| *n == 1), "{:?}", facts.effects);
    assert!(facts.began.iter().all(|call| started.iter().any(|c| c.to_string() == *call)));
}

fn compare_call(done: &Done, is_read: bool, is_started: bool, facts: &Facts, seen: &mut Seen) {
    let call = done.call.to_string();
    let (began, took_effect) = (facts.began.contains(&call), facts.effects.contains_key(&call));
    let text = text(done);
    let told = format!("{call}, began: {began}, effect: {took_effect}, told {:?}: {text}", done.outcome);
    if is_read {
        assert!(done.outcome == Outcome::Ok || done.outcome == Outcome::Closed, "{told}");
        assert!(!text.contains("outcome is unknown"), "{told}");
        return;
    }
    assert_eq!(text.contains("outcome is unknown"), done.outcome == Outcome::Lost, "{told}");
    if done.outcome == Outcome::Ok {
        assert!(took_effect && text == "appended", "{told}");
        seen.finished += 1;
    } else if done.outcome == Outcome::Lost {
        assert!(is_started, "nothing says that it began, so it is known that it did not: {told}");
        let count = if took_effect { &mut seen.lost_with_effect } else { &mut seen.lost_without_effect };
        *count += 1;
    } else {
        // Whatever else it is told, it is told that nothing happened.
        assert!(!began && !took_effect, "{told}");
        if text.starts_with("Not run: ") {
            assert!(!is_started && done.outcome == Outcome::Closed, "{told}");
            seen.not_run += 1;
        } else if done.outcome == Outcome::Closed {
            assert!(text.starts_with("Not finished: it waited for an answer"), "{told}");
            seen.not_answered += 1;
        } else {
            // It had put its question, was answered, and did not go on: the run ended before.
            assert_eq!(done.outcome, Outcome::Interrupted, "{told}");
            assert!(is_started && text.starts_with("Not finished: it had begun"), "{told}");
        }
    }
}

/// Each message that was accepted is in what the model gets, once and in order.
fn compare_messages(machine: &Machine, dir: &Path) {
    let users = machine.transcript().messages().iter().filter(|m| m.role == Role::User);
    let texts = users.flat_map(|m| &m.content).filter_map(|b| match b {
        Block::Text(text) => text.strip_prefix("message "),
        _ => None,
    });
    let told: Vec<u64> = texts.map(|n| n.parse().unwrap()).collect();
    assert!(told.is_sorted_by(|a, b| a < b), "{told:?}");
    let accepted = fs::read_to_string(dir.join("accepted")).unwrap();
    for line in accepted.lines() {
        let n = line.strip_prefix("message ").unwrap().parse().unwrap();
        assert!(told.contains(&n), "{line} was accepted and is not told: {told:?}");
    }
}

/// Where the process of this number is killed. Every other one at exactly this moment, the rest somewhere close to one.
fn moment(n: usize) -> (bool, (usize, &'static str)) {
    const KINDS: [&str; 5] = [TOOK_EFFECT, WAITS, BEGINS, STEP, RESUMED];
    match n % 2 {
        0 => (true, (1 + n / 10 % 2, KINDS[n / 2 % KINDS.len()])),
        _ => (false, (1 + n * 31 % 23, "")),
    }
}

#[test]
fn whatever_is_killed_and_however_it_goes_on_the_model_is_told_what_is_true() {
    let mut seen = Seen::default();
    let (mut killed, rounds) = (0, cases(6, 60));
    for round in 0..rounds {
        let dir = tempfile::tempdir().unwrap();
        let store = JsonlStore::new(dir.path().join("sessions"));
        for process in 0..5 {
            let (exactly, at) = moment(round * 5 + process);
            let child = start(dir.path(), WAYS[(round + process) % WAYS.len()], exactly.then_some(&at));
            killed += usize::from(kill_after(child, at));
        }
        // The next one is killed nowhere: it goes on in its own way, and the last one answers what is asked.
        kill_after(start(dir.path(), WAYS[round % WAYS.len()], None), (0, ""));
        kill_after(start(dir.path(), "answer", None), (0, ""));
        kill_after(start(dir.path(), "prompt", None), (0, ""));

        let records = records(&store);
        compare(&records, &facts(dir.path()), &mut seen);
        let mut machine = Machine::default();
        records.iter().for_each(|r| machine.apply(r));
        assert_eq!(machine.run().unwrap().ended.as_ref().unwrap().status, RunStatus::Success);
        compare_messages(&machine, dir.path());
    }
    assert!(killed >= rounds * 2, "only {killed} processes were killed before they ended");
    let Seen { finished, lost_with_effect, lost_without_effect, not_run, not_answered } = seen;
    let each = [finished, lost_with_effect, lost_without_effect, not_run, not_answered];
    assert!(each.iter().all(|n| *n > 0), "{seen:?}");
}
