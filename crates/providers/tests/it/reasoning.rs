//! Servers that demand what a model thought, and servers that forbid it.

use open_agent_model::{Block, ResultBlock, Role};
use open_agent_testkit::server::{ModelServer, Recorded, Reply, Script};
use serde_json::{Value, json};

use crate::support::{collect, hello, message, provider_for, result, tools};

fn with_calls(request: &Recorded) -> Vec<Value> {
    let messages = request.body["messages"].as_array().cloned().unwrap_or_default();
    messages.into_iter().filter(|m| m["tool_calls"].is_array()).collect()
}

/// Three rounds of calls, each with thinking before it but the second.
fn answer(turn: usize) -> Reply {
    let call = |r: Reply| r.and_tool("Read", json!({ "path": turn.to_string() }));
    match turn {
        0 | 2 => call(Reply::answer().and_thinking(format!("thought {turn}"), "")),
        1 => call(Reply::answer()),
        _ => Reply::text("done"),
    }
}

/// Runs the chain; gives the last request.
async fn chain(name: &str, server: &ModelServer) -> Recorded {
    let provider = provider_for(name, server);
    let mut request = hello();
    request.prefix = tools();
    for _ in 0..4 {
        let answer = collect(&*provider, request.clone()).await.unwrap();
        let results: Vec<Block> = answer
            .content
            .iter()
            .filter_map(|b| match b {
                Block::ToolUse(u) => Some(result(u.id.as_str(), vec![ResultBlock::text("x")], false)),
                _ => None,
            })
            .collect();
        request.messages.push(message(Role::Assistant, answer.content));
        request.messages.push(message(Role::User, results));
    }
    assert_eq!(server.violations(), [""; 0]);
    server.requests().pop().unwrap()
}

#[tokio::test]
async fn h_prv_03_a_server_that_demands_reasoning_gets_it() {
    let server = ModelServer::start(Script::from_fn(|turn, request| {
        if with_calls(request).iter().any(|m| !m["reasoning_content"].is_string()) {
            return Reply::error(400, "invalid_request_error", "Missing reasoning_content field");
        }
        answer(turn)
    }))
    .unwrap();
    let last = chain("deepseek", &server).await;
    let thoughts: Vec<Value> = with_calls(&last).iter().map(|m| m["reasoning_content"].clone()).collect();
    assert_eq!(thoughts, ["thought 0", "", "thought 2"]);
}

#[tokio::test]
async fn h_prv_03_a_server_that_forbids_reasoning_does_not_get_it() {
    let server = ModelServer::start(Script::from_fn(|turn, request| {
        if request.text.contains("reasoning") || request.text.contains("thought") {
            return Reply::error(400, "invalid_request_error", "Unrecognized field reasoning_content");
        }
        answer(turn)
    }))
    .unwrap();
    chain("openai", &server).await;
}

#[tokio::test]
async fn structured_thinking_goes_back_as_it_came() {
    let body = concat!(
        "data: {\"choices\":[{\"delta\":{\"reasoning\":\"a\",\"reasoning_details\":[{\"type\":\"reasoning.text\",\"text\":\"a\",\"index\":0}]}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"reasoning\":\"b\",\"reasoning_details\":[{\"type\":\"reasoning.text\",\"text\":\"b\",\"signature\":\"s\",\"index\":0}]}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"reasoning_details\":[{\"type\":\"reasoning.encrypted\", \"data\":\"z\"}]}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{\"name\":\"Read\",\"arguments\":\"{}\"}}]}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n",
    );
    let server = ModelServer::start(Script::new([Reply::sse(body), Reply::text("x")])).unwrap();
    let provider = provider_for("openrouter", &server);
    let mut request = hello();
    request.prefix = tools();
    let first = collect(&*provider, request.clone()).await.unwrap();
    request.messages.push(message(Role::Assistant, first.content));
    request.messages.push(message(Role::User, vec![result("c", vec![], false)]));
    collect(&*provider, request).await.unwrap();
    let sent = &with_calls(&server.requests()[1])[0];
    assert_eq!(sent["reasoning"], "ab");
    assert_eq!(
        sent["reasoning_details"],
        json!([
            { "type": "reasoning.text", "text": "ab", "signature": "s", "index": 0 },
            { "type": "reasoning.encrypted", "data": "z" },
        ])
    );
}
