//! What goes wrong, as a typed error with a text that helps.

use std::time::Duration;

use futures_util::{StreamExt as _, future};
use open_agent_model::{ModelEvent, ProviderError, ProviderErrorKind as Kind, ProviderHint, Secret};
use open_agent_providers::{Api, Profile, provider};
use open_agent_testkit::server::{ModelServer, Pace, Reply, Script};
use serde_json::json;

use crate::support::{KEY, at, collect, config, events, hello, provider_for};

async fn fails(p: &'static Profile, reply: Reply) -> ProviderError {
    let server = ModelServer::start(Script::new([reply])).unwrap();
    collect(&*provider_for(p.name, &server), hello()).await.unwrap_err()
}

#[track_caller]
fn says(error: &ProviderError, words: &[&str]) {
    // What a user can change is in the hint, for each program to say in its own words.
    assert!(!error.message.contains("--") && !error.message.contains('`'), "{error}");
    for word in words {
        assert!(error.message.contains(word), "{word:?} is not in: {error}");
    }
}

pub(super) async fn overload_and_rate_limits_are_typed(p: &'static Profile) {
    for (status, kind, wait) in [
        (429, Kind::RateLimited, Some(7)),
        (500, Kind::Server, None),
        (502, Kind::Server, None),
        (503, Kind::Overloaded, Some(7)),
        (529, Kind::Overloaded, Some(7)),
    ] {
        let mut reply = Reply::error(status, "some_error", "not now").header("x-request-id", "r1");
        if let Some(seconds) = wait {
            reply = reply.header("retry-after", seconds.to_string());
        }
        let error = fails(p, reply).await;
        assert_eq!((error.kind, error.status), (kind, Some(status)));
        assert_eq!(error.retry_after, wait.map(Duration::from_secs));
        assert_eq!(error.request_id.as_deref(), Some("r1"));
        says(&error, &[p.name, "not now", &status.to_string()]);
    }
}

pub(super) async fn a_refused_key_names_where_it_comes_from(p: &'static Profile) {
    for status in [401, 403] {
        let error = fails(p, Reply::error(status, "authentication_error", "invalid key")).await;
        assert_eq!(error.kind, Kind::Authentication);
        says(&error, &[p.name, "invalid key"]);
        let variables =
            p.key_variables.iter().copied().chain(["CODEANY_API_KEY"]).map(str::to_owned).collect();
        assert_eq!(error.hint.as_deref(), Some(&ProviderHint::CheckKey { variables }));
    }
}

pub(super) async fn an_unknown_model_names_what_was_asked(p: &'static Profile) {
    let error = fails(p, Reply::error(404, "not_found_error", "no such thing")).await;
    assert_eq!(error.kind, Kind::NotFound);
    let path = if p.api == Api::Anthropic { "/v1/messages" } else { "/v1/chat/completions" };
    says(&error, &[p.name, "\"m\"", path, "no such thing", p.api.as_str()]);
}

pub(super) async fn a_model_without_tools_is_explained(p: &'static Profile) {
    let error = fails(p, Reply::error(400, "invalid_request_error", "m does not support tools")).await;
    assert_eq!(error.kind, Kind::InvalidRequest);
    says(&error, &[p.name, "\"m\"", "may not take tools"]);
}

pub(super) async fn context_overflow_is_recognised(p: &'static Profile) {
    for body in [
        json!({ "error": { "code": 400, "type": "exceed_context_size_error", "message": "too big", "n_ctx": 4096 } }),
        json!({ "error": { "code": "context_length_exceeded", "message": "This model's maximum context length is 8192 tokens." } }),
        json!({ "type": "error", "error": { "type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8 maximum" } }),
    ] {
        assert_eq!(fails(p, Reply::status(400, &body)).await.kind, Kind::ContextOverflow, "{body}");
    }
}

pub(super) async fn an_error_inside_the_stream(p: &'static Profile) {
    let reply = Reply::text("half of it").delta(2).error_after(5, "overloaded_error", "upstream");
    let server = ModelServer::start(Script::new([reply])).unwrap();
    let (events, error) = events(&*provider_for(p.name, &server), hello()).await;
    let error = error.unwrap();
    assert_eq!(error.kind, Kind::Overloaded);
    says(&error, &[p.name, "upstream"]);
    assert!(events.iter().any(|e| matches!(e, ModelEvent::Text { .. })));
}

