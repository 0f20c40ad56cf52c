//! Requests, as the server sees them.

use std::sync::Arc;

use open_agent_model::{
    Block, Effort, Message, ModelRequest, Provider as _, RawJson, ResultBlock, Role, Secret, Thinking,
    ThinkingMode, ToolChoice,
};
use open_agent_providers::{AnthropicProvider, Api, Profile, ProviderConfig, provider};
use open_agent_testkit::server::{ModelServer, Recorded, Reply, Script};
use serde_json::{Value, json};

use crate::support::{
    KEY, call, collect, config, everything, hello, message, provider_for, request, result, text, tools,
};

async fn sent_by(config: impl FnOnce(&mut ProviderConfig), p: &Profile, request: ModelRequest) -> Recorded {
    let server = ModelServer::start(Script::new([Reply::text("ok")])).unwrap();
    let mut options = crate::support::config(p.name, &server);
    config(&mut options);
    assert_eq!(request.check(), Ok(()));
    collect(&*provider(options).unwrap(), request).await.unwrap();
    assert_eq!(server.violations(), [""; 0]);
    server.requests().remove(0)
}

async fn sent(p: &Profile, request: ModelRequest) -> Value {
    sent_by(|_| {}, p, request).await.body
}

/// What changes in the body when an option is set.
async fn difference(p: &Profile, set: impl FnOnce(&mut ModelRequest)) -> Value {
    let mut plain = hello();
    plain.prefix = tools();
    let mut changed = plain.clone();
    set(&mut changed);
    let (before, after) = (sent(p, plain).await, sent(p, changed).await);
    let fields = after.as_object().unwrap().iter().filter(|(k, v)| before.get(k) != Some(v));
    Value::Object(fields.map(|(k, v)| (k.clone(), v.clone())).collect())
}

pub(super) async fn everything_is_accepted_by_a_strict_server(p: &'static Profile) {
    let body = sent(p, everything()).await.to_string();
    for word in
        ["iVBORw0KGgo=", "https://example.com/a.png", "plan.pdf", "hä", "änder", "the arguments are no JSON"]
    {
        assert!(body.contains(word), "{word}");
    }
    assert_eq!(body.contains("JVBERi0="), p.documents);
}

