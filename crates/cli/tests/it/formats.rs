//! The three output formats, over both wire formats.

use open_agent_testkit::server::Reply;
use serde_json::{Value, json};

use crate::rig::{Rig, read_line};

const WIRES: [(&str, &str); 2] = [("anthropic", "claude-sonnet-4-6"), ("openai", "gpt-5")];

fn reads_a_file() -> Rig {
    let project = tempfile::tempdir().unwrap();
    let path = project.path().canonicalize().unwrap().join("note.txt");
    std::fs::write(&path, "the word is heron\n").unwrap();
    let rig = Rig::answering([
        Reply::text("I look.").and_tool("Read", json!({ "file_path": path })).usage(100, 0, 10),
        Reply::text("The word is heron.").usage(150, 0, 5),
    ]);
    Rig { project, ..rig }
}

#[test]
fn text_in_a_pipe_is_the_answer_and_nothing_else() {
    for (provider, model) in WIRES {
        let rig = reads_a_file();
        let out = rig.run(["-p", "Which word?", "--provider", provider, "--model", model]);
        assert_eq!((out.stdout.as_str(), out.stderr.as_str()), ("The word is heron.\n", ""), "{provider}");
        assert_eq!(out.code(), 0);
        let requests = rig.requests();
        assert_eq!(requests.len(), 2);
        assert!(requests[1].text.contains("the word is heron"), "the tool ran");
    }
}

#[test]
fn json_is_one_object_with_everything() {
    for (provider, model) in WIRES {
        let rig = reads_a_file();
        let format = ["--output-format", "json"];
        let out =
            rig.run(["-p", "Which word?", "--provider", provider, "--model", model].iter().chain(&format));
        assert_eq!((out.code(), out.stderr.as_str()), (0, ""), "{provider}");
        let result: Value = serde_json::from_str(&out.stdout).unwrap();
        assert_eq!((&result["type"], &result["subtype"]), (&json!("result"), &json!("success")));
        assert_eq!((&result["is_error"], &result["num_turns"]), (&json!(false), &json!(2)));
        assert_eq!(result["result"], "The word is heron.");
        assert_eq!(result["usage"]["input_tokens"], 250);
        assert_eq!(result["modelUsage"][model]["outputTokens"], 15);
        assert!(result["total_cost_usd"].as_f64().unwrap() > 0.0);
        let id = result["session_id"].as_str().unwrap();
        let log = rig.home.path().join(".open-agent-sdk/sessions");
        let kept =
            std::fs::read_dir(&log).unwrap().any(|f| f.unwrap().file_name().to_string_lossy().contains(id));
        assert!(kept, "the session is kept in {}", log.display());
    }
}

