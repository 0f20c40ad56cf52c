//! Bash in the background.

use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::task::Poll;

use open_agent_model::{BackgroundEnd, BackgroundId, BackgroundKind, BackgroundOutcome, CallId};
use open_agent_tool::Background as _;
use serde_json::json;

use crate::bash::resident_kb;
use crate::world::{World, details, owner, text};

/// A command that was started: its name and its file.
struct Started {
    id: BackgroundId,
    path: PathBuf,
}

impl World {
    async fn start(&self, command: &str, timeout: u64) -> Started {
        let input = json!({"command": command, "run_in_background": true, "timeout": timeout});
        let output = self.call("Bash", input).await.unwrap();
        assert!(!output.is_error, "{}", text(&output));
        let details = details(&output);
        let id = details["backgroundTaskId"].as_str().unwrap().to_owned();
        let path = details["backgroundOutputPath"].as_str().unwrap().to_owned();
        assert!(text(&output).contains(&id) && text(&output).contains(&path), "{}", text(&output));
        Started { id: BackgroundId(id), path: path.into() }
    }

    /// Waits until the command is over and gives how it ended and what it wrote.
    async fn ended(&self, started: &Started) -> (BackgroundEnd, String) {
        let mut end = None;
        until(&started.id.0, || {
            end = self.background.find(&owner(), &started.id).unwrap().end;
            end.is_some()
        })
        .await;
        (end.unwrap(), started.text())
    }
}

impl Started {
    fn text(&self) -> String {
        std::fs::read_to_string(&self.path).unwrap()
    }
}

/// Waits for something to happen. If it never does, the test hangs, and its output ends with what it waits for.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    println!("waiting: {what}");
    while !is_so() {
        tokio::task::yield_now().await;
    }
}

fn process_end(detail: String, is_success: bool) -> BackgroundEnd {
    let outcome = if is_success { BackgroundOutcome::Completed } else { BackgroundOutcome::Failed };
    BackgroundEnd::with_detail(outcome, detail)
}

fn exited(code: i32) -> BackgroundEnd {
    process_end(format!("ended with exit code {code}"), code == 0)
}

#[tokio::test]
async fn the_call_returns_at_once_and_the_file_grows() {
    let w = World::new();
    std::fs::create_dir(w.path("sub")).unwrap();
    let command = "cd sub; echo first; echo oops >&2; until [ -e go ]; do sleep 0.01; done; pwd; exit 3";
    let started = w.start(command, 60_000).await;
    assert_eq!(started.id, BackgroundId::of(BackgroundKind::Bash, CallId { turn: 1, index: 0 }));
    until("it writes", || started.text().contains("first\n") && started.text().contains("oops\n")).await;
    let status = w.background.find(&owner(), &started.id).unwrap();
    assert!(status.is_running());
    assert_eq!(
        (&status.work.description, &status.output_path),
        (&command.into(), &Some(started.path.clone()))
    );
    // It can be read while it grows, and again afterwards.
    let read = json!({"file_path": started.path});
    assert!(w.ok("Read", read.clone()).await.contains("first"));
    w.file("sub/go", "");
    let (end, text) = w.ended(&started).await;
    assert_eq!(end, exited(3));
    let folder = w.path("sub");
    assert!(text.ends_with(&format!("\n{}\n[The command ended with exit code 3.]\n", folder.display())));
    assert!(w.ok("Read", read).await.contains("ended with exit code 3"));
    assert_eq!(w.state.lock().unwrap().cwd, w.root, "its cd moves nothing");
}

#[tokio::test]
async fn h_bsh_01_in_the_background_input_is_closed_and_time_is_limited() {
    let w = World::new();
    let started = w.start("cat; read x || echo end; cat </dev/tty || echo none", 60_000).await;
    let (end, text) = w.ended(&started).await;
    assert_eq!(end, exited(0));
    assert!(text.contains("end\n") && text.contains("none\n"), "{text}");
    let started = w.start("echo before; trap '' TERM; (setsid sleep 302.5 &); sleep 302.5", 300).await;
    let (end, text) = w.ended(&started).await;
    assert_eq!(end, BackgroundEnd::of(BackgroundOutcome::TimedOut));
    assert_eq!(text, "before\n[The command reached its time limit and was killed.]\n");
    assert!(w.processes().is_empty(), "{:?}", w.processes());
}

