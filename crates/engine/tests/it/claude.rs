//! The frames of the Claude dialect, whole runs against golden files. `UPDATE_GOLDEN=1` writes the files anew.

use std::path::PathBuf;
use std::sync::Arc;

use open_agent_engine::wire::claude::{ClaudeFrames, ClaudeSetup, Detail};
use open_agent_engine::{Command, Envelope, EventSink, replay};
use open_agent_model::scripted::{Reply, Scripted};
use open_agent_model::{Block, ProviderErrorKind, RunStatus, StopReason};
use open_agent_policy::Policy;
use open_agent_session::{RunLimits, SessionEntry};
use serde_json::Value;

use crate::world::{CountingClock, Options, World, collect, finish, session, spec};

/// Runs a script in a world where nothing is left to chance.
async fn events(script: impl IntoIterator<Item = Reply>, policy: Option<Policy>) -> (World, Vec<Envelope>) {
    let clock = Arc::new(CountingClock::default());
    let mut options = Options { clock, ..Options::default() };
    options.policy = policy.unwrap_or(options.policy);
    let world = World::with(Scripted::new(script), options);
    let (_, events) = world.run(RunLimits { max_turns: Some(3), ..RunLimits::default() }).await;
    (world, events)
}

fn frames(events: &[Envelope], detail: Detail) -> String {
    let setup =
        ClaudeSetup { detail, api_key_source: "none".into(), version: "1.2.3".into(), session_folder: None };
    let mut frames = ClaudeFrames::new(session(), setup);
    let mut out = Vec::new();
    for event in events {
        frames.push(event, &mut out);
    }
    frames.close(
        RunStatus::ErrorDuringExecution,
        vec!["never printed: the run has its result".into()],
        &mut out,
    );
    String::from_utf8(out).unwrap()
}

fn parsed(lines: &str) -> Vec<Value> {
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn kinds(frames: &[Value]) -> Vec<String> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    frames
        .iter()
        .map(|f| match &f["event"]["type"] {
            Value::Null if f["subtype"].is_null() => text(&f["type"]),
            Value::Null => format!("{}/{}", text(&f["type"]), text(&f["subtype"])),
            event => text(event),
        })
        .collect()
}

/// Compares, or writes the file if told to.
fn assert_golden(name: &str, lines: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, lines).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    for (at, (have, want)) in lines.lines().zip(golden.lines()).enumerate() {
        assert_eq!(have, want, "{name}:{}", at + 1);
    }
    assert_eq!(lines.lines().count(), golden.lines().count(), "{name}");
}

