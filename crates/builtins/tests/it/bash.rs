//! Bash.

use std::path::{Path, PathBuf};

use open_agent_model::Change;
use open_agent_tool::CommandRunner as _;
use serde_json::json;

use crate::world::{World, details, text};

#[tokio::test]
async fn output_exit_code_and_folder() {
    let w = World::new();
    assert_eq!(w.ok("Bash", json!({"command": "echo hi"})).await, "hi\n");
    assert_eq!(w.ok("Bash", json!({"command": "mkdir d && cd d"})).await, "(No output.)");
    assert_eq!(w.ok("Bash", json!({"command": "pwd"})).await, format!("{}\n", w.path("d").display()));
    let output = w.call("Bash", json!({"command": "echo out; echo err >&2; exit 3"})).await.unwrap();
    assert!(output.is_error);
    assert_eq!(text(&output), "out\nerr\nExit code 3");
    let details = details(&output);
    assert_eq!((&details["stdout"], &details["stderr"]), (&json!("out\n"), &json!("err\n")));
    assert_eq!((&details["exitCode"], &details["interrupted"]), (&json!(3), &json!(false)));
}

#[tokio::test]
async fn input_that_makes_no_sense() {
    let w = World::new();
    for input in
        [json!({"command": "  "}), json!({"command": "ls", "timeout": 0}), json!({"command": "ls", "x": 1})]
    {
        assert!(w.call("Bash", input).await.is_err());
    }
    let error = w.fails("Bash", json!({"command": format!("echo {}", "x".repeat(200_000))})).await;
    assert!(error.contains("too long for a shell"), "{error}");
}

#[tokio::test]
async fn h_bsh_01_input_is_closed_and_time_is_limited() {
    let w = World::new();
    assert_eq!(w.ok("Bash", json!({"command": "cat; read x || echo end"})).await, "end\n");
    assert_eq!(w.ok("Bash", json!({"command": "cat & wait; echo end"})).await, "end\n");
    assert_eq!(
        w.fails("Bash", json!({"command": "read -p Password: x < /dev/tty"})).await.lines().last(),
        Some("Exit code 1")
    );
    let command = "echo before; trap '' TERM; (setsid sleep 300.5 &); sleep 300.5; echo awake";
    let output = w.call("Bash", json!({"command": command, "timeout": 300})).await.unwrap();
    assert!(
        output.is_error && text(&output).starts_with("before\nTimed out after 300 ms"),
        "{}",
        text(&output)
    );
    assert!(!text(&output).contains("awake"), "it was killed in its sleep: {}", text(&output));
    assert_eq!(details(&output)["timedOut"], true);
    assert!(w.processes().is_empty(), "{:?}", w.processes());
}

#[tokio::test]
async fn h_bsh_02_a_daemon_does_not_hold_the_call() {
    let w = World::new();
    let daemon = "echo first; touch began; until [ -e go ]; do sleep 0.01; done; echo later; sleep 300.7";
    let command = format!("({daemon}) & until [ -e began ]; do sleep 0.01; done; echo done");
    // The daemon waits for a file that is made only after the call: a call that waited for it would never return.
    let output = w.call("Bash", json!({ "command": command })).await.unwrap();
    let shown = text(&output);
    assert!(
        shown.contains("done\n") && shown.contains("first\n") && shown.contains("Left running:"),
        "{shown}"
    );
    assert!(!output.is_error);
    let details = details(&output);
    assert!(!details["leftRunning"].as_array().unwrap().is_empty());
    // It lives on, and so does its output, in a file that Read can open.
    assert!(w.processes().iter().any(|p| p.contains("300.7") || p.contains("bash")));
    let path = details["leftOutputPath"].as_str().unwrap().to_owned();
    w.file("go", "");
    while !std::fs::read_to_string(&path).unwrap().contains("later") {
        tokio::task::yield_now().await;
    }
    assert_eq!(w.ok("Read", json!({"file_path": path})).await, "     1\tlater\n");
    w.runner.end_all().await;
    assert!(w.processes().is_empty(), "{:?}", w.processes());
}

