//! Background work through the agent, the end of everything that commands started, and what they do not see.

use std::path::Path;

use open_agent::session::NoticeKind;
use open_agent::testing::{Reply, Scripted};
use open_agent::{
    Agent, AgentBuilder, AgentError, AgentEvent, BackgroundEnd, BackgroundKind, BackgroundOutcome, Env,
    PermissionMode, RunStatus, SessionId,
};

fn builder(model: &Scripted, folder: &Path) -> AgentBuilder {
    let path = std::env::var("PATH").unwrap();
    // What runs is known by this.
    let mark = folder.display().to_string();
    let env: Env =
        [("PATH", path), ("TEST_FOLDER", mark)].map(|(k, v)| (k.to_owned(), v)).into_iter().collect();
    AgentBuilder::with_env(env)
        .provider(model.clone())
        .cwd(folder)
        .permission_mode(PermissionMode::BypassPermissions)
        .configure(|o| o.persist_session = false)
}

fn background(command: &str) -> Reply {
    Reply::call("Bash", &serde_json::json!({"command": command, "run_in_background": true}).to_string())
}

fn bash(command: &str) -> Reply {
    Reply::call("Bash", &serde_json::json!({ "command": command }).to_string())
}

/// Command lines of what the agents in this folder started and that still runs.
fn processes(folder: &Path) -> Vec<String> {
    let mine = format!("TEST_FOLDER={}", folder.display());
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let read = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
        let line = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
        if !line.is_empty() && read("environ").split(|b| *b == 0).any(|v| v == mine.as_bytes()) {
            all.push(line);
        }
    }
    all
}

async fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn tasks_are_listed_read_and_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let model = Scripted::new([background("echo hi; sleep 300"), background("exit 4"), Reply::text("ok")]);
    let agent = builder(&model, dir.path()).build().unwrap();
    assert!(agent.background_work().is_empty());
    let error = agent.stop_task("bash_0_0").await.unwrap_err();
    assert_eq!(error.to_string(), "there is no background work \"bash_0_0\": there are none");
    agent.prompt("go").await.unwrap();
    until(|| !agent.background_work()[1].is_running()).await;
    let tasks = agent.background_work();
    let [sleeps, exits] = tasks.as_slice() else { panic!("{tasks:?}") };
    assert_eq!((sleeps.work.id.as_str(), exits.work.id.as_str()), ("bash_0_0", "bash_1_0"));
    assert_eq!(
        (sleeps.work.kind.clone(), sleeps.work.description.as_str()),
        (BackgroundKind::Bash.into(), "echo hi; sleep 300")
    );
    assert_eq!(
        (sleeps.end.clone(), exits.end.clone()),
        (None, Some(BackgroundEnd::with_detail(BackgroundOutcome::Failed, "ended with exit code 4")))
    );
    until(|| std::fs::read_to_string(sleeps.output_path.as_ref().unwrap()).unwrap() == "hi\n").await;
    for _ in 0..2 {
        assert_eq!(
            agent.stop_task("bash_0_0").await.unwrap().end,
            Some(BackgroundEnd::of(BackgroundOutcome::Stopped))
        );
    }
    assert_eq!(agent.stop_task("bash_1_0").await.unwrap().end, exits.end);
    assert_eq!(processes(dir.path()), Vec::<String>::new());
    let error = agent.stop_task("bash_7_0").await.unwrap_err();
    assert!(matches!(error, AgentError::NoBackgroundWork { .. }));
    assert_eq!(error.to_string(), "there is no background work \"bash_7_0\": there are bash_0_0, bash_1_0");
    let other = builder(&Scripted::new([Reply::text("hm")]), dir.path()).build().unwrap();
    other.prompt("go").await.unwrap();
    assert!(other.background_work().is_empty(), "each agent has its own");
}

#[tokio::test]
async fn an_interrupt_of_the_run_leaves_background_work_alone() {
    let dir = tempfile::tempdir().unwrap();
    let model = Scripted::new([background("sleep 300"), bash("touch here; sleep 300"), Reply::text("ok")]);
    let agent = builder(&model, dir.path()).build().unwrap();
    let run = agent.stream("go");
    until(|| dir.path().join("here").exists()).await;
    assert!(agent.interrupt());
    assert_eq!(run.result().await.unwrap().status, RunStatus::Cancelled);
    assert!(agent.background_work()[0].is_running());
    assert!(processes(dir.path()).iter().any(|p| p.starts_with("sleep 300")));
    agent.close().await;
}

