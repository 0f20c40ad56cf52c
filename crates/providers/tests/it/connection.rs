//! Connections: what goes over them and how many there are.

use std::collections::BTreeSet;

use open_agent_http::ClientOptions;
use open_agent_model::{Env, ProviderErrorKind as Kind, Secret};
use open_agent_providers::provider;
use open_agent_testkit::server::{ModelServer, Reply, Script};

use crate::support::{KEY, collect, config, hello, provider_for};

fn start(reply: Reply) -> ModelServer {
    ModelServer::start(Script::always(reply)).unwrap()
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
async fn a_key_with_a_line_end_is_sent_without_it_and_not_repeated() {
    let echo = Reply::error(401, "authentication_error", &format!("bad key {KEY}"));
    for name in ["anthropic", "openai"] {
        let server = start(echo.clone());
        let config = config(name, &server).with_key(Secret::new(format!("{KEY}\n")));
        let error = collect(&*provider(config).unwrap(), hello()).await.unwrap_err();
        assert!(error.message.contains("bad key ***"), "{error}");
        let request = &server.requests()[0];
        let sent = [request.header("x-api-key"), request.header("authorization")].concat();
        assert!(sent.ends_with(KEY), "{sent}");
    }
    let server = start(Reply::text("x"));
    let config = config("openai", &server).with_key(Secret::new("sk-canary\nx"));
    let error = provider(config).err().unwrap();
    assert!(error.message.contains("API key") && !error.message.contains("canary"), "{error}");
}

#[tokio::test]
async fn each_provider_keeps_its_connection() {
    let server = start(Reply::text("x"));
    let provider = provider_for("anthropic", &server);
    for _ in 0..3 {
        collect(&*provider, hello()).await.unwrap();
    }
    let other = provider_for("openai", &server);
    for _ in 0..3 {
        collect(&*other, hello()).await.unwrap();
    }
    let ports: BTreeSet<u16> = server.requests().iter().map(|r| r.peer.port()).collect();
    assert_eq!(ports.len(), 2);
}

#[tokio::test]
async fn a_client_can_be_shared_and_a_provider_named() {
    let server = start(Reply::text("x"));
    let client = open_agent_http::client(
        &Env::default(),
        &ClientOptions::for_url(&server.url()).with_user_agent("shared/1"),
    )
    .unwrap();
    for profile in ["anthropic", "openai"] {
        let mut config = config(profile, &server);
        config.client = Some(client.clone());
        config.name = "house model".into();
        let provider = provider(config).unwrap();
        collect(&*provider, hello()).await.unwrap();
    }
    let requests = server.requests();
    assert!(requests.iter().all(|r| r.header("user-agent") == "shared/1"));
    assert_eq!(requests[0].peer, requests[1].peer);
    let refused = start(Reply::error(500, "x", "y"));
    let mut config = config("openai", &refused);
    config.name = "house model".into();
    let error = collect(&*provider(config).unwrap(), hello()).await.unwrap_err();
    assert!(error.message.starts_with("house model: 500"), "{error}");
}

#[tokio::test]
async fn an_answer_without_end_is_ended() {
    let line = format!(": {}\n", "x".repeat(1 << 20));
    let body = line.repeat(65);
    for name in ["anthropic", "openai"] {
        let server = start(Reply::sse(body.clone()));
        let error = collect(&*provider_for(name, &server), hello()).await.unwrap_err();
        assert_eq!(error.kind, open_agent_model::ProviderErrorKind::Protocol);
        assert!(error.message.contains("an answer without end"), "{error}");
    }
}

#[tokio::test]
async fn a_success_that_is_no_answer_names_its_content_type() {
    let text = Reply::raw(200, "text/plain", "Service temporarily overloaded, try later");
    let packed = Reply::sse(&b"\x78\x9c\x01\x02"[..]).header("content-encoding", "deflate");
    for (reply, want) in [
        (text, "content type text/plain: Service temporarily overloaded, try later"),
        (packed, "content type text/event-stream, encoding deflate: bytes that are no text"),
    ] {
        let server = ModelServer::start(Script::new([reply])).unwrap();
        let error = collect(&*provider_for("openai", &server), hello()).await.unwrap_err();
        assert_eq!(error.kind, Kind::Protocol, "{error}");
        assert!(error.message.contains(want), "{error}");
    }
}
