//! `PlainRunner`: nothing that was started outlives what started it.

use std::path::Path;

use open_agent_model::Env;
use open_agent_sandbox::{PlainRunner, REMOVED_VARIABLES};
use open_agent_testkit::cases;
use open_agent_tool::{CommandRunner, CommandSpec, Exit, Running};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

pub(crate) fn runner() -> PlainRunner {
    let path = std::env::var("PATH").unwrap();
    let env: Env = [("PATH", path.as_str()), ("OPENAI_API_KEY", "sk-canary"), ("GREETING", "hello")]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into_iter()
        .collect();
    PlainRunner::new(&env, REMOVED_VARIABLES)
}

pub(crate) fn sh(script: &str) -> CommandSpec {
    CommandSpec { args: vec!["-c".into(), script.into()], ..CommandSpec::new("sh", "/") }
}

async fn output(runner: &PlainRunner, script: &str) -> String {
    let mut running = runner.spawn(sh(script)).await.unwrap();
    let mut text = String::new();
    running.stdout().unwrap().read_to_string(&mut text).await.unwrap();
    text
}

/// Reads the numbers of `n` processes that the script prints, one a line.
pub(crate) async fn pids(running: &mut dyn Running, n: usize) -> Vec<u32> {
    let mut lines = BufReader::new(running.stdout().unwrap()).lines();
    let mut pids = Vec::new();
    while pids.len() < n {
        pids.push(lines.next_line().await.unwrap().expect("a line").parse().unwrap());
    }
    pids
}

pub(crate) fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Waits for the end of processes that have been killed. If one of them lives on, this never returns.
pub(crate) fn assert_gone(pids: &[u32]) {
    println!("waiting for the end of {pids:?}");
    while pids.iter().any(|pid| runs(*pid)) {
        std::thread::yield_now();
    }
}

/// The main process, a child, a grandchild whose parent is gone, one in a session of its own, and one that dropped the environment too.
pub(crate) const FAMILY: &str = r#"
echo $$
trap '' TERM
sleep 300 & echo $!
(sleep 300 & echo $!)
setsid sh -c 'echo $$; exec sleep 300 >/dev/null 2>&1 </dev/null' &
env -i setsid sh -c 'echo $$; exec sleep 300' &
sleep 300
"#;

#[tokio::test]
async fn streams_and_exit_codes() {
    let runner = runner();
    let mut running = runner.spawn(sh("echo out; echo err >&2; exit 7")).await.unwrap();
    let (mut out, mut err) = (String::new(), String::new());
    running.stdout().unwrap().read_to_string(&mut out).await.unwrap();
    running.stderr().unwrap().read_to_string(&mut err).await.unwrap();
    assert_eq!((out.as_str(), err.as_str()), ("out\n", "err\n"));
    assert!(running.stdout().is_none());
    let exit = running.wait().await.unwrap();
    assert_eq!(exit, Exit { code: Some(7), ..Exit::default() });
    assert_eq!(running.wait().await.unwrap(), exit, "a second time too");
    let mut running = runner.spawn(sh("kill -9 $$")).await.unwrap();
    assert_eq!(running.wait().await.unwrap(), Exit { signal: Some(9), ..Exit::default() });
}

#[tokio::test]
async fn h_log_02_keys_are_kept_from_processes() {
    let runner = runner();
    assert_eq!(runner.removed(), ["OPENAI_API_KEY"]);
    for script in ["env", "sh -c env", "sh -lc env"] {
        let env = output(&runner, script).await;
        assert!(!env.contains("sk-canary") && env.contains("GREETING=hello"), "{env}");
    }
    let mut spec = sh("echo $OPENAI_API_KEY");
    spec.env.insert("OPENAI_API_KEY".into(), "given".into());
    let mut running = runner.spawn(spec).await.unwrap();
    let mut text = String::new();
    running.stdout().unwrap().read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "given\n", "what is given by name is passed on");
}

#[tokio::test]
async fn no_input_no_terminal_and_the_folder_that_was_asked_for() {
    let runner = runner();
    assert_eq!(output(&runner, "cat; echo end").await, "end\n");
    assert_eq!(output(&runner, "(: < /dev/tty) 2>/dev/null || echo none").await, "none\n");
    assert_eq!(output(&runner, "pwd; echo $PWD").await, "/\n/\n");
}

