//! Answers, read.

use std::time::Duration;

use open_agent_model::{Block, ModelEvent, StopReason, ToolUse, Usage};
use open_agent_providers::{Api, Profile};
use open_agent_testkit::server::{ModelServer, Pace, Reply, Script};
use serde_json::json;

use crate::support::{Assembled, collect, events, hello, provider_for, tools};

async fn answer(p: &'static Profile, reply: Reply) -> Assembled {
    let server = ModelServer::start(Script::new([reply])).unwrap();
    let mut request = hello();
    request.prefix = tools();
    let done = collect(&*provider_for(p.name, &server), request).await.unwrap();
    assert_eq!(server.violations(), [""; 0]);
    done
}

/// Servers that need not be asked for counts send them.
fn unasked(p: &Profile, reply: Reply) -> Reply {
    if p.stream_usage { reply } else { reply.usage_unasked() }
}

fn calls(done: &Assembled) -> Vec<&ToolUse> {
    done.content.iter().filter_map(|b| if let Block::ToolUse(u) = b { Some(u) } else { None }).collect()
}

pub(super) async fn text_comes_in_order_and_whole(p: &'static Profile) {
    let text = "One two three, \"four\"\n\tfive \\ six.".repeat(50);
    let done = answer(p, Reply::text(&text).delta(3)).await;
    assert_eq!(done.content, [Block::Text(text)]);
    assert_eq!(done.stop, StopReason::EndTurn);
    assert_eq!(done.model.as_deref(), Some("m"));
    assert!(done.id.is_some());
}

pub(super) async fn long_characters_survive_any_pieces(p: &'static Profile) {
    let text = "é€𝄞 ";
    for size in [1, 7, 100] {
        let reply = Reply::text(text).delta(1).and_tool("Read", json!({ "path": text }));
        let done = answer(p, reply.pace(Pace::Drip { size, pause: Duration::ZERO })).await;
        assert_eq!(done.content[0], Block::Text(text.into()));
        assert_eq!(calls(&done)[0].input.get(), json!({ "path": text }).to_string());
    }
}