#[test]
fn stream_json_is_a_line_for_each_block_and_the_result() {
    for (provider, model) in WIRES {
        let rig = reads_a_file();
        let format = ["--output-format", "stream-json"];
        let out =
            rig.run(["-p", "Which word?", "--provider", provider, "--model", model].iter().chain(&format));
        assert_eq!((out.code(), out.stderr.as_str()), (0, ""), "{provider}");
        let frames = out.frames();
        let kinds: Vec<&str> = frames.iter().map(|f| f["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["system", "assistant", "assistant", "user", "assistant", "result"], "{provider}");
        let init = &frames[0];
        assert_eq!((&init["subtype"], &init["model"]), (&json!("init"), &json!(model)));
        assert_eq!(init["permissionMode"], "default");
        let variable = if provider == "anthropic" { "ANTHROPIC_API_KEY" } else { "OPENAI_API_KEY" };
        assert_eq!(init["apiKeySource"], variable);
        assert!(init["tools"].as_array().unwrap().contains(&json!("Read")));
        assert_eq!(frames[1]["message"]["id"], frames[2]["message"]["id"], "one answer, two blocks");
        let (asked, told) = (&frames[2]["message"]["content"][0], &frames[3]["message"]["content"][0]);
        assert_eq!((&asked["type"], &told["type"]), (&json!("tool_use"), &json!("tool_result")));
        assert_eq!(asked["id"], told["tool_use_id"]);
        assert!(frames.iter().all(|f| f["session_id"] == init["session_id"] && f["uuid"].is_string()));
    }
}

#[test]
fn pieces_come_while_the_model_speaks() {
    use open_agent_testkit::server::Pace;
    for (provider, model) in WIRES {
        // The answer stops half way and the connection stays open.
        let rig = Rig::answering([Reply::text("word ".repeat(40)).delta(5).pace(Pace::Stall(1_500))]);
        let args = ["-p", "Speak", "--provider", provider, "--model", model];
        let more = ["--output-format", "stream-json", "--include-partial-messages"];
        let mut child = rig.command(args.iter().chain(&more)).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let first: Vec<Value> =
            (0..4).map(|_| serde_json::from_str(&read_line(&mut stdout)).unwrap()).collect();
        let events: Vec<&str> = first.iter().map(|f| f["event"]["type"].as_str().unwrap_or("init")).collect();
        assert_eq!(
            events,
            ["init", "message_start", "content_block_start", "content_block_delta"],
            "{provider}"
        );
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn stdin_is_the_prompt_or_its_end() {
    let rig = Rig::new(open_agent_testkit::server::Script::always(Reply::text("ok")));
    for (args, stdin, want) in [
        (&["-p"] as &[&str], "all of it", "all of it"),
        (&["-p", "Look at this:"], "line 1\nline 2\n", "Look at this:\nline 1\nline 2\n"),
        (&["-p", "Only this"], "", "Only this"),
        (&[], "no flag at all", "no flag at all"),
    ] {
        let out = rig.run_with_stdin(args, stdin.as_bytes());
        assert_eq!((out.stdout.as_str(), out.code()), ("ok\n", 0), "{args:?} {}", out.stderr);
        let request = rig.requests().pop().unwrap();
        let content = &request.body["messages"][0]["content"];
        let said = content.as_str().or_else(|| content[0]["text"].as_str());
        assert_eq!(said, Some(want), "{args:?}");
    }
}

#[test]
fn a_stdin_that_is_nobodys_does_not_hold_a_prompt() {
    let rig = Rig::answering([Reply::text("ok")]);
    let mut child = rig.command(["-p", "Go"]).stdin(std::process::Stdio::piped()).spawn().unwrap();
    // Open, and never written to.
    let pipe = child.stdin.take();
    let out = rig.finish(child);
    assert_eq!((out.stdout.as_str(), out.code()), ("ok\n", 0));
    drop(pipe);
}

#[test]
fn a_prompt_of_10_mb_arrives_whole() {
    let rig = Rig::answering([Reply::text("long")]);
    let prompt = "0123456789abcde\n".repeat(10 * 1024 * 1024 / 16);
    let out = rig.run_with_stdin(&["-p"], prompt.as_bytes());
    assert_eq!((out.stdout.as_str(), out.code()), ("long\n", 0), "{}", out.stderr);
    assert!(rig.requests()[0].text.len() > prompt.len());
}

#[test]
fn h_str_14_a_large_result_is_a_line_like_any_other() {
    let rig = Rig::answering([]);
    let path = rig.file("large.txt", &"x".repeat(1024).repeat(20 * 1024));
    let script = [Reply::tool("Read", json!({ "file_path": path })), Reply::text("done")];
    let rig = Rig {
        server: open_agent_testkit::server::ModelServer::start(open_agent_testkit::server::Script::new(
            script,
        ))
        .unwrap(),
        ..rig
    };
    let out = rig.run(["-p", "Read it", "--output-format", "stream-json"]);
    assert_eq!(out.code(), 0, "{}", out.stderr);
    let longest = out.stdout.lines().map(str::len).max().unwrap();
    assert!(longest < 1024 * 1024, "{longest}");
    assert_eq!(out.result()["result"], "done");
}

#[test]
fn the_model_that_answered_is_named_and_the_one_that_was_asked_is_billed() {
    let answer = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-6-20260217",
        "content": [{ "type": "text", "text": "hi" }], "stop_reason": "end_turn", "stop_sequence": null,
        "usage": { "input_tokens": 1, "output_tokens": 1 }
    });
    let rig = Rig::answering([Reply::status(200, &answer)]);
    let args = ["-p", "Go", "--output-format", "stream-json", "--include-partial-messages"];
    let out = rig.run(args);
    let frames = out.frames();
    let models: Vec<&str> = frames.iter().filter_map(|f| f["message"]["model"].as_str()).collect();
    assert_eq!(models, ["claude-sonnet-4-6-20260217"]);
    let started = frames.iter().find(|f| f["event"]["type"] == "message_start").unwrap();
    assert_eq!(started["event"]["message"]["model"], "claude-sonnet-4-6-20260217");
    assert!(out.result()["modelUsage"]["claude-sonnet-4-6"].is_object(), "{}", out.result());
}

#[test]
fn h_log_02_what_commands_do_not_see_is_told_with_names_alone() {
    let told = "commands do not see these variables: ANTHROPIC_API_KEY, OPENAI_API_KEY";
    let rig = |tool: Reply| Rig::answering([tool, Reply::text("ok")]);
    let bash = || Reply::tool("Bash", json!({ "command": "true" }));
    let args = |format| ["-p", "Go", "--allowed-tools", "Bash", "--output-format", format];
    let out = rig(bash()).run(args("stream-json"));
    let notices: Vec<Value> = out.frames().into_iter().filter(|f| f["subtype"] == "notice").collect();
    assert_eq!(notices.iter().map(|f| &f["message"]).collect::<Vec<_>>(), [told]);
    let out = rig(bash()).run(args("text").iter().chain(&["--verbose"]));
    assert_eq!(out.stderr.matches(told).count(), 1, "{}", out.stderr);
    let out = rig(bash()).run(args("text"));
    assert_eq!((out.stdout.as_str(), out.stderr.as_str()), ("ok\n", ""));
    let out =
        rig(Reply::tool("Glob", json!({ "pattern": "*" }))).run(args("text").iter().chain(&["--verbose"]));
    assert!(!out.stderr.contains("do not see"), "no command, no notice: {}", out.stderr);
}
