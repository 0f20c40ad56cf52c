//! The second attack: damage to the logs of finished, crashed and waiting sessions.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use open_agent::AskId;
use serde_json::Value;

use crate::child::{How, Job};
use crate::kills::{Moment, Site, kill_at, open_question, run_child};
use crate::plan::{Call, Step, random_plan};
use crate::report::Report;
use crate::rng::Rng;
use crate::server::{Exchange, Server};
use crate::truth::{flat, judge, read_journal};

/// A session as it was left, to be copied and damaged.
struct Base {
    name: String,
    site: Site,
    plan: Vec<Step>,
    nonce: u64,
    ask: Option<(AskId, String)>,
    hows: Vec<How>,
}

/// What is done to a log.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Damage {
    Flip,
    Removed,
    DuplicatedNext,
    DuplicatedAtEnd,
    SwappedNext,
    SwappedFar,
    LineCut,
    LineOfZeros,
    ByteOrderMark,
    StrayText,
    StrayJson,
    StrayRecord,
    BlankLine,
    ZerosAtEnd,
    CarriageReturns,
    Foreign,
    TailCut,
    Emptied,
    NewerKind,
    NewerVersion,
}

/// All kinds of damage beside bit flips.
const VARIANTS: [Damage; 19] = [
    Damage::Removed,
    Damage::DuplicatedNext,
    Damage::DuplicatedAtEnd,
    Damage::SwappedNext,
    Damage::SwappedFar,
    Damage::LineCut,
    Damage::LineOfZeros,
    Damage::ByteOrderMark,
    Damage::StrayText,
    Damage::StrayJson,
    Damage::StrayRecord,
    Damage::BlankLine,
    Damage::ZerosAtEnd,
    Damage::CarriageReturns,
    Damage::Foreign,
    Damage::TailCut,
    Damage::Emptied,
    Damage::NewerKind,
    Damage::NewerVersion,
];

/// What a damaged session came to.
struct Outcome {
    said: Vec<Vec<Value>>,
    exchanges: Vec<Exchange>,
    problems: Vec<String>,
    /// The number of requests of the first child.
    first: usize,
}