#[tokio::test]
async fn a_program_that_is_not_there() {
    let mut spec = sh("");
    spec.program = "no-such-program-anywhere".into();
    let Err(error) = runner().spawn(spec).await else { panic!("it started") };
    assert_eq!(error.to_string(), "start no-such-program-anywhere: not found in PATH");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn killing_ends_the_whole_family() {
    let runner = runner();
    let mut running = runner.spawn(sh(FAMILY)).await.unwrap();
    let pids = pids(&mut *running, 5).await;
    assert!(pids.iter().all(|pid| runs(*pid)));
    running.kill().await;
    assert_gone(&pids);
    assert_eq!(running.wait().await.unwrap().signal, Some(9), "it ignores the polite request");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn dropping_ends_the_whole_family() {
    // Dropping a runner ends what it started.
    let runner = runner();
    let mut running = runner.spawn(sh(FAMILY)).await.unwrap();
    let pids = pids(&mut *running, 5).await;
    drop(running);
    assert_gone(&pids);
    // Reaped as well: not even a zombie is left of our own child.
    while Path::new(&format!("/proc/{}", pids[0])).exists() {
        std::thread::yield_now();
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_is_left_running_ends_with_the_runner() {
    let script = "sleep 300 & echo $!; env -i setsid sleep 300 & env -i sleep 300 </dev/null >/dev/null 2>&1 & sleep 0.1; exit 0";
    for ends in ["dropped", "ended", "killed"] {
        let runner = runner();
        let mut running = runner.spawn(sh(script)).await.unwrap();
        let _stderr = running.stderr();
        let mut stdout = BufReader::new(running.stdout().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).await.unwrap();
        running.wait().await.unwrap();
        let left = running.leave().await;
        assert_eq!(left.len(), 3, "{left:?}");
        assert!(left.iter().all(|d| d.command == "sleep 300"), "{left:?}");
        let pids: Vec<u32> = left.iter().map(|d| d.pid).collect();
        assert!(pids.contains(&line.trim().parse().unwrap()));
        assert!(pids.iter().all(|pid| runs(*pid)), "they go on");
        match ends {
            "dropped" => drop(runner),
            "ended" => runner.end_all().await,
            _ => runner.kill_all(),
        }
        assert!(!pids.iter().any(|pid| runs(*pid)), "{ends}: gone before it returns");
    }
}

/// Both what goes on and what was left running, none of which listens to a polite request.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn everything_that_goes_on_ends_with_the_runner() {
    for ends in ["dropped", "ended", "killed"] {
        let runner = runner();
        let mut going_on = Vec::new();
        let mut all = Vec::new();
        for _ in 0..3 {
            let mut running = runner.spawn(sh(FAMILY)).await.unwrap();
            all.extend(pids(&mut *running, 5).await);
            going_on.push(running);
        }
        assert!(all.iter().all(|pid| runs(*pid)));
        match ends {
            "dropped" => drop(runner),
            "ended" => runner.end_all().await,
            _ => runner.kill_all(),
        }
        assert!(!all.iter().any(|pid| runs(*pid)), "{ends}: gone before it returns");
        for running in &mut going_on {
            assert_eq!(running.wait().await.unwrap().signal, Some(9));
        }
    }
}

#[tokio::test]
async fn nothing_is_started_once_all_was_ended() {
    for politely in [false, true] {
        let runner = runner();
        assert_eq!(output(&runner, "echo one").await, "one\n");
        if politely {
            runner.end_all().await;
        } else {
            runner.kill_all();
        }
        let Err(error) = runner.spawn(sh("echo two")).await else { panic!("it started") };
        assert_eq!(error.to_string(), "the agent is being closed");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_polite_process_may_tidy_up() {
    let runner = runner();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tidied");
    let script =
        format!("trap 'echo yes > {}; exit' TERM; echo 1; while :; do sleep 0.01; done", file.display());
    let mut running = runner.spawn(sh(&script)).await.unwrap();
    pids(&mut *running, 1).await;
    running.kill().await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "yes\n");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_multiplies_while_it_is_killed_ends_too() {
    let script =
        "trap '' TERM; f() { while :; do (setsid sleep 300.25 &); sleep 0.005; done; }; f & f & echo 1; wait";
    let runner = runner();
    let mut running = runner.spawn(sh(script)).await.unwrap();
    pids(&mut *running, 1).await;
    running.kill().await;
    let sleepers: Vec<u32> = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|c| c == b"sleep\x00300.25\0"))
        .collect();
    assert_gone(&sleepers);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn who_has_to_end_is_asked_once() {
    let dir = tempfile::tempdir().unwrap();
    let asked = dir.path().join("asked");
    let script = format!(
        "trap 'echo once >> {}' TERM; echo ready; while :; do sleep 300 & wait $!; done",
        asked.display()
    );
    let runner = runner();
    let mut running = runner.spawn(sh(&script)).await.unwrap();
    let mut stdout = BufReader::new(running.stdout().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).await.unwrap();
    running.kill().await;
    assert_eq!(std::fs::read_to_string(asked).unwrap(), "once\n");
}

/// A process that is being started is for a moment a copy of this one, with all files that are open here: also the pipes
/// of commands that others started.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ending_one_command_spares_those_that_others_are_starting() {
    use std::sync::atomic::{AtomicBool, Ordering};

    let is_over = std::sync::Arc::new(AtomicBool::new(false));
    let over = std::sync::Arc::clone(&is_over);
    let ending = tokio::spawn(async move {
        while !over.load(Ordering::Relaxed) {
            let runner = runner();
            let mut running = runner.spawn(sh("sleep 300.75")).await.unwrap();
            running.kill().await;
        }
    });
    let runner = runner();
    let mut killed = 0;
    for _ in 0..cases(100, 400) {
        let mut running = runner.spawn(sh("exit 3")).await.unwrap();
        killed += usize::from(running.wait().await.unwrap().code != Some(3));
    }
    is_over.store(true, Ordering::Relaxed);
    ending.await.unwrap();
    assert_eq!(killed, 0);
}
