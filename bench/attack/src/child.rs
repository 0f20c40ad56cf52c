//! The process that is killed: it runs one agent on one session and tells on its standard output what came of it, a
//! JSON object per line.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use open_agent::{
    Agent, AgentError, AgentEvent, Answer, AskId, PermissionMode, QueryResult, Question, RunStatus,
    SessionId, read_only_tool_fn, tool_fn,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::now;

/// How a child takes a session up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    /// With a new prompt.
    Prompt,
    /// With `resume()`.
    Resume,
    /// With the answer to the question that waits; with `resume()` if none is known.
    Answer,
}

/// What a child has to do.
#[derive(Clone, Serialize, Deserialize)]
pub struct Job {
    /// The model's address.
    pub url: String,
    /// The folder of all sessions.
    pub sessions: PathBuf,
    /// The session's name.
    pub session: String,
    /// The project's folder.
    pub cwd: PathBuf,
    /// The file to which effects are written.
    pub journal: PathBuf,
    /// How the session is taken up.
    pub how: How,
    /// The question to answer: its id and its text.
    pub ask: Option<(AskId, String)>,
    /// Whether the child answers further questions itself; otherwise it ends at the first.
    pub answers: bool,
}

impl Job {
    /// Starts a child.
    pub fn start(&self) -> std::io::Result<Child> {
        let out = std::fs::File::create(self.cwd.with_extension("out"))?;
        let err = std::fs::File::create(self.cwd.with_extension("err"))?;
        Command::new(std::env::current_exe()?)
            .arg("child")
            .arg(serde_json::to_string(self)?)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &self.sessions)
            .env("ANTHROPIC_API_KEY", "none")
            .env("AT_JOURNAL", &self.journal)
            .env("RUST_BACKTRACE", "1")
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
    }

    /// Returns what the last child said so far, and what stands in its standard error.
    pub fn said(&self) -> (Vec<Value>, String) {
        let read = |kind| std::fs::read_to_string(self.cwd.with_extension(kind)).unwrap_or_default();
        let lines = read("out").lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        (lines, read("err"))
    }
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Input {
    /// What the call is called in the journal.
    label: String,
    /// How many milliseconds it takes.
    ms: u64,
}

fn say(value: &Value) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(format!("{value}\n").as_bytes());
    let _ = out.flush();
}

/// Appends a line to the journal, by one write.
fn note(journal: &PathBuf, what: &str, label: &str) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(journal)?;
    file.write_all(format!("{what} {label} {:.6}\n", now()).as_bytes())
}

/// Returns the answer that belongs to a question of the tool `ask`.
pub fn answer_to(question: &str) -> String {
    let label = crate::plan::label_in(question).unwrap_or_default();
    format!("answer for {label}")
}

/// Describes the agent of a job.
pub fn builder(job: &Job) -> open_agent::AgentBuilder {
    let journal = job.journal.clone();
    let look = read_only_tool_fn("look", "Looks at something.", move |input: Input, _cx| {
        let journal = journal.clone();
        async move {
            note(&journal, "l", &input.label)?;
            tokio::time::sleep(Duration::from_millis(input.ms)).await;
            Ok(format!("saw:{}", input.label))
        }
    });
    let journal = job.journal.clone();
    let effect = tool_fn("effect", "Has an effect.", move |input: Input, _cx| {
        let journal = journal.clone();
        async move {
            note(&journal, "b", &input.label)?;
            tokio::time::sleep(Duration::from_millis(input.ms)).await;
            note(&journal, "e", &input.label)?;
            Ok(format!("did:{}", input.label))
        }
    });
    let journal = job.journal.clone();
    let ask =
        tool_fn("ask", "Asks the user, then has an effect.", move |input: Input, cx: open_agent::ToolCx| {
            let journal = journal.clone();
            async move {
                note(&journal, "q", &input.label)?;
                let answer = cx.ask(Question::text(format!("What about {}?", input.label))).await?.to_text();
                note(&journal, "b", &input.label)?;
                tokio::time::sleep(Duration::from_millis(input.ms)).await;
                note(&journal, "e", &input.label)?;
                Ok(format!("did:{} with {answer}", input.label))
            }
        });
    let (url, sessions) = (job.url.clone(), job.sessions.clone());
    let session = SessionId::new(job.session.clone()).ok();
    Agent::builder()
        .tool(look)
        .tool(effect)
        .tool(ask)
        .permission_mode(PermissionMode::BypassPermissions)
        .cwd(&job.cwd)
        .configure(|o| {
            o.base_url = Some(url);
            o.sessions_dir = Some(sessions);
            o.session_id = session;
            o.max_turns = None;
        })
}

/// Does the job.
pub async fn run(job: Job) -> Result<(), Box<dyn std::error::Error>> {
    let agent = builder(&job).build()?;
    let mut next = match (job.how, job.ask.clone()) {
        (How::Prompt, _) => prompt(&agent).await,
        (How::Answer, Some((id, question))) => {
            match agent.answer(id, Answer::text(answer_to(&question))).await {
                Err(AgentError::Engine(open_agent::engine::EngineError::NoQuestion { ask: id, .. })) => {
                    say(&json!({"fallback": format!("no question {id}")}));
                    agent.resume().await
                }
                other => other,
            }
        }
        _ => agent.resume().await,
    };
    if let Err(AgentError::NothingToResume) = next {
        say(&json!({"fallback": "nothing to resume"}));
        next = prompt(&agent).await;
    }
    loop {
        let result = match next {
            Ok(result) => result,
            Err(error) => {
                say(&json!({"error": error.to_string(), "debug": format!("{error:?}")}));
                break;
            }
        };
        tell(&result);
        match result.questions.first() {
            Some((id, question))
                if result.status == RunStatus::Waiting
                    && (job.answers || job.how == How::Answer && job.ask.is_none()) =>
            {
                next = agent.answer(*id, Answer::text(answer_to(&question.to_text()))).await;
            }
            _ => break,
        }
    }
    agent.close().await;
    Ok(())
}

async fn prompt(agent: &Agent) -> Result<QueryResult, AgentError> {
    let mut run = agent.stream("Go on with the plan.");
    while let Some(envelope) = run.next().await {
        if let AgentEvent::Notice(notice) = envelope.event {
            say(&json!({"notice": notice.text}));
        }
    }
    run.result().await
}

fn tell(result: &QueryResult) {
    let questions: Vec<_> = result.questions.iter().map(|(id, q)| json!([id, q.to_text()])).collect();
    let notices: Vec<_> = result.notices.iter().map(|n| n.text.clone()).collect();
    say(&json!({
        "result": result.text, "status": result.status.as_str(), "errors": result.errors, "notices": notices,
        "questions": questions, "turns": result.turns, "spent_before": format!("{:?}", result.spent_before),
        "cost": format!("{:?}", result.cost), "messages": result.messages.len(),
    }));
}
