//! Messages that are sent while a run goes on: when the model sees them, in which order, and what survives.

use std::path::Path;
use std::sync::{Arc, Mutex};

use open_agent::engine::EngineError;
use open_agent::model::{Block, Role};
use open_agent::testing::{Reply, Scripted};
use open_agent::{
    Agent, AgentBuilder, AgentError, AgentOptions, Cost, Env, PermissionMode, RunStatus, SessionId, tool_fn,
};
use open_agent_testkit::server::{ModelServer, Recorded, Reply as ServerReply, Script};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

/// A tool that says when it has begun and ends when it is let go.
struct Hold {
    tool: Arc<dyn open_agent::tool::DynTool>,
    begun: mpsc::UnboundedReceiver<()>,
    go: Arc<Semaphore>,
}

fn hold() -> Hold {
    let (say, begun) = mpsc::unbounded_channel();
    let go = Arc::new(Semaphore::new(0));
    let wait = Arc::clone(&go);
    let tool = tool_fn("hold", "Waits.", move |_: Nothing, cx| {
        let (say, wait) = (say.clone(), Arc::clone(&wait));
        async move {
            let _ = say.send(());
            tokio::select! {
                permit = wait.acquire() => permit?.forget(),
                () = cx.cancel().cancelled() => {}
            }
            Ok("held")
        }
    });
    Hold { tool, begun, go }
}

fn builder(hold: &Hold, change: impl FnOnce(&mut AgentOptions)) -> AgentBuilder {
    AgentBuilder::with_env(Env::default())
        .tool(Arc::clone(&hold.tool))
        .permission_mode(PermissionMode::BypassPermissions)
        .configure(|o| o.persist_session = false)
        .configure(change)
}

fn scripted(hold: &Hold, model: &Scripted) -> Agent {
    builder(hold, |_| {}).provider(model.clone()).build().unwrap()
}

fn kept(folder: &Path) -> impl FnOnce(&mut AgentOptions) {
    |o| {
        o.persist_session = true;
        o.sessions_dir = Some(folder.to_owned());
        o.session_id = Some(SessionId::new("s").unwrap());
    }
}

/// What users say in a request of the scripted model, in order.
fn told(model: &Scripted, request: usize) -> Vec<String> {
    let requests = model.requests();
    let users = requests[request].messages.iter().filter(|m| m.role == Role::User);
    let texts = users.flat_map(|m| &m.content).filter_map(|b| match b {
        Block::Text(text) => Some(text.clone()),
        _ => None,
    });
    texts.collect()
}

fn content_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks.iter().map(|b| b["text"].as_str().unwrap_or_default()).collect(),
        _ => String::new(),
    }
}

/// What follows the last answer in a request of either API: results in brackets, and texts.
fn after_answer(request: &Recorded) -> Vec<String> {
    let messages = request.body["messages"].as_array().unwrap();
    let last = messages.iter().rposition(|m| m["role"] == "assistant").unwrap();
    let mut all = Vec::new();
    for message in &messages[last + 1..] {
        match (&message["role"], &message["content"]) {
            (role, content) if role == "tool" => all.push(format!("[{}]", content_text(content))),
            (_, Value::Array(blocks)) => {
                all.extend(blocks.iter().map(|block| match block.get("tool_use_id") {
                    Some(_) => format!("[{}]", content_text(&block["content"])),
                    None => block["text"].as_str().unwrap().to_owned(),
                }))
            }
            (_, content) => {
                all.extend(content_text(content).lines().filter(|l| !l.is_empty()).map(String::from))
            }
        }
    }
    all
}

fn is_not_queued(result: &Result<(), AgentError>) -> bool {
    matches!(result, Err(AgentError::Engine(EngineError::NotQueued(_))))
}

#[tokio::test]
async fn on_both_apis_the_next_request_carries_what_was_sent_after_the_results_and_in_order() {
    for (provider, model) in [("anthropic", "claude-haiku-4-5"), ("openai", "gpt-5")] {
        let mut hold = hold();
        let twice = ServerReply::tool("hold", json!({})).and_tool("hold", json!({}));
        let server = ModelServer::start(Script::new([twice, ServerReply::text("done")])).unwrap();
        let set = |o: &mut AgentOptions| {
            (o.provider, o.model) = (Some(provider.into()), Some(model.into()));
            o.base_url = Some(server.url());
        };
        let agent = builder(&hold, set).build().unwrap();
        let run = agent.stream_messages("go");
        hold.begun.recv().await.unwrap();
        let mut last = None;
        for text in ["first", "second", "third"] {
            let sent = agent.send(text).await.unwrap();
            assert!(Some(sent.seq) > last, "each has a record of its own");
            last = Some(sent.seq);
        }
        hold.go.add_permits(2);
        let result = run.result().await.unwrap();
        assert_eq!(
            (result.status, result.text.as_str()),
            (RunStatus::Success, "done"),
            "{:?}",
            result.errors
        );
        let requests = server.requests();
        assert_eq!(requests.len(), 2, "{provider}");
        assert_eq!(
            after_answer(&requests[1]),
            ["[held]", "[held]", "first", "second", "third"],
            "{provider}"
        );
        assert_eq!(server.violations(), [""; 0]);
    }
}

