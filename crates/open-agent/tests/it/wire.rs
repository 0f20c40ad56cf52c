//! The library against the scripted model server: what only shows over HTTP.

use std::time::Duration;

use open_agent::{AgentBuilder, AgentError, AgentOptions, Env, RunStatus, SessionId};
use open_agent_testkit::server::{ModelServer, Pace, Recorded, Reply, Script};
use serde_json::{Value, json};

fn builder(url: &str, change: impl FnOnce(&mut AgentOptions)) -> AgentBuilder {
    AgentBuilder::with_env(Env::default()).configure(|o| o.base_url = Some(url.to_owned())).configure(change)
}

/// The messages of the model that call tools, as they came back.
fn calling(request: &Recorded) -> Vec<Value> {
    let messages = request.body["messages"].as_array().unwrap();
    messages.iter().filter(|m| m["role"] == "assistant" && m.get("tool_calls").is_some()).cloned().collect()
}

/// Three calls with thinking, then the answer; refuses what the profile's server would refuse.
fn thinking_server(wants_thinking: bool) -> ModelServer {
    let reply = move |_: usize, request: &Recorded| {
        let calls = calling(request);
        let wrong = calls.iter().any(|m| m.get("reasoning_content").is_some() != wants_thinking);
        if wrong {
            let text = "The reasoning_content in the thinking mode must be passed back to the API.";
            return Reply::error(400, "invalid_request_error", text);
        }
        match calls.len() {
            3 => Reply::text("done"),
            _ => Reply::answer().and_thinking("Let me look.", "").and_tool("Glob", json!({ "pattern": "*" })),
        }
    };
    ModelServer::start(Script::from_fn(reply)).unwrap()
}

#[tokio::test]
async fn tokens_are_counted_by_who_can_and_estimated_elsewhere() {
    let server = ModelServer::start(Script::always(Reply::text("Hello!"))).unwrap();
    for (provider, model, estimated) in [("anthropic", "claude-haiku-4-5", false), ("openai", "gpt-5", true)]
    {
        let set = |o: &mut AgentOptions| {
            (o.provider, o.model) = (Some(provider.into()), Some(model.into()));
            o.persist_session = false;
        };
        let agent = builder(&server.url(), set).build().unwrap();
        let short = agent.count_tokens("Hi").await.unwrap();
        let long = agent.count_tokens("Hi ".repeat(3_000)).await.unwrap();
        assert_eq!((short.estimated, long.estimated), (estimated, estimated));
        assert!(long.input_tokens > short.input_tokens + 1_000, "{short:?} {long:?}");
        agent.prompt("Hi ".repeat(3_000)).await.unwrap();
        let after = agent.count_tokens("Hi").await.unwrap();
        assert!(after.input_tokens > short.input_tokens + 1_000, "the conversation counts too: {after:?}");
        let last = server.requests().pop().unwrap();
        assert_eq!(last.path.ends_with("/count_tokens"), !estimated);
        assert!(matches!(agent.count_tokens(" ").await, Err(AgentError::Engine(_))));
    }
    assert_eq!(server.violations(), [""; 0]);
}

#[tokio::test]
async fn h_prv_03_thinking_goes_back_over_a_chain_of_calls_and_from_disk() {
    for (provider, model, wants) in [("deepseek", "deepseek-reasoner", true), ("openai", "gpt-5", false)] {
        let server = thinking_server(wants);
        let home = tempfile::tempdir().unwrap();
        let agent = || {
            let set = |o: &mut AgentOptions| {
                (o.provider, o.model) = (Some(provider.into()), Some(model.into()));
                o.sessions_dir = Some(home.path().to_owned());
                o.session_id = Some(SessionId::new("s").unwrap());
                o.cwd = Some(home.path().to_owned());
            };
            builder(&server.url(), set).build().unwrap()
        };
        let first = agent().prompt("Look three times.").await.unwrap();
        assert_eq!(first.status, RunStatus::Success, "{provider}: {:?}", first.errors);
        // Another agent, which knows the conversation from disk only.
        let second = agent().prompt("And?").await.unwrap();
        assert_eq!(second.status, RunStatus::Success, "{provider}: {:?}", second.errors);
        let last = server.requests().pop().unwrap();
        assert_eq!(calling(&last).len(), 3);
        assert_eq!(server.violations(), [""; 0]);
    }
}

