//! Compares what the model was told with what happened: the requests at the server with the journal of effects.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use serde_json::Value;

use crate::plan::label_in;
use crate::server::Exchange;

/// What the journal says of one call.
#[derive(Default, Debug, Clone)]
pub struct Happened {
    /// How often its effect began.
    pub begins: usize,
    /// How often its effect was complete.
    pub ends: usize,
    /// How often a call that only reads ran.
    pub looks: usize,
    /// When its effect was complete, in seconds since 1970.
    pub ended_at: f64,
}

/// Reads the journal.
pub fn read_journal(path: &Path) -> BTreeMap<String, Happened> {
    let mut all: BTreeMap<String, Happened> = BTreeMap::new();
    for line in std::fs::read_to_string(path).unwrap_or_default().lines() {
        let mut parts = line.split(' ');
        let (Some(what), Some(label), Some(at)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let happened = all.entry(label.to_owned()).or_default();
        match what {
            "b" => happened.begins += 1,
            "e" => {
                happened.ends += 1;
                happened.ended_at = at.replace(',', ".").parse().unwrap_or_default();
            }
            "l" => happened.looks += 1,
            _ => {}
        }
    }
    all
}

/// What a result says about its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Told {
    /// It was done.
    Done,
    /// It did not run.
    NotRun,
    /// Its outcome is not known.
    Unknown,
    /// It has no result; it only reads.
    NoResult,
    /// It waited for an answer, and was closed without one.
    Parked,
    /// It had begun and has no result.
    Begun,
    /// None of these.
    Other,
}

/// Reads a result as a model would.
pub fn classify(tool: &str, label: &str, text: &str) -> Told {
    let lower = text.to_lowercase();
    let done = match tool {
        "look" => text == format!("saw:{label}"),
        "effect" => text == format!("did:{label}"),
        "ask" => text == format!("did:{label} with answer for {label}"),
        "Bash" => text.trim() == format!("did:{label}"),
        "Read" => text.contains("the contents of the notes"),
        "Glob" => text.contains("notes.txt"),
        _ => false,
    };
    if done {
        Told::Done
    } else if text.starts_with("Not finished: it waited for an answer") {
        Told::Parked
    } else if text.starts_with("Not finished: it had begun") {
        Told::Begun
    } else if text.starts_with("No result:") && text.contains("only reads") {
        Told::NoResult
    } else if lower.contains("not known") || lower.contains("unknown") || lower.contains("may have") {
        Told::Unknown
    } else if lower.contains("not run") || lower.contains("did not begin") || lower.contains("never ran") {
        Told::NotRun
    } else {
        Told::Other
    }
}

/// Returns the text of a block or message whose content is a text or a list of blocks.
pub fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks
            .iter()
            .map(|block| block["text"].as_str().unwrap_or_default())
            .collect::<Vec<_>>()
            .join("\n"),
        _ => String::new(),
    }
}

/// Returns the blocks of a message, without marks for the provider's cache.
fn blocks(message: &Value) -> Vec<Value> {
    let mut blocks = match &message["content"] {
        Value::String(text) => vec![serde_json::json!({"type": "text", "text": text})],
        Value::Array(blocks) => blocks.clone(),
        _ => Vec::new(),
    };
    for block in &mut blocks {
        if let Some(object) = block.as_object_mut() {
            object.remove("cache_control");
        }
    }
    blocks
}

/// Returns all blocks of a request, each with its message's role.
pub fn flat(body: &Value) -> Vec<(String, Value)> {
    let messages = body["messages"].as_array().cloned().unwrap_or_default();
    let with_role = |m: &Value| {
        let role = m["role"].as_str().unwrap_or_default().to_owned();
        blocks(m).into_iter().map(move |block| (role.clone(), block)).collect::<Vec<_>>()
    };
    messages.iter().flat_map(with_role).collect()
}

