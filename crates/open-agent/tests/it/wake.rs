//! Background work that ends while the agent is idle: it is told, and starts a run if the agent is to be woken.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use open_agent::model::{Block, Role};
use open_agent::session::{JsonlStore, SessionEntry, SessionStore};
use open_agent::testing::{Reply, Scripted};
use open_agent::{
    Agent, AgentBuilder, AgentEvent, Answer, Env, EventStream, PermissionMode, Question, RunStatus,
    SessionId, read_only_tool_fn, tool_fn,
};

/// A project, and the folder in which its one session is kept.
struct Place {
    project: tempfile::TempDir,
    sessions: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { project: tempfile::tempdir().unwrap(), sessions: tempfile::tempdir().unwrap() }
    }

    fn builder(&self, model: &Scripted) -> AgentBuilder {
        let path = ("PATH".to_owned(), std::env::var("PATH").unwrap());
        AgentBuilder::with_env([path].into_iter().collect::<Env>())
            .provider(model.clone())
            .cwd(self.project.path())
            .permission_mode(PermissionMode::BypassPermissions)
            .configure(|o| {
                o.sessions_dir = Some(self.sessions.path().to_owned());
                o.session_id = Some(id());
            })
    }

    fn waking(&self, model: &Scripted) -> Agent {
        self.builder(model).wake_on_task_end(true).build().unwrap()
    }

    /// The file whose writing ends the command of [`waits`].
    fn gate(&self, name: &str) -> PathBuf {
        self.project.path().join(name)
    }

    async fn entries(&self) -> Vec<SessionEntry> {
        let log = JsonlStore::new(self.sessions.path().to_owned());
        let records = log.read(&id(), Default::default(), usize::MAX).await.unwrap();
        records.into_iter().map(|record| record.entry).collect()
    }
}

fn id() -> SessionId {
    SessionId::new("one").unwrap()
}

/// A command in the background that ends when its gate is opened.
fn waits(gate: &str) -> Reply {
    let command = format!("mkfifo {gate}; read line < {gate}; exit 3");
    Reply::call("Bash", &serde_json::json!({"command": command, "run_in_background": true}).to_string())
}

/// Lets the command go on. It waits for the command's reading end.
fn open_gate(gate: &Path) {
    while !gate.exists() {
        std::thread::yield_now();
    }
    std::fs::write(gate, "go\n").unwrap();
}

/// The notes about background work in a request.
fn notes(model: &Scripted, request: usize) -> Vec<String> {
    let requests = model.requests();
    let users = requests[request].messages.iter().filter(|m| m.role == Role::User);
    let texts = users.flat_map(|m| &m.content).filter_map(|b| match b {
        Block::Text(text) if text.contains("background command") => Some(text.clone()),
        _ => None,
    });
    texts.collect()
}

/// The names of durable events, but for notices, up to the first one of this name.
async fn until(events: &mut EventStream, last: &str) -> Vec<String> {
    let mut names = Vec::new();
    while names.last().is_none_or(|name| name != last) {
        let event = events.next().await.expect(last);
        if event.seq.is_some() {
            let event = serde_json::to_value(&event.event).unwrap();
            names.extend(event["type"].as_str().filter(|name| *name != "notice").map(str::to_owned));
        }
    }
    names
}

/// The names of all durable events that are left.
async fn rest(mut events: EventStream) -> Vec<String> {
    let mut names = Vec::new();
    while let Some(event) = events.next().await {
        if event.seq.is_some() {
            names.push(serde_json::to_value(&event.event).unwrap()["type"].as_str().unwrap().to_owned());
        }
    }
    names
}

async fn until_ended(agent: &Agent) {
    while agent.background_work().iter().any(|status| status.is_running()) {
        tokio::task::yield_now().await;
    }
}