#[tokio::test]
async fn h_bsh_03_output_is_bounded_in_memory_and_kept_in_a_file() {
    let w = World::new();
    let output = w.call("Bash", json!({"command": "seq 1 200000"})).await.unwrap();
    let shown = text(&output);
    assert!(shown.chars().count() <= 100_000 && shown.chars().count() > 99_000);
    assert!(shown.starts_with("1\n2\n") && shown.ends_with("199999\n200000\n"));
    let path = details(&output)["persistedOutputPath"].as_str().unwrap().to_owned();
    assert!(shown.contains(&format!("all 1288895 bytes are in {path}")));
    let whole = std::fs::read_to_string(&path).unwrap();
    assert_eq!((whole.len(), whole.lines().count()), (1_288_895, 200_000));
    let line = w.ok("Read", json!({"file_path": path, "offset": 150_000, "limit": 1})).await;
    assert!(line.starts_with("150000\t150000\n"), "{line}");
    // One line without an end, and bytes that are no text.
    let shown = w.ok("Bash", json!({"command": "head -c 3000000 /dev/zero | tr '\\0' x"})).await;
    assert!(shown.starts_with("xxx") && shown.ends_with("xxx") && shown.chars().count() <= 100_000);
    assert_eq!(w.ok("Bash", json!({"command": r"printf 'a\xffb\n'"})).await, "a\u{fffd}b\n");
}

pub(crate) fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn h_bsh_03_a_flood_does_not_grow_the_process() {
    open_agent_testkit::in_own_process!();
    let w = World::new();
    w.ok("Bash", json!({"command": "echo warm"})).await;
    let before = resident_kb();
    let output =
        w.call("Bash", json!({"command": "head -c 300000000 /dev/zero | tr '\\0' y"})).await.unwrap();
    let grown = resident_kb() - before;
    assert!(grown < 64 * 1024, "{grown} kB");
    assert_eq!(details(&output)["outputBytes"], 300_000_000);
}

#[tokio::test]
async fn h_bsh_04_a_folder_that_is_gone_is_left() {
    let w = World::new();
    w.ok("Bash", json!({"command": "mkdir -p d/e && cd d/e"})).await;
    std::fs::remove_dir_all(w.path("d")).unwrap();
    let shown = w.ok("Bash", json!({"command": "pwd"})).await;
    assert!(
        shown.starts_with(&format!(
            "{}\nThe working folder {} is gone",
            w.root.display(),
            w.path("d/e").display()
        )),
        "{shown}"
    );
    assert_eq!(w.ok("Bash", json!({"command": "pwd"})).await, format!("{}\n", w.root.display()));
    // The command itself takes the folder away.
    let shown = w.ok("Bash", json!({"command": "mkdir x; cd x; rmdir ../x"})).await;
    assert!(shown.contains("was reset to") && shown.contains("is gone"), "{shown}");
}

#[tokio::test]
async fn h_bsh_05_the_folder_lasts_inside_the_project() {
    let w = World::new();
    std::fs::create_dir_all(w.path("a b/c")).unwrap();
    for (command, folder) in [
        ("cd 'a b'", "a b"),
        ("cd c; exit 3", "a b/c"),
        ("cd ..; set -e; false; cd /", "a b"),
        ("cd c && exec true", "a b/c"),
        ("trap 'echo mine' EXIT; cd ..", "a b"),
        ("cd c; kill -9 $$", "a b/c"),
        ("(cd /); cd /tmp | cat; x=$(cd /; pwd); cd / &", "a b/c"),
        ("pushd .. >/dev/null", "a b"),
        ("builtin cd c", "a b/c"),
        ("cd .. 2>/dev/null >&2", "a b"),
        ("exec 2>/dev/null; cd c", "a b/c"),
        ("cd nowhere", "a b/c"),
        ("cd -P .. && f() { cd c; }; f; cd ..", "a b"),
        ("set -u; set -o noclobber; shopt -s extglob; cd c", "a b/c"),
        ("unset -f cd; cd ..", "a b"),
        ("cd", "a b"),
    ] {
        let before = w.state.lock().unwrap().cwd.clone();
        let output = w.call("Bash", json!({"command": command})).await.unwrap();
        assert_eq!(w.state.lock().unwrap().cwd, w.path(folder), "{command}: {}", text(&output));
        assert!(!text(&output).contains("open-agent folder"), "{}", text(&output));
        if before == w.path(folder) {
            assert!(!output.changes.iter().any(|c| matches!(c, Change::Cwd(_))), "{command}");
        }
    }
    for (command, reason) in
        [("cd /", "is outside of the project"), ("cd ../..; cd scratch", "is outside of")]
    {
        let shown = w.call("Bash", json!({"command": command})).await.unwrap();
        let shown = text(&shown);
        assert!(
            shown.contains(&format!("The shell's folder was reset to {}", w.path("a b").display())),
            "{shown}"
        );
        assert!(shown.contains(reason), "{shown}");
        assert_eq!(w.state.lock().unwrap().cwd, w.path("a b"));
    }
}

