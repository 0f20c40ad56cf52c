//! The floor: the least an agent loop in Rust can do. It posts, scans the stream by lines, keeps the history as plain
//! JSON, reads the files that it is asked for, and knows no error. argv: url agents

use std::time::Instant;

use futures::future::join_all;
use futures::{StreamExt, stream};
use serde_json::{Value, json};

#[derive(Default)]
struct Turn {
    text: String,
    calls: Vec<Call>,
    events: usize,
}

struct Call {
    id: Value,
    name: Value,
    input: String,
}

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let url = args.next().expect("url");
    let agents: usize = args.next().and_then(|count| count.parse().ok()).unwrap_or(1);
    let (base, started) = (bench_libs::rss(), Instant::now());
    let http = reqwest::Client::builder().no_proxy().build().expect("client");
    let runs = stream::iter((0..agents).map(|_| tokio::spawn(agent(http.clone(), url.clone()))));
    // The conversations are kept until the memory has been read.
    let done: Vec<_> =
        runs.buffer_unordered(bench_libs::AT_ONCE).map(|agent| agent.expect("agent")).collect().await;
    bench_libs::report(started, base, agents, done.iter().map(|(_, events)| events).sum());
}

async fn agent(http: reqwest::Client, url: String) -> (Vec<Value>, usize) {
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
    let tools = json!([{"name": "read_file", "description": "Read a file.", "input_schema": schema}]);
    let mut messages = vec![json!({"role": "user", "content": "Read the files."})];
    let mut events = 0;
    loop {
        let body = json!({"model": "mock", "max_tokens": 32000, "stream": true, "system": "You are a coding agent.",
            "tools": tools, "messages": messages});
        let request = http.post(format!("{url}/v1/messages")).header("x-api-key", "x");
        let turn = read(request.header("anthropic-version", "2023-06-01").json(&body)).await;
        events += turn.events;
        if turn.calls.is_empty() {
            messages.push(json!({"role": "assistant", "content": turn.text}));
            return (messages, events);
        }
        let inputs: Vec<Value> =
            turn.calls.iter().map(|call| serde_json::from_str(&call.input).expect("input")).collect();
        let uses: Vec<Value> = turn
            .calls
            .iter()
            .zip(&inputs)
            .map(
                |(call, input)| json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input}),
            )
            .collect();
        messages.push(json!({"role": "assistant", "content": uses}));
        let files = inputs
            .iter()
            .map(|input| tokio::fs::read_to_string(input["path"].as_str().unwrap_or("").to_string()));
        let results: Vec<Value> = turn
            .calls
            .iter()
            .zip(join_all(files).await)
            .map(|(call, file)| {
                json!({"type": "tool_result", "tool_use_id": call.id, "content": file.unwrap_or_default()})
            })
            .collect();
        messages.push(json!({"role": "user", "content": results}));
    }
}

async fn read(request: reqwest::RequestBuilder) -> Turn {
    let mut stream = request.send().await.expect("send").bytes_stream();
    let mut turn = Turn::default();
    let mut buffer = Vec::new();
    while let Some(chunk) = stream.next().await {
        buffer.extend_from_slice(&chunk.expect("chunk"));
        let mut at = 0;
        while let Some(end) = buffer[at..].iter().position(|byte| *byte == b'\n') {
            if let Some(data) = buffer[at..at + end].strip_prefix(b"data: ") {
                apply(&mut turn, &serde_json::from_slice(data).expect("json"));
            }
            at += end + 1;
        }
        buffer.drain(..at);
    }
    turn
}

fn apply(turn: &mut Turn, event: &Value) {
    turn.events += 1;
    let (block, delta) = (&event["content_block"], &event["delta"]);
    let text = |key: &str| delta[key].as_str().expect("text");
    match (event["type"].as_str(), delta["type"].as_str()) {
        (Some("content_block_start"), _) if block["type"] == "tool_use" => {
            turn.calls.push(Call {
                id: block["id"].clone(),
                name: block["name"].clone(),
                input: String::new(),
            });
        }
        (_, Some("text_delta")) => turn.text.push_str(text("text")),
        (_, Some("input_json_delta")) => {
            turn.calls.last_mut().expect("call").input.push_str(text("partial_json"));
        }
        _ => {}
    }
}
