//! The library against a real server with a small real model, through both APIs that it speaks.

use std::sync::{Arc, Mutex};

use futures_util::StreamExt;
use open_agent::model::{ProviderErrorKind, ToolChoice};
use open_agent::{
    AgentBuilder, AgentEvent, AgentOptions, Env, MemoryStore, RunStatus, SessionId, ToolError,
    read_only_tool_fn, tool_fn,
};
use open_agent_testkit::llama::{Llama, Template};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct City {
    /// Which city.
    city: String,
}

fn options(llama: &Llama, provider: &str) -> impl FnOnce(&mut AgentOptions) {
    let url = llama.url();
    let provider = provider.to_owned();
    move |o| {
        o.persist_session = false;
        o.model = Some("smol".into());
        o.provider = Some(provider);
        o.base_url = Some(url);
        o.tools = Some(Vec::new());
        o.system_prompt = Some("You are a helpful assistant.".into());
        o.max_tokens = Some(24);
        o.temperature = Some(0.0);
    }
}

const PROVIDERS: [&str; 2] = ["anthropic", "llama.cpp"];

#[tokio::test]
#[ignore = "needs the peer: cargo xtask peers llama"]
async fn peer_llama_streams_text_through_both_apis() {
    let llama = Llama::start(Template::Own, 4096).unwrap();
    for provider in PROVIDERS {
        let agent =
            AgentBuilder::with_env(Env::default()).configure(options(&llama, provider)).build().unwrap();
        let mut run = agent.stream("Say hello.");
        let (mut text, mut pieces) = (String::new(), 0);
        while let Some(envelope) = run.next().await {
            if let AgentEvent::BlockDelta(delta) = envelope.event {
                text.push_str(&delta.text);
                pieces += 1;
            }
        }
        let result = run.result().await.unwrap();
        assert!(!text.is_empty() && pieces >= 1, "{provider}: {pieces} pieces of {text:?}");
        assert!(result.usage.output_tokens > 0, "{provider}: {:?}", result.usage);
        // It is cut at 24 tokens and continued three times, or it was short.
        let cut = result.errors.iter().any(|e| e.contains("output limit"));
        assert!(result.is_success() || cut, "{provider}: {:?} {:?}", result.status, result.errors);
        let next = agent.prompt("And again.").await.unwrap();
        assert!(
            next.is_success() || next.errors.iter().any(|e| e.contains("output limit")),
            "{:?}",
            next.errors
        );
    }
}

#[tokio::test]
#[ignore = "needs the peer: cargo xtask peers llama"]
async fn peer_llama_a_forced_call_runs_a_real_tool_through_both_apis() {
    let llama = Llama::start(Template::Functionary, 4096).unwrap();
    for provider in PROVIDERS {
        let called: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&called);
        let weather = tool_fn("get_weather", "The weather of a city.", move |input: City, _| {
            let seen = Arc::clone(&seen);
            async move {
                seen.lock().unwrap().push(input.city);
                Ok::<_, ToolError>("Sunny.")
            }
        });
        let agent = AgentBuilder::with_env(Env::default())
            .configure(options(&llama, provider))
            .tool(weather)
            .configure(|o| {
                o.tools = Some(vec!["get_weather".into()]);
                o.allowed_tools = vec!["get_weather".into()];
                o.tool_choice = ToolChoice::Any;
                o.max_tokens = Some(100);
                // With this template the server answers nothing but forced calls.
                o.max_turns = Some(1);
            })
            .build()
            .unwrap();
        let result = agent.prompt("What is the weather in Paris?").await.unwrap();
        assert_eq!(result.status, RunStatus::ErrorMaxTurns, "{provider}: {:?}", result.errors);
        let cities = called.lock().unwrap().clone();
        assert!(cities.iter().any(|c| c.contains("Paris")), "{provider}: called with {cities:?}");
        let last = result.messages.last().unwrap();
        assert!(format!("{last:?}").contains("Sunny."), "{provider}: {last:?}");
    }
}

