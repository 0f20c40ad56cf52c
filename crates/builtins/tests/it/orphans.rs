//! What becomes of commands when the agent's process is killed.

#![cfg(target_os = "linux")]

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::json;

use crate::world::World;

/// Longer than anything here takes; a test that waits for so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Not a test of its own: runs commands until it is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by h_crash_03_commands_end_when_the_agent_is_killed"]
async fn child_that_runs_commands() {
    let Some(told) = std::env::var_os("OPEN_AGENT_TEST_ROOT").map(PathBuf::from) else { return };
    let w = World::new();
    w.ok("Bash", json!({"command": "sleep 1000.5", "run_in_background": true})).await;
    std::fs::write(told.join("part"), w.root.display().to_string()).unwrap();
    std::fs::rename(told.join("part"), told.join("root")).unwrap();
    w.ok("Bash", json!({"command": "setsid sleep 1000.5 & sleep 1000.5 & sleep 1000.5", "timeout": 600_000}))
        .await;
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}

/// The processes that sleep and came out of the world at `root`.
fn sleepers(root: &str) -> Vec<(i32, OwnedFd)> {
    let mark = format!("TEST_WORLD={root}");
    let all = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let read = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
        let is_ours = read("environ").split(|b| *b == 0).any(|v| v == mark.as_bytes());
        (is_ours && read("cmdline") == b"sleep\x001000.5\0").then_some(())?;
        Some((pid, pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?))
    });
    all.collect()
}

#[test]
fn h_crash_03_commands_end_when_the_agent_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "orphans::child_that_runs_commands", "--ignored"])
        .env("OPEN_AGENT_TEST_ROOT", dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let root = until("the child begins", || std::fs::read_to_string(dir.path().join("root")).ok());
    let sleepers = until("four commands sleep", || Some(sleepers(&root)).filter(|all| all.len() == 4));
    child.kill().unwrap();
    child.wait().unwrap();
    for (pid, fd) in &sleepers {
        let patience = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
        let ended = poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&patience)).unwrap();
        assert_eq!(ended, 1, "process {pid} lives on");
    }
    let _ = std::fs::remove_dir_all(Path::new(&root).parent().unwrap());
}
