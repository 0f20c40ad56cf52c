//! Small fixed cases of damage, each in one process and with a scripted model: the shortest ways to repeat what the
//! random attack on logs finds.

use std::path::PathBuf;

use open_agent::testing::{Reply, Scripted};
use open_agent::{
    Agent, AgentError, AgentEvent, Answer, AskId, PermissionMode, QueryResult, Question, SessionId, ToolCx,
    tool_fn,
};
use serde_json::Value;

use crate::report::Report;

/// The session of a case.
struct Case {
    folder: PathBuf,
}

impl Case {
    fn new(report: &Report, name: &str) -> std::io::Result<Self> {
        let folder = report.folder().join(name);
        std::fs::create_dir_all(folder.join("project"))?;
        std::fs::write(folder.join("project/notes.txt"), "the contents of the notes\n")?;
        Ok(Self { folder })
    }

    fn agent(&self, replies: impl IntoIterator<Item = Reply>) -> Result<Agent, open_agent::ConfigError> {
        let journal = self.folder.join("journal");
        let note = move |text: String| std::fs::write(&journal, text);
        let other = note.clone();
        let effect = tool_fn("effect", "Has an effect.", move |_: Value, _| {
            let noted = note("the effect\n".to_owned());
            async move { noted.map(|()| "did it").map_err(Into::into) }
        });
        let ask = tool_fn("ask", "Asks the user.", move |_: Value, cx: ToolCx| {
            let note = other.clone();
            async move {
                let answer = cx.ask(Question::text("Which?")).await?.to_text();
                note(format!("answered {answer}\n"))?;
                Ok("asked")
            }
        });
        Agent::builder()
            .provider(Scripted::new(replies))
            .tool(effect)
            .tool(ask)
            .cwd(self.folder.join("project"))
            .permission_mode(PermissionMode::BypassPermissions)
            .configure(|o| {
                o.sessions_dir = Some(self.folder.join("sessions"));
                o.session_id = SessionId::new("case").ok();
            })
            .build()
    }

    /// Runs prompts in an agent of their own, and returns the question that the last one ended with.
    async fn prepare(
        &self,
        prompts: usize,
        replies: Vec<Reply>,
    ) -> Result<Option<AskId>, Box<dyn std::error::Error>> {
        let agent = self.agent(replies)?;
        let mut ask = None;
        for _ in 0..prompts {
            ask = agent.prompt("Go on.").await?.questions.first().map(|(id, _)| *id);
        }
        agent.close().await;
        Ok(ask)
    }

    fn log(&self) -> PathBuf {
        self.folder.join("sessions/case/transcript.jsonl")
    }

    /// Changes the lines of the log.
    fn edit(&self, change: impl FnOnce(&mut Vec<String>)) -> std::io::Result<()> {
        let text = std::fs::read_to_string(self.log())?;
        let mut lines = text.lines().map(str::to_owned).collect();
        change(&mut lines);
        std::fs::write(self.log(), lines.join("\n") + "\n")
    }

    fn journal(&self) -> String {
        std::fs::read_to_string(self.folder.join("journal")).unwrap_or_default()
    }
}

/// Returns the place of the `n`-th record of a kind.
fn find(lines: &[String], kind: &str, n: usize) -> usize {
    let mark = format!("\"entry\":{{\"{kind}\"");
    lines.iter().enumerate().filter(|(_, line)| line.contains(&mark)).nth(n).map_or(0, |(place, _)| place)
}

/// Changes a digit of the record's time, so that its checksum is wrong.
fn spoil(lines: &mut [String], kind: &str, n: usize) {
    let place = find(lines, kind, n);
    lines[place] = lines[place].replacen("\"at\":1", "\"at\":2", 1);
}

/// Whether an outcome says that something of the log is damaged or lost.
fn tells(outcome: &Result<QueryResult, AgentError>) -> bool {
    let texts: Vec<String> = match outcome {
        Ok(result) => result.notices.iter().map(|n| n.text.clone()).chain(result.errors.clone()).collect(),
        Err(error) => vec![error.to_string()],
    };
    texts.iter().any(|text| text.contains("damaged") || text.contains("missing") || text.contains("lost"))
}

fn short(outcome: &Result<QueryResult, AgentError>) -> String {
    match outcome {
        Ok(r) => format!("{:?} {:?}, errors {:?}, notices {:?}", r.status, r.text, r.errors, r.notices),
        Err(error) => format!("error {error}"),
    }
}

