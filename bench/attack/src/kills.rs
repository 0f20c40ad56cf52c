//! The first attack: a process that runs an agent is killed at random moments and another one goes on.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use open_agent::AskId;
use serde_json::Value;

use crate::child::{How, Job};
use crate::plan::random_plan;
use crate::report::Report;
use crate::rng::Rng;
use crate::server::Server;
use crate::truth::{judge, read_journal};

/// When a process is killed.
#[derive(Clone, Copy, Debug)]
pub enum Moment {
    /// So many microseconds after its start.
    After(u64),
    /// So many microseconds after so many requests.
    Requests(usize, u64),
    /// So many microseconds after so many bytes of the journal.
    Journal(u64, u64),
    /// So many microseconds after so many bytes of the log.
    Log(u64, u64),
    /// Never.
    Never,
}

fn random_moment(rng: &mut Rng) -> Moment {
    match rng.below(10) {
        0..2 => Moment::After(rng.below(500_000)),
        2..5 => Moment::Requests(1 + rng.below(5) as usize, rng.below(40_000)),
        5..8 => Moment::Journal(1 + rng.below(260), rng.below(4_000)),
        _ => Moment::Log(1 + rng.below(9_000), rng.below(1_500)),
    }
}

/// A session under attack and its files.
pub struct Site {
    /// The session's folder within the report's.
    pub folder: PathBuf,
    /// What a child is told.
    pub job: Job,
}

impl Site {
    /// Makes the files of a session.
    pub fn new(folder: PathBuf, url: String, session: &str) -> std::io::Result<Self> {
        let cwd = folder.join("project");
        std::fs::create_dir_all(&cwd)?;
        std::fs::create_dir_all(folder.join("sessions"))?;
        std::fs::write(cwd.join("notes.txt"), "the contents of the notes\n")?;
        std::fs::write(folder.join("journal"), "")?;
        let job = Job {
            url,
            sessions: folder.join("sessions"),
            session: session.to_owned(),
            cwd,
            journal: folder.join("journal"),
            how: How::Prompt,
            ask: None,
            answers: false,
        };
        Ok(Self { folder, job })
    }

    /// Returns the session's log, as soon as there is one.
    pub fn log(&self) -> Option<PathBuf> {
        find_log(&self.job.sessions)
    }
}

/// Finds the only file under `folder` whose name ends in `.jsonl`.
pub fn find_log(folder: &Path) -> Option<PathBuf> {
    for entry in std::fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if let Some(found) = find_log(&path) {
                return Some(found);
            }
        } else if path.extension().is_some_and(|e| e == "jsonl") {
            return Some(path);
        }
    }
    None
}

fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |m| m.len())
}

/// Waits for the moment and kills, or waits for the end. Returns whether the process was killed, and whether it hung.
pub fn kill_at(
    child: &mut Child,
    moment: Moment,
    site: &Site,
    server: &Server,
    key: &str,
) -> std::io::Result<(bool, bool)> {
    let begin = Instant::now();
    let (requests, journal) = (server.count(key), size(&site.job.journal));
    let mut log = site.log();
    let before = log.as_deref().map_or(0, size);
    let mut due = None;
    loop {
        if child.try_wait()?.is_some() {
            return Ok((false, false));
        }
        if begin.elapsed() > Duration::from_secs(40) {
            child.kill()?;
            child.wait()?;
            return Ok((false, true));
        }
        if due.is_none() {
            let wait = match moment {
                Moment::After(us) => Some(us),
                Moment::Requests(n, us) => (server.count(key) >= requests + n).then_some(us),
                Moment::Journal(n, us) => (size(&site.job.journal) >= journal + n).then_some(us),
                Moment::Log(n, us) => {
                    log = log.or_else(|| site.log());
                    (log.as_deref().map_or(0, size) >= before + n).then_some(us)
                }
                Moment::Never => None,
            };
            due = wait.map(|us| Instant::now() + Duration::from_micros(us));
        }
        match due {
            Some(due) if Instant::now() >= due => {
                child.kill()?;
                child.wait()?;
                return Ok((true, false));
            }
            Some(due) => std::thread::sleep((due - Instant::now()).min(Duration::from_micros(300))),
            None => std::thread::sleep(Duration::from_micros(300)),
        }
    }
}

/// Runs a child to its end.
pub fn run_child(site: &Site, server: &Server, key: &str) -> std::io::Result<(Option<i32>, bool)> {
    let mut child = site.job.start()?;
    let (_, hung) = kill_at(&mut child, Moment::Never, site, server, key)?;
    Ok((child.wait()?.code(), hung))
}

/// Adds the labels of calls whose results stand in the log's complete lines, and, marked as such, of those whose question
/// is answered there.
fn finished(log: &Path, labels: &mut HashSet<String>) {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    for mark in ["did:@L", "saw:@L", "answer for @L"] {
        for (at, _) in complete.match_indices(mark) {
            if let Some(label) = crate::plan::label_in(&complete[at..]) {
                let kind = if mark.starts_with("answer") { "answered " } else { "" };
                labels.insert(format!("{kind}{label}"));
            }
        }
    }
}

/// The last question that a child put, if it ended with one.
pub fn open_question(said: &[Value]) -> Option<(AskId, String)> {
    let last = said.iter().rev().find(|line| line["result"].is_string())?;
    let question = last["questions"].as_array()?.first()?;
    let id: AskId = serde_json::from_value(question[0].clone()).ok()?;
    Some((id, question[1].as_str()?.to_owned()))
}