#[tokio::test]
async fn an_interrupt_leaves_it_alone_and_a_stop_ends_it() {
    let w = World::new();
    let started = w.start("echo begun; sleep 302.1 & setsid sleep 302.1", 60_000).await;
    until("it runs", || w.processes().iter().filter(|p| p.starts_with("sleep 302.1")).count() == 2).await;
    w.cancel.cancel();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(w.background.find(&owner(), &started.id).unwrap().is_running());
    assert_eq!(
        w.background.stop(&owner(), &started.id).await.unwrap().end,
        Some(BackgroundEnd::of(BackgroundOutcome::Stopped))
    );
    assert!(w.processes().is_empty(), "{:?}", w.processes());
    assert_eq!(started.text(), "begun\n[The command was stopped.]\n");
    // The run is being stopped, so no further one begins.
    let error = w.fails("Bash", json!({"command": "sleep 302.2", "run_in_background": true})).await;
    assert!(error.contains("Interrupted"), "{error}");
    assert_eq!((w.background.list(&owner()).len(), w.processes().len()), (1, 0));
}

#[tokio::test]
async fn a_prompt_without_a_line_end_is_shown() {
    let w = World::new();
    let started = w.start(r"printf '\033[1mName\033[0m: '; sleep 302.3", 60_000).await;
    until("the prompt", || started.text() == "Name: ").await;
    w.background.stop(&owner(), &started.id).await;
    assert_eq!(started.text(), "Name: \n[The command was stopped.]\n");
}

