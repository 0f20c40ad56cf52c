//! Each example is run, and what it prints is compared.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The test binary lies in `deps`, the examples that were built with it beside that.
fn example(name: &str) -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.push("examples");
    path.push(name);
    path
}

fn prints(name: &str, want: &str) {
    let home = tempfile::tempdir().unwrap();
    let out = Command::new(example(name)).env("HOME", home.path()).stdin(Stdio::null()).output().unwrap();
    let (text, errors) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{name} failed: {text}{errors}");
    assert_eq!(text.trim_end(), want.trim(), "{name}");
    assert!(std::fs::read_dir(home.path()).unwrap().next().is_none(), "{name} left something behind");
}

#[test]
fn hello_and_it_is_what_the_readme_shows() {
    // It keeps its session, as the README's reader will see; so only the output is compared.
    let home = tempfile::tempdir().unwrap();
    let out = Command::new(example("hello")).env("HOME", home.path()).stdin(Stdio::null()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stdout), "It is a Rust project. (2 turns)\n");
    assert_eq!(std::fs::read_dir(home.path().join(".open-agent-sdk/sessions")).unwrap().count(), 1);
    let code = include_str!("../../examples/hello.rs").split_once("\n\n").unwrap().1;
    let readme = include_str!("../../../../README.md");
    assert!(
        readme.contains(&format!("```rust\n{code}```")),
        "the README shows other code than examples/hello.rs"
    );
}

#[test]
fn prompt() {
    prints("prompt", include_str!("../../examples/expected/prompt.txt"));
}

#[test]
fn stream() {
    prints("stream", include_str!("../../examples/expected/stream.txt"));
}

#[test]
fn interrupt() {
    prints("interrupt", include_str!("../../examples/expected/interrupt.txt"));
}

#[test]
fn budget() {
    prints("budget", include_str!("../../examples/expected/budget.txt"));
}

#[test]
fn shared_budget() {
    prints("shared_budget", include_str!("../../examples/expected/shared_budget.txt"));
}

#[test]
fn stream_input() {
    prints("stream_input", include_str!("../../examples/expected/stream_input.txt"));
}

#[test]
fn switch_model() {
    prints("switch_model", include_str!("../../examples/expected/switch_model.txt"));
}

#[test]
fn thinking_effort() {
    prints("thinking_effort", include_str!("../../examples/expected/thinking_effort.txt"));
}

#[test]
fn local_models() {
    prints("local_models", include_str!("../../examples/expected/local_models.txt"));
}
