//! The third attack: many idle agents in one process that may open only 1,024 files.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use open_agent::{Agent, RunStatus};
use serde_json::{Value, json};

use crate::child::{How, Job, builder};
use crate::plan::Call;
use crate::report::Report;
use crate::server::Server;

/// The number of agents that run at the same time.
const AT_ONCE: usize = 32;

/// The number of open files that the process may have while all agents are idle, whatever their number, beside one
/// connection, kept for the next request, for each agent that ever ran at the same time as the others.
const IDLE_FILES: u64 = 64;

/// Makes the agents in a process of its own and judges what it tells.
pub fn attack(seed: u64, count: u64) -> std::io::Result<bool> {
    let mut report = Report::new("idle", seed)?;
    let server = Server::start()?;
    let round = [vec![(Call::Look, 3), (Call::Bash, 1)], vec![]];
    let plan = (0..8).flat_map(|_| round.clone()).collect();
    let url = server.talk("idle", plan, 0, false, false);
    let folder = report.folder().to_owned();
    let out = std::fs::File::create(folder.join("out"))?;
    let status = Command::new("sh")
        .args(["-c", "ulimit -n 1024 && exec \"$0\" \"$@\""])
        .arg(std::env::current_exe()?)
        .args(["idle-child", &url, &count.to_string()])
        .arg(&folder)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", &folder)
        .env("ANTHROPIC_API_KEY", "none")
        .env("AT_JOURNAL", folder.join("journal"))
        .stdin(Stdio::null())
        .stdout(out)
        .status()?;
    if !status.success() {
        report.violation("the process", &format!("PANIC or failure: it ended with {status}"));
    }
    let text = std::fs::read_to_string(folder.join("out"))?;
    let (mut rounds, mut at_once) = (0, 0);
    for line in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let mut shown = line.clone();
        if let Some(errors) = shown.get_mut("errors").and_then(Value::as_array_mut) {
            let number = errors.len();
            errors.truncate(3);
            shown["number_of_errors"] = number.into();
        }
        report.line(&shown.to_string());
        at_once = at_once.max(line["at_once"].as_u64().unwrap_or_default());
        let allowed = IDLE_FILES + at_once;
        if line["files_idle"].as_u64().is_some_and(|files| files > allowed) {
            report.violation("the process", &format!("FILES: more than {allowed} are open: {line}"));
        }
        let crowd = line["round"] == "crowd";
        if line["round"].is_string() {
            rounds += 1;
        }
        for error in line["errors"].as_array().into_iter().flatten() {
            // More agents at the same time than the process may open files cannot all succeed, but have to say why.
            if crowd && error.as_str().is_some_and(|text| text.to_lowercase().contains("open files")) {
                continue;
            }
            report.violation(line["round"].as_str().unwrap_or_default(), &format!("ERROR: {error}"));
        }
    }
    if rounds < 5 {
        report.violation("the process", "UNFINISHED: it did not tell of all rounds");
    }
    let _ = std::fs::remove_dir_all(folder.join("sessions"));
    Ok(report.end())
}

/// Bytes of memory in use, as Linux tells it.
fn resident() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|pages| pages.parse::<f64>().ok()).unwrap_or_default() * 4096.0
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// The process with the agents: its arguments are the model's address, the number of agents and a folder.
pub async fn child(args: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let [url, count, folder] = args else { return Err("usage: idle-child URL N FOLDER".into()) };
    let (count, folder): (usize, &Path) = (count.parse()?, Path::new(folder));
    std::fs::create_dir_all(folder.join("project"))?;
    let builder = builder(&Job {
        url: url.clone(),
        sessions: folder.join("sessions"),
        session: String::new(),
        cwd: folder.join("project"),
        journal: folder.join("journal"),
        how: How::Prompt,
        ask: None,
        answers: false,
    });
    let first = builder.clone().build()?;
    first.prompt("Begin.").await?;
    let most = Arc::new(AtomicUsize::new(0));
    let sampled = Arc::clone(&most);
    tokio::spawn(async move {
        loop {
            sampled.fetch_max(open_files(), Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    let before = resident();
    println!("{}", json!({"files_before": open_files(), "resident_mb": before / 1e6}));
    let mut agents = Vec::new();
    for _ in 0..count {
        agents.push(builder.clone().build()?);
    }
    println!(
        "{}",
        json!({"built": count, "files": open_files(), "per_agent_kb": (resident() - before) / count as f64 / 1e3})
    );
    for (name, at_once) in [
        ("first", AT_ONCE),
        ("second", AT_ONCE),
        ("third", AT_ONCE * 4),
        ("crowd", count),
        ("after the crowd", AT_ONCE),
    ] {
        most.store(0, Ordering::Relaxed);
        let begin = Instant::now();
        let errors = round(&agents, at_once).await;
        let busy = most.load(Ordering::Relaxed);
        let seconds = begin.elapsed().as_secs_f64();
        tokio::time::sleep(Duration::from_secs(1)).await;
        println!(
            "{}",
            json!({"round": name, "at_once": at_once, "seconds": seconds, "most_files": busy, "files_idle": open_files(),
                "per_agent_kb": (resident() - before) / count as f64 / 1e3, "errors": errors})
        );
    }
    Ok(())
}

/// Lets each agent do a run, so many at the same time, and returns what went wrong.
async fn round(agents: &[Agent], at_once: usize) -> Vec<String> {
    let mut errors = Vec::new();
    let mut runs = tokio::task::JoinSet::new();
    for (place, agent) in agents.iter().enumerate() {
        if runs.len() >= at_once {
            errors.extend(
                runs.join_next().await.and_then(|run| run.unwrap_or_else(|error| Some(error.to_string()))),
            );
        }
        let agent = agent.clone();
        runs.spawn(async move {
            match agent.prompt("Go on.").await {
                Ok(result) if result.status == RunStatus::Success && result.text.starts_with("PAUSE") => None,
                Ok(result) => {
                    Some(format!("agent {place}: {:?} {:?} {:?}", result.status, result.text, result.errors))
                }
                Err(error) => Some(format!("agent {place}: {error}")),
            }
        });
    }
    while let Some(run) = runs.join_next().await {
        errors.extend(run.unwrap_or_else(|error| Some(error.to_string())));
    }
    errors
}
