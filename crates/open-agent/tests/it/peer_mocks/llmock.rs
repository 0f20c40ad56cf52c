//! llmock, which in the end judges how we took its faults.

use std::time::{Duration, Instant};

use open_agent::model::ProviderErrorKind::{
    Authentication, Connection, ContextOverflow, InvalidRequest, NotFound, Overloaded, Protocol, RateLimited,
    Server, Timeout,
};
use open_agent_testkit::mocks::Llmock;
use serde_json::Value;

use super::{Outcome, PROVIDERS, options, prompt, with_tool};

/// So that a client that hangs up is noticed before the stream's end: what comes to its end counts as accepted, and the
/// next request as none that has to do with it.
const SLOWLY: &[&str] = &["--stream-chunk-delay-ms", "20"];

fn url(mock: &Llmock, provider: &str) -> String {
    mock.url(if provider == "anthropic" { "anthropic" } else { "v1" })
}

/// How many requests there were; panics if anything at all is to be said against how they were made.
fn clean_attempts(mock: &Llmock, what: &str) -> u64 {
    let verdict: Value = serde_json::from_str(&mock.verdict().unwrap()).unwrap();
    assert!(verdict["passed"] == true && verdict["warnings"] == 0, "{what}: {verdict:#}");
    verdict["attempts"].as_u64().unwrap()
}

async fn ask(mock: &Llmock, provider: &str, behaviors: &str) -> Outcome {
    mock.behave(behaviors).unwrap();
    prompt(options(provider, &url(mock, provider)), "Say hello.").await
}

async fn ask_for_weather(mock: &Llmock, provider: &str, behaviors: &str) -> Outcome {
    mock.behave(behaviors).unwrap();
    prompt(with_tool(options(provider, &url(mock, provider))), "What is the weather?").await
}

#[tokio::test]
#[ignore = "needs the peer: cargo xtask peers llmock"]
async fn peer_llmock_text_and_tools_work_through_both_apis() {
    let mock = Llmock::start(&[]).unwrap();
    for provider in PROVIDERS {
        let text = ask(&mock, provider, "").await;
        assert!(text.is_success_after(&[]) && text.pieces > 0, "{provider}: {text}");
        let usage = text.result.usage;
        assert!(usage.all_input() > 0 && usage.output_tokens > 0, "{provider}: {usage:?}");
        assert_eq!(clean_attempts(&mock, provider), 1);

        let loops = ask_for_weather(&mock, provider, "").await;
        assert!(loops.is_success_after(&[]), "{provider}: {loops}");
        assert_eq!(loops.cities, ["mock-city"], "{provider}");
        assert_eq!((loops.result.turns, clean_attempts(&mock, provider)), (2, 2));
    }
}

