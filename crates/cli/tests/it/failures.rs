//! H-OUT-02: whatever goes wrong in a run, exit code, stderr, `is_error` and `subtype` say the same.

use open_agent_testkit::cases;
use open_agent_testkit::server::{Pace, Reply, Script};
use serde_json::json;

use crate::rig::{CANARY, Rig};

struct Failure {
    name: &'static str,
    replies: fn() -> Vec<Reply>,
    args: &'static [&'static str],
    subtype: &'static str,
    /// What stderr has to say.
    says: &'static str,
}

fn call() -> Reply {
    Reply::tool("Glob", json!({ "pattern": "*" }))
}

const FAILURES: &[Failure] = &[
    Failure {
        name: "wrong key",
        replies: || vec![Reply::error(401, "authentication_error", "invalid x-api-key")],
        args: &[],
        subtype: "error_during_execution",
        says: "invalid x-api-key: check ANTHROPIC_API_KEY or CODEANY_API_KEY",
    },
    Failure {
        name: "no such model",
        replies: || vec![Reply::error(404, "not_found_error", "model: claude-none")],
        args: &["--model", "claude-none"],
        subtype: "error_during_execution",
        says: "model: claude-none",
    },
    Failure {
        name: "refused request",
        replies: || vec![Reply::error(400, "invalid_request_error", "messages: too odd")],
        args: &[],
        subtype: "error_during_execution",
        says: "too odd",
    },
    Failure {
        name: "HTML instead of JSON",
        replies: || vec![Reply::raw(200, "text/html", "<html><title>Proxy login</title></html>")],
        args: &[],
        subtype: "error_during_execution",
        says: "web page, not JSON: is --base-url right?",
    },
    Failure {
        name: "a redirect",
        replies: || vec![Reply::raw(308, "text/plain", "").header("location", "http://other.example/v1")],
        args: &[],
        subtype: "error_during_execution",
        says: "to http://other.example/v1: set --base-url to http://other.example/v1",
    },
    Failure {
        name: "another API",
        replies: || vec![Reply::sse("data: {\"object\":\"chat.completion.chunk\",\"choices\":[]}\n\n")],
        args: &[],
        subtype: "error_during_execution",
        says: "use --provider generic, or set --base-url to an address of the Messages API",
    },
    Failure {
        name: "the turns are used up",
        replies: || vec![call(), call(), call()],
        args: &["--max-turns", "2"],
        subtype: "error_max_turns",
        says: "the limit of 2 turns is reached: raise --max-turns",
    },
    Failure {
        name: "the budget is used up",
        replies: || vec![call().usage(100, 0, 2_000)],
        args: &["--max-budget-usd", "0.02"],
        subtype: "error_max_budget_usd",
        says: "raise --max-budget-usd",
    },
    Failure {
        name: "the model declines",
        replies: || vec![Reply::text("No.").stop("refusal")],
        args: &[],
        subtype: "refusal",
        says: "declined",
    },
    Failure {
        name: "the window is full",
        replies: || vec![Reply::text("and so").stop("model_context_window_exceeded")],
        args: &[],
        subtype: "error_during_execution",
        says: "context window",
    },
];

#[test]
fn every_failure_is_told_alike_in_every_format() {
    for failure in FAILURES {
        for format in ["text", "json", "stream-json"] {
            let what = format!("{} as {format}", failure.name);
            let rig = Rig::new(Script::new((failure.replies)()));
            let out = rig.run(["-p", "Go", "--output-format", format].iter().chain(failure.args));
            assert_eq!(out.code(), 1, "{what}: {}", out.stderr);
            let (words, lines): (Vec<&str>, Vec<&str>) =
                out.stderr.lines().partition(|line| line.starts_with("the model's last words: "));
            assert!(words.len() <= usize::from(format == "text"), "{what}: {words:?}");
            assert_eq!(lines.len(), 1, "{what}: {}", out.stderr);
            assert!(
                lines[0].starts_with("error: ") && lines[0].contains(failure.says),
                "{what}: {}",
                lines[0]
            );
            if format == "text" {
                assert_eq!(out.stdout, "", "{what}: half an answer is none");
                continue;
            }
            let result = out.result();
            assert_eq!(result["is_error"], true, "{what}");
            assert_eq!(result["subtype"], failure.subtype, "{what}");
            let errors = result["errors"].as_array().unwrap();
            assert!(errors.iter().any(|e| lines[0].contains(e.as_str().unwrap())), "{what}: {errors:?}");
        }
    }
}

