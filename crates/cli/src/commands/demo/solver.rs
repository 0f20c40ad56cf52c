//! The demo's model: a script that goes by what the tools really answered. It knows how the project's functions should
//! look, as a real model knows how such code looks; it does not know the seed, nor where the bug is.

use open_agent::model::{Block, ModelRequest, Role, ToolUse};
use open_agent::testing::{Reply, Scripted, input, newest_results};
use serde::Serialize;

use super::project::FUNCTIONS;

/// What the model calls itself.
pub(super) const MODEL: &str = "scripted-demo";

/// The model.
pub(super) fn model() -> Scripted {
    Scripted::responding(answer)
}

#[derive(Serialize)]
struct Bash {
    command: &'static str,
    description: &'static str,
}

#[derive(Serialize)]
struct Grep<'a> {
    pattern: String,
    path: &'a str,
    output_mode: &'a str,
}

#[derive(Serialize)]
struct Read<'a> {
    file_path: &'a str,
}

#[derive(Serialize)]
struct Edit<'a> {
    file_path: &'a str,
    old_string: &'a str,
    new_string: &'a str,
}

fn answer(request: &ModelRequest) -> Reply {
    let reply = match last_call(request) {
        None => run_tests("I run the tests first, to see what fails."),
        Some(call) => {
            let result = newest_results(request).pop().unwrap_or_default();
            match call.name.as_str() {
                "Bash" => after_tests(&result),
                "Grep" => after_search(&result),
                "Read" => after_reading(call, &result),
                "Edit" if result.starts_with("There is no tool") || result.contains("refused") => {
                    Reply::text(&format!("I found the bug but could not change the file: {result}"))
                }
                "Edit" => run_tests("The line is changed. I run the tests again."),
                other => Reply::text(&format!("I do not know what to do with an answer of {other}.")),
            }
        }
    };
    let sent: u64 = request.messages.iter().map(|m| m.text().len() as u64 / 4 + 1).sum();
    reply.usage(sent, 40)
}

fn last_call(request: &ModelRequest) -> Option<&ToolUse> {
    let answer = request.messages.iter().rev().find(|m| m.role == Role::Assistant)?;
    answer.content.iter().rev().find_map(|b| if let Block::ToolUse(call) = b { Some(call) } else { None })
}

fn run_tests(why: &str) -> Reply {
    Reply::text(why).and_call("Bash", &input(&Bash { command: "sh test.sh", description: "Run the tests" }))
}

fn after_tests(result: &str) -> Reply {
    let failed = result.lines().find_map(|line| line.trim().strip_prefix("FAIL "));
    match failed.and_then(|rest| rest.split_once(':')) {
        Some((name, what)) => {
            let search = Grep { pattern: format!("^{name}\\(\\)"), path: "src", output_mode: "content" };
            Reply::text(&format!("`{name}` is wrong:{what}. I look for it.")).and_call("Grep", &input(&search))
        }
        None if result.lines().any(|line| line.trim().starts_with("ok ")) => {
            Reply::text("All tests pass: the bug is fixed.")
        }
        None => Reply::text(&format!("I cannot run the tests, so I cannot do the job: {result}")),
    }
}

/// A hit reads `path:line:text`.
fn after_search(result: &str) -> Reply {
    let path = result.lines().find_map(|line| line.split_once(':').map(|(path, _)| path));
    match path.filter(|path| path.ends_with(".sh")) {
        Some(path) => {
            Reply::text(&format!("It is in {path}. I read the file.")).and_call("Read", &input(&Read { file_path: path }))
        }
        None => Reply::text(&format!("I cannot find the function: {result}")),
    }
}

/// The first line within a function that is none of those the function should have is the wrong one.
fn after_reading(call: &ToolUse, result: &str) -> Reply {
    #[derive(serde::Deserialize)]
    struct Path {
        file_path: String,
    }
    let Ok(Path { file_path }) = call.input.to() else { return Reply::text("I lost track of the file.") };
    match wrong_line(&numbered_lines(result)) {
        Some((function, wrong, right)) => {
            let edit = Edit { file_path: &file_path, old_string: wrong, new_string: right };
            Reply::text(&format!("In `{function}`, `{}` should be `{}`.", wrong.trim(), right.trim()))
                .and_call("Edit", &input(&edit))
        }
        None => Reply::text("I read the file and see no bug in it."),
    }
}

/// Lines come numbered, with a tab after the number.
fn numbered_lines(result: &str) -> Vec<&str> {
    result.lines().filter_map(|line| line.split_once('\t').map(|(_, text)| text)).collect()
}

fn wrong_line<'a>(lines: &[&'a str]) -> Option<(&'static str, &'a str, &'static str)> {
    for function in &FUNCTIONS {
        let head = format!("{}() {{", function.name);
        let Some(start) = lines.iter().position(|line| *line == head) else { continue };
        let mut pairs = lines[start + 1..].iter().zip(function.body.lines());
        if let Some((is, should)) = pairs.find(|(is, should)| *is != should) {
            return Some((function.name, is, should));
        }
    }
    None
}