#[tokio::test]
async fn work_is_stopped_while_a_run_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let model = Scripted::new([background("sleep 300"), bash("touch here; sleep 300")]);
    let agent = builder(&model, dir.path()).build().unwrap();
    let run = agent.stream("go");
    until(|| dir.path().join("here").exists()).await;
    let stopped = agent.stop_task("bash_0_0").await.unwrap();
    assert_eq!(stopped.end, Some(BackgroundEnd::of(BackgroundOutcome::Stopped)));
    let error = agent.stop_task("bash_7_0").await.unwrap_err();
    assert_eq!(error.to_string(), "there is no background work \"bash_7_0\": there are bash_0_0");
    assert!(processes(dir.path()).iter().any(|p| p.starts_with("sleep 300")), "the call runs on");
    agent.interrupt();
    assert!(run.result().await.unwrap().is_cancelled());
}

const STUBBORN: &str = "trap '' TERM; setsid sleep 300 & nohup sleep 300 >/dev/null 2>&1 & touch here; ";

/// Left running, in the background and in the foreground; nobody listens.
#[tokio::test]
async fn closing_ends_the_run_and_all_that_was_started() {
    let dir = tempfile::tempdir().unwrap();
    let model = Scripted::new([
        bash(STUBBORN),
        background(&format!("{STUBBORN} sleep 300")),
        bash(&format!("{STUBBORN} touch there; sleep 300")),
        Reply::text("never"),
    ]);
    let agent = builder(&model, dir.path()).build().unwrap();
    let run = agent.stream("go");
    until(|| dir.path().join("there").exists()).await;
    let waiting = agent.stream("next");
    agent.close().await;
    assert_eq!(processes(dir.path()), Vec::<String>::new());
    assert_eq!(run.result().await.unwrap().status, RunStatus::Cancelled);
    assert_eq!(agent.background_work()[0].end, Some(BackgroundEnd::of(BackgroundOutcome::Stopped)));
    for error in [waiting.result().await.unwrap_err(), agent.prompt("more").await.unwrap_err()] {
        assert_eq!(error.to_string(), "the agent is closed");
    }
    let input = agent.stream_input(futures_util::stream::pending::<String>());
    assert!(input.result().await.unwrap().is_empty(), "no input is waited for");
    agent.close().await;
}

#[tokio::test]
async fn dropping_the_last_clone_ends_all_that_was_started() {
    let dir = tempfile::tempdir().unwrap();
    let model = Scripted::new([
        bash(STUBBORN),
        background(&format!("{STUBBORN} sleep 300")),
        background("trap 'echo yes > tidied; exit' TERM; touch there; while :; do sleep 0.01; done"),
        Reply::text("ok"),
    ]);
    let agent = builder(&model, dir.path()).build().unwrap();
    let clone = agent.clone();
    agent.prompt("go").await.unwrap();
    until(|| dir.path().join("there").exists()).await;
    drop(agent);
    assert!(!processes(dir.path()).is_empty());
    drop(clone);
    assert_eq!(processes(dir.path()), Vec::<String>::new(), "before it returns");
    assert_eq!(std::fs::read_to_string(dir.path().join("tidied")).unwrap(), "yes\n", "they are asked first");
}

#[tokio::test]
async fn killing_processes_is_for_those_who_cannot_wait() {
    let dir = tempfile::tempdir().unwrap();
    let model = Scripted::new([
        background(&format!("{STUBBORN} sleep 300")),
        Reply::text("ok"),
        bash("echo hi"),
        Reply::text("ok"),
    ]);
    let agent = builder(&model, dir.path()).build().unwrap();
    agent.kill_processes();
    agent.prompt("go").await.unwrap();
    until(|| dir.path().join("here").exists()).await;
    let other = agent.clone();
    std::thread::spawn(move || other.kill_processes()).join().unwrap();
    assert_eq!(processes(dir.path()), Vec::<String>::new());
    agent.prompt("again").await.unwrap();
    let results = open_agent::testing::newest_results(&model.requests()[3]);
    assert!(format!("{results:?}").contains("the agent is being closed"), "{results:?}");
}