fn script() -> [Reply; 2] {
    [
        Reply::default()
            .and_thinking("Two things to do.")
            .and_text("I look first.")
            .and_call("read", r#"{"n":1}"#)
            .and_call("fail", "{}")
            .usage(100, 10),
        Reply::text("It says 1, \"quoted\" & ünïcode.").usage(150, 5),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_run_with_and_without_pieces() {
    let (_, events) = events(script(), None).await;
    assert_golden("claude-partial.jsonl", &frames(&events, Detail::Partial));
    assert_golden("claude-messages.jsonl", &frames(&events, Detail::Messages));
    let whole = frames(&events, Detail::Messages);
    assert_eq!(frames(&events, Detail::Result).as_str(), whole.split_inclusive('\n').next_back().unwrap());
}

#[tokio::test(start_paused = true)]
async fn messages_that_wait_are_told_until_they_are_delivered_or_taken_back() {
    let clock = Arc::new(CountingClock::default());
    let world = World::with(Scripted::new([Reply::text("ok")]), Options { clock, ..Options::default() });
    let mut driver = world.open().await;
    let (sink, stream) = EventSink::durable();
    driver.set_sink(sink.clone());
    driver.begin(spec("go", RunLimits::default())).await.unwrap();
    let send = |text: &str| Command::Send { prompt: vec![Block::Text(text.into())], steer: true };
    driver.command(send("first")).await.unwrap();
    let back = driver.command(send("taken back")).await.unwrap().queued.unwrap();
    driver.command(send("second")).await.unwrap();
    driver.command(Command::Unqueue(back)).await.unwrap();
    finish(&mut driver).await;
    sink.finish();
    let lines = frames(&collect(stream).await, Detail::Messages);
    let told: Vec<String> =
        kinds(&parsed(&lines)).into_iter().filter(|kind| kind.contains("message")).collect();
    let (queued, delivered) = ("system/message_queued", "system/messages_delivered");
    assert_eq!(told, [queued, queued, queued, "system/message_unqueued", delivered]);
    assert_golden("claude-queue.jsonl", &lines);
}

#[tokio::test(start_paused = true)]
async fn a_replayed_log_prints_the_same_frames() {
    let (world, events) = events(script(), None).await;
    let records = world.host.store.read(&session(), Default::default(), usize::MAX).await.unwrap();
    assert_eq!(frames(&replay(&session(), &records), Detail::Messages), frames(&events, Detail::Messages));
    assert!(records.iter().any(|r| matches!(r.entry, SessionEntry::RunEnded(_))));
}

#[tokio::test(start_paused = true)]
async fn the_pieces_make_the_whole() {
    let (_, events) = events(script(), None).await;
    let frames = parsed(&frames(&events, Detail::Partial));
    let (mut id, mut blocks) = (Value::Null, Vec::<Value>::new());
    let mut answers = 0;
    for frame in &frames {
        let event = &frame["event"];
        let place = usize::try_from(event["index"].as_u64().unwrap_or_default()).unwrap();
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => (id, blocks) = (event["message"]["id"].clone(), Vec::new()),
            "content_block_start" => blocks.push(event["content_block"].clone()),
            "content_block_delta" => {
                let delta = event["delta"].as_object().unwrap();
                let (name, more) = delta.iter().find(|(name, _)| *name != "type").unwrap();
                let old = blocks[place][name].as_str().unwrap_or_default().to_owned();
                blocks[place][name] = Value::String(old + more.as_str().unwrap());
            }
            "message_stop" => answers += 1,
            _ => {}
        }
        if frame["type"] == "assistant" {
            assert_eq!(frame["message"]["id"], id);
            let whole = &frame["message"]["content"][0];
            let mut piece = blocks.remove(0);
            if let Some(text) = piece["partial_json"].as_str() {
                let input: Value = serde_json::from_str(text).unwrap();
                piece["input"] = input;
                piece.as_object_mut().unwrap().remove("partial_json");
            }
            assert_eq!(&piece, whole);
        }
    }
    assert_eq!(answers, 2);
}

#[tokio::test(start_paused = true)]
async fn uuids_are_unique() {
    let (_, events) = events(script(), None).await;
    let frames = parsed(&frames(&events, Detail::Partial));
    let mut uuids: Vec<&str> = frames.iter().map(|f| f["uuid"].as_str().unwrap()).collect();
    let all = uuids.len();
    uuids.sort_unstable();
    uuids.dedup();
    assert_eq!(uuids.len(), all);
}

#[tokio::test(start_paused = true)]
async fn a_denied_call_is_in_the_result() {
    let script = [Reply::call("write", r#"{"n":7}"#), Reply::text("I may not.")];
    let (_, events) = events(script, Some(Policy::default())).await;
    let frames = parsed(&frames(&events, Detail::Messages));
    let denied = frames.iter().find(|f| f["subtype"] == "permission_denied").unwrap();
    assert_eq!((&denied["tool_name"], &denied["decision_reason_type"]), (&"write".into(), &"mode".into()));
    let result = frames.last().unwrap();
    assert_eq!(result["permission_denials"][0]["tool_input"]["n"], 7);
    assert_eq!(result["permission_denials"][0]["tool_use_id"], denied["tool_use_id"]);
}

#[tokio::test(start_paused = true)]
async fn h_out_02_every_end_agrees_with_itself() {
    let limit = || Reply::call("read", "{}");
    let table: Vec<(Vec<Reply>, &str, &str)> = vec![
        (vec![Reply::text("done")], "success", "completed"),
        (vec![limit(), limit(), limit(), limit()], "error_max_turns", "max_turns"),
        (vec![Reply::text("no").stop(StopReason::Refusal)], "refusal", "refusal"),
        (
            vec![Reply::text("ha").then_fails(ProviderErrorKind::RateLimited, "slow down")],
            "error_during_execution",
            "model_error",
        ),
        (
            vec![Reply::text("full").stop(StopReason::ContextWindowExceeded)],
            "error_during_execution",
            "error",
        ),
    ];
    for (script, subtype, reason) in table {
        let (_, events) = events(script, None).await;
        let frames = parsed(&frames(&events, Detail::Messages));
        let result = frames.last().unwrap();
        assert_eq!(kinds(&frames).last().unwrap(), &format!("result/{subtype}"));
        assert_eq!(result["is_error"], subtype != "success", "{subtype}");
        assert_eq!(result["errors"].as_array().is_some_and(|e| !e.is_empty()), subtype != "success");
        assert_eq!(result["terminal_reason"], reason);
        assert_eq!(frames.iter().filter(|f| f["type"] == "result").count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_answer_shows_what_came_and_why_it_ended() {
    let script = [Reply::text("half of").then_fails(ProviderErrorKind::Overloaded, "overloaded")];
    let (_, events) = events(script, None).await;
    let all = parsed(&frames(&events, Detail::Partial));
    assert_eq!(
        kinds(&all),
        [
            "system/init",
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "assistant",
            "assistant",
            "result/error_during_execution"
        ]
    );
    assert_eq!(all[5]["aborted"], true);
    assert_eq!(all[5]["message"]["id"], all[1]["event"]["message"]["id"]);
    assert_eq!(all[6]["error"], "server_error");
    assert_eq!(all[7]["errors"][0], "overloaded");
    assert_eq!(all[7]["result"], "half of");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_price_is_null() {
    let (_, mut events) = events([Reply::text("x").usage(1, 1)], None).await;
    for event in &mut events {
        if let open_agent_engine::AgentEvent::AssistantMessage(answer) = &mut event.event {
            answer.cost = None;
        }
    }
    let frames = parsed(&frames(&events, Detail::Result));
    assert_eq!(frames[0]["total_cost_usd"], Value::Null);
    assert_eq!(frames[0]["modelUsage"]["claude-sonnet-4-6"]["costUSD"], Value::Null);
    assert_eq!(frames[0]["modelUsage"]["claude-sonnet-4-6"]["inputTokens"], 1);
}

#[test]
fn a_session_that_never_began_a_run_has_a_result_too() {
    let mut frames = ClaudeFrames::new(session(), ClaudeSetup::default());
    let mut out = Vec::new();
    frames.close(RunStatus::ErrorDuringExecution, vec!["no disk".into()], &mut out);
    frames.close(RunStatus::ErrorDuringExecution, vec!["again".into()], &mut out);
    let frames = parsed(&String::from_utf8(out).unwrap());
    assert_eq!(frames.len(), 1);
    assert_eq!((&frames[0]["is_error"], &frames[0]["errors"][0]), (&true.into(), &"no disk".into()));
}

#[tokio::test]
async fn a_frame_is_one_line_for_every_reader() {
    let odd = "a\u{2028}b\u{2029}c\u{85}d \u{201c}é\u{201d}";
    let (_, events) = events([Reply::text(odd).usage(1, 1)], None).await;
    let lines = frames(&events, Detail::Partial);
    assert!(!lines.contains(['\u{2028}', '\u{2029}', '\u{85}']), "{lines}");
    let result = parsed(&lines).pop().unwrap();
    assert_eq!(result["result"], odd, "and says what was said");
}