#[tokio::test]
async fn h_bsh_05_two_calls_cannot_race_the_folder() {
    let w = World::new();
    for name in ["a", "b"] {
        std::fs::create_dir(w.path(name)).unwrap();
    }
    let call = |name: &str| w.call_only("Bash", json!({"command": format!("cd {name}; pwd")}));
    let (a, b) = tokio::join!(call("a"), call("b"));
    let folder = |output: &open_agent_tool::ToolOutput| match output.changes.as_slice() {
        [Change::Cwd(path)] => path.clone(),
        other => panic!("{other:?}"),
    };
    // Each tells where it ended; the loop applies that in the calls' order.
    assert_eq!((folder(&a.unwrap()), folder(&b.unwrap())), (w.path("a"), w.path("b")));
}

#[tokio::test]
async fn an_interrupt_kills_and_keeps_what_was_written() {
    let w = World::new();
    let cancel = w.cancel.clone();
    let stop = async {
        while w.processes().iter().filter(|p| p.contains("300.9")).count() < 2 {
            tokio::task::yield_now().await;
        }
        cancel.cancel();
    };
    let call = w.call("Bash", json!({"command": "echo begun; sleep 300.9 & setsid sleep 300.9"}));
    let (output, ()) = tokio::join!(call, stop);
    let output = output.unwrap();
    assert!(text(&output).starts_with("begun\nInterrupted"), "{}", text(&output));
    assert!(output.is_error);
    assert_eq!(details(&output)["interrupted"], true);
    assert!(w.processes().is_empty(), "{:?}", w.processes());
}

