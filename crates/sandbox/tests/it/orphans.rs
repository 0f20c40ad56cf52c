//! What becomes of commands when the process that started them ends without ending them.

#![cfg(target_os = "linux")]

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use open_agent_model::Env;
use open_agent_sandbox::{OrphanReaper, PlainRunner};
use open_agent_tool::CommandRunner;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::runner::{FAMILY, pids, runner, runs, sh};

/// Longer than anything here takes; a test that waits for so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Not a test of its own: starts commands, of which one goes on and one leaves others running, and then waits or exits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by the_commands_end_however_the_process_ends"]
async fn child_that_starts_commands() {
    let Some(told) = std::env::var_os("OPEN_AGENT_TEST_FILE").map(PathBuf::from) else { return };
    let runner = runner();
    let mut going_on = runner.spawn(sh(FAMILY)).await.unwrap();
    let mut all = pids(&mut *going_on, 5).await;
    let mut leaving =
        runner.spawn(sh("sleep 300 & echo $!; env -i setsid sleep 300 & echo $!; exit 0")).await.unwrap();
    let _stderr = leaving.stderr();
    let mut lines = BufReader::new(leaving.stdout().unwrap()).lines();
    for _ in 0..2 {
        all.push(lines.next_line().await.unwrap().unwrap().parse().unwrap());
    }
    leaving.wait().await.unwrap();
    assert_eq!(leaving.leave().await.len(), 2);
    let text: Vec<String> = all.iter().map(u32::to_string).collect();
    std::fs::write(told.with_extension("part"), text.join(" ")).unwrap();
    std::fs::rename(told.with_extension("part"), &told).unwrap();
    if std::env::var_os("OPEN_AGENT_TEST_EXITS").is_some() {
        std::process::exit(0);
    }
    std::future::pending::<()>().await;
}

fn assert_ends(pid: u32, fd: &OwnedFd) {
    let patience = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
    let ended = poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&patience)).unwrap();
    assert_eq!(ended, 1, "process {pid} lives on");
}

fn pidfd(pid: u32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(i32::try_from(pid).ok()?)?, PidfdFlags::empty()).ok()
}

#[test]
fn the_commands_end_however_the_process_ends() {
    for exits in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let told = dir.path().join("pids");
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "orphans::child_that_starts_commands", "--ignored"])
            .env("OPEN_AGENT_TEST_FILE", &told)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if exits {
            command.env("OPEN_AGENT_TEST_EXITS", "1");
        }
        let mut child = command.spawn().unwrap();
        let begin = Instant::now();
        let text = loop {
            assert!(begin.elapsed() < PATIENCE, "it never began");
            match std::fs::read_to_string(&told) {
                Ok(text) => break text,
                Err(_) => std::thread::yield_now(),
            }
        };
        let pids: Vec<u32> = text.split(' ').map(|pid| pid.parse().unwrap()).collect();
        assert_eq!(pids.len(), 7);
        // Who has exited may have lost some of them by now.
        let open: Vec<(u32, OwnedFd)> = pids.into_iter().filter_map(|pid| Some((pid, pidfd(pid)?))).collect();
        assert!(exits || open.len() == 7);
        if !exits {
            child.kill().unwrap();
        }
        child.wait().unwrap();
        for (pid, fd) in &open {
            assert_ends(*pid, fd);
        }
    }
}

/// The processes that look for their programs in a folder of this name: the reapers that were given it.
fn reapers(name: &Path) -> Vec<u32> {
    let wanted = name.display().to_string();
    let all = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let read = |file: &str| std::fs::read(entry.path().join(file)).unwrap_or_default();
        let is_ours = String::from_utf8_lossy(&read("environ")).contains(&wanted);
        (is_ours && String::from_utf8_lossy(&read("cmdline")).contains("open-agent-orphans")).then_some(pid)
    });
    all.filter(|pid| runs(*pid)).collect()
}

#[tokio::test]
async fn runners_share_a_reaper_which_goes_with_the_last_and_comes_back_if_it_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let path = format!("/usr/bin:/bin:{}", dir.path().display());
    let env: Env = [("PATH".to_owned(), path)].into_iter().collect();
    let reaper = OrphanReaper::new(&env);
    let runners = [(); 2].map(|()| PlainRunner::with_reaper(&env, &[], &reaper));
    drop(reaper);
    assert_eq!(reapers(dir.path()), [0; 0], "none before the first command");
    let mut going_on = Vec::new();
    for runner in &runners {
        going_on.push(runner.spawn(sh("sleep 300")).await.unwrap());
    }
    let [first] = reapers(dir.path())[..] else { panic!("one for both") };
    let fd = pidfd(first).unwrap();
    rustix::process::pidfd_send_signal(&fd, rustix::process::Signal::KILL).unwrap();
    assert_ends(first, &fd);
    going_on.push(runners[0].spawn(sh("sleep 300")).await.unwrap());
    let [second] = reapers(dir.path())[..] else { panic!("a new one") };
    let fd = pidfd(second).unwrap();
    drop((going_on, runners));
    assert_ends(second, &fd);
}