/// Damages `count` copies by flipped bits, and others in other ways.
pub fn attack(seed: u64, count: u64, only: Option<u64>) -> std::io::Result<bool> {
    let mut report = Report::new("flips", seed)?;
    let server = Server::start()?;
    let mut bases = Vec::new();
    for index in 0..12 {
        if let Some(base) = make_base(seed, index, &server, report.folder())? {
            let lines = base.site.log().map_or(0, |log| read_lines(&log).len());
            report.line(&format!("base {}: {lines} lines, begun with {:?}", base.name, base.hows));
            bases.push(base);
        }
    }
    let mut references = HashMap::new();
    for (place, base) in bases.iter().enumerate() {
        for how in &base.hows {
            let folder = report.folder().join("reference");
            let outcome = run_case(base, *how, None, &folder, &server, &format!("r{place}{how:?}"))?;
            for problem in &outcome.problems {
                report.violation(&format!("undamaged {} with {how:?}", base.name), problem);
            }
            references.insert((place, format!("{how:?}")), outcome);
        }
    }
    for index in 0..count + 8 * VARIANTS.len() as u64 {
        if only.is_some_and(|only| only != index) {
            continue;
        }
        let mut rng = Rng::new(seed, 1000 + index);
        let kind =
            if index < count { Damage::Flip } else { VARIANTS[(index - count) as usize % VARIANTS.len()] };
        let place = rng.below(bases.len() as u64) as usize;
        let base = &bases[place];
        let how = base.hows[rng.below(base.hows.len() as u64) as usize];
        let other = bases[(place + 1) % bases.len()].site.log();
        let mut lines = base.site.log().map(|log| read_lines(&log)).unwrap_or_default();
        let original = lines.clone();
        let (what, line) =
            damage(kind, &mut lines, &other.map(|log| read_lines(&log)).unwrap_or_default(), &mut rng);
        let bytes = lines.concat();
        let folder = report.folder().join(format!("case-{index}"));
        let outcome = run_case(base, how, Some(&bytes), &folder, &server, &format!("c{index}"))?;
        let reference = &references[&(place, format!("{how:?}"))];
        let name = if kind == Damage::Flip { "flips".to_owned() } else { format!("{kind:?}") };
        let at = format!("case {index} ({what} of {}, then {how:?})", base.name);
        let before = original.get(line).map(|l| String::from_utf8_lossy(l).into_owned()).unwrap_or_default();
        let found = inspect(&outcome, reference, kind, &bytes, &folder, line, &before, &lines);
        report.count(&format!("{name}: cases"), 1);
        report.count(&format!("{name}: {}", found.kind), 1);
        if kind == Damage::Flip {
            let state = base.name.split(' ').next_back().unwrap_or_default();
            report.count(&format!("flips of {state} sessions, then {how:?}: {}", found.kind), 1);
        }
        for text in told(&outcome).difference(&told(reference)) {
            let text = text.replace(&folder.display().to_string(), "<folder>");
            report.count(&format!("notices and errors: {}", crate::truth::template(&text, "<label>")), 1);
        }
        let mut clean = true;
        for violation in outcome.problems.iter().chain(&found.violations) {
            if kind == Damage::TailCut || kind == Damage::Emptied {
                // Nothing can tell a lost end from a crash before it was written.
                report.count(
                    &format!(
                        "{name}: not counted: {}",
                        violation.split([' ', ':']).next().unwrap_or_default()
                    ),
                    1,
                );
            } else {
                report.violation(&at, violation);
                clean = false;
            }
        }
        let mut verdict =
            judge(&outcome.exchanges, &read_journal(&folder.join("journal")), &HashSet::new(), false);
        for violation in &mut verdict.violations {
            *violation = violation.replace("UNCLEAR words", "BROKEN: words");
        }
        if kind == Damage::Foreign {
            let own = |label: &str| {
                label.starts_with(&format!("@L{}-", base.site.job.session))
                    || label.starts_with(&format!("@Lc{index}-"))
            };
            verdict.violations.retain(|v| crate::plan::label_in(v).is_none_or(|label| own(&label)));
            // Whoever can write to the folder can write any record: what a record says is believed, whoever wrote it.
            let ran = read_journal(&folder.join("journal")).into_iter();
            let foreign = ran.filter(|(label, happened)| happened.begins > 0 && !own(label)).count();
            report
                .count(&format!("{name}: not counted: calls of another session's record that ran"), foreign);
        }
        if kind == Damage::TailCut || kind == Damage::Emptied {
            for violation in std::mem::take(&mut verdict.violations) {
                report.count(
                    &format!(
                        "{name}: not counted: {}",
                        violation.split([' ', ':', ',']).next().unwrap_or_default()
                    ),
                    1,
                );
            }
        }
        clean &= verdict.violations.is_empty();
        report.add(&at, &verdict);
        if clean && only.is_none() {
            std::fs::remove_dir_all(&folder)?;
        } else {
            let mut text = format!("{at}\n\nthe line before:\n{before}\n");
            text += &format!(
                "the line after:\n{}\n",
                lines.get(line).map(|l| String::from_utf8_lossy(l).into_owned()).unwrap_or_default()
            );
            text += &format!("said: {:#?}\nundamaged: {:#?}\n", outcome.said, reference.said);
            for (who, exchanges) in [("damaged", &outcome.exchanges), ("undamaged", &reference.exchanges)] {
                for exchange in exchanges.iter() {
                    text += &format!("{who}: {}\n=> {}\n", exchange.body["messages"], exchange.text);
                }
            }
            std::fs::write(folder.join("case.txt"), text)?;
        }
        server.forget(&format!("c{index}"));
    }
    Ok(report.end())
}

/// What was found out about a case.
struct Found {
    kind: &'static str,
    violations: Vec<String>,
}