pub(super) async fn an_error_status_cut_at_every_byte_is_the_same(p: &'static Profile) {
    let body = r#"{"error":{"type":"rate_limit_error","message":"Wart 20s: try again in 20s – é"}}"#;
    let server = ModelServer::start(Script::from_fn(move |turn, _| {
        Reply::raw(429, "application/json", body).pace(Pace::Split(turn % body.len()))
    }))
    .unwrap();
    let provider = provider_for(p.name, &server);
    let errors = future::join_all((0..body.len()).map(|_| collect(&*provider, hello()))).await;
    for error in errors.into_iter().map(Result::unwrap_err) {
        assert_eq!(error.kind, Kind::RateLimited);
        assert_eq!(error.retry_after, Some(Duration::from_secs(20)));
        says(&error, &["Wart 20s: try again in 20s – é"]);
    }
}

pub(super) async fn a_broken_connection(p: &'static Profile) {
    for cut in [0, 1, 150, 500] {
        let error = fails(p, Reply::text("a text that is long enough").delta(1).pace(Pace::Cut(cut))).await;
        assert_eq!(error.kind, Kind::Connection, "{cut}: {error}");
        says(&error, &[p.name]);
    }
}

pub(super) async fn a_stream_that_just_ends(p: &'static Profile) {
    let body = match p.api {
        Api::Anthropic => {
            "data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"x\"}}\n\ndata: {\"type\":\"cont"
        }
        _ => "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\ndata: {\"choi",
    };
    let error = fails(p, Reply::sse(body)).await;
    assert_eq!(error.kind, Kind::Connection, "{error}");
    says(&error, &[p.name, "before its answer was finished"]);
}

pub(super) async fn broken_json_in_the_stream(p: &'static Profile) {
    let error = fails(p, Reply::sse("data: {\"type\":\"message_start\n\ndata: {}\n\n")).await;
    assert_eq!(error.kind, Kind::Protocol);
    says(&error, &[p.name, "broken JSON", "message_start"]);
}

pub(super) async fn silence(p: &'static Profile) {
    let server = ModelServer::start(Script::new([Reply::text("x").pace(Pace::Stall(200))])).unwrap();
    let config = config(p.name, &server).with_idle_timeout(Duration::from_millis(100));
    let error = collect(&*provider(config).unwrap(), hello()).await.unwrap_err();
    assert_eq!(error.kind, Kind::Timeout);
    says(&error, &[p.name, "100ms"]);
}

pub(super) async fn an_error_body_that_stalls(p: &'static Profile) {
    // The head is well within 200 bytes; of the body some words come.
    let reply = Reply::error(500, "api_error", &"some words ".repeat(200)).pace(Pace::Stall(1_000));
    let server = ModelServer::start(Script::new([reply])).unwrap();
    let config = config(p.name, &server).with_idle_timeout(Duration::from_secs(1));
    let error = collect(&*provider(config).unwrap(), hello()).await.unwrap_err();
    assert_eq!((error.kind, error.status), (Kind::Server, Some(500)));
    says(&error, &[p.name, "some words some words"]);
}

pub(super) async fn an_empty_answer(p: &'static Profile) {
    let body = match p.api {
        Api::Anthropic => {
            "data: {\"type\":\"message_start\",\"message\":{\"id\":\"1\"}}\n\ndata: {\"type\":\"message_stop\"}\n\n"
        }
        _ => "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\ndata: [DONE]\n\n",
    };
    let error = fails(p, Reply::sse(body)).await;
    assert_eq!(error.kind, Kind::Connection, "{error}");
    says(&error, &[p.name, "the answer was empty"]);
}

pub(super) async fn another_api_inside_a_success(p: &'static Profile) {
    let other = match p.api {
        Api::Anthropic => r#"{"object":"chat.completion.chunk","choices":[{"delta":{"content":"x"}}]}"#,
        _ => r#"{"type":"message_start","message":{"id":"1"}}"#,
    };
    let responses = r#"{"type":"response.created","response":{"id":"1"}}"#;
    let ollama = r#"{"model":"m","message":{"role":"assistant","content":"x"},"done":false}"#;
    for body in [
        format!("data: {other}\n\n"),
        format!("event: response.created\ndata: {responses}\n\n"),
        format!("{ollama}\n{ollama}\n"),
    ] {
        let error = fails(p, Reply::sse(body.clone())).await;
        assert_eq!(error.kind, Kind::Configuration, "{body}: {error}");
        says(&error, &[p.name, p.api.as_str()]);
        let Some(ProviderHint::ChangeProvider { provider, .. }) = error.hint.as_deref() else {
            panic!("{:?}", error.hint)
        };
        assert_ne!(provider.as_deref(), Some(p.name), "it is set already");
    }
}