/// Returns what makes a request one that a vendor refuses.
pub fn check_request(body: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let Some(messages) = body["messages"].as_array() else { return vec!["no messages".into()] };
    let (mut seen, mut open) = (HashSet::new(), Vec::<String>::new());
    for (place, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        let want = if place % 2 == 0 { "user" } else { "assistant" };
        if role != want {
            wrong.push(format!("message {place} is of role {role:?} and should be of {want:?}"));
        }
        let blocks = blocks(message);
        if blocks.is_empty() {
            wrong.push(format!("message {place} is empty"));
        }
        let mut answered = Vec::new();
        let mut others = 0;
        for block in &blocks {
            match block["type"].as_str().unwrap_or_default() {
                "tool_use" if role == "assistant" => {
                    let id = block["id"].as_str().unwrap_or_default().to_owned();
                    if !seen.insert(id.clone()) {
                        wrong.push(format!("the id {id} is used twice"));
                    }
                    open.push(id);
                }
                "tool_result" if role == "user" => {
                    if others > 0 {
                        wrong.push(format!("message {place} has a result after a text"));
                    }
                    answered.push(block["tool_use_id"].as_str().unwrap_or_default().to_owned());
                }
                "text" => {
                    others += 1;
                    if block["text"].as_str().unwrap_or_default().trim().is_empty() {
                        wrong.push(format!("message {place} has an empty text"));
                    }
                }
                kind => wrong.push(format!("message {place} of role {role:?} has a block {kind:?}")),
            }
        }
        if role == "user" {
            let (mut want, mut got) = (std::mem::take(&mut open), answered);
            want.sort();
            got.sort();
            if want != got {
                wrong.push(format!("message {place} answers {got:?} and should answer {want:?}"));
            }
        }
    }
    if messages.len() % 2 == 0 {
        wrong.push("the last message is not the user's".into());
    }
    wrong
}

/// A call as the model made it and the words that it got in return.
#[derive(Debug, Clone)]
pub struct ToldCall {
    /// The tool.
    pub tool: String,
    /// The first result it got.
    pub text: String,
    /// When the model first got it, in seconds since 1970.
    pub at: f64,
    /// All different results it got in several requests.
    pub all: Vec<String>,
}

/// Returns what the model was told of each call that has a label, and the labels of all calls that it was shown.
pub fn told(exchanges: &[Exchange]) -> (BTreeMap<String, ToldCall>, HashSet<String>) {
    let (mut told, mut shown) = (BTreeMap::<String, ToldCall>::new(), HashSet::new());
    for exchange in exchanges {
        let mut ids: HashMap<String, (String, String)> = HashMap::new();
        for (role, block) in flat(&exchange.body) {
            if role == "assistant" && block["type"] == "tool_use" {
                let id = block["id"].as_str().unwrap_or_default().to_owned();
                let tool = block["name"].as_str().unwrap_or_default().to_owned();
                // Built-in reads have no place for a label in their input; the vendor's id has to do.
                let label = label_in(&block["input"].to_string()).unwrap_or_else(|| format!("{tool} {id}"));
                shown.insert(label.clone());
                ids.insert(id, (tool, label));
            }
            if block["type"] != "tool_result" {
                continue;
            }
            let Some((tool, label)) = ids.get(block["tool_use_id"].as_str().unwrap_or_default()) else {
                continue;
            };
            let text = text_of(&block["content"]);
            let call = told.entry(label.clone()).or_insert_with(|| ToldCall {
                tool: tool.clone(),
                text: text.clone(),
                at: exchange.at,
                all: Vec::new(),
            });
            if !call.all.contains(&text) {
                call.all.push(text);
            }
        }
    }
    (told, shown)
}

/// A text without what differs from call to call.
pub fn template(text: &str, label: &str) -> String {
    let text = text.replace(label, "<label>");
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '0'..='9' if out.ends_with('#') => {}
            '0'..='9' => out.push('#'),
            c => out.push(c),
        }
    }
    out.chars().take(600).collect()
}

/// The result of comparing a session's requests with its journal.
#[derive(Default)]
pub struct Verdict {
    /// What must not be.
    pub violations: Vec<String>,
    /// How often each kind of word was told.
    pub counts: BTreeMap<(String, Told), usize>,
    /// The words themselves, without what differs from call to call.
    pub templates: BTreeMap<String, usize>,
    /// Calls whose outcome was said to be unknown and that had not begun.
    pub cautious: usize,
    /// Effects that came after the model was told of their call.
    pub late: usize,
}