#[expect(clippy::too_many_arguments, reason = "all that is known of a case")]
fn inspect(
    outcome: &Outcome,
    reference: &Outcome,
    kind: Damage,
    bytes: &[u8],
    folder: &Path,
    line: usize,
    before: &str,
    lines: &[Vec<u8>],
) -> Found {
    let mut violations = Vec::new();
    let errors: Vec<&str> = outcome.said.iter().flatten().filter_map(|l| l["error"].as_str()).collect();
    let (was, is) = (told(reference), told(outcome));
    // Other notices may come again because the record of their first time is lost; they say nothing of the damage.
    let more: Vec<&String> =
        is.difference(&was).filter(|text| text.contains("damaged") || text.contains("lost")).collect();
    if let Some(error) = errors.first() {
        let debug = outcome.said.iter().flatten().find_map(|l| l["debug"].as_str()).unwrap_or_default();
        if !debug.contains("Newer") {
            violations.push(format!("LOCKED: {errors:?}"));
            return Found { kind: "locked", violations };
        }
        let names_line = kind == Damage::NewerVersion
            || error.contains(&format!("line {}:", line + 1))
            || error.contains(&format!("line {},", line + 1));
        if !error.contains("transcript.jsonl") || !names_line {
            violations.push(format!("ERROR does not name file and line {}: {error}", line + 1));
        }
        let version = |text: &[u8]| serde_json::from_slice::<Value>(text).ok().map(|v| v["v"].clone());
        let newer = kind == Damage::NewerKind
            || kind == Damage::NewerVersion
            || lines
                .get(line)
                .is_some_and(|now| version(now).is_some() && version(now) != version(before.as_bytes()));
        if !newer {
            violations
                .push(format!("LOCKED as a later version's, and the line claims no such thing: {error}"));
        }
        let log = crate::kills::find_log(&folder.join("sessions"));
        if log.and_then(|log| std::fs::read(log).ok()).as_deref() != Some(bytes) {
            violations.push("CHANGED: the log was written to although the session was refused".to_owned());
        }
        return Found { kind: "refused as a later version's", violations };
    }
    if kind == Damage::NewerKind {
        violations.push(
            "CONTINUED a session with a valid record of a kind that this version does not know".to_owned(),
        );
    }
    let changed = difference(outcome, reference);
    match (changed, more.is_empty()) {
        (Some(what), true) => {
            let log =
                crate::kills::find_log(&folder.join("sessions")).and_then(|log| std::fs::read(log).ok());
            let noticed =
                String::from_utf8_lossy(&log.unwrap_or_default()).contains(r#""kind":"log_damaged""#);
            let kind =
                if noticed { "SILENT (noted in the log alone)" } else { "SILENT (not noted anywhere)" };
            violations.push(format!("{kind}: {what}; told was {is:?}"));
            Found { kind: "changed and not told", violations }
        }
        (Some(_), false) => Found { kind: "changed and told", violations },
        (None, true) => Found { kind: "no change for the model, nothing told", violations },
        (None, false) => Found { kind: "no change for the model, told all the same", violations },
    }
}

/// All notices and errors that the program saw.
fn told(outcome: &Outcome) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for line in outcome.said.iter().flatten() {
        for key in ["notice", "error"] {
            all.extend(line[key].as_str().map(str::to_owned));
        }
        for key in ["notices", "errors"] {
            all.extend(
                line[key].as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)),
            );
        }
    }
    // Counts of tokens differ with what is sent, which is compared by itself.
    all.retain(|text| !text.starts_with("the provider counted"));
    all
}

/// Returns what differs for the model, or in the result of a session that was finished.
fn difference(outcome: &Outcome, reference: &Outcome) -> Option<String> {
    if outcome.first > 0 && reference.first == 0 {
        return Some("it made a request where the undamaged session made none".to_owned());
    }
    if outcome.first == 0 && reference.first > 0 {
        return Some("it made no request where the undamaged session made one".to_owned());
    }
    let result = |outcome: &Outcome| {
        let last = outcome.said.first()?.iter().rev().find(|l| l["result"].is_string())?;
        Some((last["result"].clone(), last["status"].clone()))
    };
    if reference.first == 0 && result(outcome) != result(reference) {
        return Some(format!("the result is {:?} instead of {:?}", result(outcome), result(reference)));
    }
    let (Some(a), Some(b)) = (reference.exchanges.first(), outcome.exchanges.first()) else {
        return Some("there was no request at all".to_owned());
    };
    for part in ["system", "tools", "model", "max_tokens"] {
        if a.body[part] != b.body[part] {
            return Some(format!("{part} was {} and is {}", a.body[part], b.body[part]));
        }
    }
    let (a, b) = (flat(&a.body), flat(&b.body));
    let at = a.iter().zip(&b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()));
    (a != b).then(|| format!("block {at} of the request was {:?} and is {:?}", a.get(at), b.get(at)))
}

fn read_lines(log: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(log).unwrap_or_default();
    bytes.split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect()
}

