//! Text mode before a person: a terminal of a known width.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::process::{Command, Stdio};

use open_agent_testkit::server::{Reply, Script};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::json;

use crate::rig::{CANARY, Rig};

struct Terminal {
    master: File,
    slave: File,
}

impl Terminal {
    fn new(columns: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let path = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let slave = OpenOptions::new().read(true).write(true).open(path).unwrap();
        tcsetwinsize(&slave, Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        Self { master: master.into(), slave }
    }

    /// Runs with stdout and stderr on the terminal; gives the code and what was to be seen.
    fn run(self, mut command: Command, stdin: bool) -> (i32, String) {
        let end = || Stdio::from(self.slave.try_clone().unwrap());
        command.stdout(end()).stderr(end());
        if stdin {
            command.stdin(end());
        }
        let mut child = command.spawn().unwrap();
        drop(command);
        drop(self.slave);
        let mut master = self.master;
        let reader = std::thread::spawn(move || {
            let (mut all, mut part) = (Vec::new(), [0; 4096]);
            // The terminal ends with an error, not with an end of file.
            while let Ok(count @ 1..) = master.read(&mut part) {
                all.extend_from_slice(&part[..count]);
            }
            String::from_utf8(all).unwrap()
        });
        let status = child.wait().unwrap();
        let text = reader.join().unwrap().replace("\r\n", "\n");
        assert!(!text.contains(CANARY));
        (status.code().unwrap_or(-1), text)
    }
}

/// What stays on the screen: without colours and passing lines.
fn plain(text: &str) -> String {
    let mut out = String::new();
    for line in text.replace("\u{1b}[2m", "").replace("\u{1b}[0m", "").split_inclusive('\n') {
        out.push_str(line.rsplit("\r\u{1b}[K").next().unwrap());
    }
    out
}

fn works() -> Rig {
    let rig = Rig::answering([
        Reply::text("I look first.")
            .and_tool(
                "Glob",
                json!({ "pattern": "a-rather-long-pattern-that-no-narrow-terminal-can-show-*.txt" }),
            )
            .and_tool("Bash", json!({ "command": "touch x" })),
        Reply::text("Nothing there.\u{1b}]0;owned\u{7} Really.").usage(1_200, 0, 34),
    ]);
    rig.file("a.txt", "a");
    rig
}

#[test]
fn a_person_sees_what_is_done_and_what_it_costs() {
    let rig = works();
    let (code, text) = Terminal::new(80).run(rig.command(["-p", "Look"]), false);
    let shown = plain(&text);
    assert_eq!(code, 0, "{shown}");
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[0], "I look first.", "{shown}");
    assert!(shown.contains("✓ Glob a-rather-long-pattern"), "{shown}");
    assert!(shown.contains("✗ Bash touch x") && shown.contains("refused"), "{shown}");
    assert!(shown.contains("Nothing there.]0;owned Really.\n"), "nothing may steer the terminal: {shown:?}");
    // Whole, though the terminal is narrower.
    let [.., last, warning, hint] = lines.as_slice() else { panic!("{shown}") };
    assert!(warning.starts_with("warning: Bash was refused") && warning.ends_with("is permitted"), "{shown}");
    assert!(hint.contains("--allowed-tools Bash") && hint.ends_with("bypassPermissions"), "{shown}");
    assert!(last.starts_with("— 2 turns · ") && last.contains("1,210 tokens in, 39 out · $0.0"), "{shown}");
    assert!(text.contains("\u{1b}[2m"), "progress is dim");
    assert_eq!(shown.matches("Nothing there.").count(), 1, "the answer is shown once");
}

#[test]
fn width_and_no_color_are_respected() {
    let rig = works();
    let mut command = rig.command(["-p", "Look"]);
    command.env("NO_COLOR", "1");
    let (code, text) = Terminal::new(40).run(command, false);
    assert_eq!(code, 0);
    assert!(!text.contains("\u{1b}[2m"), "{text:?}");
    for line in plain(&text).lines().filter(|l| l.starts_with(['✓', '✗', '—'])) {
        assert!(line.chars().count() <= 40, "{line:?}");
    }
}

#[test]
fn a_change_is_shown_as_a_diff() {
    let rig = Rig::answering([
        Reply::tool("Read", json!({ "file_path": "a.txt" })),
        Reply::tool("Edit", json!({ "file_path": "a.txt", "old_string": "two", "new_string": "2" })),
        Reply::text("Done."),
    ]);
    rig.file("a.txt", "one\ntwo\nthree\n");
    let args = ["-p", "Change it", "--allowed-tools", "Edit"];
    let (code, text) = Terminal::new(80).run(rig.command(args), false);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("\u{1b}[31m      2 - two\u{1b}[0m\n\u{1b}[32m      2 + 2\u{1b}[0m\n"), "{text:?}");
    assert!(plain(&text).contains("✓ Edit a.txt"), "{text:?}");
}

#[test]
fn a_dumb_terminal_gets_plain_lines() {
    let rig = works();
    let mut command = rig.command(["-p", "Look"]);
    command.env("TERM", "dumb");
    let (_, text) = Terminal::new(80).run(command, false);
    assert!(!text.contains('\u{1b}') && text.contains("✓ Glob"), "{text:?}");
}

#[test]
fn a_failure_is_told_last() {
    let rig = Rig::new(Script::always(Reply::error(401, "authentication_error", "bad key")));
    let (code, text) = Terminal::new(80).run(rig.command(["-p", "Look"]), false);
    let shown = plain(&text);
    assert_eq!(code, 1);
    assert!(shown.lines().last().unwrap().starts_with("error: ") && shown.contains("bad key"), "{shown}");
}

/// The flag `--print`: without it, a terminal without a prompt would be for the mode that is to come.
#[test]
fn without_a_prompt_a_terminal_is_told_what_to_do() {
    let rig = works();
    let (code, text) = Terminal::new(80).run(rig.command::<&str>([]), true);
    assert_eq!(code, 2);
    assert!(text.starts_with("error: there is no interactive mode yet"), "{text}");
    let (code, text) = Terminal::new(80).run(rig.command(["-p"]), true);
    assert_eq!(code, 2);
    assert!(text.starts_with("error: there is no prompt"), "{text}");
    // With one, it is answered, flag or not.
    let rig = works();
    assert_eq!(Terminal::new(80).run(rig.command(["Look"]), true).0, 0);
}

#[test]
fn the_end_of_background_work_is_shown() {
    let wait =
        r#"until grep -qs "exit code 3" "$HOME"/.open-agent-sdk/sessions/*/scratch/*; do sleep 0.01; done"#;
    let glob = || Reply::tool("Glob", json!({ "pattern": "*" }));
    let rig = Rig::answering([
        Reply::tool("Bash", json!({ "command": "exit 3", "run_in_background": true })),
        Reply::tool("Bash", json!({ "command": wait })),
        glob(),
        glob(),
        Reply::text("done"),
    ]);
    let args = ["-p", "Go", "--allowed-tools", "Bash"];
    let (code, text) = Terminal::new(80).run(rig.command(args), false);
    let shown = plain(&text);
    assert_eq!(code, 0, "{shown}");
    assert_eq!(shown.matches("— bash_0_0 ended with exit code 3: exit 3\n").count(), 1, "{shown}");
    assert!(shown.contains("! commands do not see these variables: ANTHROPIC_API_KEY"), "{shown}");
}
