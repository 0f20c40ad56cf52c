//! A log that was damaged between two processes: whoever goes on with the session is told, and nothing is done on the
//! strength of what is lost.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use open_agent::session::NoticeKind;
use open_agent::testing::{Reply, Scripted, input};
use open_agent::{
    Agent, AgentBuilder, AgentEvent, Answer, AskId, Env, PermissionMode, QueryResult, Question, RunStatus,
    SessionId, ToolCx, tool_fn,
};
use serde_json::json;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

/// A session on disk, and a tool that counts how often it ran.
struct Case {
    folder: tempfile::TempDir,
    effects: Arc<AtomicUsize>,
}

impl Case {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), effects: Arc::default() }
    }

    fn agent<const N: usize>(&self, replies: [Reply; N]) -> Agent {
        let effects = Arc::clone(&self.effects);
        let effect = tool_fn("effect", "Has an effect.", move |_: Nothing, _| {
            effects.fetch_add(1, Ordering::SeqCst);
            async { Ok("did it") }
        });
        let ask = tool_fn("ask", "Asks the user.", |_: Nothing, cx: ToolCx| async move {
            Ok(cx.ask(Question::text("Which?")).await?.to_text())
        });
        let builder =
            AgentBuilder::with_env(Env::default()).provider(Scripted::new(replies)).cwd(self.folder.path());
        let builder = builder.tool(effect).tool(ask).permission_mode(PermissionMode::BypassPermissions);
        let sessions = self.folder.path().join(".sessions");
        let builder = builder.configure(|o| {
            o.sessions_dir = Some(sessions);
            o.session_id = SessionId::new("s").ok();
        });
        builder.build().unwrap()
    }

    /// Runs a prompt in an agent of its own.
    async fn run<const N: usize>(&self, replies: [Reply; N]) -> QueryResult {
        self.agent(replies).prompt("go").await.unwrap()
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join(".sessions/s/transcript.jsonl")
    }

    fn edit(&self, change: impl FnOnce(&mut Vec<String>)) {
        let text = fs::read_to_string(self.log()).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        change(&mut lines);
        fs::write(self.log(), lines.join("\n") + "\n").unwrap();
    }

    /// Damages the `n`-th record of a kind.
    fn damage(&self, kind: &str, n: usize) {
        self.edit(|lines| {
            let at = place(lines, kind, n);
            lines[at] = lines[at].replacen("\"at\":1", "\"at\":2", 1);
        });
    }
}

fn place(lines: &[String], kind: &str, n: usize) -> usize {
    let mark = format!("\"entry\":{{\"{kind}\"");
    lines.iter().enumerate().filter(|(_, line)| line.contains(&mark)).nth(n).unwrap().0
}

fn damage_told(result: &QueryResult) -> Vec<&str> {
    let notices = result.notices.iter().filter(|notice| notice.kind == NoticeKind::LogDamaged);
    notices.map(|notice| notice.text.as_str()).collect()
}

async fn waiting(case: &Case) -> AskId {
    let result = case.run([Reply::call("ask", "{}")]).await;
    assert_eq!(result.status, RunStatus::Waiting);
    result.questions[0].0
}

#[tokio::test]
async fn a_prompt_tells_what_is_damaged_once_as_an_event_and_in_its_result() {
    let case = Case::new();
    case.run([Reply::text("The number is 42.")]).await;
    case.damage("model_done", 0);
    for expected in [1, 0] {
        let mut stream = case.agent([Reply::text("Which?")]).stream("Which number was it?");
        let mut events = 0;
        while let Some(envelope) = stream.next().await {
            events += usize::from(
                matches!(&envelope.event, AgentEvent::Notice(n) if n.kind == NoticeKind::LogDamaged),
            );
        }
        let result = stream.result().await.unwrap();
        assert_eq!((events, damage_told(&result).len()), (expected, expected), "{:?}", result.notices);
    }
}

#[tokio::test]
async fn resuming_a_finished_run_tells_what_is_damaged() {
    let case = Case::new();
    case.run([Reply::text("The number is 42.")]).await;
    case.damage("model_done", 0);
    let result = case.agent([]).resume().await.unwrap();
    assert_eq!(damage_told(&result).len(), 1, "{:?}", result.notices);
}

#[tokio::test]
async fn a_record_that_was_removed_is_told() {
    let case = Case::new();
    case.run([Reply::text("The number is 42.")]).await;
    case.edit(|lines| {
        let at = place(lines, "model_done", 0);
        lines.remove(at);
    });
    let result = case.run([Reply::text("Which?")]).await;
    let told = damage_told(&result);
    assert!(told.len() == 1 && told[0].contains("which belongs before it, is missing"), "{told:?}");
}

#[tokio::test]
async fn the_project_is_where_the_agent_is_though_the_first_record_is_lost() {
    let case = Case::new();
    case.run([Reply::call("effect", "{}"), Reply::text("Done.")]).await;
    case.edit(|lines| lines.truncate(place(lines, "model_done", 0) + 1));
    case.damage("session_started", 0);
    let write = input(&json!({ "file_path": "new.txt", "content": "x" }));
    let agent = case.agent([Reply::call("Write", &write), Reply::text("Done.")]);
    assert!(agent.resume().await.unwrap().is_success());
    assert!(case.folder.path().join("new.txt").exists());
}

#[tokio::test]
async fn a_run_whose_beginning_is_lost_does_not_go_on() {
    let case = Case::new();
    let ask = waiting(&case).await;
    case.damage("run_started", 0);
    let agent = case.agent([Reply::text("Done.")]);
    let error = agent.answer(ask, Answer::text("this")).await.unwrap_err().to_string();
    assert!(error.contains("damaged or missing, so the run cannot go on: send a new prompt"), "{error}");
    let result = agent.prompt("Go on.").await.unwrap();
    assert!(result.is_success() && damage_told(&result).len() == 1, "{:?}", result.notices);
    assert_eq!(agent.resume().await.unwrap().text, "Done.", "the new run's beginning is not lost");

    // Nor does it look like the run before it.
    let case = Case::new();
    case.run([Reply::text("One.")]).await;
    case.run([Reply::call("effect", "{}"), Reply::text("Two.")]).await;
    case.damage("run_started", 1);
    let resumed = case.agent([]).resume().await.unwrap_err().to_string();
    assert!(resumed.contains("send a new prompt"), "{resumed}");
    assert_eq!(case.effects.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_answer_to_a_question_that_is_lost_says_so() {
    let case = Case::new();
    let ask = waiting(&case).await;
    case.damage("asked", 0);
    let error = case.agent([]).answer(ask, Answer::text("this")).await.unwrap_err().to_string();
    assert!(error.contains("or it was lost with a record of the log") && error.contains("line "), "{error}");
    let sound = Case::new();
    sound.run([Reply::text("One.")]).await;
    let error = sound.agent([]).answer(ask, Answer::text("this")).await.unwrap_err().to_string();
    assert!(error.ends_with("waits for an answer"), "{error}");
}