/// Damages a log and returns what was done and at which line.
fn damage(kind: Damage, lines: &mut Vec<Vec<u8>>, other: &[Vec<u8>], rng: &mut Rng) -> (String, usize) {
    let last = lines.len() - 1;
    // The last line can get lost in a crash, so nothing tells that it is missing.
    let line = rng.below(if kind == Damage::Flip { lines.len() } else { last } as u64) as usize;
    let mut newer_at = line;
    let what = match kind {
        Damage::Flip => {
            // Each line is as likely as another, so that long ones do not take all flips.
            let (at, bit) = (rng.below(lines[line].len() as u64) as usize, rng.below(8));
            lines[line][at] ^= 1 << bit;
            format!("bit {bit} of byte {at} flipped in line {}", line + 1)
        }
        Damage::Removed => {
            lines.remove(line);
            format!("line {} removed", line + 1)
        }
        Damage::DuplicatedNext => {
            lines.insert(line, lines[line].clone());
            format!("line {} doubled", line + 1)
        }
        Damage::DuplicatedAtEnd => {
            lines.push(lines[line].clone());
            format!("line {} repeated at the end", line + 1)
        }
        Damage::SwappedNext => {
            lines.swap(line, line + 1);
            format!("lines {} and {} swapped", line + 1, line + 2)
        }
        Damage::SwappedFar => {
            let far = rng.below(last as u64) as usize;
            lines.swap(line, far);
            format!("lines {} and {} swapped", line + 1, far + 1)
        }
        Damage::LineCut => {
            let at = rng.below(lines[line].len() as u64 - 1) as usize;
            lines[line].truncate(at);
            lines[line].push(b'\n');
            format!("line {} cut after {at} bytes", line + 1)
        }
        Damage::LineOfZeros => {
            let length = lines[line].len() - 1;
            lines[line][..length].fill(0);
            format!("line {} zeroed", line + 1)
        }
        Damage::ByteOrderMark => {
            lines[0].splice(0..0, [0xEF, 0xBB, 0xBF]);
            "byte-order mark before line 1".to_owned()
        }
        Damage::StrayText => stray(lines, b"this is no record\n"),
        Damage::StrayJson => stray(lines, b"{}\n"),
        Damage::StrayRecord => {
            stray(lines, br#"{"v":1,"seq":999999,"at":1,"entry":{"run_ended":{"status":"success"}}}"#)
        }
        Damage::BlankLine => {
            lines.insert(line, b"\n".to_vec());
            format!("blank line before line {}", line + 1)
        }
        Damage::ZerosAtEnd => stray(lines, &[0; 512]),
        Damage::CarriageReturns => {
            for line in lines.iter_mut() {
                let end = line.len() - 1;
                line.insert(end, b'\r');
            }
            "CR LF line ends".to_owned()
        }
        Damage::Foreign => {
            // Half of them are answers of the model, whose calls must not run here.
            let is_answer =
                |line: &&Vec<u8>| String::from_utf8_lossy(line).contains(r#""entry":{"model_done""#);
            let answers: Vec<_> = other.iter().filter(is_answer).collect();
            let foreign = if rng.percent(50) && !answers.is_empty() {
                answers[rng.below(answers.len() as u64) as usize]
            } else {
                &other[rng.below(other.len() as u64) as usize]
            };
            let at = if rng.percent(50) { last + 1 } else { line };
            lines.insert(at, foreign.clone());
            format!("a record of another session as line {}", at + 1)
        }
        Damage::TailCut => {
            let at = rng.below(lines[line].len() as u64) as usize;
            lines.truncate(line + 1);
            lines[line].truncate(at);
            format!("file ends after byte {at} of line {}", line + 1)
        }
        Damage::Emptied => {
            lines.clear();
            "file emptied".to_owned()
        }
        Damage::NewerKind | Damage::NewerVersion => {
            // Half of them stand at the end, half instead of another record.
            if rng.percent(50) {
                newer_at = last + 1;
                lines.push(Vec::new());
            }
            let version = if kind == Damage::NewerVersion { 2 } else { 1 };
            let entry = if kind == Damage::NewerVersion {
                r#"{"run_ended":{"status":"success"}}"#
            } else {
                r#"{"teleported":{"to":"elsewhere"}}"#
            };
            lines[newer_at] = record(version, newer_at + 1, entry);
            format!("a valid record of a later version as line {}", newer_at + 1)
        }
    };
    match kind {
        Damage::NewerKind | Damage::NewerVersion => (what, newer_at),
        _ => (what, line),
    }
}

fn stray(lines: &mut Vec<Vec<u8>>, text: &[u8]) -> String {
    lines.push(text.to_vec());
    format!("{:?} at the end", String::from_utf8_lossy(&text[..text.len().min(20)]))
}

/// Makes a record whose checksum is right.
fn record(version: u64, seq: usize, entry: &str) -> Vec<u8> {
    let at = (crate::now() * 1000.0) as u64;
    let crc = crc32(&checked_bytes(version, seq, at, entry));
    format!("{{\"v\":{version},\"seq\":{seq},\"at\":{at},\"crc\":{crc},\"entry\":{entry}}}\n").into_bytes()
}

fn checked_bytes(version: u64, seq: usize, at: u64, entry: &str) -> Vec<u8> {
    format!("{{\"v\":{version},\"seq\":{seq},\"at\":{at},\"entry\":{entry}}}").into_bytes()
}

/// The checksum of zip and PNG.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |c, _| if c & 1 == 1 { (c >> 1) ^ 0xEDB8_8320 } else { c >> 1 })
    })
}