/// Compares. `finished` holds the labels of calls whose results were in the log when a process was killed. With
/// `lossless`, every effect has to be known to the model, and what it was told once must stay.
pub fn judge(
    exchanges: &[Exchange],
    journal: &BTreeMap<String, Happened>,
    finished: &HashSet<String>,
    lossless: bool,
) -> Verdict {
    let mut verdict = Verdict::default();
    let mut wrong = Vec::new();
    for (n, exchange) in exchanges.iter().enumerate() {
        for problem in check_request(&exchange.body) {
            wrong.push(format!("INVALID request {n}: {problem}"));
        }
    }
    if lossless {
        for (n, pair) in exchanges.windows(2).enumerate() {
            let (before, after) = (flat(&pair[0].body), flat(&pair[1].body));
            if after.len() < before.len() || after[..before.len()] != before[..] {
                let at = before.iter().zip(&after).position(|(a, b)| a != b).unwrap_or(after.len());
                wrong.push(format!(
                    "HISTORY changed between requests {n} and {}, at block {at}: {:?} became {:?}",
                    n + 1,
                    before.get(at),
                    after.get(at)
                ));
            }
        }
    }
    for (label, happened) in journal {
        if happened.begins > 1 {
            wrong.push(format!("TWICE: the effect of {label} began {} times", happened.begins));
        }
    }
    let (told, shown) = told(exchanges);
    if lossless {
        for (label, happened) in journal {
            if happened.begins > 0 && !shown.contains(label) {
                wrong.push(format!("HIDDEN: {label} had its effect and the model never saw its call"));
            }
        }
    }
    for (label, call) in &told {
        let kind = classify(&call.tool, label, &call.text);
        *verdict.counts.entry((call.tool.clone(), kind)).or_default() += 1;
        *verdict
            .templates
            .entry(format!("{} {kind:?}: {}", call.tool, template(&call.text, label)))
            .or_default() += 1;
        if lossless && call.all.len() > 1 {
            wrong.push(format!("CHANGED: the model was told different things of {label}: {:?}", call.all));
        }
        let happened = journal.get(label).cloned().unwrap_or_default();
        let effect = matches!(call.tool.as_str(), "effect" | "ask" | "Bash");
        match kind {
            Told::NotRun if happened.begins > 0 || happened.looks > 0 => {
                wrong.push(format!(
                    "UNTRUE: {label} ({}) ran ({happened:?}), and the model was told {:?}",
                    call.tool, call.text
                ));
            }
            Told::Parked if happened.begins > 0 || call.tool != "ask" => {
                wrong.push(format!(
                    "UNTRUE: {label} ran ({happened:?}), and the model was told {:?}",
                    call.text
                ));
            }
            Told::Parked | Told::NotRun if finished.contains(&format!("answered {label}")) => {
                wrong.push(format!(
                    "FORGOTTEN: the question of {label} was answered, and the model was told {:?}",
                    call.text
                ));
            }
            Told::Begun if happened.begins > 0 => {
                wrong.push(format!(
                    "UNTRUE: {label} may be finished ({happened:?}), and the model was told {:?}",
                    call.text
                ));
            }
            Told::NoResult if effect => {
                wrong.push(format!(
                    "UNTRUE: {label} does not only read, and the model was told {:?}",
                    call.text
                ));
            }
            Told::NoResult if finished.contains(label) => {
                wrong.push(format!(
                    "FORGOTTEN: the result of {label} was in the log, and the model was told {:?}",
                    call.text
                ));
            }
            Told::Done if effect && (happened.begins != 1 || happened.ends != 1) => {
                wrong.push(format!(
                    "UNTRUE: {label} was not done ({happened:?}), and the model was told {:?}",
                    call.text
                ));
            }
            Told::Done if call.tool == "look" && happened.looks == 0 => {
                wrong.push(format!("UNTRUE: {label} did not run, and the model was told {:?}", call.text));
            }
            Told::Unknown if finished.contains(label) => {
                wrong.push(format!(
                    "FORGOTTEN: the result of {label} was in the log, and the model was told {:?}",
                    call.text
                ));
            }
            Told::Unknown if effect && happened.begins == 0 => verdict.cautious += 1,
            Told::Unknown if happened.ended_at > call.at => {
                verdict.late += 1;
                if !call.text.contains("running") {
                    wrong.push(format!(
                        "LATE: the effect of {label} came {:.3} s after the model was told {:?}",
                        happened.ended_at - call.at,
                        call.text
                    ));
                }
            }
            Told::Other => wrong.push(format!("UNCLEAR words about {label} ({happened:?}): {:?}", call.text)),
            _ => {}
        }
    }
    verdict.violations = wrong;
    verdict
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;

    use super::*;

    fn judged(tool: &str, text: &str, journal: &str, finished: &[&str]) -> Vec<String> {
        static FILES: AtomicUsize = AtomicUsize::new(0);
        let number = FILES.fetch_add(1, Ordering::Relaxed);
        let file = std::env::temp_dir().join(format!("attack-truth-{}-{number}", std::process::id()));
        std::fs::write(&file, journal).unwrap();
        let body = json!({"messages": [
            {"role": "user", "content": "Go on."},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": tool, "input": {"label": "@L1@"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": text}]},
        ]});
        let exchange = Exchange { at: 10.0, body, text: String::new() };
        let finished = finished.iter().map(|label| (*label).to_owned()).collect();
        let verdict = judge(&[exchange], &read_journal(&file), &finished, true);
        std::fs::remove_file(&file).unwrap();
        verdict.violations.iter().map(|v| v.split([' ', ':']).next().unwrap().to_owned()).collect()
    }

    #[test]
    fn truth_is_no_violation() {
        let none: [String; 0] = [];
        assert_eq!(judged("effect", "did:@L1@", "b @L1@ 1\ne @L1@ 2\n", &["@L1@"]), none);
        assert_eq!(judged("effect", "Not run: the user went on.", "", &[]), none);
        assert_eq!(judged("Bash", "Its outcome is unknown.", "b @L1@ 1\n", &[]), none);
        assert_eq!(
            judged("Bash", "Its outcome is unknown; it may be running.", "b @L1@ 1\ne @L1@ 11\n", &[]),
            none
        );
    }

    #[test]
    fn each_kind_of_lie_is_found() {
        assert_eq!(judged("effect", "Not run: the user went on.", "b @L1@ 1\n", &[]), ["UNTRUE"]);
        assert_eq!(judged("look", "Not run: the user went on.", "l @L1@ 1\n", &[]), ["UNTRUE"]);
        assert_eq!(judged("effect", "did:@L1@", "b @L1@ 1\n", &[]), ["UNTRUE"]);
        assert_eq!(judged("effect", "did:@L1@", "b @L1@ 1\ne @L1@ 2\nb @L1@ 3\n", &[]), ["TWICE", "UNTRUE"]);
        assert_eq!(
            judged("effect", "Its outcome is unknown.", "b @L1@ 1\ne @L1@ 2\n", &["@L1@"]),
            ["FORGOTTEN"]
        );
        assert_eq!(judged("Bash", "Its outcome is unknown.", "b @L1@ 1\ne @L1@ 11\n", &[]), ["LATE"]);
        assert_eq!(judged("effect", "Its outcome is unknown.", "b @L2@ 1\n", &[]), ["HIDDEN"]);
        let waited = "Not finished: it waited for an answer to its question.";
        assert_eq!(judged("ask", waited, "", &["answered @L1@"]), ["FORGOTTEN"]);
        assert_eq!(judged("ask", waited, "b @L1@ 1\n", &[]), ["UNTRUE"]);
        assert_eq!(judged("ask", "Something new.", "", &[]), ["UNCLEAR"]);
    }

    #[test]
    fn invalid_requests_are_found() {
        let use_a = json!({"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "x", "input": {}}]});
        let result = |id: &str| json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": ""}]});
        let user = json!({"role": "user", "content": "Go on."});
        let wrong = |messages: Value| check_request(&json!({"messages": messages})).len();
        assert_eq!(wrong(json!([user, use_a, result("a")])), 0);
        assert_eq!(wrong(json!([user, use_a, result("b")])), 1);
        assert_eq!(wrong(json!([user, use_a, user])), 1);
        assert_eq!(wrong(json!([user, user, user])), 1);
        assert_eq!(wrong(json!([user, use_a, result("a"), use_a, result("a")])), 1);
        assert_eq!(wrong(json!([user, use_a])), 1);
    }
}
