//! No dead option: each flag, set to something else than its default, makes a difference that can be seen. The list comes
//! from the definition of the arguments, so a flag without a row fails.

use std::collections::BTreeSet;
use std::time::Duration;

use open_agent_testkit::server::{Pace, Recorded, Reply, Script};
use serde_json::{Value, json};

use crate::rig::{Outcome, Rig};

struct Seen {
    out: Outcome,
    /// The first request; empty if there was none.
    body: Value,
    path: String,
    betas: String,
    requests: usize,
    /// The tool that needs a permission ran.
    made: bool,
    /// The demo's folder is there.
    kept: bool,
    /// A session lies in the home folder.
    stored: bool,
}

struct Row {
    flag: &'static str,
    /// Set in both runs.
    always: &'static [&'static str],
    /// Set in the second run. `{url}` and `{dir}` stand for the server and the project.
    set: &'static [&'static str],
    /// False in the first run, true in the second.
    differs: fn(&Seen) -> bool,
}

const fn row(flag: &'static str, set: &'static [&'static str], differs: fn(&Seen) -> bool) -> Row {
    Row { flag, always: &["Go"], set, differs }
}

fn tools(seen: &Seen) -> Vec<&str> {
    seen.body["tools"]
        .as_array()
        .map(|t| t.iter().filter_map(|t| t["name"].as_str()).collect())
        .unwrap_or_default()
}

fn system(seen: &Seen) -> String {
    seen.body["system"].to_string()
}

const ROWS: &[Row] = &[
    Row {
        flag: "prompt",
        always: &["-p"],
        set: &["Something of its own"],
        differs: |s| s.body["messages"].to_string().contains("Something of its own"),
    },
    row("output_format", &["--output-format", "json"], |s| s.out.stdout.starts_with("{\"type\":\"result\"")),
    Row {
        flag: "include_partial_messages",
        always: &["Go", "--output-format", "stream-json"],
        set: &["--include-partial-messages"],
        differs: |s| s.out.stdout.contains("content_block_delta"),
    },
    row("model", &["--model", "claude-opus-4-6"], |s| s.body["model"] == "claude-opus-4-6"),
    // Too long a wait for the first model, so that the second is asked at once.
    Row {
        flag: "fallback_model",
        always: &["Go", "--model", "claude-opus-4-6", "--system-prompt", "busy"],
        set: &["--fallback-model", "claude-haiku-4-5"],
        differs: |s| s.requests == 2 && s.out.code() == 0,
    },
    Row {
        flag: "provider",
        always: &["Go", "--model", "claude-opus-4-6"],
        set: &["--provider", "openai"],
        differs: |s| s.path.ends_with("/chat/completions"),
    },
    row("base_url", &["--base-url", "{url}/elsewhere"], |s| s.path.starts_with("/elsewhere/")),
    row("max_turns", &["--max-turns", "1"], |s| s.requests == 1 && s.out.code() == 1),
    row("max_budget_usd", &["--max-budget-usd", "0.000001"], |s| s.requests == 0 && s.out.code() == 1),
    Row {
        flag: "budget_scope",
        always: &["Go", "--max-budget-usd", "0.000001"],
        set: &["--budget-scope", "session"],
        differs: |s| s.out.stderr.contains("$0.000000 so far in this session,"),
    },
    row("system_prompt", &["--system-prompt", "Be odd."], |s| {
        system(s).contains("Be odd.") && !system(s).contains("You are an agent")
    }),
    row("system_prompt_file", &["--system-prompt-file", "{dir}/system.txt"], |s| {
        system(s).contains("Be even.")
    }),
    row("append_system_prompt", &["--append-system-prompt", "Be brief."], |s| {
        system(s).contains("Be brief.") && system(s).contains("You are an agent")
    }),
    row("tools", &["--tools", "Read,Grep"], |s| tools(s) == ["Grep", "Read"]),
    row("allowed_tools", &["--allowed-tools", "Bash"], |s| s.made),
    row("disallowed_tools", &["--disallowed-tools", "Bash"], |s| !tools(s).contains(&"Bash")),
    row("permission_mode", &["--permission-mode", "bypassPermissions"], |s| s.made),
    row("dangerously_skip_permissions", &["--dangerously-skip-permissions"], |s| s.made),
    row("thinking", &["--thinking", "disabled"], |s| s.body["thinking"]["type"] == "disabled"),
    row("effort", &["--effort", "low"], |s| s.body.to_string().contains("\"effort\":\"low\"")),
    Row {
        flag: "max_retries",
        always: &["Go", "--system-prompt", "flaky"],
        set: &["--max-retries", "0"],
        differs: |s| s.requests == 1 && s.out.code() == 1,
    },
    Row {
        flag: "idle_timeout",
        always: &["Go", "--system-prompt", "slow", "--max-retries", "0"],
        set: &["--idle-timeout", "0.05"],
        differs: |s| s.out.stderr.contains("sent nothing for 50ms"),
    },
    row("betas", &["--betas", "one-2026,two-2026"], |s| s.betas == "one-2026,two-2026"),
    row("cwd", &["--cwd", "{dir}/below"], |s| system(s).contains("/below")),
    row("no_session_persistence", &["--no-session-persistence"], |s| !s.stored && s.out.code() == 0),
    Row {
        flag: "verbose",
        always: &["Go", "--allowed-tools", "Bash"],
        set: &["--verbose"],
        differs: |s| {
            let told =
                ["run begins", "a request", "an answer", "call is ruled", "call is finished", "run ended"];
            told.iter().all(|what| s.out.stderr.contains(what))
        },
    },
    row("version", &["--version"], |s| s.out.stdout.ends_with(" (Open Agent)\n")),
    Row {
        flag: "demo.seed",
        always: &["demo"],
        set: &["--seed", "4"],
        differs: |s| s.out.stdout.contains("FAIL repeat"),
    },
    Row { flag: "demo.keep", always: &["demo"], set: &["--keep", "{dir}/kept"], differs: |s| s.kept },
    Row {
        flag: "demo.disallowed_tools",
        always: &["demo"],
        set: &["--disallowed-tools", "Bash"],
        differs: |s| s.out.code() == 1,
    },
    Row {
        flag: "models.filter",
        always: &["models"],
        set: &["haiku"],
        differs: |s| !s.out.stdout.contains("opus"),
    },
    Row {
        flag: "models.json",
        always: &["models"],
        set: &["--json"],
        differs: |s| s.out.stdout.starts_with('{'),
    },
];

/// Flags that differ only before a person: see the tests of the terminal.
const ON_A_TERMINAL: &[&str] = &["print"];

fn answer(turn: usize, request: &Recorded) -> Reply {
    if request.body["system"].to_string().contains("busy") && request.body["model"] == "claude-opus-4-6" {
        return Reply::error(529, "overloaded_error", "Overloaded").header("retry-after", "3600");
    }
    let system = request.body["system"].to_string();
    if system.contains("flaky") && turn == 0 {
        return Reply::error(429, "rate_limit_error", "Not so fast").header("retry-after-ms", "1");
    }
    if system.contains("slow") {
        return Reply::text("ok").pace(Pace::Drip { size: 400, pause: Duration::from_millis(300) });
    }
    let can_run = request.text.contains("\"Bash\"");
    if turn == 0 && can_run {
        Reply::tool("Bash", json!({ "command": "touch made.txt" }))
    } else {
        Reply::text("done")
    }
}

fn see(always: &[&str], set: &[&str]) -> Seen {
    let rig = Rig::new(Script::from_fn(answer));
    rig.file("system.txt", "Be even.");
    std::fs::create_dir(rig.project.path().join("below")).unwrap();
    let (url, dir) = (rig.server.url(), rig.project.path().display().to_string());
    let args = always.iter().chain(set).map(|a| a.replace("{url}", &url).replace("{dir}", &dir));
    let out = rig.run(args);
    let requests = rig.requests();
    let first = requests.first();
    Seen {
        out,
        body: first.map(|r| r.body.clone()).unwrap_or_default(),
        path: first.map(|r| r.path.clone()).unwrap_or_default(),
        betas: first.map(|r| r.header("anthropic-beta").to_owned()).unwrap_or_default(),
        requests: requests.len(),
        made: rig.project.path().join("made.txt").exists(),
        kept: rig.project.path().join("kept").exists(),
        stored: rig.home.path().join(".open-agent-sdk/sessions").exists(),
    }
}

#[test]
fn every_flag_has_a_row() {
    let command = open_agent_cli::command();
    let mut flags: BTreeSet<String> = command.get_arguments().map(|a| a.get_id().to_string()).collect();
    for sub in command.get_subcommands() {
        flags.extend(sub.get_arguments().map(|a| format!("{}.{}", sub.get_name(), a.get_id())));
    }
    let rows: BTreeSet<String> =
        ROWS.iter().map(|r| r.flag).chain(ON_A_TERMINAL.iter().copied()).map(str::to_owned).collect();
    assert_eq!(flags, rows);
}

#[test]
fn every_flag_makes_a_difference() {
    for row in ROWS {
        let (before, after) = (see(row.always, &[]), see(row.always, row.set));
        assert!(!(row.differs)(&before), "{} makes no difference", row.flag);
        let text = &after.out.stderr;
        assert!((row.differs)(&after), "{} does not work: {text}", row.flag);
    }
}
