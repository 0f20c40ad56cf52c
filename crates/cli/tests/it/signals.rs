//! Interrupts and readers that go away.

use std::io::Read as _;
use std::process::Child;
use std::time::{Duration, Instant};

use open_agent_testkit::server::{Pace, Reply};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::rig::{Rig, read_line, wait};

/// Half a second is what it takes; the rest is for a machine that has other things to do.
const BOUND: Duration = Duration::from_secs(10);

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn stalled() -> Rig {
    Rig::answering([Reply::text("some words and then nothing more ".repeat(20))
        .delta(4)
        .pace(Pace::Stall(2_000))])
}

#[test]
fn h_int_01_ctrl_c_in_a_stalled_answer() {
    for signal in [Signal::INT, Signal::TERM] {
        let rig = stalled();
        let args = ["-p", "Go", "--output-format", "stream-json", "--include-partial-messages"];
        let mut child = rig.command(args).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        while !read_line(&mut stdout).contains("content_block_delta") {}
        let begin = Instant::now();
        send(&child, signal);
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).unwrap();
        let out = rig.finish(child);
        assert!(begin.elapsed() < BOUND);
        assert_eq!((out.code(), out.stderr.as_str()), (130, "error: interrupted\n"));
        let result: serde_json::Value = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
        assert_eq!((&result["type"], &result["subtype"]), (&json!("result"), &json!("cancelled")));
        assert_eq!(
            (&result["is_error"], &result["terminal_reason"]),
            (&json!(true), &json!("aborted_streaming"))
        );
        assert!(result["result"].as_str().unwrap().starts_with("some words"), "what came is kept");
    }
}

#[test]
fn ctrl_c_while_only_the_answer_is_wanted() {
    let rig = stalled();
    let child = rig.command(["-p", "Go"]).spawn().unwrap();
    rig.wait_for_requests(1);
    send(&child, Signal::INT);
    let out = rig.finish(child);
    assert_eq!((out.code(), out.stdout.as_str()), (130, ""));
    // How much had come depends on when the signal did.
    let words = out.stderr.strip_prefix("error: interrupted\n").unwrap();
    assert!(words.is_empty() || words.starts_with("the model's last words: some"), "{words}");
}

#[test]
fn h_int_02_ctrl_c_while_a_tool_runs_leaves_nothing_running() {
    let rig = Rig::answering([Reply::tool("Bash", json!({ "command": "echo $$ > pid; sleep 300" }))]);
    let args = ["-p", "Go", "--output-format", "json", "--allowed-tools", "Bash"];
    let child = rig.command(args).spawn().unwrap();
    let file = rig.project.path().join("pid");
    let begin = Instant::now();
    let pid = loop {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        if let Ok(pid) = text.trim().parse::<i32>() {
            break Pid::from_raw(pid).unwrap();
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "the tool did not start");
        std::thread::sleep(Duration::from_millis(5));
    };
    send(&child, Signal::INT);
    let out = rig.finish(child);
    assert_eq!(out.code(), 130);
    let result = out.result();
    assert_eq!(
        (&result["subtype"], &result["terminal_reason"]),
        (&json!("cancelled"), &json!("aborted_tools"))
    );
    // Killed; whoever inherits it may take a moment to notice.
    while rustix::process::test_kill_process(pid).is_ok() {
        assert!(begin.elapsed() < Duration::from_secs(60), "the shell is still there");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_second_ctrl_c_ends_a_process_that_cannot_go_on() {
    // Its stdout is full and nobody reads, so it can not even say that it was interrupted.
    let rig = Rig::answering([Reply::text("x".repeat(400_000)).delta(400_000)]);
    let args = ["-p", "Go", "--output-format", "stream-json", "--include-partial-messages"];
    let mut child = rig.command(args).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    read_line(&mut stdout);
    rig.wait_for_requests(1);
    std::thread::sleep(Duration::from_millis(300));
    send(&child, Signal::INT);
    std::thread::sleep(Duration::from_millis(100));
    assert!(child.try_wait().unwrap().is_none(), "one is not enough here");
    send(&child, Signal::INT);
    assert_eq!(wait(&mut child, BOUND).code(), Some(130));
}

#[test]
fn a_reader_that_goes_away_is_a_quiet_end() {
    let words = "word ".repeat(2_000);
    let pace = Pace::Drip { size: 512, pause: Duration::from_millis(2) };
    let rig = Rig::answering([Reply::text(words).delta(5).pace(pace)]);
    let args = ["-p", "Go", "--output-format", "stream-json", "--include-partial-messages"];
    let mut child = rig.command(args).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    read_line(&mut stdout);
    drop(stdout);
    let out = rig.finish(child);
    assert_eq!((out.code(), out.stderr.as_str()), (1, ""));
}

#[test]
fn an_answer_that_nobody_takes_is_a_quiet_end_too() {
    for args in [&["-p", "Go"] as &[&str], &["models"], &["--version"]] {
        let rig = Rig::answering([Reply::text("answer")]);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let out = rig.finish(rig.command(args).stdout(writer).spawn().unwrap());
        assert_eq!((out.code(), out.stderr.as_str()), (1, ""), "{args:?}");
    }
}

#[test]
fn an_answer_that_cannot_be_written_is_a_failure_and_told() {
    let rig = Rig::answering([Reply::text("answer")]);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let out = rig.finish(rig.command(["-p", "Go"]).stdout(full).spawn().unwrap());
    assert_eq!(out.code(), 1);
    assert!(out.stderr.starts_with("error: ") && out.stderr.contains("space"), "{}", out.stderr);
}