pub(super) async fn a_made_up_name_goes_back_as_one_that_is_accepted(p: &'static Profile) {
    let messages = vec![
        message(Role::User, vec![text("hi")]),
        message(Role::Assistant, vec![call("1", "read file!", "{}")]),
        message(Role::User, vec![result("1", vec![ResultBlock::text("no such tool")], true)]),
    ];
    // The server refuses names that no vendor takes.
    let body = sent(p, request(messages)).await.to_string();
    assert!(body.contains(r#""name":"read_file_""#), "{body}");
}

pub(super) async fn a_tool_round_trip(p: &'static Profile) {
    let calls = Reply::tool("Read", json!({ "path": "a" })).and_tool("Grep", json!({}));
    let server = ModelServer::start(Script::new([calls, Reply::text("done")])).unwrap();
    let provider = provider_for(p.name, &server);
    let mut first = hello();
    first.prefix = tools();
    let answer = collect(&*provider, first.clone()).await.unwrap();
    let results = answer.content.iter().filter_map(|b| match b {
        Block::ToolUse(u) => Some(result(u.id.as_str(), vec![ResultBlock::text("found")], false)),
        _ => None,
    });
    let results: Vec<Block> = results.collect();
    assert_eq!(results.len(), 2);
    let mut second = first;
    second.messages.push(message(Role::Assistant, answer.content));
    second.messages.push(message(Role::User, results));
    assert_eq!(second.check(), Ok(()));
    assert_eq!(collect(&*provider, second).await.unwrap().content, [text("done")]);
    assert_eq!(server.violations(), [""; 0]);
}

fn thought(model: &str) -> ModelRequest {
    let thinking = Thinking { text: "a thought".into(), signature: Some("sig".into()), details: None };
    let mut written =
        (*message(Role::Assistant, vec![Block::Thinking(thinking), call("c", "Read", "{}")])).clone();
    written.model = Some(model.into());
    let mut request = request(vec![
        message(Role::User, vec![text("go")]),
        written.into(),
        message(Role::User, vec![result("c", vec![], false)]),
    ]);
    request.prefix = tools();
    request
}

pub(super) async fn own_thinking_goes_back(p: &'static Profile) {
    let body = sent(p, thought("m")).await;
    let assistant = body["messages"].as_array().unwrap().iter().find(|m| m["role"] == "assistant").unwrap();
    match p.api {
        Api::Anthropic => assert_eq!(
            assistant["content"][0],
            json!({ "type": "thinking", "thinking": "a thought", "signature": "sig" })
        ),
        _ => assert_eq!(assistant[p.reasoning_field], "a thought"),
    }
}

pub(super) async fn thinking_of_another_model_stays_here(p: &'static Profile) {
    let body = sent(p, thought("another")).await.to_string();
    assert!(!body.contains("a thought") && !body.contains("sig"), "{body}");
}

pub(super) async fn broken_arguments_go_back_as_an_empty_object(p: &'static Profile) {
    let body = sent(p, everything()).await.to_string();
    assert!(!body.contains("brok"), "{body}");
}

pub(super) async fn tool_choice_is_observed(p: &'static Profile) {
    let mut seen = Vec::new();
    for choice in [ToolChoice::Any, ToolChoice::None, ToolChoice::Tool("Grep".into())] {
        let changed = difference(p, |r| r.options.tool_choice = choice).await;
        seen.push(changed["tool_choice"].clone());
    }
    let want = match p.api {
        Api::Anthropic => {
            [json!({ "type": "any" }), json!({ "type": "none" }), json!({ "type": "tool", "name": "Grep" })]
        }
        _ => {
            [json!("required"), json!("none"), json!({ "type": "function", "function": { "name": "Grep" } })]
        }
    };
    assert_eq!(seen, want);
}

pub(super) async fn no_tools_where_none_may_be_called(p: &'static Profile) {
    let mut request = hello();
    request.prefix = tools();
    request.options.tool_choice = ToolChoice::None;
    let body = sent(p, request.clone()).await;
    assert!(body.get("tools").is_none() && body.get("tool_choice").is_none(), "{body}");
    request.options.tool_choice = ToolChoice::Any;
    let body = sent(p, request).await;
    assert!(body.get("tools").is_some() && body.get("tool_choice").is_none(), "{body}");
}

pub(super) async fn sampling_options_are_observed(p: &'static Profile) {
    let changed = difference(p, |r| {
        r.options.temperature = Some(0.25);
        r.options.stop_sequences = vec!["END".into()];
    })
    .await;
    let stops = if p.api == Api::Anthropic { "stop_sequences" } else { "stop" };
    assert_eq!(changed, json!({ "temperature": 0.25, stops: ["END"] }));
}

pub(super) async fn max_tokens_is_observed(p: &'static Profile) {
    let changed = difference(p, |r| r.options.max_tokens = 77).await;
    assert_eq!(changed, json!({ p.max_tokens: 77 }));
}

pub(super) async fn effort_is_observed(p: &'static Profile) {
    let changed = difference(p, |r| r.options.effort = Some(Effort::Low)).await;
    assert_ne!(changed, json!({}));
}

pub(super) async fn disabled_thinking_is_observed(p: &'static Profile) {
    let changed = difference(p, |r| r.options.thinking = Some(ThinkingMode::Disabled)).await;
    assert_ne!(changed, json!({}));
}

pub(super) async fn the_window_is_observed(p: &'static Profile) {
    let request = sent_by(|c| c.context_window = Some(8192), p, hello()).await;
    assert_eq!(request.body["options"]["num_ctx"], 8192);
    assert_eq!(request.body["num_ctx"], 8192);
}

pub(super) async fn betas_are_sent(p: &'static Profile) {
    let request = sent_by(|c| c.betas = vec!["a-1".into(), "b-2".into()], p, hello()).await;
    assert_eq!(request.header("anthropic-beta"), "a-1,b-2");
}

pub(super) async fn prompt_cache_is_observed(p: &'static Profile) {
    let on = sent_by(|_| {}, p, everything()).await.text;
    let off = sent_by(|c| c.prompt_cache = false, p, everything()).await.text;
    let mark = r#","cache_control":{"type":"ephemeral"}"#;
    assert_eq!(on.matches(mark).count(), 3);
    assert_eq!(on.replace(mark, ""), off);
}

pub(super) async fn tokens_are_counted(p: &'static Profile) {
    let server = ModelServer::start(Script::new([])).unwrap();
    let provider = AnthropicProvider::new(config(p.name, &server)).unwrap();
    assert!(provider.count_tokens(everything()).await.unwrap().unwrap() > 100);
    assert_eq!(server.violations(), [""; 0]);
    let request = &server.requests()[0];
    assert_eq!(request.path, "/v1/messages/count_tokens");
    assert!(request.body.get("max_tokens").is_none() && request.body.get("stream").is_none());
}

pub(super) async fn extra_headers_and_the_key_are_sent(p: &'static Profile) {
    let request = sent_by(|c| c.headers.push(("x-team".into(), Secret::new("blue"))), p, hello()).await;
    assert_eq!(request.header("x-team"), "blue");
    assert!(request.header("authorization").contains(KEY) || request.header("x-api-key") == KEY);
    assert!(request.header("user-agent").starts_with("open-agent/"));
}

/// Warm or cold, the same request is the same text, and each turn begins as the one before it did.
pub(super) async fn the_same_request_has_the_same_bytes(p: &'static Profile) {
    let server = ModelServer::start(Script::always(Reply::text("ok"))).unwrap();
    let mut config = config(p.name, &server);
    config.prompt_cache = false;
    let warm = provider(config.clone()).unwrap();
    let long = "a long text ".repeat(100);
    let mut turn = everything();
    let longer = |message: &Arc<Message>| {
        let mut longer = Message::clone(message);
        longer.content.push(text(&long));
        Arc::new(longer)
    };
    turn.messages = turn.messages.iter().map(longer).collect();
    for _ in 0..3 {
        collect(&*warm, turn.clone()).await.unwrap();
    }
    collect(&*provider(config).unwrap(), turn.clone()).await.unwrap();
    turn.messages.push(message(Role::Assistant, vec![text(&long)]));
    turn.messages.push(message(Role::User, vec![text("next")]));
    collect(&*warm, turn).await.unwrap();
    let texts: Vec<String> = server.requests().into_iter().map(|r| r.text).collect();
    assert!(texts[..4].iter().all(|t| *t == texts[0]));
    assert!(texts[4].starts_with(texts[0].strip_suffix("]}").unwrap()));
}

/// A conversation that outgrows what is encoded message by message is the same text as from a fresh start, also after a
/// change far back and with the vendor's cache marks.
pub(super) async fn a_long_conversation_has_the_same_bytes_warm_and_cold(p: &'static Profile) {
    let server = ModelServer::start(Script::always(Reply::text("ok"))).unwrap();
    let warm = provider(config(p.name, &server)).unwrap();
    let mut turn = everything();
    for round in 0..3 {
        for n in 0..35 {
            turn.messages.push(message(Role::Assistant, vec![text(&format!("answer {round} {n}"))]));
            turn.messages.push(message(Role::User, vec![text(&format!("prompt {round} {n}"))]));
        }
        if round == 2 {
            turn.messages.set(40, message(Role::User, vec![text("another prompt")]));
        }
        collect(&*warm, turn.clone()).await.unwrap();
        collect(&*provider(config(p.name, &server)).unwrap(), turn.clone()).await.unwrap();
    }
    let texts: Vec<String> = server.requests().into_iter().map(|r| r.text).collect();
    assert!(texts.chunks(2).all(|both| both[0] == both[1]));
    assert!(texts[4].contains("answer 0 0") && texts[4].contains("another prompt"));
    let prompts = texts[4].match_indices("prompt 2 34").count();
    assert_eq!(prompts, 1, "the last message is there, once");
    for text in &texts {
        let body: Value = serde_json::from_str(text).unwrap();
        let mut marked = Vec::new();
        find_marks(&body, "", &mut marked);
        assert_eq!(marked, marks_of(p, &body));
    }
}

/// The places of all cache marks in a body, in its order.
fn find_marks(value: &Value, at: &str, marked: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            if fields.contains_key("cache_control") {
                marked.push(at.to_owned());
            }
            fields.iter().for_each(|(name, value)| find_marks(value, &format!("{at}/{name}"), marked));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(n, item)| find_marks(item, &format!("{at}/{n}"), marked));
        }
        _ => {}
    }
}

