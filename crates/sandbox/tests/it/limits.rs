//! What a process is started with: its input, its environment, its limits and its purpose.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use open_agent_model::Env;
use open_agent_sandbox::PlainRunner;
use open_agent_tool::{CommandRunner, CommandSpec, Exit, LimitHit, Limits, Purpose, Running, Stdin};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::runner::{FAMILY, assert_gone, pids, runner, runs, sh};

async fn all(running: &mut dyn Running) -> (Vec<u8>, Exit) {
    let mut out = Vec::new();
    running.stdout().unwrap().read_to_end(&mut out).await.unwrap();
    (out, running.wait().await.unwrap())
}

async fn run(spec: CommandSpec) -> (Vec<u8>, Exit) {
    all(&mut *runner().spawn(spec).await.unwrap()).await
}

fn limited(script: &str, limits: Limits) -> CommandSpec {
    CommandSpec { limits, ..sh(script) }
}

#[tokio::test]
async fn input_is_closed_given_or_a_pipe() {
    assert_eq!(run(sh("cat; echo end")).await.0, b"end\n");
    let bytes = vec![b'x'; 1_000_000];
    let spec = CommandSpec { stdin: Stdin::Bytes(bytes.clone()), ..sh("cat; echo end") };
    assert_eq!(run(spec).await.0, [&bytes[..], b"end\n"].concat());
    let spec = CommandSpec { stdin: Stdin::Bytes(bytes), ..sh("echo no thanks") };
    assert_eq!(run(spec).await.0, b"no thanks\n", "who does not read it is not held up");

    let runner = runner();
    let mut running = runner
        .spawn(CommandSpec { stdin: Stdin::Pipe, ..sh("read line; echo got $line; cat") })
        .await
        .unwrap();
    let (mut input, mut output) = (running.stdin().unwrap(), running.stdout().unwrap());
    assert!(running.stdin().is_none(), "the second time");
    input.write_all(b"one\n").await.unwrap();
    let mut answer = [0; 8];
    output.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"got one\n");
    input.write_all(b"two").await.unwrap();
    drop(input);
    let mut rest = String::new();
    output.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "two");
    assert!(runner.spawn(sh("true")).await.unwrap().stdin().is_none(), "closed");
}

#[tokio::test]
async fn h_bsh_06_the_environment_passes_byte_for_byte() {
    let odd = OsString::from_vec(b"a\xFFb".to_vec());
    let path = OsString::from_vec(b"/usr/bin:/bin:/opt/\xFE".to_vec());
    let env: Env = [("PATH".into(), path.clone()), ("PASSED".into(), odd.clone())].into_iter().collect();
    let runner = PlainRunner::new(&env, &[]);
    let mut spec = sh("printenv PATH PASSED GIVEN");
    spec.env.insert("GIVEN".into(), odd.clone());
    let (out, exit) = all(&mut *runner.spawn(spec).await.unwrap()).await;
    assert_eq!(exit.code, Some(0));
    assert_eq!(out, [path.as_bytes(), odd.as_bytes(), odd.as_bytes(), b""].join(&b'\n'));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_time_limit_ends_the_whole_tree_and_the_exit_says_so() {
    let runner = runner();
    let time = Some(Duration::from_millis(300));
    let mut running = runner.spawn(limited(FAMILY, Limits { time, ..Limits::default() })).await.unwrap();
    let pids = pids(&mut *running, 5).await;
    let exit = running.wait().await.unwrap();
    assert_eq!(exit, Exit { code: None, signal: Some(9), limit: Some(LimitHit::Time) });
    assert!(!pids.iter().any(|pid| runs(*pid)), "all have gone when it is told");
    assert_eq!(running.wait().await.unwrap(), exit);

    let hour = Limits { time: Some(Duration::from_secs(3_600)), ..Limits::default() };
    assert_eq!(run(limited("exit 3", hour)).await.1, Exit { code: Some(3), ..Exit::default() });
}

#[tokio::test]
async fn output_ends_at_its_limit_and_the_exit_says_so() {
    let ten = Limits { output: Some(10), ..Limits::default() };
    let (out, exit) = run(limited("while :; do echo 123456; done", ten)).await;
    assert_eq!((&out[..], exit.limit), (&b"123456\n123"[..], Some(LimitHit::Output)));
    assert_eq!(exit.code, None, "it was ended");
    let (out, exit) = run(limited("printf 0123456789", ten)).await;
    assert_eq!(
        (&out[..], exit),
        (&b"0123456789"[..], Exit { code: Some(0), ..Exit::default() }),
        "just as much"
    );

    // Its output is over and was not too much, so it may go on.
    let (_, exit) = run(limited("printf 0123456789; exec >&- 2>&-; sleep 0.3; exit 5", ten)).await;
    assert_eq!(exit, Exit { code: Some(5), ..Exit::default() });

    // Both outputs count together.
    let runner = runner();
    let mut running =
        runner.spawn(limited("printf 123456; printf 7890abcdef >&2; exec sleep 300", ten)).await.unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let (mut stdout, mut stderr) = (running.stdout().unwrap(), running.stderr().unwrap());
    let (one, two) = tokio::join!(stdout.read_to_end(&mut out), stderr.read_to_end(&mut err));
    assert_eq!(one.unwrap() + two.unwrap(), 10);
    assert_eq!(running.wait().await.unwrap().limit, Some(LimitHit::Output));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn memory_is_limited_in_each_process() {
    let script = "x=$(head -c 60000000 /dev/zero | tr '\\0' y); echo ${#x}";
    let memory = |memory| Limits { memory, ..Limits::default() };
    assert_eq!(run(limited(script, memory(None))).await.0, b"60000000\n");
    let (out, exit) = run(limited(script, memory(Some(20_000_000)))).await;
    assert_ne!(out, b"60000000\n");
    assert_ne!(exit.code, Some(0));
    let (out, _) = run(limited("sh -c 'ulimit -d'", memory(Some(20_480_000)))).await;
    assert_eq!(out, b"20000\n", "what it starts has the limit too");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn hooks_and_servers_leave_nothing_running() {
    for (purpose, leaves) in [(Purpose::Command, true), (Purpose::Hook, false), (Purpose::Server, false)] {
        let runner = runner();
        let spec = CommandSpec { purpose, ..sh("setsid sleep 300 & echo $!; exit 0") };
        let mut running = runner.spawn(spec).await.unwrap();
        let _stderr = running.stderr();
        let pid = pids(&mut *running, 1).await;
        running.wait().await.unwrap();
        assert_eq!(running.leave().await.len(), usize::from(leaves), "{purpose:?}");
        if !leaves {
            assert_gone(&pid);
        }
    }
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn each_start_is_logged_with_its_purpose_and_without_values() {
    let log = Log::default();
    let to = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_ansi(false)
        .with_writer(move || to.clone())
        .finish();
    // Processes are started on threads of the pool, which do not know of a subscriber of this thread.
    let runner = runner();
    let mut spec = CommandSpec { purpose: Purpose::Hook, ..sh("true") };
    spec.env.insert("GIVEN".into(), "sk-canary".into());
    let _guard = tracing::subscriber::set_global_default(subscriber);
    runner.spawn(spec).await.unwrap().wait().await.unwrap();
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(text.contains("process started purpose=\"hook\" program=\"sh\""), "{text}");
    assert!(!text.contains("sk-canary"), "{text}");
}