pub(super) async fn nobody_at_the_address(p: &'static Profile) {
    let url = ModelServer::start(Script::new([])).unwrap().url();
    let error = collect(&*provider(at(p.name, &url)).unwrap(), hello()).await.unwrap_err();
    assert_eq!(error.kind, Kind::Connection);
    says(&error, &[p.name, &url]);
    assert_eq!(error.hint.as_deref(), Some(&ProviderHint::CheckServer));
}

pub(super) async fn a_web_page(p: &'static Profile) {
    let error = fails(p, Reply::raw(200, "text/html", "<html>Log in</html>")).await;
    assert_eq!(error.kind, Kind::Configuration);
    says(&error, &[p.name, "web page"]);
    assert_eq!(error.hint.as_deref(), Some(&ProviderHint::CheckBaseUrl));
}

pub(super) async fn a_redirect_is_not_followed(p: &'static Profile) {
    let away = Reply::raw(307, "text/plain", "").header("location", "http://other.example/v1");
    let server = ModelServer::start(Script::new([away])).unwrap();
    let error = collect(&*provider_for(p.name, &server), hello()).await.unwrap_err();
    assert_eq!(error.kind, Kind::Configuration);
    says(&error, &[p.name, "http://other.example/v1"]);
    assert_eq!(
        error.hint.as_deref(),
        Some(&ProviderHint::FollowBaseUrl { to: "http://other.example/v1".into() })
    );
    assert_eq!(server.requests().len(), 1);
}

/// H-LOG-01: whatever a server says, no error holds a key, wherever the key was.
pub(super) async fn no_key_in_any_error(p: &'static Profile) {
    let extra = "x-canary-abcdef";
    let masked = format!("{}****{}", &KEY[..8], &KEY[KEY.len() - 4..]);
    let echo = format!("you sent {KEY} and {extra}, which is {masked} or {}", &KEY[..12]);
    let replies = [
        Reply::error(401, "authentication_error", &echo),
        Reply::error(400, "invalid_request_error", &echo).header("request-id", KEY),
        Reply::error(500, KEY, &echo),
        Reply::raw(502, "text/html", format!("<html>{echo}")),
        Reply::raw(307, "text/plain", "").header("location", format!("http://h/{KEY}?key={KEY}")),
        Reply::text("x").error_after(1, "api_error", &echo),
        Reply::sse(format!("data: {{\"{echo}\n\n")),
        Reply::raw(200, "application/json", format!("{{\"{echo}\": 1}}")),
        Reply::text("x").pace(Pace::Cut(10)),
    ];
    for reply in replies {
        let server = ModelServer::start(Script::new([reply])).unwrap();
        let url = server.url().replace("http://", &format!("http://{KEY}:{KEY}@"));
        let config = at(p.name, &format!("{url}/?key={KEY}")).with_header("x-extra", Secret::new(extra));
        let error = collect(&*provider(config).unwrap(), hello()).await.unwrap_err();
        let mut shown = format!("{error} {error:?}");
        if let Some(source) = &error.source {
            shown.push_str(&format!(" {source} {source:?}"));
        }
        assert!(!shown.contains(KEY) && !shown.contains(extra), "{shown}");
        assert!(!shown.contains(&KEY[..8]) && !shown.contains(&KEY[KEY.len() - 4..]), "{shown}");
    }
}

pub(super) async fn a_dropped_stream_closes_its_socket(p: &'static Profile) {
    let server =
        ModelServer::start(Script::new([Reply::text("long").delta(1).pace(Pace::Stall(300))])).unwrap();
    let provider = provider_for(p.name, &server);
    let mut stream = provider.stream(hello()).await.unwrap();
    assert!(stream.next().await.unwrap().is_ok());
    drop(stream);
    tokio::task::spawn_blocking(move || server.wait_for_abandoned(1)).await.unwrap();
}