/// The notices of a run that is asked `prompt`.
async fn notices(agent: &Agent, prompt: &str) -> Vec<String> {
    let mut run = agent.stream(prompt);
    let mut notices = Vec::new();
    while let Some(event) = run.next().await {
        assert!(!serde_json::to_string(&event).unwrap().contains("sk-canary"));
        if let AgentEvent::Notice(notice) = event.event
            && notice.kind == NoticeKind::VariablesRemoved
        {
            notices.push(notice.text);
        }
    }
    notices
}

#[tokio::test]
async fn h_log_02_the_names_of_removed_variables_are_told_once_a_session() {
    let dir = tempfile::tempdir().unwrap();
    let sessions = tempfile::tempdir().unwrap();
    let with = |names: &[&str], replies: Vec<Reply>| {
        let path = ("PATH".to_owned(), std::env::var("PATH").unwrap());
        let keys = names.iter().map(|name| ((*name).to_owned(), "sk-canary".to_owned()));
        AgentBuilder::with_env(keys.chain([path]).collect())
            .provider(Scripted::new(replies))
            .cwd(dir.path())
            .permission_mode(PermissionMode::BypassPermissions)
            .configure(|o| {
                o.session_id = Some(SessionId::new("one").unwrap());
                o.sessions_dir = Some(sessions.path().to_owned());
            })
            .build()
            .unwrap()
    };
    let runs = |n: usize| (0..n).flat_map(|_| [bash("true"), bash("true"), Reply::text("ok")]);
    let replies = [Reply::call("Glob", r#"{"pattern":"*"}"#), Reply::text("ok")].into_iter().chain(runs(2));
    let keys = ["OPENAI_API_KEY", "ANTHROPIC_API_KEY"];
    let agent = with(&keys, replies.collect());
    let text = "commands do not see these variables: ANTHROPIC_API_KEY, OPENAI_API_KEY";
    assert_eq!(notices(&agent, "no command").await, Vec::<String>::new());
    assert_eq!(notices(&agent, "two commands").await, [text]);
    assert_eq!(notices(&agent, "two more").await, Vec::<String>::new());
    drop(agent);
    let agent = with(&keys, runs(1).collect());
    assert_eq!(notices(&agent, "resumed").await, Vec::<String>::new());
    drop(agent);
    let agent = with(&["HF_TOKEN"], runs(1).collect());
    assert_eq!(notices(&agent, "elsewhere").await, ["commands do not see these variables: HF_TOKEN"]);
    drop(agent);
    let agent = with(&[], runs(1).collect());
    assert_eq!(notices(&agent, "nothing is kept from them").await, Vec::<String>::new());
}

#[tokio::test]
async fn closing_waits_for_no_reader() {
    let dir = tempfile::tempdir().unwrap();
    let calls = (0..900).fold(Reply::default(), |reply, _| reply.and_call("none such", "{}"));
    let model = Scripted::new([calls, Reply::text("never asked for")]);
    let agent = builder(&model, dir.path()).build().unwrap();
    let mut stream = agent.stream_messages("Go");
    // It comes so far as it can without a reader.
    until(|| model.requests().len() == 1).await;
    for _ in 0..10_000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(model.requests().len(), 1, "it waits for the reader");
    agent.close().await;
    let mut events = 0;
    while stream.next().await.is_some() {
        events += 1;
    }
    assert!(events > 1_800, "and yet nothing is lost: {events}");
}

#[tokio::test]
async fn an_agent_that_keeps_no_session_leaves_no_files() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let mut folders = Vec::new();
    for is_closed in [true, false] {
        let model = Scripted::new([background("true"), Reply::text("ok")]);
        let agent = builder(&model, dir.path()).build().unwrap();
        agent.prompt("go").await.unwrap();
        until(|| agent.background_work().iter().all(|status| status.end.is_some())).await;
        let file = agent.background_work()[0].output_path.clone().unwrap();
        let folder = file.parent().unwrap().to_owned();
        assert_eq!(folder.parent(), Some(&*std::env::temp_dir()), "no folder that users would share");
        assert!(file.is_file());
        assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        if is_closed {
            agent.close().await;
        } else {
            drop(agent);
        }
        assert!(!folder.exists(), "{is_closed}");
        folders.push(folder);
    }
    assert_ne!(folders[0], folders[1]);
}
