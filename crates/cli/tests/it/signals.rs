//! Interrupts and readers that go away.

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use open_agent_testkit::server::{Pace, Reply};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::rig::{Rig, nap, read_line, wait_until};

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Until the pipe takes no more, so that the program waits for a reader.
fn wait_until_full(pipe: &ChildStdout) {
    wait_until(|| rustix::io::ioctl_fionread(pipe).unwrap() >= 60_000);
}

/// Until the signal was delivered: a second one that comes earlier would be the same one.
fn wait_until_taken(child: &Child, signal: Signal) {
    wait_until(|| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap();
        let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
        (mask >> (signal.as_raw() - 1)) & 1 == 0
    });
}

fn stalled() -> Rig {
    Rig::answering([Reply::text("some words and then nothing more ".repeat(20))
        .delta(4)
        .pace(Pace::Stall(2_000))])
}

#[test]
fn h_int_01_ctrl_c_in_a_stalled_answer() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let rig = stalled();
        let args = ["-p", "Go", "--output-format", "stream-json", "--include-partial-messages"];
        let mut child = rig.command(args).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        while !read_line(&mut stdout).contains("content_block_delta") {}
        send(&child, signal);
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).unwrap();
        let out = rig.finish(child);
        assert_eq!((out.code(), out.stderr.as_str()), (code, "error: interrupted\n"));
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

/// Nobody listens, and some have left the group, the session, their parent or the environment. Six sleep.
fn stubborn(nap: &str) -> String {
    format!(
        "trap '' TERM INT HUP; env -i setsid sleep {nap} & setsid sleep {nap} & nohup sleep {nap} >/dev/null 2>&1 & \
         (setsid sleep {nap} >/dev/null 2>&1 &); (sleep {nap} & disown); "
    )
}

#[test]
fn h_int_02_a_signal_while_a_tool_runs_leaves_nothing_running() {
    let nap = nap(1);
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let command = stubborn(&nap) + &format!("sleep {nap}; sleep {nap}");
        let rig = Rig::answering([Reply::tool("Bash", json!({ "command": command }))]);
        let args = ["-p", "Go", "--output-format", "json", "--allowed-tools", "Bash"];
        let child = rig.command(args).spawn().unwrap();
        rig.wait_for_naps(&nap, 6);
        send(&child, signal);
        let out = rig.finish(child);
        assert_eq!(rig.survivors(&nap), Vec::<String>::new(), "the program waits for their end");
        assert_eq!(out.code(), code);
        let result = out.result();
        assert_eq!(
            (&result["subtype"], &result["terminal_reason"]),
            (&json!("cancelled"), &json!("aborted_tools"))
        );
    }
}

#[test]
fn what_bash_started_ends_with_the_program() {
    let nap = nap(2);
    let left = stubborn(&nap) + "echo left";
    let polite = "trap 'echo yes > tidied; exit' TERM; echo ready > ready; while :; do sleep 0.01; done";
    let background = |command: &str| json!({ "command": command, "run_in_background": true });
    let rig = Rig::answering([
        Reply::tool("Bash", json!({ "command": left })),
        Reply::tool("Bash", background(&(stubborn(&nap) + &format!("sleep {nap}")))),
        Reply::tool("Bash", background(polite)),
        Reply::tool("Bash", json!({ "command": "until [ -e ready ]; do sleep 0.01; done" })),
        Reply::text("done"),
    ]);
    let out = rig.run(["-p", "Go", "--output-format", "stream-json", "--allowed-tools", "Bash"]);
    assert_eq!(rig.survivors(&nap), Vec::<String>::new(), "the program waits for their end");
    assert_eq!((out.code(), out.result()["result"].as_str()), (0, Some("done")));
    let started = out.frames().iter().filter(|f| f["subtype"] == "task_started").count();
    assert_eq!(started, 2);
    assert!(rig.requests().iter().any(|r| r.body.to_string().contains("Left running")), "something was left");
    let tidied = std::fs::read_to_string(rig.project.path().join("tidied"));
    assert_eq!(tidied.unwrap(), "yes\n", "they are asked first");
    let told: Vec<&str> = out.stderr.lines().collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(told[1], format!("warning: bash_2_0 was still running and ended with the program: {polite}"));
}