#[tokio::test]
async fn what_is_queued_starts_the_next_run_whose_result_the_caller_gets() {
    let mut hold = hold();
    let model = Scripted::new([Reply::call("hold", "{}"), Reply::text("one"), Reply::text("two")]);
    let agent = scripted(&hold, &model);
    let run = agent.stream_messages("go");
    hold.begun.recv().await.unwrap();
    agent.queue("later").await.unwrap();
    agent.queue("and later still").await.unwrap();
    agent.send("now").await.unwrap();
    hold.go.add_permits(1);
    let result = run.result().await.unwrap();
    assert_eq!((result.status, result.text.as_str()), (RunStatus::Success, "two"));
    assert_eq!(told(&model, 1), ["go", "now"]);
    assert_eq!(told(&model, 2), ["go", "now", "later", "and later still"]);
    assert_eq!(model.requests().len(), 3, "one run for all that waited");
}

#[tokio::test]
async fn a_message_is_taken_back_once_and_not_after_it_was_delivered() {
    let mut hold = hold();
    let model = Scripted::new([Reply::call("hold", "{}"), Reply::text("ok")]);
    let agent = scripted(&hold, &model);
    let run = agent.stream_messages("go");
    hold.begun.recv().await.unwrap();
    let (first, second) = (agent.send("first").await.unwrap(), agent.send("second").await.unwrap());
    let third = agent.queue("third").await.unwrap();
    agent.unqueue(first.id).await.unwrap();
    agent.unqueue(third.id).await.unwrap();
    assert!(is_not_queued(&agent.unqueue(first.id).await));
    hold.go.add_permits(1);
    assert!(run.result().await.unwrap().is_success());
    assert_eq!(told(&model, 1), ["go", "second"]);
    for sent in [first, second, third] {
        assert!(is_not_queued(&agent.unqueue(sent.id).await), "the agent is idle now");
    }
    assert_eq!(model.requests().len(), 2);
}

#[tokio::test]
async fn after_an_interrupt_messages_wait_and_come_before_the_next_prompt() {
    let mut hold = hold();
    let model = Scripted::new([Reply::call("hold", "{}"), Reply::text("ok"), Reply::text("never asked")]);
    let agent = scripted(&hold, &model);
    let run = agent.stream_messages("go");
    hold.begun.recv().await.unwrap();
    let back = agent.send("taken back").await.unwrap();
    agent.queue("queued").await.unwrap();
    agent.send("sent").await.unwrap();
    assert!(agent.interrupt());
    assert_eq!(run.result().await.unwrap().status, RunStatus::Cancelled);
    assert_eq!(model.requests().len(), 1, "nothing goes on by itself after an interrupt");
    assert!(agent.send(" ").await.is_err());
    assert_eq!(model.requests().len(), 1, "a message that is refused starts no run");
    agent.unqueue(back.id).await.unwrap();
    assert!(is_not_queued(&agent.unqueue(back.id).await));
    assert!(agent.prompt("next").await.unwrap().is_success());
    assert_eq!(told(&model, 1), ["go", "queued", "sent", "next"]);
    assert_eq!(model.requests().len(), 2, "no run is left to be started");
}

#[tokio::test]
async fn what_waits_since_an_interrupt_comes_before_the_next_message_that_is_sent() {
    let mut hold = hold();
    let (say, mut asked) = mpsc::unbounded_channel();
    let replies = Mutex::new(vec![Reply::text("ok"), Reply::call("hold", "{}")]);
    let model = Scripted::responding(move |_| {
        let _ = say.send(());
        replies.lock().unwrap().pop().unwrap()
    });
    let agent = scripted(&hold, &model);
    let run = agent.stream_messages("go");
    hold.begun.recv().await.unwrap();
    agent.send("waits").await.unwrap();
    agent.interrupt();
    assert!(run.result().await.unwrap().is_cancelled());
    asked.recv().await.unwrap();
    agent.send("starts a run").await.unwrap();
    asked.recv().await.unwrap();
    assert_eq!(told(&model, 1), ["go", "waits", "starts a run"]);
    // Waits for the run in the background.
    assert_eq!(agent.resume().await.unwrap().text, "ok");
    assert_eq!(model.requests().len(), 2);
}

