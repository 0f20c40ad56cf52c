//! aimock, which answers as its fixtures say.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use open_agent::Block;
use open_agent::model::ProviderErrorKind::{Connection, Overloaded, Protocol, RateLimited, Server, Timeout};
use open_agent_testkit::mocks::Aimock;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Outcome, PROVIDERS, options, prompt, with_tool};

const LONG: &str = "This answer is long enough to be cut somewhere in the middle.";

struct Mock {
    server: Aimock,
    _folder: TempDir,
}

impl Mock {
    fn start(fixtures: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file: PathBuf = folder.path().join("fixtures.json");
        std::fs::write(&file, json!({ "fixtures": fixtures }).to_string()).unwrap();
        Self { server: Aimock::start(&file).unwrap(), _folder: folder }
    }

    async fn ask(&self, provider: &str, text: &str) -> Outcome {
        prompt(options(provider, &self.url(provider)), text).await
    }

    fn url(&self, provider: &str) -> String {
        let path = if provider == "anthropic" { "" } else { "/v1" };
        format!("{}{path}", self.server.url())
    }
}

/// What `text` is answered with, and with what goes wrong then.
fn fixture(text: &str, response: &Value, more: &Value) -> Value {
    let mut fixture = json!({ "match": { "userMessage": text }, "response": response });
    for (key, value) in more.as_object().unwrap() {
        fixture[key] = value.clone();
    }
    fixture
}

fn error(status: u16, kind: &str) -> Value {
    json!({ "error": { "message": "not now", "type": kind }, "status": status })
}

#[tokio::test]
#[ignore = "needs the peer: cargo xtask peers aimock"]
async fn peer_aimock_text_thinking_and_tools_work_through_both_apis() {
    let call = json!({ "toolCalls": [{ "name": "get_weather", "arguments": "{\"city\":\"Paris\"}" }] });
    let mixed = json!({ "blocks": [
        { "type": "toolCall", "name": "get_weather", "arguments": "{\"city\":\"Rome\"}" },
        { "type": "text", "text": "And I say why." },
        { "type": "toolCall", "name": "get_weather", "arguments": "{\"city\":\"Oslo\"}" },
    ]});
    let round = |text: &str, first: &Value| {
        [(false, first.clone()), (true, json!({ "content": "It is sunny." }))].map(|(has, response)| {
            json!({ "match": { "userMessage": text, "hasToolResult": has }, "response": response })
        })
    };
    let mut fixtures = vec![
        fixture("hello", &json!({ "content": LONG }), &json!({ "chunkSize": 5 })),
        fixture("think", &json!({ "content": "Four.", "reasoning": "Two and two." }), &json!({})),
    ];
    fixtures.extend(round("weather", &call));
    fixtures.extend(round("mixed", &mixed));
    let mock = Mock::start(&json!(fixtures));
    for provider in PROVIDERS {
        let text = mock.ask(provider, "hello").await;
        assert!(text.is_success_after(&[]) && text.result.text == LONG, "{provider}: {text}");
        assert!(text.pieces > 0, "{provider}: nothing was streamed");

        let thought = mock.ask(provider, "think").await;
        assert!(thought.is_success_after(&[]) && thought.result.text == "Four.", "{provider}: {thought}");
        let content = &thought.result.messages.last().unwrap().content;
        let thinks = |b: &Block| matches!(b, Block::Thinking(t) if t.text == "Two and two.");
        assert!(content.iter().any(thinks), "{provider}: {content:?}");

        for (text, cities) in [("weather", vec!["Paris"]), ("mixed", vec!["Rome", "Oslo"])] {
            let loops = prompt(with_tool(options(provider, &mock.url(provider))), text).await;
            assert!(loops.is_success_after(&[]), "{provider} {text}: {loops}");
            assert_eq!(loops.result.text, "It is sunny.", "{provider} {text}");
            assert_eq!(loops.cities, cities, "{provider} {text}");
        }
    }
}

#[tokio::test]
#[ignore = "needs the peer: cargo xtask peers aimock"]
async fn peer_aimock_faults_that_stay_are_typed_failures() {
    let answer = json!({ "content": LONG });
    let slowly = |more: Value| {
        let mut all = json!({ "latency": 20, "chunkSize": 4 });
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    let none = json!({});
    let mock = Mock::start(&json!([
        fixture("overloaded", &error(529, "overloaded_error"), &none),
        fixture("ratelimit", &error(429, "rate_limit_error"), &json!({})),
        fixture("broken", &error(500, "api_error"), &none),
        fixture("hang up", &answer, &slowly(json!({ "disconnectAfterMs": 70 }))),
        fixture("cut", &answer, &slowly(json!({ "truncateAfterChunks": 4 }))),
        fixture("silent", &answer, &json!({ "latency": 5000 })),
        fixture("chaos: lost", &answer, &json!({ "chaos": { "dropRate": 1 } })),
        fixture("chaos: garbage", &answer, &json!({ "chaos": { "malformedRate": 1 } })),
        fixture("chaos: too many", &answer, &json!({ "chaos": { "rateLimitRate": 1 } })),
        fixture("chaos: gone", &answer, &json!({ "chaos": { "disconnectRate": 1 } })),
    ]));
    for provider in PROVIDERS {
        for (text, kind) in [
            ("overloaded", Overloaded),
            ("ratelimit", RateLimited),
            ("broken", Server),
            ("hang up", Connection),
            ("cut", Connection),
            ("silent", Timeout),
            ("chaos: lost", Server),
            ("chaos: garbage", Protocol),
            ("chaos: too many", RateLimited),
            ("chaos: gone", Connection),
        ] {
            let outcome = mock.ask(provider, text).await;
            assert!(outcome.failed_with(kind, 3), "{provider} {text}: {outcome}");
        }
    }
}

#[tokio::test]
#[ignore = "needs the peer: cargo xtask peers aimock"]
async fn peer_aimock_faults_that_pass_are_waited_out() {
    let once = |text: &str, response: &Value, more: &Value| {
        let mut first = fixture(text, response, more);
        first["match"]["sequenceIndex"] = json!(0);
        [first, fixture(text, &json!({ "content": LONG }), &json!({}))]
    };
    let long = json!({ "content": LONG });
    for provider in PROVIDERS {
        let fixtures: Vec<Value> = [
            once("overloaded", &error(529, "overloaded_error"), &json!({})),
            once("ratelimit", &error(429, "rate_limit_error"), &json!({})),
            once("hang up", &long, &json!({ "latency": 20, "chunkSize": 4, "disconnectAfterMs": 70 })),
            once("slow", &long, &json!({ "latency": 100, "chunkSize": 4 })),
        ]
        .into_iter()
        .flatten()
        .collect();
        // It counts for all APIs together how often a fixture was used.
        let mock = Mock::start(&json!(fixtures));
        for (text, failures, at_least) in [
            ("overloaded", &[Overloaded][..], 0),
            // It asks for a second.
            ("ratelimit", &[RateLimited], 1_000),
            ("hang up", &[Connection], 0),
            // Longer in all than it may be silent.
            ("slow", &[], 1_000),
        ] {
            let began = Instant::now();
            let outcome = mock.ask(provider, text).await;
            assert!(outcome.is_success_after(failures), "{provider} {text}: {outcome}");
            assert_eq!(outcome.result.text, LONG, "{provider} {text}");
            assert!(began.elapsed() >= Duration::from_millis(at_least), "{provider} {text}: too early");
        }
    }
}