fn copy_all(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)?.flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_all(&entry.path(), &target)?
        } else {
            std::fs::copy(entry.path(), target).map(|_| ())?
        }
    }
    Ok(())
}

/// Makes a session: finished, killed within an effect, or waiting for an answer.
fn make_base(seed: u64, index: u64, server: &Server, folder: &Path) -> std::io::Result<Option<Base>> {
    let mut rng = Rng::new(seed, index);
    let key = format!("base{index}");
    let mut plan = random_plan(&mut rng, 11);
    if index % 4 == 3 {
        plan[5].push((Call::Ask, 5));
    } else {
        plan[2] = vec![(Call::Effect, 30), (Call::Bash, 30)];
        plan[6] = vec![(Call::Look, 10), (Call::Bash, 60), (Call::Effect, 60)];
    }
    let url = server.talk(&key, plan.clone(), 0, false, true);
    let mut site = Site::new(folder.join(&key), url, &key)?;
    site.job.answers = index % 4 != 3;
    let (name, hows, mut ask) = match index % 4 {
        0 => {
            for _ in 0..4 {
                run_child(&site, server, &key)?;
            }
            ("finished", vec![How::Prompt, How::Resume], None)
        }
        1 | 2 => {
            let mut child = site.job.start()?;
            kill_at(
                &mut child,
                Moment::Journal(350 + rng.below(500), rng.below(25_000)),
                &site,
                server,
                &key,
            )?;
            child.wait()?;
            ("crashed", vec![How::Prompt, How::Resume, How::Resume], None)
        }
        _ => {
            // The first questions are answered, so that the log holds questions with and without answers.
            run_child(&site, server, &key)?;
            let ask = open_question(&site.job.said().0);
            ("waiting", vec![How::Prompt, How::Resume, How::Answer], ask)
        }
    };
    // Until all that was killed is gone, nothing must be copied.
    std::thread::sleep(std::time::Duration::from_millis(300));
    if ask.is_none() && index % 4 == 3 {
        ask = open_question(&site.job.said().0);
        if ask.is_none() {
            return Ok(None);
        }
    }
    Ok(site.log().is_some().then(|| Base {
        name: format!("{key}, {name}"),
        site,
        plan,
        nonce: 1000,
        ask,
        hows,
    }))
}

/// Runs two children on a copy of a session with another log: one goes on as it is told, one with a new prompt.
fn run_case(
    base: &Base,
    how: How,
    log: Option<&[u8]>,
    folder: &PathBuf,
    server: &Server,
    key: &str,
) -> std::io::Result<Outcome> {
    let _ = std::fs::remove_dir_all(folder);
    copy_all(&base.site.job.sessions, &folder.join("sessions"))?;
    std::fs::copy(&base.site.job.journal, folder.join("journal"))?;
    let copy = crate::kills::find_log(&folder.join("sessions"));
    if let (Some(copy), Some(log)) = (&copy, log) {
        std::fs::write(copy, log)?;
    }
    let url = server.talk(key, base.plan.clone(), base.nonce, false, true);
    let job = Job {
        url,
        sessions: folder.join("sessions"),
        journal: folder.join("journal"),
        how,
        ask: base.ask.clone().filter(|_| how == How::Answer),
        answers: true,
        ..base.site.job.clone()
    };
    let mut site = Site { folder: folder.clone(), job };
    let (mut said, mut problems, mut first) = (Vec::new(), Vec::new(), 0);
    for turn in 0..2 {
        let (code, hung) = run_child(&site, server, key)?;
        let (lines, stderr) = site.job.said();
        if code != Some(0) || stderr.contains("panicked") {
            problems.push(format!("PANIC or failure, code {code:?}: {stderr}"));
        }
        if hung {
            problems.push("HANG: the child did nothing for 40 s".to_owned());
        }
        if let Some(bad) = lines.iter().find(|l| {
            l["result"].is_string()
                && !["success", "waiting"].contains(&l["status"].as_str().unwrap_or_default())
        }) {
            problems.push(format!("RESULT of child {turn}: {bad}"));
        }
        said.push(lines);
        if turn == 0 {
            first = server.count(key);
        }
        site.job.how = How::Prompt;
        site.job.ask = None;
    }
    Ok(Outcome { said, exchanges: server.exchanges(key), problems, first })
}
