//! Answers and faults over a real socket, in both formats.

use std::time::Duration;

use open_agent_model::{Block, ProviderErrorKind as Kind, StopReason, Thinking, Usage};
use open_agent_providers::provider;
use open_agent_testkit::server::{ModelServer, Pace, Reply, Script};
use serde_json::json;

use crate::support::{KEY, at, collect, config, events, hello, provider_for, tools};

const BOTH: [&str; 2] = ["anthropic", "openai"];

fn start(reply: Reply) -> ModelServer {
    ModelServer::start(Script::always(reply)).unwrap()
}

#[tokio::test]
async fn text_thinking_calls_and_usage_arrive() {
    for name in BOTH {
        for plain in [false, true] {
            let reply = Reply::answer()
                .and_thinking("so…", "sig")
                .and_text("héllo wörld, this is more than one delta")
                .and_tool("Read", json!({ "path": "ä" }))
                .and_tool("Grep", json!({}))
                .usage(7, 3, 2);
            let server = start(if plain { reply.plain() } else { reply });
            let mut request = hello();
            request.prefix = tools();
            let done = collect(&*provider_for(name, &server), request).await.unwrap();
            assert_eq!(done.stop, StopReason::ToolUse);
            let usage =
                Usage { input_tokens: 7, output_tokens: 2, cache_read_input_tokens: 3, ..Usage::default() };
            assert_eq!(done.usage.total(), usage, "{name} {plain}");
            let signature = (name == "anthropic").then(|| "sig".to_owned());
            let thinking = Thinking { text: "so…".into(), signature, details: None };
            assert_eq!(done.content[0], Block::Thinking(thinking), "{name} {plain}");
            assert_eq!(done.content[1], Block::Text("héllo wörld, this is more than one delta".into()));
            let calls: Vec<_> = done.content[2..]
                .iter()
                .map(|b| match b {
                    Block::ToolUse(u) => (u.name.as_str(), u.input.get()),
                    _ => ("", ""),
                })
                .collect();
            assert_eq!(calls, [("Read", r#"{"path":"ä"}"#), ("Grep", "{}")], "{name} {plain}");
            assert_eq!(server.violations(), [""; 0]);
        }
    }
}

#[tokio::test]
async fn stop_reasons_are_mapped() {
    for (reason, want) in [
        ("end_turn", StopReason::EndTurn),
        ("max_tokens", StopReason::MaxTokens),
        ("refusal", StopReason::Refusal),
        ("something_new", StopReason::Other("something_new".into())),
    ] {
        for name in BOTH {
            let server = start(Reply::text("x").stop(reason));
            assert_eq!(collect(&*provider_for(name, &server), hello()).await.unwrap().stop, want, "{name}");
        }
    }
}

#[tokio::test]
async fn a_broken_connection_is_a_connection_error_with_its_text() {
    for name in BOTH {
        let server = start(Reply::text("a long answer that is cut").delta(4).pace(Pace::Cut(700)));
        let (events, error) = events(&*provider_for(name, &server), hello()).await;
        let error = error.unwrap();
        assert_eq!(error.kind, Kind::Connection, "{name} {error}");
        assert!(error.message.contains(name) && error.message.contains("middle"), "{error}");
        assert!(!events.is_empty(), "{name}");
        let none = start(Reply::text("x").pace(Pace::Cut(0)));
        let error = collect(&*provider_for(name, &none), hello()).await.unwrap_err();
        assert_eq!(error.kind, Kind::Connection, "{name} {error}");
    }
}

#[tokio::test]
async fn silence_is_a_time_out() {
    for name in BOTH {
        for at in [0, 300] {
            let server = start(Reply::text("x").pace(Pace::Stall(at)));
            let config = config(name, &server).with_idle_timeout(Duration::from_millis(200));
            let error = collect(&*provider(config).unwrap(), hello()).await.unwrap_err();
            assert_eq!(error.kind, Kind::Timeout, "{name} {at} {error}");
            assert!(error.message.contains("200ms"), "{error}");
        }
    }
}

#[tokio::test]
async fn h_str_09_an_error_inside_a_stream_is_an_error() {
    for name in BOTH {
        for (kind, want) in [("overloaded_error", Kind::Overloaded), ("api_error", Kind::Server)] {
            let server = start(Reply::text("some text").delta(3).error_after(4, kind, "upstream is busy"));
            let (events, error) = events(&*provider_for(name, &server), hello()).await;
            let error = error.unwrap();
            assert_eq!(error.kind, want, "{name} {error}");
            assert!(error.message.contains("upstream is busy"), "{error}");
            assert!(events.len() > 1);
        }
    }
}

#[tokio::test]
async fn an_error_status_is_typed_with_its_headers() {
    for name in BOTH {
        let reply = Reply::error(529, "overloaded_error", "busy")
            .header("request-id", "req_1")
            .header("retry-after-ms", "1500");
        let error = collect(&*provider_for(name, &start(reply)), hello()).await.unwrap_err();
        assert_eq!((error.kind, error.status), (Kind::Overloaded, Some(529)));
        assert_eq!(error.request_id.as_deref(), Some("req_1"));
        assert_eq!(error.retry_after, Some(Duration::from_millis(1500)));
        assert!(error.message.contains("busy") && error.message.contains(name), "{error}");
    }
}

#[tokio::test]
async fn a_web_page_instead_of_an_answer_is_explained() {
    for name in BOTH {
        for status in [200, 502] {
            let page = Reply::raw(status, "text/html", "<!doctype html><h1>Portal</h1>");
            let error = collect(&*provider_for(name, &start(page)), hello()).await.unwrap_err();
            assert!(error.message.contains("web page") && error.message.contains("--base-url"), "{error}");
        }
    }
}

#[tokio::test]
async fn an_unreachable_server_is_named() {
    for name in BOTH {
        let url = {
            let server = start(Reply::text("x"));
            server.url()
        };
        let error = collect(&*provider(at(name, &url)).unwrap(), hello()).await.unwrap_err();
        assert_eq!(error.kind, Kind::Connection, "{error}");
        for word in [url.as_str(), name, "refused", "--base-url"] {
            assert!(error.message.contains(word), "{word}: {error}");
        }
    }
}

#[tokio::test]
async fn pieces_of_any_size_give_the_same_answer() {
    for name in BOTH {
        for pace in [Pace::Split(1), Pace::Split(333), Pace::Drip { size: 37, pause: Duration::ZERO }] {
            let server = start(Reply::text("äöü€𝄞 and more").delta(2).pace(pace));
            let done = collect(&*provider_for(name, &server), hello()).await.unwrap();
            assert_eq!(done.content, [Block::Text("äöü€𝄞 and more".into())]);
        }
    }
}

#[tokio::test]
async fn keys_go_where_the_api_wants_them_and_nowhere_else() {
    let server = start(Reply::text("x"));
    collect(&*provider_for("anthropic", &server), hello()).await.unwrap();
    collect(&*provider_for("openai", &server), hello()).await.unwrap();
    let mut bearer = config("anthropic", &server);
    bearer.bearer = true;
    collect(&*provider(bearer).unwrap(), hello()).await.unwrap();
    let requests = server.requests();
    assert_eq!(requests[0].header("x-api-key"), KEY);
    assert_eq!(requests[0].header("authorization"), "");
    for request in &requests[1..] {
        assert_eq!(request.header("authorization"), format!("Bearer {KEY}"));
        assert_eq!(request.header("x-api-key"), "");
    }
    assert!(requests.iter().all(|r| !r.text.contains(KEY) && !r.path.contains(KEY)));
}

#[tokio::test]
async fn a_conversation_uses_one_connection() {
    let server = start(Reply::text("x"));
    let provider = provider_for("anthropic", &server);
    for _ in 0..3 {
        collect(&*provider, hello()).await.unwrap();
    }
    let ports: std::collections::BTreeSet<u16> = server.requests().iter().map(|r| r.peer.port()).collect();
    assert_eq!(ports.len(), 1);
}
