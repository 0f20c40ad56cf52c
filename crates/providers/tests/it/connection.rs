//! Connections: what goes over them and how many there are.

use std::collections::BTreeSet;

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