/// The conversation of a forced call goes on at a server with another template, which has to take the call and its result.
#[tokio::test]
#[ignore = "needs the peer: cargo xtask peers llama"]
async fn peer_llama_takes_a_call_and_its_result_through_both_apis() {
    let (forcing, own) =
        (Llama::start(Template::Functionary, 4096).unwrap(), Llama::start(Template::Own, 4096).unwrap());
    for provider in PROVIDERS {
        let store = MemoryStore::new();
        let id = SessionId::new("s").unwrap();
        let agent = |llama: &Llama| {
            let weather = read_only_tool_fn("get_weather", "The weather of a city.", |_: City, _| async {
                Ok("Sunny.")
            });
            AgentBuilder::with_env(Env::default())
                .configure(options(llama, provider))
                .tool(weather)
                .session_store(store.clone())
                .configure(|o| {
                    o.tools = Some(vec!["get_weather".into()]);
                    o.session_id = Some(id.clone());
                })
        };
        let force = |o: &mut AgentOptions| {
            o.tool_choice = ToolChoice::Any;
            o.max_tokens = Some(100);
            o.max_turns = Some(1);
        };
        let first = agent(&forcing).configure(force).build().unwrap();
        let called = first.prompt("What is the weather in Paris?").await.unwrap();
        assert_eq!(called.status, RunStatus::ErrorMaxTurns, "{provider}: {:?}", called.errors);
        drop(first);
        let second = agent(&own).build().unwrap().prompt("So what is it like?").await.unwrap();
        let cut = second.errors.iter().any(|e| e.contains("output limit"));
        assert!(second.is_success() || cut, "{provider}: {:?}", second.errors);
        assert!(!second.text.is_empty(), "{provider}");
    }
}

#[tokio::test]
#[ignore = "needs the peer: cargo xtask peers llama"]
async fn peer_llama_says_when_its_window_is_full_through_both_apis() {
    let llama = Llama::start(Template::Own, 512).unwrap();
    for provider in PROVIDERS {
        let agent =
            AgentBuilder::with_env(Env::default()).configure(options(&llama, provider)).build().unwrap();
        let run = agent.stream_messages("word ".repeat(2_000));
        let events: Vec<AgentEvent> = run.map(|e| e.event).collect().await;
        let kinds: Vec<ProviderErrorKind> = events
            .iter()
            .filter_map(|e| match e {
                AgentEvent::ModelFailed(failed) => {
                    failed.error.as_ref().and_then(|e| e.kind.known().copied())
                }
                _ => None,
            })
            .collect();
        assert_eq!(kinds, [ProviderErrorKind::ContextOverflow], "{provider}: told once, not tried again");
    }
}

#[tokio::test]
#[ignore = "needs the peer: cargo xtask peers llama"]
async fn peer_llama_stops_working_when_it_is_interrupted_through_both_apis() {
    let llama = Llama::start(Template::Own, 4096).unwrap();
    for provider in PROVIDERS {
        let agent = AgentBuilder::with_env(Env::default())
            .configure(options(&llama, provider))
            .configure(|o| o.max_tokens = Some(3_000))
            .build()
            .unwrap();
        let mut run = agent.stream("Count from one to one thousand, in words, one number a line.");
        while let Some(envelope) = run.next().await {
            if let AgentEvent::BlockDelta(_) = envelope.event {
                break;
            }
        }
        assert!(agent.interrupt());
        let result = run.result().await.unwrap();
        assert!(result.is_cancelled(), "{provider}: {:?}", result.status);
        assert!(!result.text.is_empty(), "{provider}: what came is kept");
        // It notices within a moment that nobody listens; the whole answer would take a minute.
        let mut busy = true;
        for _ in 0..100 {
            busy = llama.ask("GET", "/slots", "").unwrap().contains("\"is_processing\":true");
            if !busy {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        assert!(!busy, "{provider}: the server still works on the answer");
    }
}