#[test]
fn what_exists_is_in_the_result() {
    let rig = Rig::answering([Reply::text("So far so good.").and_tool("Glob", json!({ "pattern": "*" }))]);
    let out = rig.run(["-p", "Go", "--max-turns", "1", "--output-format", "json"]);
    let result = out.result();
    assert_eq!(result["result"], "So far so good.");
    let again = || Reply::text("So far so good.").and_tool("Glob", json!({ "pattern": "*" }));
    let out = Rig::answering([again()]).run(["-p", "Go", "--max-turns", "1"]);
    assert_eq!(out.stdout, "", "half an answer is none");
    assert!(out.stderr.ends_with("\nthe model's last words: So far so good.\n"), "{}", out.stderr);
    assert_eq!((&result["num_turns"], &result["terminal_reason"]), (&json!(1), &json!("max_turns")));
    assert!(result["total_cost_usd"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_refused_call_is_told_to_the_user_with_the_flags_that_would_allow_it() {
    let replies = || [Reply::tool("Bash", json!({ "command": "touch made.txt" })), Reply::text("No.")];
    for format in ["text", "json"] {
        let out = Rig::answering(replies()).run(["-p", "Make it", "--output-format", format]);
        assert_eq!(out.code(), 0);
        assert_eq!(
            out.stderr,
            "warning: Bash was refused, because it does more than read; only reading inside the workspace is permitted\n\
             hint: to allow this tool, add --allowed-tools Bash; to allow every call, --permission-mode bypassPermissions\n"
        );
    }
    // Several calls of several tools: one line says how to allow them all.
    let write = json!({ "file_path": "made.txt", "content": "x" });
    let bash = |name: &str| json!({ "command": format!("touch {name}") });
    let reply = Reply::tool("Write", write).and_tool("Bash", bash("a")).and_tool("Bash", bash("b"));
    let out = Rig::answering([reply, Reply::text("No.")]).run(["-p", "Make it"]);
    let hints: Vec<&str> = out.stderr.lines().filter(|line| line.starts_with("hint: ")).collect();
    assert_eq!(hints.len(), 1, "{}", out.stderr);
    assert!(hints[0].starts_with("hint: to allow these tools, add --allowed-tools Bash,Write;"), "{hints:?}");
    assert_eq!(out.stderr.lines().count(), 3, "each reason once: {}", out.stderr);
    let rig = Rig::answering([
        Reply::tool("Bash", json!({ "command": "touch made.txt", "description": "Makes a file" })),
        Reply::text("I was not allowed to."),
    ]);
    let out = rig.run(["-p", "Make it", "--output-format", "stream-json"]);
    assert_eq!(out.code(), 0);
    assert!(!rig.project.path().join("made.txt").exists());
    let frames = out.frames();
    let denied = frames.iter().find(|f| f["subtype"] == "permission_denied").unwrap();
    let message = denied["message"].as_str().unwrap();
    assert!(message.starts_with("Bash was refused, because") && !message.contains("--"), "{denied}");
    let sent = format!("{:?}", rig.requests());
    assert!(
        !sent.contains("allowed-tools") && !sent.contains("bypassPermissions"),
        "the model is told: {sent}"
    );
    assert_eq!(out.result()["permission_denials"][0]["tool_name"], "Bash");
}

#[test]
fn a_session_that_cannot_be_written_is_a_failed_run_with_a_result() {
    let rig = Rig::answering([]);
    std::fs::write(rig.home.path().join(".open-agent-sdk"), "a file where a folder has to be").unwrap();
    let out = rig.run(["-p", "Go", "--output-format", "json"]);
    assert_eq!(out.code(), 1);
    assert!(out.stderr.starts_with("error: create "), "{}", out.stderr);
    assert_eq!(out.result()["subtype"], "error_during_execution");
}

/// These two wait for real retries, side by side.
#[test]
fn what_outlasts_its_retries_is_a_failure_and_each_retry_is_told() {
    // Each retry waits twice as long as the one before it: 14 seconds for the three that are the default.
    let retries = cases(1, 3);
    let rig = Rig::answering(vec![call().pace(Pace::Cut(400)); retries + 1]);
    // Only the system itself could listen there.
    let nobody = "http://127.0.0.1:1";
    let most = retries.to_string();
    let args = ["-p", "Go", "--output-format", "stream-json", "--max-retries", &most];
    let unreachable = rig.command(args.iter().copied().chain(["--base-url", nobody])).spawn().unwrap();
    let cut = rig.command(args).spawn().unwrap();
    for (child, kind, start) in [
        (unreachable, "connection", format!("error: cannot reach anthropic at {nobody}/v1/messages: ")),
        (cut, "connection", "error: ".to_owned()),
    ] {
        let out = rig.finish(child);
        assert_eq!(out.code(), 1);
        let after = format!("after {} attempts", retries + 1);
        assert!(out.stderr.starts_with(&start) && out.stderr.contains(&after), "{}", out.stderr);
        let hinted = out.stderr.contains(&format!("({after}): is it running, and is --base-url right?"));
        assert_eq!(hinted, start.contains("cannot reach"), "{}", out.stderr);
        let frames = out.frames();
        let told: Vec<_> = frames.iter().filter(|f| f["subtype"] == "api_retry").collect();
        assert_eq!(told.len(), retries, "{}", out.stdout);
        let last = told[retries - 1];
        assert_eq!((&last["attempt"], &last["error"]), (&json!(retries), &json!(kind)));
        let result = out.result();
        assert_eq!(
            (&result["subtype"], &result["is_error"]),
            (&json!("error_during_execution"), &json!(true))
        );
        assert_eq!(result["num_turns"], 0, "a call that was cut is no turn");
    }
}

#[test]
fn h_log_01_a_key_is_nowhere_however_it_came_in() {
    // A server that repeats the key in its error, which is told at the highest level of detail.
    let rig = Rig::new(Script::from_fn(|_, request| {
        let key = request.header("x-api-key").to_owned() + request.header("authorization");
        Reply::error(401, "authentication_error", &format!("the key {key} is wrong"))
    }));
    let address = rig.server.url().replace("http://", &format!("http://someone:{CANARY}@"));
    let address = format!("{address}/?token={CANARY}");
    for base_url in [rig.server.url(), address] {
        let args = ["-p", "Go", "--verbose", "--output-format", "stream-json", "--base-url", &base_url];
        // The rig looks for the key in all that is printed and stored.
        let out = rig.run(args);
        assert_ne!(out.code(), 0);
        assert!(out.stderr.contains("error: "), "{}", out.stderr);
    }
}