pub(super) async fn one_call(p: &'static Profile) {
    let done = answer(p, Reply::tool("Read", json!({ "path": "a" })).with_id("call_x")).await;
    let call = calls(&done)[0];
    assert_eq!(
        (call.id.as_str(), call.name.as_str(), call.input.get()),
        ("call_x", "Read", r#"{"path":"a"}"#)
    );
    assert_eq!(done.stop, StopReason::ToolUse);
}

pub(super) async fn parallel_calls_keep_their_order(p: &'static Profile) {
    let reply = (0..10).fold(Reply::answer(), |r, i| r.and_tool("Read", json!({ "path": i.to_string() })));
    let done = answer(p, reply.delta(2)).await;
    let inputs: Vec<_> = calls(&done).iter().map(|c| c.input.get().to_owned()).collect();
    let want: Vec<_> = (0..10).map(|i| format!(r#"{{"path":"{i}"}}"#)).collect();
    assert_eq!(inputs, want);
}

pub(super) async fn a_call_without_arguments_has_an_empty_object(p: &'static Profile) {
    let done = answer(p, Reply::tool("Read", json!({}))).await;
    assert_eq!(calls(&done)[0].input.get(), "{}");
    assert_eq!(calls(&done)[0].broken, None);
}

pub(super) async fn text_and_calls_together(p: &'static Profile) {
    let done = answer(p, Reply::text("I look.").and_tool("Grep", json!({ "path": "b" }))).await;
    assert_eq!(done.content[0], Block::Text("I look.".into()));
    assert_eq!(calls(&done)[0].name, "Grep");
}

pub(super) async fn thinking_is_kept(p: &'static Profile) {
    let done = answer(p, Reply::answer().and_thinking("Let me see.", "sig").and_text("x").delta(2)).await;
    let Block::Thinking(thinking) = &done.content[0] else { panic!("{:?}", done.content) };
    assert_eq!(thinking.text, "Let me see.");
    let signed = (p.api == Api::Anthropic).then_some("sig");
    assert_eq!(thinking.signature.as_deref(), signed);
}

pub(super) async fn usage_is_normalised(p: &'static Profile) {
    let done = answer(p, unasked(p, Reply::text("x").usage(7, 100, 3))).await;
    let want = Usage { input_tokens: 7, output_tokens: 3, cache_read_input_tokens: 100, ..Usage::default() };
    assert_eq!(done.usage.total(), want);
}

pub(super) async fn stop_reasons_are_mapped(p: &'static Profile) {
    for (word, want) in [
        ("end_turn", StopReason::EndTurn),
        ("max_tokens", StopReason::MaxTokens),
        ("tool_use", StopReason::ToolUse),
        ("refusal", StopReason::Refusal),
    ] {
        assert_eq!(answer(p, Reply::text("x").stop(word)).await.stop, want);
    }
}

pub(super) async fn an_unknown_stop_reason_is_kept(p: &'static Profile) {
    let done = answer(p, Reply::text("x").stop("mystery")).await;
    assert_eq!(done.stop, StopReason::Other("mystery".into()));
}

pub(super) async fn a_cut_call_is_marked(p: &'static Profile) {
    let body = match p.api {
        Api::Anthropic => concat!(
            "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"tool_use\",\"id\":\"c\",\"name\":\"Read\"}}\n\n",
            "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"pa\"}}\n\n",
            "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"max_tokens\"}}\n\n",
            "data: {\"type\":\"message_stop\"}\n\n",
        ),
        _ => concat!(
            "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{\"name\":\"Read\",\"arguments\":\"{\\\"pa\"}}]}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n",
        ),
    };
    let done = answer(p, Reply::sse(body)).await;
    let broken = calls(&done)[0].broken.clone().unwrap();
    assert!(broken.cut && broken.raw == "{\"pa", "{broken:?}");
}

pub(super) async fn a_whole_answer_instead_of_a_stream(p: &'static Profile) {
    let reply = || {
        let reply = Reply::answer().and_thinking("hm", "sig").and_text("x");
        unasked(p, reply.and_tool("Read", json!({ "path": "a" })))
    };
    let (streamed, whole) = (answer(p, reply()).await, answer(p, reply().plain()).await);
    assert_eq!(streamed.content, whole.content);
    assert_eq!((streamed.stop, streamed.usage), (whole.stop, whole.usage));
}

pub(super) async fn blocks_end_before_the_answer_does(p: &'static Profile) {
    let reply = Reply::answer().and_thinking("hm", "sig").and_text("x").and_tool("Read", json!({}));
    for reply in [reply.clone(), reply.plain()] {
        let server = ModelServer::start(Script::new([reply])).unwrap();
        let mut request = hello();
        request.prefix = tools();
        let (events, error) = events(&*provider_for(p.name, &server), request).await;
        assert!(error.is_none());
        let place = |wanted: fn(&ModelEvent) -> bool| events.iter().position(wanted).unwrap();
        let stops: Vec<usize> = (0..)
            .zip(&events)
            .filter(|(_, e)| matches!(e, ModelEvent::BlockStop { .. }))
            .map(|(i, _)| i)
            .collect();
        assert_eq!(stops.len(), 3, "{events:?}");
        assert!(stops.iter().all(|s| *s < place(|e| matches!(e, ModelEvent::Stop(_)))), "{events:?}");
        assert!(matches!(events.last(), Some(ModelEvent::End)), "{events:?}");
    }
}

/// An answer that says "x".
fn says_x(p: &Profile) -> &'static str {
    match p.api {
        Api::Anthropic => {
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"x\"}}\n\n\
             event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n\
             event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
        }
        _ => {
            "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n\
             data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
        }
    }
}

pub(super) async fn damaged_bytes_cost_only_themselves(p: &'static Profile) {
    let mut body = says_x(p).as_bytes().to_vec();
    let at = body.windows(3).position(|w| w == b"\"x\"").unwrap() + 1;
    body.splice(at..=at, *b"a\xff\xfeb");
    let done = answer(p, Reply::sse(body)).await;
    assert_eq!(done.content, [Block::Text("a\u{fffd}\u{fffd}b".into())]);
}

pub(super) async fn comments_and_unknown_events_are_skipped(p: &'static Profile) {
    let frames = says_x(p);
    let noise = ": keep-alive\n\nid: 1\nretry: 10\n\nevent: news\ndata: {\"type\":\"news\"}\n\nevent: ping\ndata: {\"type\": \"ping\"}\n\n";
    let body = format!("{noise}{}", frames.replace("\n\n", &format!("\n\n{noise}")));
    let done = answer(p, Reply::sse(body)).await;
    assert_eq!(done.content, [Block::Text("x".into())]);
}

pub(super) async fn a_stream_without_a_content_type_is_read(p: &'static Profile) {
    let done = answer(p, Reply::text("x")).await;
    let server =
        ModelServer::start(Script::new([Reply::text("x").header("content-type", "text/plain")])).unwrap();
    let odd = collect(&*provider_for(p.name, &server), hello()).await.unwrap();
    assert_eq!(odd.content, done.content);
}

pub(super) async fn an_odd_field_costs_only_itself(p: &'static Profile) {
    let body = match p.api {
        Api::Anthropic => concat!(
            "data: {\"type\":\"content_block_delta\",\"index\":[],\"delta\":{\"type\":\"text_delta\",\"text\":\"x\"},\"usage\":[1]}\n\n",
            "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":{}},\"usage\":{\"output_tokens\":3,\"input_tokens\":-1,\"cache_creation\":\"x\"}}\n\n",
        ),
        _ => concat!(
            "data: {\"id\":{},\"choices\":[{\"index\":[],\"delta\":{\"content\":\"x\",\"tool_calls\":\"none\"},\"finish_reason\":false}],\"usage\":\"n/a\"}\n\n",
            "data: {\"choices\":[{\"delta\":\"over\",\"finish_reason\":\"stop\"}],\"usage\":{\"completion_tokens\":3,\"prompt_tokens\":1e30,\"prompt_tokens_details\":\"x\"}}\n\n",
        ),
    };
    let done = answer(p, Reply::sse(body)).await;
    assert_eq!(done.content, [Block::Text("x".into())]);
    assert_eq!(done.stop, StopReason::EndTurn);
    assert_eq!(done.usage.total(), Usage { output_tokens: 3, ..Usage::default() });
}