/// Runs all cases.
pub async fn attack() -> Result<bool, Box<dyn std::error::Error>> {
    let mut report = Report::new("cases", 0)?;
    let call = |tool: &str| Reply::call(tool, "{}");
    let glob = || Reply::call("Glob", r#"{"pattern": "*"}"#);

    let case = Case::new(&report, "prompt-after-damage")?;
    case.prepare(1, vec![Reply::text("The number is 42.")]).await?;
    case.edit(|lines| spoil(lines, "model_done", 0))?;
    let agent = case.agent([Reply::text("Which number?")])?;
    let mut run = agent.stream("Which number was it?");
    let mut events = 0;
    while let Some(envelope) = run.next().await {
        events += usize::from(matches!(&envelope.event, AgentEvent::Notice(n) if n.text.contains("damaged")));
    }
    let outcome = run.result().await;
    agent.close().await;
    verdict(&mut report, "a damaged answer, then prompt()", events > 0 && tells(&outcome), "SILENT", || {
        format!("{events} events of it, {}", short(&outcome))
    });

    let case = Case::new(&report, "resume-after-damage")?;
    case.prepare(1, vec![Reply::text("The number is 42.")]).await?;
    case.edit(|lines| spoil(lines, "model_done", 0))?;
    let outcome = case.agent([])?.resume().await;
    verdict(&mut report, "a damaged answer, then resume()", tells(&outcome), "SILENT", || short(&outcome));

    let case = Case::new(&report, "removed-answer")?;
    case.prepare(1, vec![Reply::text("The number is 42.")]).await?;
    case.edit(|lines| drop(lines.remove(find(lines, "model_done", 0))))?;
    let outcome = case.agent([Reply::text("Which number?")])?.prompt("Which number was it?").await;
    let noted = std::fs::read_to_string(case.log())?.contains("log_damaged");
    verdict(&mut report, "a removed answer, then prompt()", tells(&outcome) && noted, "SILENT", || {
        format!("in the log {noted}, {}", short(&outcome))
    });

    let case = Case::new(&report, "removed-result")?;
    case.prepare(1, vec![glob(), glob(), Reply::text("Done.")]).await?;
    case.edit(|lines| {
        lines.truncate(find(lines, "model_done", 1) + 1);
        lines.remove(find(lines, "done", 0));
    })?;
    let outcome = case.agent([Reply::text("Done.")])?.resume().await;
    verdict(&mut report, "a removed result, then resume()", tells(&outcome), "SILENT", || short(&outcome));

    let case = Case::new(&report, "first-record")?;
    case.prepare(1, vec![glob(), Reply::text("Done.")]).await?;
    case.edit(|lines| {
        lines.truncate(find(lines, "model_done", 0) + 1);
        spoil(lines, "session_started", 0);
    })?;
    // The path is made relative to the file system's root, and leads back into the case's folder.
    let inside = case.folder.strip_prefix("/").unwrap_or(&case.folder).join("project/new.txt");
    let input = serde_json::json!({"file_path": inside, "content": "x"}).to_string();
    let outcome = case.agent([Reply::call("Write", &input), Reply::text("Done.")])?.resume().await;
    let outside = case.folder.join("project/new.txt").exists();
    let relative = case.folder.join("project").join(&inside).exists();
    verdict(&mut report, "a damaged first record, then resume()", !outside && relative, "BROKEN", || {
        format!(
            "a relative path was written below / instead of below the project's folder; {}",
            short(&outcome)
        )
    });

    let case = Case::new(&report, "run-start-answer")?;
    let ask = case.prepare(1, vec![call("ask")]).await?.ok_or("no question")?;
    case.edit(|lines| spoil(lines, "run_started", 0))?;
    let agent = case.agent([Reply::text("Done."), Reply::text("Done.")])?;
    let outcome = agent.answer(ask, Answer::text("this")).await;
    let explained = tells(&outcome) || matches!(&outcome, Ok(result) if result.is_success());
    verdict(&mut report, "a damaged start of the run, then answer()", explained, "SILENT", || {
        format!("journal {:?}, {}", case.journal(), short(&outcome))
    });
    agent.close().await;

    let case = Case::new(&report, "run-start-resume")?;
    case.prepare(2, vec![Reply::text("One."), call("effect"), Reply::text("Two.")]).await?;
    case.edit(|lines| {
        lines.truncate(find(lines, "model_done", 1) + 1);
        spoil(lines, "run_started", 1);
    })?;
    let outcome = case.agent([Reply::text("Two.")])?.resume().await;
    verdict(
        &mut report,
        "a damaged start of the second run, then resume()",
        tells(&outcome),
        "SILENT",
        || short(&outcome),
    );

    let case = Case::new(&report, "question")?;
    let ask = case.prepare(1, vec![call("ask")]).await?.ok_or("no question")?;
    case.edit(|lines| spoil(lines, "asked", 0))?;
    let agent = case.agent([Reply::text("Done."), Reply::text("Done.")])?;
    let outcome = agent.answer(ask, Answer::text("this")).await;
    verdict(&mut report, "a damaged question, then answer()", tells(&outcome), "SILENT", || short(&outcome));
    agent.close().await;

    Ok(report.end())
}

fn verdict(report: &mut Report, at: &str, good: bool, kind: &str, what: impl FnOnce() -> String) {
    report.count("cases", 1);
    if good {
        report.line(&format!("good: {at}"));
    } else {
        report.violation(at, &format!("{kind}: {}", what()));
    }
}