#[test]
fn the_second_ctrl_c_ends_a_process_that_cannot_go_on_and_leaves_nothing_running() {
    let nap = nap(3);
    let rig = Rig::answering([
        Reply::tool("Bash", json!({ "command": stubborn(&nap) + "echo left" })),
        Reply::tool(
            "Bash",
            json!({ "command": stubborn(&nap) + &format!("sleep {nap}"), "run_in_background": true }),
        ),
        Reply::text("never").pace(Pace::Stall(0)),
    ]);
    // Nobody reads its stderr, so it can not even say that it was interrupted.
    let (_reader, mut full) = std::io::pipe().unwrap();
    full.write_all(&[b'x'; 65_536]).unwrap();
    let mut command = rig.command(["-p", "Go", "--allowed-tools", "Bash"]);
    let mut child = command.stderr(Stdio::from(full)).spawn().unwrap();
    rig.wait_for_requests(3);
    rig.wait_for_naps(&nap, 11);
    send(&child, Signal::INT);
    wait_until_taken(&child, Signal::INT);
    assert!(child.try_wait().unwrap().is_none(), "one is not enough here");
    send(&child, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(rig.survivors(&nap), Vec::<String>::new());
}

#[test]
fn started_with_nohup_it_outlives_the_terminal() {
    let command = "echo ready > ready; until [ -e go ]; do sleep 0.01; done";
    let rig = Rig::answering([Reply::tool("Bash", json!({ "command": command })), Reply::text("done")]);
    let program = rig.command(["-p", "Go", "--allowed-tools", "Bash"]);
    let mut nohup = Command::new("sh");
    nohup.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(program.get_program()).args(program.get_args());
    nohup.env_clear().envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    nohup.current_dir(rig.project.path()).stdin(Stdio::null());
    let child = nohup.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until(|| rig.project.path().join("ready").exists());
    send(&child, Signal::HUP);
    rig.file("go", "");
    let out = rig.finish(child);
    assert_eq!((out.code(), out.stdout.as_str()), (0, "done\n"), "{}", out.stderr);
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

#[test]
fn h_int_01_one_signal_is_enough_though_nobody_reads() {
    for format in ["text", "json", "stream-json"] {
        let rig = Rig::answering([Reply::text("x".repeat(400_000)).delta(100_000)]);
        let mut child = rig.command(["-p", "Go", "--output-format", format]).spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        wait_until_full(&stdout);
        send(&child, Signal::TERM);
        assert_eq!(child.wait().unwrap().code(), Some(143), "{format}");
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert_eq!(stderr, "", "{format}");
    }
}

#[test]
fn a_request_to_quit_kills_at_once() {
    let nap = nap(4);
    let rig =
        Rig::answering([Reply::tool("Bash", json!({ "command": stubborn(&nap) + &format!("sleep {nap}") }))]);
    let mut child = rig.command(["-p", "Go", "--allowed-tools", "Bash"]).spawn().unwrap();
    rig.wait_for_naps(&nap, 6);
    send(&child, Signal::QUIT);
    assert_eq!(child.wait().unwrap().code(), Some(131));
    assert_eq!(rig.survivors(&nap), Vec::<String>::new());
}

#[test]
fn without_session_persistence_no_file_is_left() {
    for how in ["done", "killed"] {
        let long = if how == "done" { "seq 1 200000" } else { "seq 1 200000; touch ready; sleep 300" };
        let rig = Rig::answering([Reply::tool("Bash", json!({ "command": long })), Reply::text("ok")]);
        let temp = tempfile::tempdir().unwrap();
        let is_empty = || std::fs::read_dir(temp.path()).unwrap().next().is_none();
        let mut command =
            rig.command(["-p", "Go", "--no-session-persistence", "--dangerously-skip-permissions"]);
        let child = command.env("TMPDIR", temp.path()).spawn().unwrap();
        if how == "killed" {
            wait_until(|| rig.project.path().join("ready").exists() && !is_empty());
            send(&child, Signal::TERM);
        }
        let out = rig.finish(child);
        assert_eq!(out.code(), if how == "done" { 0 } else { 143 }, "{}", out.stderr);
        if how == "done" {
            let told = rig.requests().pop().unwrap().body.to_string();
            assert!(
                told.contains(&format!("bytes are in {}/open-agent-", temp.path().display())),
                "there was one"
            );
        }
        assert!(is_empty(), "{how}");
        assert!(std::fs::read_dir(rig.home.path()).unwrap().next().is_none(), "{how}");
    }
}