#[tokio::test]
async fn h_int_03_an_interrupt_while_it_connects_ends_the_run() {
    // Takes connections and never says a word.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let agent = builder(&url, |o| o.persist_session = false).build().unwrap();
    let run = agent.stream_messages("x");
    let (_silent, _) = listener.accept().await.unwrap();
    assert!(agent.interrupt());
    assert!(run.result().await.unwrap().is_cancelled());
    assert!(!agent.interrupt(), "there is nothing to interrupt any more, and it says so");
}

#[tokio::test]
async fn h_int_03_an_interrupt_before_the_run_begins_is_not_lost() {
    let server = ModelServer::start(Script::always(Reply::text("never asked"))).unwrap();
    let agent = builder(&server.url(), |o| o.persist_session = false).build().unwrap();
    let run = agent.stream_messages("x");
    run.interrupt();
    assert!(run.result().await.unwrap().is_cancelled());
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn h_str_01_characters_cut_in_two_escapes_are_whole_in_files() {
    let folder = tempfile::tempdir().unwrap();
    let fragment = |text: &str| {
        format!(
            "data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{{\"index\":0,\"function\":{{\"arguments\":{text}}}}}]}}}}]}}\n\n"
        )
    };
    let call = [
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{\"name\":\"Write\",\"arguments\":\"\"}}]}}]}\n\n".to_owned(),
        fragment(r#""{\"file_path\":\"f\",\"content\":\"a""#),
        fragment(r#""X\ud83d""#),
        fragment(r#""\ude00Y""#),
        fragment(r#""b\"}""#),
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n".to_owned(),
    ];
    let server = ModelServer::start(Script::new([Reply::sse(call.concat()), Reply::text("ok")])).unwrap();
    let set = |o: &mut AgentOptions| {
        (o.provider, o.model) = (Some("generic".into()), Some("m".into()));
        (o.cwd, o.persist_session) = (Some(folder.path().to_owned()), false);
        o.allowed_tools = vec!["Write".into()];
    };
    let result = builder(&server.url(), set).build().unwrap().prompt("x").await.unwrap();
    assert!(result.is_success(), "{:?}", result.errors);
    assert_eq!(std::fs::read_to_string(folder.path().join("f")).unwrap(), "aX😀Yb");
}

#[tokio::test]
async fn an_answer_that_is_whole_is_kept_whatever_happens_to_the_connection() {
    let body = "data: {\"choices\":[{\"delta\":{\"content\":\"whole\"},\"finish_reason\":\"stop\"}]}\n\n";
    // The rest never comes: the connection breaks, or stays silent.
    let broken = Reply::sse(format!("{body}data: [DONE]\n\n")).pace(Pace::Cut(body.len()));
    let silent = Reply::sse(format!("{body}data: [DONE]\n\n")).pace(Pace::Stall(body.len()));
    for reply in [broken, silent] {
        let server = ModelServer::start(Script::new([reply])).unwrap();
        let set = |o: &mut AgentOptions| {
            (o.provider, o.model) = (Some("generic".into()), Some("m".into()));
            o.persist_session = false;
            o.idle_timeout = Duration::from_millis(200);
        };
        let result = builder(&server.url(), set).build().unwrap().prompt("x").await.unwrap();
        assert_eq!((result.text.as_str(), result.model_calls), ("whole", 1), "{:?}", result.errors);
    }
}

#[tokio::test]
async fn h_out_02_a_finish_reason_that_means_failure_is_one() {
    for reason in ["error", "abort"] {
        let body = format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\":\"half\"}},\"finish_reason\":\"{reason}\"}}]}}\n\ndata: [DONE]\n\n"
        );
        let server = ModelServer::start(Script::always(Reply::sse(body))).unwrap();
        let set = |o: &mut AgentOptions| {
            (o.provider, o.model) = (Some("generic".into()), Some("m".into()));
            o.persist_session = false;
            o.retry.max_retries = 0;
        };
        let result = builder(&server.url(), set).build().unwrap().prompt("x").await.unwrap();
        assert_eq!((result.status, result.text.as_str()), (RunStatus::ErrorDuringExecution, "half"));
    }
}