enum Expect {
    /// It ends so by itself, and its file is this.
    Ends(End, &'static str),
    /// It ends so by itself, and this is in its file.
    Has(End, &'static str),
    /// It goes on until it is stopped.
    GoesOn,
}

/// What background commands do to those who look after them.
const AWKWARD: &[(&str, Expect)] = &[
    ("exit 7", Expect::Ends(End::Code(7), "[The command ended with exit code 7.]\n")),
    ("true", Expect::Ends(End::Code(0), "[The command ended with exit code 0.]\n")),
    ("kill -9 $$", Expect::Ends(End::Signal(9), "[The command was ended by signal 9.]\n")),
    ("exec no-such-command-here", Expect::Has(End::Code(127), "not found")),
    ("no-such-command-here", Expect::Has(End::Code(127), "command not found")),
    ("echo 'unclosed", Expect::Has(End::Code(2), "unexpected EOF")),
    (
        "printf 'no newline'",
        Expect::Ends(End::Code(0), "no newline\n[The command ended with exit code 0.]\n"),
    ),
    (
        r"printf 'a\0b\377c\n'",
        Expect::Ends(End::Code(0), "ab\u{fffd}c\n[The command ended with exit code 0.]\n"),
    ),
    (
        r"printf '1%%\r50%%\r100%%\n'",
        Expect::Ends(End::Code(0), "100%\n[The command ended with exit code 0.]\n"),
    ),
    ("head -c 300000 /dev/urandom", Expect::Has(End::Code(0), "[The command ended with exit code 0.]\n")),
    (
        "mkdir gone; cd gone; rmdir ../gone; echo still here",
        Expect::Has(End::Code(0), "still here\n[The command ended with exit code 0.]\n"),
    ),
    ("sleep 302.7 & echo started", Expect::Has(End::Code(0), "Left running:")),
    (
        "setsid sleep 302.7 >/dev/null 2>&1 & echo started",
        Expect::Has(End::Code(0), "They end with the session."),
    ),
    ("exec >&- 2>&-; sleep 302.7", Expect::GoesOn),
    ("trap '' TERM INT HUP; while :; do sleep 0.01; done", Expect::GoesOn),
    ("trap '' TERM; sleep 302.7", Expect::GoesOn),
    ("setsid sh -c 'trap \"\" TERM; sleep 302.7; sleep 302.7' & sleep 302.7", Expect::GoesOn),
    ("env -i setsid sleep 302.7 & sleep 302.7", Expect::GoesOn),
    ("kill -STOP $$", Expect::GoesOn),
    ("yes >/dev/null", Expect::GoesOn),
    ("yes | head -c 1000000; sleep 302.7", Expect::GoesOn),
    ("while :; do (setsid sleep 302.7 &); sleep 0.01; done", Expect::GoesOn),
];

/// How a command ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Code(i32),
    Signal(i32),
}

impl End {
    fn as_end(self) -> BackgroundEnd {
        match self {
            Self::Code(code) => process_end(format!("ended with exit code {code}"), code == 0),
            Self::Signal(signal) => process_end(format!("was ended by signal {signal}"), false),
        }
    }
}

/// A command of the table, which sleeps for a time that no other test run has: another one may go on beside this.
fn of_this_run(command: &str) -> String {
    command.replace("302.7", &format!("302.{}", std::process::id()))
}

/// What runs of this world, and anything that sleeps for the time that only this table has.
fn sleepers(w: &World) -> Vec<String> {
    let mut all = w.processes();
    let sleeping = of_this_run("sleep\x00302.7\0");
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if line == sleeping.as_bytes() {
            all.push(entry.path().display().to_string());
        }
    }
    all
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn awkward_commands_can_be_looked_after_and_leave_nothing() {
    for (command, expect) in AWKWARD {
        let (w, command) = (World::new(), of_this_run(command));
        let started = w.start(&command, 60_000).await;
        match expect {
            Expect::Ends(end, text) => {
                assert_eq!(w.ended(&started).await, (end.as_end(), (*text).to_owned()), "{command}");
            }
            Expect::Has(end, part) => {
                let (ended, text) = w.ended(&started).await;
                assert_eq!(ended, end.as_end(), "{command}");
                assert!(text.contains(part), "{command}: {text}");
                w.runner.end_all().await;
            }
            Expect::GoesOn => {
                until(&command, || !w.processes().is_empty()).await;
                assert!(w.background.find(&owner(), &started.id).unwrap().is_running(), "{command}");
                let end = w.background.stop(&owner(), &started.id).await.unwrap().end;
                assert_eq!(end, Some(BackgroundEnd::of(BackgroundOutcome::Stopped)), "{command}");
                assert!(started.text().ends_with("[The command was stopped.]\n"), "{}", started.text());
            }
        }
        let left = sleepers(&w);
        assert!(left.is_empty(), "{command} left {left:?}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_at_once_have_names_and_files_of_their_own_and_end_together() {
    let w = World::new();
    let mut all = Vec::new();
    for n in 0..20 {
        let command = format!(
            "trap ': > asked.{n}' TERM; echo number {n}; exec 2>/dev/null; while :; do sleep 302.9; done"
        );
        all.push(w.start(&command, 60_000).await);
    }
    for (n, started) in all.iter().enumerate() {
        until("all write", || started.text() == format!("number {n}\n")).await;
    }
    assert_eq!(w.background.list(&owner()).iter().filter(|t| t.is_running()).count(), 20);
    // Each notes that it was asked to end, and goes on. One after the other, a second one would be asked only when the
    // first is gone.
    let asked = || (0..20).filter(|n| w.path(&format!("asked.{n}")).exists()).count();
    let ((), asked_at_first_end) = tokio::join!(w.background.stop_all(&owner()), async {
        until("one ends", || w.background.list(&owner()).iter().any(|t| !t.is_running())).await;
        asked()
    });
    assert!(asked_at_first_end > 5, "{asked_at_first_end}");
    assert!(w.processes().is_empty(), "{:?}", w.processes());
    for (n, started) in all.iter().enumerate() {
        assert_eq!(started.text(), format!("number {n}\n[The command was stopped.]\n"));
    }
}

/// A call is polled so often, then all is ended: whatever the call had reached, nothing stays.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_stopped_while_it_starts_does_not_stay() {
    for polls in 0..12 {
        let w = World::new();
        let input = json!({"command": "setsid sleep 303.1 & sleep 303.1", "run_in_background": true});
        let mut call = pin!(w.call("Bash", input));
        let mut output = None;
        for _ in 0..polls {
            if output.is_none()
                && let Poll::Ready(done) =
                    std::future::poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await
            {
                output = Some(done);
            }
            tokio::task::yield_now().await;
        }
        w.background.stop_all(&owner()).await;
        let output = match output {
            Some(output) => output,
            None => call.await,
        };
        match output {
            Ok(output) => assert!(!output.is_error && w.background.list(&owner()).len() == 1),
            Err(error) => {
                assert!(error.text().contains("is being closed"), "{}", error.text());
                assert!(w.background.list(&owner()).is_empty());
            }
        }
        until("nothing runs", || w.processes().is_empty()).await;
    }
}

#[tokio::test]
async fn h_bsh_03_a_flood_in_the_background_does_not_grow_the_process() {
    open_agent_testkit::in_own_process!();
    let w = World::new();
    let warm = w.start("echo warm", 60_000).await;
    w.ended(&warm).await;
    let before = resident_kb();
    let flood = w.start("head -c 100000000 /dev/zero | tr '\\0' y", 60_000).await;
    until("the end", || !w.background.find(&owner(), &flood.id).unwrap().is_running()).await;
    let grown = resident_kb() - before;
    assert!(grown < 64 * 1024, "{grown} kB");
    let end = "\n[The command ended with exit code 0.]\n";
    assert_eq!(std::fs::metadata(&flood.path).unwrap().len(), 100_000_000 + end.len() as u64);
}

#[tokio::test]
async fn a_folder_that_is_gone_is_left_in_the_background_too() {
    let w = World::new();
    w.ok("Bash", json!({"command": "mkdir d && cd d"})).await;
    std::fs::remove_dir(w.path("d")).unwrap();
    let shown = w.ok("Bash", json!({"command": "pwd", "run_in_background": true})).await;
    assert!(shown.contains(&format!("The working folder {} is gone", w.path("d").display())), "{shown}");
    assert_eq!(w.state.lock().unwrap().cwd, w.root);
}