#[tokio::test]
#[ignore = "needs the peer: cargo xtask peers llmock"]
async fn peer_llmock_refusals_that_pass_are_waited_out() {
    let mock = Llmock::start(&[]).unwrap();
    for provider in PROVIDERS {
        for (behaviors, kinds, at_least) in [
            (r#"[{"type":"fail","status":429,"retry_after":1,"times":2}]"#, [RateLimited; 2], 2_000),
            (r#"[{"type":"fail","status":429,"retry_after":0.3,"times":2}]"#, [RateLimited; 2], 600),
            (r#"[{"type":"fail","status":529,"times":2}]"#, [Overloaded; 2], 0),
            (r#"[{"type":"fail","status":500,"times":2}]"#, [Server; 2], 0),
            (r#"[{"type":"fail","status":503,"times":2}]"#, [Overloaded; 2], 0),
        ] {
            let began = Instant::now();
            let outcome = ask(&mock, provider, behaviors).await;
            assert!(outcome.is_success_after(&kinds), "{provider} {behaviors}: {outcome}");
            assert!(began.elapsed() >= Duration::from_millis(at_least), "{provider} {behaviors}: too early");
            assert_eq!(clean_attempts(&mock, behaviors), 3);
        }
    }
}

#[tokio::test]
#[ignore = "needs the peer: cargo xtask peers llmock"]
async fn peer_llmock_refusals_that_stay_are_typed_failures() {
    let mock = Llmock::start(&[]).unwrap();
    for provider in PROVIDERS {
        for (status, kind, attempts) in [
            (429, RateLimited, 3),
            (529, Overloaded, 3),
            (500, Server, 3),
            (400, InvalidRequest, 1),
            (401, Authentication, 1),
            (403, Authentication, 1),
            (404, NotFound, 1),
        ] {
            let behaviors =
                format!(r#"[{{"type":"fail","status":{status},"retry_after":0.05,"times":null}}]"#);
            let outcome = ask(&mock, provider, &behaviors).await;
            assert!(outcome.failed_with(kind, attempts), "{provider} {status}: {outcome}");
            assert_eq!(clean_attempts(&mock, &behaviors), attempts as u64, "{provider} {status}");
        }
        // Longer than we are ready to wait: said at once. llmock wants to see one attempt more, whatever was asked for.
        let outcome = ask(&mock, provider, r#"[{"type":"fail","status":429,"retry_after":3000}]"#).await;
        assert!(outcome.failed_with(RateLimited, 1), "{provider}: {outcome}");
        assert!(outcome.result.errors[0].contains("3000 s"), "{provider}: {outcome}");
    }
}

#[tokio::test]
#[ignore = "needs the peer: cargo xtask peers llmock"]
async fn peer_llmock_broken_streams_are_asked_for_again() {
    let mock = Llmock::start(SLOWLY).unwrap();
    for provider in PROVIDERS {
        for (kind, failure) in [
            ("disconnect", Connection),
            ("truncate", Connection),
            ("malformed", Protocol),
            ("stall", Timeout),
        ] {
            for after in [0, 1, 3] {
                let fault = |times: &str| {
                    format!(
                        r#"[{{"type":"stream_fault","kind":"{kind}","after_chunks":{after},"stall_seconds":20,"times":{times}}}]"#
                    )
                };
                let what = format!("{provider} {kind} after {after}");
                let once = ask(&mock, provider, &fault("1")).await;
                assert!(once.is_success_after(&[failure]), "{what}: {once}");
                assert_eq!(clean_attempts(&mock, &what), 2);
                if after == 3 {
                    let always = ask(&mock, provider, &fault("null")).await;
                    assert!(always.failed_with(failure, 3), "{what}: {always}");
                }
            }
        }
    }
}

#[tokio::test]
#[ignore = "needs the peer: cargo xtask peers llmock"]
async fn peer_llmock_slow_answers_are_waited_for() {
    let mock = Llmock::start(&["--stream-chunk-delay-ms", "60"]).unwrap();
    for provider in PROVIDERS {
        for behaviors in [
            // The whole takes longer than anything may be silent.
            "",
            r#"[{"type":"delay","seconds":0.3}]"#,
            r#"[{"type":"slow_first_token","seconds":0.3}]"#,
        ] {
            let outcome = ask(&mock, provider, behaviors).await;
            assert!(outcome.is_success_after(&[]), "{provider} {behaviors}: {outcome}");
            assert_eq!(clean_attempts(&mock, behaviors), 1);
        }
        for behaviors in [
            r#"[{"type":"delay","seconds":3,"times":1}]"#,
            r#"[{"type":"slow_first_token","seconds":3,"times":1}]"#,
        ] {
            let outcome = ask(&mock, provider, behaviors).await;
            assert!(outcome.is_success_after(&[Timeout]), "{provider} {behaviors}: {outcome}");
        }
    }
}

#[tokio::test]
#[ignore = "needs the peer: cargo xtask peers llmock"]
async fn peer_llmock_broken_calls_are_answered_and_the_loop_goes_on() {
    let mock = Llmock::start(SLOWLY).unwrap();
    for provider in PROVIDERS {
        for (kind, said) in [("malformed_arguments", "get_weather"), ("unknown_tool", "get_weather")] {
            let behaviors = format!(r#"[{{"type":"tool_fault","kind":"{kind}"}}]"#);
            let outcome = ask_for_weather(&mock, provider, &behaviors).await;
            assert!(outcome.is_success_after(&[]), "{provider} {kind}: {outcome}");
            assert!(outcome.cities.is_empty(), "{provider} {kind}: ran with {:?}", outcome.cities);
            let result = format!("{:?}", outcome.result.messages[2].content);
            assert!(
                result.contains("is_error: true") && result.contains(said),
                "{provider} {kind}: {result}"
            );
            assert_eq!(clean_attempts(&mock, kind), 2);
        }
        // A call that is broken off is asked for again, and runs once.
        for kind in ["disconnect", "truncate", "malformed"] {
            let behaviors = format!(r#"[{{"type":"stream_fault","kind":"{kind}","after_chunks":3}}]"#);
            let outcome = ask_for_weather(&mock, provider, &behaviors).await;
            assert!(outcome.result.is_success(), "{provider} {kind}: {outcome}");
            assert_eq!(outcome.cities, ["mock-city"], "{provider} {kind}");
            assert_eq!(clean_attempts(&mock, kind), 3, "{provider} {kind}");
        }
    }
}

#[tokio::test]
#[ignore = "needs the peer: cargo xtask peers llmock"]
async fn peer_llmock_a_full_window_and_a_used_up_quota_are_named() {
    let small = Llmock::start(&["--context-window", "20"]).unwrap();
    let few = Llmock::start(&["--rpm", "1"]).unwrap();
    for provider in PROVIDERS {
        let long = "word ".repeat(200);
        let outcome = prompt(options(provider, &url(&small, provider)), &long).await;
        assert!(outcome.failed_with(ContextOverflow, 1), "{provider}: {outcome}");

        let mut options = options(provider, &url(&few, provider));
        options.retry.max_server_delay = Duration::from_secs(1);
        options.api_key = Some(open_agent::Secret::new(provider));
        assert!(prompt(options.clone(), "Say hello.").await.is_success_after(&[]), "{provider}");
        let refused = prompt(options, "Say hello.").await;
        assert!(refused.failed_with(RateLimited, 1), "{provider}: {refused}");
        assert!(
            refused.result.errors[0].contains("the longest wait allowed is 1 s"),
            "{provider}: {refused}"
        );
    }
}