/// Gives everything that could still happen by itself the occasion to.
async fn settle() {
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_end_of_background_work_starts_a_run_of_an_idle_agent() {
    let place = Place::new();
    let replies = [waits("a"), Reply::text("started"), Reply::text("it failed"), Reply::text("later")];
    let model = Scripted::new(replies);
    let agent = place.builder(&model).wake_on_task_end(true).build().unwrap();
    assert_eq!(agent.prompt("go").await.unwrap().text, "started");
    let mut events = agent.events();
    open_gate(&place.gate("a"));
    let names = until(&mut events, "run_ended").await;
    assert_eq!(names, ["run_started", "background_ended", "assistant_message", "run_ended"]);
    let result = agent.resume().await.unwrap();
    assert_eq!((result.status, result.text.as_str()), (RunStatus::Success, "it failed"));
    assert_eq!(result.messages.len(), 2, "the note and the answer: {:?}", result.messages);
    assert!(notes(&model, 2)[0].contains("bash_0_0") && notes(&model, 2)[0].contains("exit code 3"));
    assert_eq!(model.requests()[2].messages.last().unwrap().content.len(), 1, "the note is the input");
    assert_eq!(agent.prompt("and?").await.unwrap().text, "later");
    assert_eq!(notes(&model, 3).len(), 1, "told once");
    assert_eq!(model.requests().len(), 4);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn while_it_waits_the_agent_has_no_file_of_the_session_open() {
    let place = Place::new();
    let model = Scripted::new([waits("a"), Reply::text("started"), Reply::text("woken")]);
    let agent = place.waking(&model);
    let open = || {
        let files = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let files = files.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        files
            .filter(|path| path.ends_with("one/transcript.jsonl") && path.starts_with(place.sessions.path()))
            .count()
    };
    agent.prompt("go").await.unwrap();
    assert_eq!(open(), 0);
    let mut events = agent.events();
    open_gate(&place.gate("a"));
    until(&mut events, "run_ended").await;
    agent.resume().await.unwrap();
    assert_eq!(open(), 0);
    assert_eq!(model.requests().len(), 3);
}

#[tokio::test]
async fn an_agent_that_is_not_to_be_woken_tells_the_end_and_its_next_run_reads_it() {
    let place = Place::new();
    let model = Scripted::new([waits("a"), Reply::text("started"), Reply::text("later")]);
    let agent = place.builder(&model).build().unwrap();
    agent.prompt("go").await.unwrap();
    let mut events = agent.events();
    open_gate(&place.gate("a"));
    assert_eq!(until(&mut events, "background_ended").await, ["background_ended"]);
    settle().await;
    assert_eq!(model.requests().len(), 2, "no run begins");
    let end = |e: &SessionEntry| matches!(e, SessionEntry::BackgroundEnded(_));
    assert!(end(place.entries().await.last().unwrap()), "it is in the log when it is told");
    agent.prompt("and?").await.unwrap();
    let messages = &model.requests()[2].messages;
    let [Block::Text(note), Block::Text(prompt)] = messages.last().unwrap().content.as_slice() else {
        panic!("{messages:?}")
    };
    assert!(note.contains("exit code 3") && prompt == "and?", "in the order in which they came");
    assert_eq!(place.entries().await.iter().filter(|e| end(e)).count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_ends_during_the_last_answer_wakes_the_agent_once_the_run_is_over() {
    let place = Place::new();
    let gate = place.gate("a");
    let cell: Arc<std::sync::OnceLock<Agent>> = Arc::default();
    let watched = Arc::clone(&cell);
    let model = Scripted::responding(move |request| match request.messages.len() {
        1 => waits("a"),
        3 => {
            open_gate(&gate);
            while watched.get().unwrap().background_work()[0].is_running() {
                std::thread::yield_now();
            }
            Reply::text("started")
        }
        _ => Reply::text("woken"),
    });
    let agent = place.waking(&model);
    let mut events = agent.events();
    cell.set(agent.clone()).ok().unwrap();
    assert_eq!(agent.prompt("go").await.unwrap().text, "started", "the prompt has the result of its own run");
    until(&mut events, "run_ended").await;
    let names = until(&mut events, "run_ended").await;
    assert_eq!(names, ["run_started", "background_ended", "assistant_message", "run_ended"]);
    agent.close().await;
}

#[tokio::test]
async fn a_prompt_at_the_same_moment_and_the_end_of_work_are_told_one_after_the_other() {
    for turns in 0..12 {
        let place = Place::new();
        let model = Scripted::responding(|request| match request.messages.len() {
            1 => waits("a"),
            _ => Reply::text("ok"),
        });
        let agent = place.waking(&model);
        let events = agent.events();
        agent.prompt("go").await.unwrap();
        open_gate(&place.gate("a"));
        until_ended(&agent).await;
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        let (prompt, sent) = tokio::join!(agent.prompt("and?"), agent.send("hello"));
        assert!(prompt.unwrap().is_success(), "{turns}");
        sent.unwrap();
        settle().await;
        agent.close().await;
        let names = rest(events).await;
        let runs: Vec<&String> = names.iter().filter(|n| n.starts_with("run_")).collect();
        assert!(runs.chunks(2).all(|run| run == ["run_started", "run_ended"]), "{turns}: {names:?}");
        assert_eq!(names.iter().filter(|n| *n == "background_ended").count(), 1, "{turns}: {names:?}");
        let last = model.requests().len() - 1;
        assert_eq!(notes(&model, last).len(), 1, "{turns}");
    }
}

#[tokio::test]
async fn after_close_no_run_begins() {
    for turns in 0..12 {
        let place = Place::new();
        let model = Scripted::new([waits("a"), waits("b"), Reply::text("started"), Reply::text("woken")]);
        let agent = place.waking(&model);
        agent.prompt("go").await.unwrap();
        let events = agent.events();
        open_gate(&place.gate("a"));
        while agent.background_work()[0].is_running() {
            tokio::task::yield_now().await;
        }
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        // It ends the other command, which is no reason to wake up either.
        agent.close().await;
        let (requests, entries) = (model.requests().len(), place.entries().await.len());
        settle().await;
        assert_eq!((model.requests().len(), place.entries().await.len()), (requests, entries), "{turns}");
        let names = rest(events).await;
        let count = |name: &str| names.iter().filter(|n| *n == name).count();
        assert_eq!(count("run_started"), count("run_ended"), "{turns}: {names:?}");
        assert!(rest(agent.events()).await.is_empty(), "a closed agent has no events");
    }
}

#[tokio::test]
async fn stopped_work_is_told_and_wakes_nobody() {
    let place = Place::new();
    let model = Scripted::new([waits("a"), Reply::text("started"), Reply::text("later")]);
    let agent = place.waking(&model);
    agent.prompt("go").await.unwrap();
    let mut events = agent.events();
    agent.stop_task("bash_0_0").await.unwrap();
    assert_eq!(until(&mut events, "background_ended").await, ["background_ended"]);
    settle().await;
    assert_eq!(model.requests().len(), 2);
    agent.prompt("and?").await.unwrap();
    assert!(notes(&model, 2)[0].contains("was stopped"));
}

#[tokio::test]
async fn after_an_interrupt_the_end_of_work_is_told_and_wakes_nobody() {
    let place = Place::new();
    let hold = tool_fn("hold", "Waits.", |_: Nothing, cx| async move {
        cx.progress("held");
        cx.cancel().cancelled().await;
        Ok("over")
    });
    let model = Scripted::new([waits("a"), Reply::call("hold", "{}"), Reply::text("later")]);
    let agent = place.builder(&model).wake_on_task_end(true).tool(hold).build().unwrap();
    let mut run = agent.stream("go");
    while !matches!(run.next().await.unwrap().event, AgentEvent::ToolProgress(_)) {}
    agent.interrupt();
    assert!(run.result().await.unwrap().is_cancelled());
    let mut events = agent.events();
    open_gate(&place.gate("a"));
    assert_eq!(until(&mut events, "background_ended").await, ["background_ended"]);
    settle().await;
    assert_eq!(model.requests().len(), 2);
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

#[tokio::test]
async fn a_question_stays_open_while_the_end_of_work_is_told() {
    let place = Place::new();
    let asks = read_only_tool_fn("asks", "Asks.", |_: Nothing, cx| async move {
        Ok(cx.ask(Question::text("which?")).await?.to_text())
    });
    let model = Scripted::new([waits("a"), Reply::call("asks", "{}"), Reply::text("done")]);
    let agent = place.builder(&model).wake_on_task_end(true).tool(asks).build().unwrap();
    let waiting = agent.prompt("go").await.unwrap();
    assert_eq!(waiting.status, RunStatus::Waiting);
    let mut events = agent.events();
    open_gate(&place.gate("a"));
    assert_eq!(until(&mut events, "background_ended").await, ["background_ended"]);
    settle().await;
    assert_eq!(model.requests().len(), 2, "nobody answers in the user's place");
    let done = agent.answer(waiting.questions[0].0, Answer::text("the blue one")).await.unwrap();
    assert_eq!((done.status, done.text.as_str()), (RunStatus::Success, "done"));
    let last = &model.requests()[2];
    assert_eq!(open_agent::testing::newest_results(last), ["the blue one"]);
    assert_eq!(notes(&model, 2).len(), 1, "after the result");
}

#[tokio::test]
async fn a_session_that_another_agent_took_over_is_left_to_it() {
    let place = Place::new();
    let model = Scripted::new([waits("a"), Reply::text("started"), Reply::text("back")]);
    let agent = place.waking(&model);
    agent.prompt("go").await.unwrap();
    let other_model = Scripted::new([Reply::text("mine now")]);
    let other = place.waking(&other_model);
    other.prompt("hello").await.unwrap();
    assert!(notes(&other_model, 0)[0].contains("ended with the program"));
    let entries = place.entries().await.len();
    open_gate(&place.gate("a"));
    until_ended(&agent).await;
    settle().await;
    assert_eq!((model.requests().len(), place.entries().await.len()), (2, entries), "it takes nothing back");
    assert_eq!(agent.prompt("again").await.unwrap().text, "back");
    assert_eq!(notes(&model, 2).len(), 1);
}