/// Kills until there were `goal` kills, or kills the session `only`.
pub fn attack(seed: u64, goal: usize, only: Option<u64>) -> std::io::Result<bool> {
    let mut report = Report::new("kills", seed)?;
    let server = Server::start()?;
    let mut kills = 0;
    for index in only.unwrap_or(0).. {
        kills += session(seed, index, &server, &mut report)?;
        if kills >= goal || only.is_some() {
            break;
        }
        if index % 10 == 9 {
            println!("{kills} kills in {} sessions", index + 1);
        }
    }
    Ok(report.end())
}

fn session(seed: u64, index: u64, server: &Server, report: &mut Report) -> std::io::Result<usize> {
    let mut rng = Rng::new(seed, index);
    let key = format!("s{index}");
    let plan = random_plan(&mut rng, 24);
    let url = server.talk(&key, plan, 0, true, true);
    let mut site = Site::new(report.folder().join(&key), url, &key)?;
    let mut history = Vec::new();
    let (mut kills, mut in_log, mut ask, mut violations) = (0, HashSet::new(), None, Vec::new());
    let mut next = How::Prompt;
    let mut done = false;
    report.count("sessions", 1);
    for child_no in 0..60 {
        site.job.how = next;
        site.job.ask = if next == How::Answer { ask.clone() } else { None };
        site.job.answers = rng.percent(40);
        let moment = if child_no < 40 { random_moment(&mut rng) } else { Moment::Never };
        let mut child = site.job.start()?;
        let (killed, hung) = kill_at(&mut child, moment, &site, server, &key)?;
        let code = child.wait()?.code();
        let (said, stderr) = site.job.said();
        history.push(format!(
            "child {child_no}: {next:?} {moment:?}, killed {killed}, code {code:?}, said {said:?}"
        ));
        report.count(&format!("children that began with {next:?}"), 1);
        if let Some(log) = site.log() {
            finished(&log, &mut in_log);
        }
        if stderr.contains("panicked") || (!killed && code != Some(0)) {
            violations.push(format!("PANIC or failure, code {code:?}: {stderr}"));
        }
        if hung {
            violations.push("HANG: the child did nothing for 40 s".to_owned());
        }
        for line in &said {
            if line["fallback"].is_string() {
                report.count(
                    &format!(
                        "fallbacks: {}",
                        line["fallback"].as_str().unwrap_or_default().split(' ').next().unwrap_or_default()
                    ),
                    1,
                );
            }
            if let Some(error) = line["error"].as_str() {
                violations.push(format!("ERROR from child {child_no} ({next:?}): {error}"));
                std::thread::sleep(Duration::from_secs(1));
            }
        }
        let last = said.iter().rev().find(|line| line["result"].is_string());
        let status = last.and_then(|line| line["status"].as_str()).unwrap_or_default();
        if let Some(line) = last.filter(|_| !killed) {
            if !["success", "waiting"].contains(&status) {
                violations.push(format!("RESULT of child {child_no} is {line}"));
            }
            let text = line["result"].as_str().unwrap_or_default();
            let want = server.exchanges(&key).last().map(|e| e.text.clone()).unwrap_or_default();
            if status == "success" && text != want {
                violations.push(format!("RESULT of child {child_no} is {text:?} and should be {want:?}"));
            }
            done = status == "success" && text.starts_with("FINAL");
        }
        if killed {
            kills += 1;
            report.count("kills", 1);
            report.count(
                &format!("kills by {}", format!("{moment:?}").split('(').next().unwrap_or_default()),
                1,
            );
        }
        // A child that was killed after it had told of its end has ended, too.
        let question = open_question(&said);
        if question.is_some() {
            ask = question;
        }
        if done {
            break;
        }
        next = match (killed, status) {
            (true, _) => [How::Prompt, How::Resume, How::Answer][rng.below(3) as usize],
            (false, "waiting") => [How::Prompt, How::Resume, How::Answer, How::Answer][rng.below(4) as usize],
            (false, _) => {
                if rng.percent(75) {
                    How::Prompt
                } else {
                    How::Resume
                }
            }
        };
        if rng.percent(50) {
            std::thread::sleep(Duration::from_millis(rng.below(40)));
        }
    }
    // Whatever a killed process left running may still have its effect.
    std::thread::sleep(Duration::from_millis(200));
    let exchanges = server.exchanges(&key);
    let verdict = judge(&exchanges, &read_journal(&site.job.journal), &in_log, true);
    if !done {
        violations.push("UNFINISHED: the session did not reach its end in 60 children".to_owned());
    } else {
        let requests = exchanges.len();
        site.job.how = How::Resume;
        run_child(&site, server, &key)?;
        let (said, _) = site.job.said();
        let text =
            said.last().and_then(|line| line["result"].as_str().map(str::to_owned)).unwrap_or_default();
        let want = exchanges.last().map(|e| e.text.clone()).unwrap_or_default();
        if text != want || server.count(&key) != requests {
            violations.push(format!(
                "RESULT by resume() of the finished session is {said:?} and should be {want:?}"
            ));
        }
    }
    report.count("requests", exchanges.len());
    for violation in &violations {
        report.violation(&key, violation);
    }
    report.add(&key, &verdict);
    if violations.is_empty() && verdict.violations.is_empty() {
        std::fs::remove_dir_all(&site.folder)?;
    } else {
        let bodies: Vec<String> =
            exchanges.iter().map(|e| format!("{:.3} {}\n=> {}\n", e.at, e.body, e.text)).collect();
        std::fs::write(site.folder.join("requests"), bodies.join("\n"))?;
        std::fs::write(site.folder.join("children"), history.join("\n"))?;
    }
    server.forget(&key);
    Ok(kills)
}