#[tokio::test]
async fn a_call_that_is_dropped_leaves_nothing() {
    let w = World::new();
    let call = w.call("Bash", json!({"command": "sleep 301.1 & setsid sleep 301.1"}));
    let seen = async {
        while w.processes().iter().filter(|p| p.contains("301.1")).count() < 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = call => panic!("it ended"),
        () = seen => {}
    }
    while !w.processes().is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn h_log_02_keys_are_not_in_the_shell() {
    let w = World::new();
    let shown =
        w.ok("Bash", json!({"command": "env; bash -lc env; cat /proc/self/environ | tr '\\0' '\\n'"})).await;
    assert!(!shown.contains("sk-canary"));
    assert_eq!(w.runner.removed(), ["ANTHROPIC_API_KEY"]);
}

#[tokio::test]
async fn progress_is_the_newest_line() {
    let w = World::new();
    let command = "echo one; echo; echo two; until [ -e go ]; do sleep 0.01; done";
    tokio::join!(w.ok("Bash", json!({ "command": command })), async {
        while w.progress.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        w.file("go", "");
    });
    assert_eq!(*w.progress.lock().unwrap(), ["two"]);
}

/// Commands that have brought other shells of agents to their knees: what they answer, and whether they fail.
const AWKWARD: &[(&str, Expect)] = &[
    ("cat", Expect::Ok("(No output.)")),
    ("read x; echo got:$x", Expect::Ok("got:\n")),
    ("cat -", Expect::Ok("(No output.)")),
    ("python3 -c 'print(input())' 2>/dev/null || echo closed", Expect::Ok("closed\n")),
    ("exit 3", Expect::Fails("Exit code 3")),
    ("exec true", Expect::Ok("(No output.)")),
    ("exec false", Expect::Fails("Exit code 1")),
    ("kill -9 $$", Expect::Fails("Ended by signal 9")),
    ("kill $$; sleep 1; echo alive", Expect::Fails("Ended by signal 15")),
    ("trap 'echo bye' EXIT; echo hi", Expect::Ok("hi\nbye\n")),
    ("trap '' TERM INT HUP; echo stubborn", Expect::Ok("stubborn\n")),
    ("set -e; false; echo never", Expect::Fails("Exit code 1")),
    ("set -euo pipefail; false | true; echo never", Expect::Fails("Exit code 1")),
    ("echo 'unclosed", Expect::Has("unexpected EOF")),
    ("if true; then", Expect::Has("syntax error")),
    ("no-such-command-here", Expect::Has("command not found")),
    ("/etc", Expect::Has("Exit code 126")),
    ("printf 'no newline'", Expect::Ok("no newline")),
    ("printf ''", Expect::Ok("(No output.)")),
    (r"printf '\033[31mred\033[0m\n'", Expect::Ok("red\n")),
    (r"printf '1%%\r50%%\r100%%\n'", Expect::Ok("100%\n")),
    (r"printf 'a\0b\n'", Expect::Ok("ab\n")),
    (r"printf '\xff\xfe\n'", Expect::Ok("\u{fffd}\u{fffd}\n")),
    ("cat <<'E'\n$HOME `x` \"q\"\nE", Expect::Ok("$HOME `x` \"q\"\n")),
    ("cat <<E\nopen", Expect::Has("open")),
    ("echo \"$0 $#\"", Expect::Ok("bash 0\n")),
    ("echo a; echo b >&2; echo c", Expect::Ok("a\nc\nb\n")),
    ("sleep 301.3 & echo started", Expect::Left("started\n")),
    ("nohup sleep 301.3 >/dev/null 2>&1 & echo started", Expect::Left("started\n")),
    ("setsid sleep 301.3 & echo started", Expect::Left("started\n")),
    ("(setsid sleep 301.3 >/dev/null 2>&1 &) ; echo started", Expect::Left("started\n")),
    ("(sleep 301.3 & disown) ; echo started", Expect::Left("started\n")),
    ("env -i setsid sleep 301.3 & echo started", Expect::Left("started\n")),
    ("sh -c 'sleep 301.3 & exec sleep 301.3' & echo started", Expect::Left("started\n")),
    ("coproc sleep 301.3; echo started", Expect::Left("started\n")),
    ("yes | head -1", Expect::Ok("y\n")),
    ("yes > /dev/null", Expect::TimesOut),
    ("while :; do :; done", Expect::TimesOut),
    ("trap '' TERM; while :; do sleep 0.01; done", Expect::TimesOut),
    ("sleep 301.3 | sleep 301.3", Expect::TimesOut),
    ("kill -STOP $$", Expect::TimesOut),
    ("exec >&- 2>&-; sleep 301.3", Expect::TimesOut),
    ("mkfifo p 2>/dev/null; cat p", Expect::TimesOut),
    ("tail -f /dev/null", Expect::TimesOut),
    ("(sleep 301.3 & sleep 301.3 & wait)", Expect::TimesOut),
];

#[derive(Debug)]
enum Expect {
    /// Exactly this, and success.
    Ok(&'static str),
    /// A failure whose text ends like this.
    Fails(&'static str),
    /// A failure or not, with this in its text.
    Has(&'static str),
    /// Success that starts like this, and something is left running.
    Left(&'static str),
    /// Killed when its time is up.
    TimesOut,
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn awkward_commands_are_answered_and_leave_nothing() {
    assert!(AWKWARD.len() >= 40);
    for (command, expect) in AWKWARD {
        let (w, command) = (World::new(), of_this_run(command));
        let timeout = if matches!(expect, Expect::TimesOut) { 200 } else { 20_000 };
        let output = w.call("Bash", json!({"command": command, "timeout": timeout})).await.unwrap();
        let shown = text(&output);
        let fits = match expect {
            Expect::Ok(want) => !output.is_error && shown == *want,
            Expect::Fails(want) => output.is_error && shown.ends_with(want),
            Expect::Has(want) => shown.contains(want),
            Expect::Left(want) => {
                !output.is_error && shown.starts_with(want) && shown.contains("Left running")
            }
            Expect::TimesOut => output.is_error && shown.contains("Timed out after 200 ms"),
        };
        assert!(fits, "{command}\n{expect:?}\n{shown}");
        let timed_out = output.error_kind == Some(open_agent_tool::ToolErrorKind::TimedOut);
        assert_eq!(timed_out, matches!(expect, Expect::TimesOut), "{command}");
        if matches!(expect, Expect::Left(_)) {
            let left = details(&output)["leftRunning"].as_array().unwrap().len();
            assert!(left > 0 && !sleepers(&w).is_empty(), "{command}");
            w.runner.end_all().await;
        }
        let left = sleepers(&w);
        assert!(left.is_empty(), "{command} left {left:?}");
    }
}

/// A command of the table, which sleeps for a time that no other test run has: another one may go on beside this.
fn of_this_run(command: &str) -> String {
    command.replace("301.3", &format!("301.{}", std::process::id()))
}

/// What runs of this world, and anything that sleeps for the time that only this table has.
fn sleepers(w: &World) -> Vec<String> {
    let mut all = w.processes();
    let sleeping = of_this_run("sleep\x00301.3\0");
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if line == sleeping.as_bytes() {
            all.push(entry.path().display().to_string());
        }
    }
    all
}

#[tokio::test]
async fn without_the_project_nothing_runs() {
    let w = World::new();
    let root: PathBuf = w.root.clone();
    std::fs::remove_dir_all(&root).unwrap();
    let error = w.fails("Bash", json!({"command": "ls"})).await;
    assert!(error.contains("No such file") && error.contains(&root.display().to_string()), "{error}");
    assert!(!Path::new(&root).exists());
}

#[tokio::test]
async fn h_bsh_03_the_file_is_named_also_where_little_is_shown() {
    let w = World::new();
    // Either is too long to be kept as a whole, or was overwritten to a line.
    for (command, shown_last) in [
        (r"for i in $(seq 200000); do printf '\r%d%%' $i; done; echo", "200000%"),
        (r"for i in $(seq 30000); do printf '\r%d%%' $i; done; echo", "30000%"),
    ] {
        let output = w.call("Bash", json!({"command": command})).await.unwrap();
        let path = details(&output)["persistedOutputPath"].as_str().unwrap().to_owned();
        let shown = text(&output);
        assert!(shown.contains(shown_last) && shown.len() < 1_000, "{shown}");
        assert_eq!(shown.matches(&format!("bytes are in {path}")).count(), 1, "{shown}");
    }
}

#[tokio::test]
async fn errors_name_the_lines_of_the_command() {
    let w = World::new();
    for (command, says) in [
        ("true\ntrue\nno-such-command", "bash: line 3: no-such-command: command not found"),
        ("echo $LINENO\necho $LINENO", "1\n2\n"),
        ("true\ntrue\nfi", "line 3: syntax error"),
        ("true\necho 'unclosed", "line 2: unexpected EOF"),
    ] {
        let shown = text(&w.call("Bash", json!({ "command": command })).await.unwrap());
        assert!(shown.starts_with(says) || shown.contains(says), "{command}: {shown}");
    }
}

#[tokio::test]
async fn what_follows_the_folder_does_not_show() {
    let w = World::new();
    std::fs::create_dir_all(w.path("sub/deep")).unwrap();
    let shown = w.ok("Bash", json!({"command": "export -f cd; bash -c 'cd sub && pwd'"})).await;
    assert_eq!(shown, format!("{}\n", w.path("sub").display()));
    let shown = w
        .ok("Bash", json!({"command": "set -x; cd sub; pushd deep >/dev/null; popd >/dev/null; true"}))
        .await;
    let lines: Vec<&str> = shown.lines().map(|line| line.trim_start_matches('+')).collect();
    assert_eq!(lines, [" cd sub", " pushd deep", " popd", " true"]);
    assert_eq!(w.ok("Bash", json!({"command": "pwd"})).await, format!("{}\n", w.path("sub").display()));
    let shown = w.ok("Bash", json!({"command": "ulimit -n 100; bash -c 'ulimit -n'; cd deep"})).await;
    assert_eq!(shown, "100\n");
    assert_eq!(w.ok("Bash", json!({"command": "pwd"})).await, format!("{}\n", w.path("sub/deep").display()));
}

#[tokio::test]
async fn a_timeout_in_the_background_that_is_too_large_is_told() {
    let w = World::new();
    let with = |timeout: u64| json!({"command": "true", "run_in_background": true, "timeout": timeout});
    assert!(w.ok("Bash", with(7_200_001)).await.contains("It is ended after 7200000 ms"));
    assert!(!w.ok("Bash", with(7_200_000)).await.contains("It is ended after"));
}