#[tokio::test]
async fn at_the_end_of_the_budget_messages_wait_for_whoever_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut hold = hold();
    let model = Scripted::new([Reply::call("hold", "{}").usage(1_000, 20_000), Reply::text("never asked")]);
    let budget = |o: &mut AgentOptions| {
        kept(folder.path())(o);
        (o.max_tokens, o.max_budget_usd) = (Some(1_000), Some(Cost(200_000_000)));
    };
    let agent = builder(&hold, budget).provider(model.clone()).build().unwrap();
    let run = agent.stream_messages("go");
    hold.begun.recv().await.unwrap();
    agent.send("sent").await.unwrap();
    agent.queue("queued").await.unwrap();
    hold.go.add_permits(1);
    let result = run.result().await.unwrap();
    assert_eq!(result.status, RunStatus::ErrorMaxBudgetUsd, "{:?}", result.errors);
    assert_eq!(model.requests().len(), 1);
    drop(agent);
    let model = Scripted::new([Reply::text("ok"), Reply::text("never asked")]);
    let other = builder(&hold, kept(folder.path())).provider(model.clone()).build().unwrap();
    assert!(other.prompt("next").await.unwrap().is_success());
    assert_eq!(told(&model, 0), ["go", "sent", "queued", "next"]);
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn an_agent_that_took_a_message_back_does_not_keep_the_session_to_itself() {
    let folder = tempfile::tempdir().unwrap();
    let mut hold = hold();
    let model = Scripted::new([Reply::call("hold", "{}"), Reply::text("ok")]);
    let agent = |p: &Scripted| builder(&hold, kept(folder.path())).provider(p.clone()).build().unwrap();
    let first = agent(&model);
    let second = agent(&model);
    let run = first.stream_messages("go");
    hold.begun.recv().await.unwrap();
    let sent = first.send("back").await.unwrap();
    first.interrupt();
    assert!(run.result().await.unwrap().is_cancelled());
    first.unqueue(sent.id).await.unwrap();
    assert!(second.prompt("next").await.unwrap().is_success());
    assert_eq!(told(&model, 1), ["go", "next"]);
}

/// The process ends without a word: nothing that was on its runtime goes on, and nothing is written any more.
#[test]
fn after_a_crash_messages_are_delivered_once_however_the_session_goes_on() {
    for way in ["resume", "prompt", "send"] {
        let folder = tempfile::tempdir().unwrap();
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let crashing = runtime();
        crashing.block_on(async {
            let mut hold = hold();
            let model = Scripted::new([Reply::call("hold", "{}")]);
            let agent = builder(&hold, kept(folder.path())).provider(model).build().unwrap();
            let run = agent.stream_messages("go");
            hold.begun.recv().await.unwrap();
            agent.queue("queued").await.unwrap();
            agent.send("sent").await.unwrap();
            let back = agent.send("back").await.unwrap();
            agent.unqueue(back.id).await.unwrap();
            std::mem::forget(run);
        });
        drop(crashing);

        runtime().block_on(async {
            let hold = hold();
            let (say, mut asked) = mpsc::unbounded_channel();
            let model = Scripted::responding(move |_| {
                let _ = say.send(());
                Reply::text("ok")
            });
            let agent = builder(&hold, kept(folder.path())).provider(model.clone()).build().unwrap();
            let expected: &[&[&str]] = match way {
                "resume" => &[&["go", "sent"], &["go", "sent", "queued"]],
                _ => &[&["go", "queued", "sent", "next"]],
            };
            match way {
                "resume" => assert!(agent.resume().await.unwrap().is_success()),
                "prompt" => assert!(agent.prompt("next").await.unwrap().is_success()),
                _ => {
                    agent.send("next").await.unwrap();
                    asked.recv().await.unwrap();
                    assert!(agent.resume().await.unwrap().is_success());
                }
            }
            assert_eq!(model.requests().len(), expected.len(), "{way}");
            for (request, expected) in expected.iter().enumerate() {
                assert_eq!(told(&model, request), *expected, "{way}");
            }
            // Nothing of it comes again.
            assert!(agent.prompt("last").await.unwrap().is_success());
            let all = told(&model, expected.len());
            assert_eq!(all.len(), expected.last().unwrap().len() + 1, "{way}: {all:?}");
        });
    }
}

#[tokio::test]
async fn an_empty_message_is_refused_while_a_run_goes_on_and_while_none_does() {
    let mut hold = hold();
    let model = Scripted::new([Reply::call("hold", "{}"), Reply::text("ok")]);
    let agent = scripted(&hold, &model);
    let is_empty = |sent: Result<open_agent::Sent, AgentError>| {
        matches!(sent, Err(AgentError::Engine(EngineError::EmptyPrompt)))
    };
    assert!(is_empty(agent.send(" ").await));
    let run = agent.stream_messages("go");
    hold.begun.recv().await.unwrap();
    assert!(is_empty(agent.send("").await));
    hold.go.add_permits(1);
    assert!(run.result().await.unwrap().is_success());
    assert_eq!(told(&model, 1), ["go"]);
}
