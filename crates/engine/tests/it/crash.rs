//! A real process, killed with SIGKILL at random moments, and another one that goes on.
//!
//! The test binary starts itself again: with `OPEN_AGENT_TEST_CRASH_DIR` set, `the_killed_process` is the child.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use open_agent_engine::{Machine, Progress};
use open_agent_model::scripted::{Reply, Scripted};
use open_agent_model::{ResultBlock, RunStatus, Seq};
use open_agent_session::{JsonlStore, RunLimits, SessionEntry, SessionStore, Stored};
use open_agent_testkit::cases;
use open_agent_tool::{ToolSet, ToolSource, tool_fn};

use crate::world::{Input, Options, World, session, spec};

const DIR: &str = "OPEN_AGENT_TEST_CRASH_DIR";
const TURNS: usize = 10;

fn rounds() -> usize {
    cases(12, 50)
}

/// Ten turns with reads and two calls each that must not run twice, then the end.
fn ten_turns() -> Scripted {
    Scripted::responding(|request| {
        let turn = request.messages.iter().filter(|m| m.role == open_agent_model::Role::Assistant).count();
        if turn == TURNS {
            return Reply::text("all done");
        }
        let input = format!(r#"{{"n":{turn}}}"#);
        Reply::text("next ")
            .and_call("read", &input)
            .and_call("append", &input)
            .and_call("read", &input)
            .and_call("append", r#"{"n":7}"#)
    })
}

/// Says in a line what it does, so that whoever reads along can kill it there.
fn say(what: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "step {what}").unwrap();
    out.flush().unwrap();
}

fn appending_tool(dir: &Path) -> Arc<dyn ToolSource> {
    let path = dir.join("effects");
    let tool = tool_fn("append", "Appends a line to a file.", move |_: Input, cx| {
        let path = path.clone();
        async move {
            say("tool begins");
            let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
            file.write_all(format!("{}\n", cx.call()).as_bytes())?;
            say("tool took effect");
            Ok("appended")
        }
    });
    Arc::new(Arc::new(ToolSet::new([tool])))
}

#[test]
fn the_killed_process() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let store: Arc<dyn SessionStore> = Arc::new(JsonlStore::new(dir.join("sessions")));
        let options = Options { store, extra: vec![appending_tool(&dir)], ..Options::default() };
        let world = World::with(ten_turns(), options);
        let mut driver = world.open().await;
        say("open");
        if driver.machine().run().is_none() {
            driver.begin(spec("go", RunLimits { max_turns: None, ..RunLimits::default() })).await.unwrap();
        }
        loop {
            say("before a step");
            if driver.advance().await.unwrap() == Progress::Done {
                break;
            }
        }
    });
}

fn start(dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::the_killed_process", "--nocapture"])
        .env(DIR, dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Reads `steps` lines of what the child says, then kills it. `false` if it ended before.
fn kill_after(mut child: Child, steps: usize) -> bool {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let reached = lines.map_while(Result::ok).filter(|l| l.starts_with("step")).nth(steps).is_some();
    if reached {
        child.kill().unwrap();
    }
    child.wait().unwrap();
    reached
}

fn records(store: &JsonlStore) -> Vec<Stored> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(store.read(&session(), Seq(0), usize::MAX)).unwrap()
}

/// All whole lines: what a process had completed.
fn whole_lines(store: &JsonlStore) -> Vec<u8> {
    let mut bytes = std::fs::read(store.path(&session())).unwrap_or_default();
    let end = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
    bytes.truncate(end);
    bytes
}

#[test]
fn h_ses_03_killed_at_many_moments_nothing_is_lost_and_nothing_unsafe_runs_twice() {
    let mut killed = 0;
    let mut lost = 0;
    for round in 0..rounds() {
        let dir = tempfile::tempdir().unwrap();
        let store = JsonlStore::new(dir.path().join("sessions"));
        // Spread over the whole run; the moment within a step is up to the machine.
        let mut steps = round * 97 % 101;
        for _ in 0..3 {
            killed += usize::from(kill_after(start(dir.path()), steps));
            steps = steps * 31 % 67;
            let before = whole_lines(&store);
            let child = kill_after(start(dir.path()), 0);
            killed += usize::from(child);
            assert!(whole_lines(&store).starts_with(&before), "what was completed is kept as it was");
        }
        assert!(!kill_after(start(dir.path()), usize::MAX), "the last process runs to the end");

        let records = records(&store);
        let mut machine = Machine::default();
        records.iter().for_each(|r| machine.apply(r));
        let run = machine.run().unwrap();
        assert_eq!(run.ended.as_ref().unwrap().status, RunStatus::Success);
        assert_eq!(run.summary.words.text(), "all done");
        let text = std::fs::read_to_string(dir.path().join("effects")).unwrap();
        let mut effects: HashMap<&str, u32> = HashMap::new();
        text.lines().for_each(|call| *effects.entry(call).or_default() += 1);
        assert!(effects.values().all(|n| *n == 1), "{effects:?}");
        // A call whose process died while it ran is reported as lost, and was not repeated.
        let unknown = records.iter().filter(|r| is_lost(r)).count();
        assert!(effects.len() + unknown >= TURNS * 2, "{} took effect, {unknown} are unknown", effects.len());
        lost += unknown;
    }
    assert!(killed >= rounds(), "only {killed} processes were killed before they ended");
    assert!(lost > 0, "no call was ever in flight when its process was killed");
}

fn is_lost(record: &Stored) -> bool {
    match &record.entry {
        SessionEntry::Done(done) => done
            .content
            .iter()
            .any(|b| matches!(b, ResultBlock::Text { text } if text.contains("outcome is unknown"))),
        _ => false,
    }
}
