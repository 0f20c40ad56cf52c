//! What the scripted model asks for: a list of answers, each with some tool calls.

use serde_json::{Value, json};

use crate::rng::Rng;

/// A call that the model makes. Those with an observable effect write lines to the journal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Call {
    /// A custom tool that only reads; it waits and notes in the journal that it ran.
    Look,
    /// The built-in `Read`.
    Read,
    /// The built-in `Glob`.
    Glob,
    /// A custom unsafe tool: a line at its begin, a pause, a line at its end.
    Effect,
    /// The same done by a shell command.
    Bash,
    /// A custom unsafe tool that first asks the user, and then has its effect.
    Ask,
}

/// A model's answer: its calls, and how many milliseconds each of them takes. Without calls it ends the run.
pub type Step = Vec<(Call, u64)>;

/// Makes the answers of a session.
pub fn random_plan(rng: &mut Rng, steps: usize) -> Vec<Step> {
    let mut plan = Vec::new();
    while plan.len() < steps {
        if plan.len() % 9 == 8 {
            plan.push(Vec::new());
            continue;
        }
        let calls = if rng.percent(55) { 1 } else { 2 + rng.below(3) };
        let step = (0..calls).map(|_| {
            let call = match rng.below(100) {
                0..16 => Call::Look,
                16..22 => Call::Read,
                22..26 => Call::Glob,
                26..55 => Call::Effect,
                55..82 => Call::Bash,
                _ => Call::Ask,
            };
            (call, 2 + rng.below(45))
        });
        plan.push(step.collect());
    }
    plan
}

/// Returns the tool's name and the input of a call. `label` is unique for each call of each answer, so that an answer
/// that is asked for again brings other calls.
pub fn tool_use(call: Call, ms: u64, label: &str) -> (&'static str, Value) {
    let custom = json!({"label": label, "ms": ms});
    match call {
        Call::Look => ("look", custom),
        Call::Effect => ("effect", custom),
        Call::Ask => ("ask", custom),
        Call::Read => ("Read", json!({"file_path": "notes.txt"})),
        Call::Glob => ("Glob", json!({"pattern": "*.txt"})),
        // What the command prints does not stand in its own text, so that it is found in results alone.
        Call::Bash => {
            let line =
                |what: &str| format!(r#"printf '{what} {label} %s\n' "$EPOCHREALTIME" >> "$AT_JOURNAL""#);
            let seconds = ms as f64 / 1000.0;
            let command = format!("{}; sleep {seconds}; {}; echo di\"d\":{label}", line("b"), line("e"));
            ("Bash", json!({"command": command}))
        }
    }
}

/// Finds the label in the input of a call.
pub fn label_in(text: &str) -> Option<String> {
    let start = text.find("@L")?;
    let length = text[start + 1..].find('@')? + 2;
    Some(text[start..start + length].to_owned())
}

/// Makes a label.
pub fn label(key: &str, step: usize, place: usize, nonce: u64) -> String {
    format!("@L{key}-{step}-{place}-x{nonce}@")
}