/// Where the marks have to be: at the end of the last two user messages and of the system prompt, where the API has marks.
fn marks_of(p: &Profile, body: &Value) -> Vec<String> {
    let last = |list: &Value| list.as_array().unwrap().len() - 1;
    if p.api != Api::Anthropic {
        return Vec::new();
    }
    let messages = body["messages"].as_array().unwrap();
    let users = messages.iter().enumerate().filter(|(_, message)| message["role"] == "user");
    let users: Vec<usize> = users.map(|(n, _)| n).collect();
    let of_users = users[users.len() - 2..]
        .iter()
        .map(|n| format!("/messages/{n}/content/{}", last(&messages[*n]["content"])));
    of_users.chain([format!("/system/{}", last(&body["system"]))]).collect()
}

pub(super) async fn usage_is_asked_for(p: &'static Profile) {
    let body = sent(p, hello()).await;
    assert_eq!(body["stream_options"]["include_usage"] == true, p.stream_usage);
}

pub(super) async fn opaque_blocks_go_back_byte_for_byte(p: &'static Profile) {
    let raw = r#"{"type":"server_tool_use", "id":"s", "input":{"n": 1.0e2}}"#;
    let request = request(vec![
        message(Role::User, vec![text("go")]),
        message(Role::Assistant, vec![Block::Opaque { raw: RawJson::parse(raw).unwrap() }, text("x")]),
        message(Role::User, vec![text("on")]),
    ]);
    assert!(sent_by(|_| {}, p, request).await.text.contains(raw));
}
