//! Agents that wait for their next prompt: what they hold, and what others may do with their sessions meanwhile.
//!
//! Limits on open files hold for a process, so the test binary starts itself again: with `OPEN_AGENT_TEST_IDLE` set,
//! `the_process_with_few_files` is the child.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use open_agent::testing::{Reply, Scripted};
use open_agent::{Agent, AgentBuilder, Env, PermissionMode, SessionId, tool_fn};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const CHILD: &str = "OPEN_AGENT_TEST_IDLE";
const LIMIT: u64 = 1024;
const AGENTS: usize = 1_000;

fn builder(model: &Scripted, sessions: &Path, id: &str) -> AgentBuilder {
    AgentBuilder::with_env(Env::default()).provider(model.clone()).configure(|o| {
        o.sessions_dir = Some(sessions.to_owned());
        o.session_id = Some(SessionId::new(id).unwrap());
    })
}

fn agent(model: &Scripted, sessions: &Path, id: &str) -> Agent {
    builder(model, sessions, id).build().unwrap()
}

/// Files below `root` that this process has open.
fn open_files(root: &Path) -> usize {
    let links =
        fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.filter(|path| path.starts_with(root)).count()
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_agent_has_one_file_open_while_it_runs_and_none_while_it_waits() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_owned();
    let during = Arc::new(AtomicUsize::new(usize::MAX));
    let (seen, watched) = (Arc::clone(&during), root.clone());
    let count = tool_fn("count", "Counts open files.", move |_: Nothing, _| {
        seen.store(open_files(&watched), Ordering::SeqCst);
        async { Ok("counted") }
    });
    let call = || Reply::call("count", "{}");
    let model = Scripted::new([call(), Reply::text("one"), call(), Reply::text("two")]);
    let builder = builder(&model, &root, "a").tool(count);
    let agent = builder.permission_mode(PermissionMode::BypassPermissions).build().unwrap();
    for text in ["one", "two"] {
        during.store(usize::MAX, Ordering::SeqCst);
        assert_eq!(agent.prompt("go").await.unwrap().text, text);
        assert_eq!(during.load(Ordering::SeqCst), 1);
        assert_eq!(open_files(&root), 0);
        agent.count_tokens("how many?").await.unwrap();
        assert_eq!(open_files(&root), 0, "counting tokens keeps none open either");
    }
}

#[tokio::test]
async fn an_agent_goes_on_with_what_another_did_to_its_session_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) =
        (Scripted::new(["1", "3", "4"].map(Reply::text)), Scripted::new([Reply::text("2")]));
    let waiting = agent(&first, folder.path(), "a");
    waiting.prompt("a").await.unwrap();
    let other = agent(&second, folder.path(), "a");
    assert_eq!(other.prompt("b").await.unwrap().text, "2", "the session of an idle agent is free");
    assert_eq!(waiting.prompt("c").await.unwrap().text, "3");
    assert_eq!(waiting.prompt("d").await.unwrap().text, "4");
    let sent = |model: &Scripted, n: usize| -> Vec<String> {
        model.requests()[n].messages.iter().map(|message| message.text()).collect()
    };
    assert_eq!(sent(&second, 0), ["a", "1", "b"]);
    assert_eq!(sent(&first, 2), ["a", "1", "b", "2", "c", "3", "d"]);
}

#[tokio::test]
async fn an_agent_whose_session_was_removed_while_it_waited_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let model = Scripted::new(["1", "2"].map(Reply::text));
    let agent = agent(&model, folder.path(), "a");
    agent.prompt("a").await.unwrap();
    fs::remove_dir_all(folder.path().join("a")).unwrap();
    let error = agent.prompt("b").await.unwrap_err().to_string();
    assert!(error.contains("transcript.jsonl: it was removed"), "{error}");
    assert_eq!(agent.prompt("c").await.unwrap().text, "2", "the next prompt begins the session anew");
}

/// Not a test of its own: see the module's documentation.
#[test]
fn the_process_with_few_files() {
    let Some(folder) = std::env::var_os(CHILD) else { return };
    let folder = Path::new(&folder);
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(LIMIT), maximum }).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let model = Scripted::responding(|_| Reply::text("ok"));
        let mut agents = Vec::new();
        for n in 0..AGENTS {
            let agent = agent(&model, folder, &format!("s{n}"));
            agent.prompt("hello").await.unwrap();
            agents.push(agent);
        }
        for agent in agents.iter().rev().step_by(100) {
            assert_eq!(agent.prompt("again").await.unwrap().text, "ok");
        }
        too_many_files_are_named(&agents, folder).await;
    });
    println!("all went well");
}

/// With no file handle left, a new session, one that goes on and a connection fail for that reason.
async fn too_many_files_are_named(agents: &[Agent], folder: &Path) {
    let connecting = AgentBuilder::with_env(Env::default()).configure(|o| {
        o.persist_session = false;
        o.base_url = Some("http://127.0.0.1:9/v1".to_owned());
        o.model = Some("local".to_owned());
        o.retry.max_retries = 0;
    });
    let connecting = connecting.build().unwrap();
    // What is made once and kept, such as the client's certificates, must not be what fails.
    let refused = connecting.prompt("hello").await.unwrap();
    assert!(refused.errors.iter().any(|error| error.contains("cannot reach")), "{:?}", refused.errors);

    let taken = Mutex::new(Vec::new());
    while let Ok(file) = fs::File::open("/dev/null") {
        taken.lock().unwrap().push(file);
    }
    let model = Scripted::new([]);
    let new = agent(&model, folder, "new").prompt("hello").await.unwrap_err().to_string();
    let old = agents[0].prompt("hello").await.unwrap_err().to_string();
    let socket = connecting.prompt("hello").await.unwrap().errors.join("; ");
    drop(taken);
    for text in [new, old, socket] {
        assert!(text.contains("as many files") && text.contains("ulimit -n"), "{text}");
        assert!(!text.contains("base-url"), "{text}");
    }
    // Once there are files again, all goes on.
    assert_eq!(agents[0].prompt("hello").await.unwrap().text, "ok");
}

#[cfg(target_os = "linux")]
#[test]
fn a_thousand_idle_agents_fit_into_a_process_that_may_open_1024_files() {
    let folder = tempfile::tempdir().unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "idle::the_process_with_few_files", "--nocapture"])
        .env(CHILD, folder.path())
        .output()
        .unwrap();
    let text = [child.stdout, child.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(child.status.success() && text.contains("all went well"), "{text}");
}
