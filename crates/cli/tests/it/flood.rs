//! A command that writes more than a machine should hold: the program does not grow, the model gets both ends.

use std::process::Child;

use open_agent_testkit::cases;
use open_agent_testkit::server::{Pace, Reply};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::rig::Rig;

/// The size of the flood: a gigabyte in deep runs, and in all runs more than the program may grow by.
fn bytes() -> u64 {
    cases(200_000_000, 1_000_000_000)
}

/// The most that the process ever had in memory, in kB.
fn peak(child: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// A command's peak, and what the model and the file got of its output.
struct Seen {
    peak: u64,
    request: String,
    kept: u64,
}

/// Runs a command and looks once the model has its result. `count` stands before the file's name.
fn run(command: &str, count: &str) -> Seen {
    let stalls = Reply::text("well ".repeat(50)).delta(5).pace(Pace::Stall(500));
    let rig =
        Rig::answering([Reply::tool("Bash", json!({ "command": command, "timeout": 600_000 })), stalls]);
    let args = ["-p", "Go", "--output-format", "json", "--allowed-tools", "Bash"];
    let child = rig.command(args).spawn().unwrap();
    rig.wait_for_requests(2);
    let peak = peak(&child);
    let request = rig.requests().remove(1).text;
    let mut kept = 0;
    if let Some((_, path)) = request.split_once(count) {
        let path = path.split(" …]").next().unwrap();
        kept = std::fs::metadata(path).unwrap().len();
        // Looking for keys in it would take longer than all the rest.
        std::fs::remove_file(path).unwrap();
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(rig.finish(child).code(), 130);
    Seen { peak, request, kept }
}

#[test]
fn h_bsh_03_a_gigabyte_does_not_grow_the_program() {
    let small = run("echo small", "no such text");
    assert!(small.request.contains("small"));
    let bytes = bytes();
    let endless = format!("printf first; head -c {bytes} /dev/zero | tr '\\0' x; echo last");
    let lines = format!("echo first; yes 'a line of a flood' | head -c {bytes}; echo last");
    for (command, extra) in [(endless, 10), (lines, 11)] {
        let flood = run(&command, &format!("all {} bytes are in ", bytes + extra));
        let grown = flood.peak.saturating_sub(small.peak);
        assert!(grown < 64 * 1024, "{grown} kB more than without");
        assert!(flood.request.len() < 200_000, "{}", flood.request.len());
        assert!(flood.request.contains("first") && flood.request.contains("last"), "head and tail");
        assert_eq!(flood.kept, bytes + extra);
    }
}
