//! The agent and its options: what each makes different, and what is refused.

use std::path::Path;

use open_agent::model::{Block, ProviderErrorKind, RequestOptions, Secret, ToolChoice};
use open_agent::session::NoticeKind;
use open_agent::testing::{Reply, Scripted, newest_results};
use open_agent::{
    Agent, AgentBuilder, AgentError, AgentEvent, AgentOptions, Catalogue, ConfigError, Cost, Effort, Env,
    PermissionMode, RetryConfig, RunStatus, SessionId, ThinkingMode, ToolScheduling,
};
use open_agent_testkit::server::{ModelServer, Reply as ServerReply, Script};

fn env(pairs: &[(&str, &str)]) -> Env {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

fn agent(model: &Scripted, change: impl FnOnce(&mut AgentOptions)) -> Agent {
    AgentBuilder::with_env(Env::default())
        .provider(model.clone())
        .configure(|o| o.persist_session = false)
        .configure(change)
        .build()
        .unwrap()
}

async fn requests_with(change: impl FnOnce(&mut AgentOptions)) -> open_agent::model::ModelRequest {
    let model = Scripted::new([Reply::text("ok")]);
    agent(&model, change).prompt("hello").await.unwrap();
    model.requests().remove(0)
}

async fn options_with(change: impl FnOnce(&mut AgentOptions)) -> RequestOptions {
    requests_with(change).await.options
}

#[tokio::test]
async fn every_option_makes_a_difference() {
    let plain = requests_with(|_| {}).await;
    assert_eq!(&*plain.model, "claude-sonnet-4-6");

    let haiku = Catalogue::default().resolve("haiku").to_owned();
    assert_eq!(*requests_with(|o| o.model = Some("haiku".into())).await.model, *haiku);
    assert_eq!(options_with(|o| o.max_tokens = Some(77)).await.max_tokens, 77);
    assert_eq!(options_with(|o| o.temperature = Some(0.5)).await.temperature, Some(0.5));
    let stops = vec!["END".to_owned()];
    assert_eq!(options_with(|o| o.stop_sequences = vec!["END".into()]).await.stop_sequences, stops);
    assert_eq!(options_with(|o| o.effort = Some(Effort::Max)).await.effort, Some(Effort::Max));
    let thinking = Some(ThinkingMode::Disabled);
    assert_eq!(options_with(|o| o.thinking = thinking).await.thinking, thinking);

    let system = |r: &open_agent::model::ModelRequest| -> Vec<String> {
        r.prefix.system.iter().map(|s| s.text.clone()).collect()
    };
    let own = system(&requests_with(|o| o.system_prompt = Some("Be terse.".into())).await);
    assert_eq!(own[0], "Be terse.");
    let appended = system(&requests_with(|o| o.append_system_prompt = Some("And kind.".into())).await);
    assert_eq!((&appended[0], &*appended[1]), (&system(&plain)[0], "And kind."));

    let tools = |r: &open_agent::model::ModelRequest| -> Vec<String> {
        r.prefix.tools.iter().map(|t| t.name.clone()).collect()
    };
    let names = |list: &[&str]| -> Vec<String> { list.iter().map(|n| (*n).to_owned()).collect() };
    let all = tools(&plain);
    assert!(all.len() >= 6 && all.is_sorted() && all.contains(&"Bash".to_owned()), "{all:?}");
    let some = requests_with(|o| o.tools = Some(names(&["Read", "Bash"]))).await;
    assert_eq!(tools(&some), ["Bash", "Read"]);
    assert!(tools(&requests_with(|o| o.tools = Some(vec![])).await).is_empty());
    let fewer = requests_with(|o| {
        o.tools = Some(names(&["Read", "Bash"]));
        o.disallowed_tools = names(&["Bash"]);
    });
    assert_eq!(tools(&fewer.await), ["Read"], "the deny list wins");
}

#[tokio::test]
async fn what_only_the_wire_shows() {
    let server = ModelServer::start(Script::always(ServerReply::text("ok"))).unwrap();
    let ask = async |change: fn(&mut AgentOptions)| {
        let builder = AgentBuilder::with_env(Env::default()).configure(|o| {
            o.persist_session = false;
            o.base_url = Some(server.url());
        });
        builder.configure(change).build().unwrap().prompt("x").await.unwrap();
        server.requests().pop().unwrap()
    };
    let request = ask(|o| o.betas = vec!["one-2026".into(), "two-2026".into()]).await;
    assert_eq!(request.header("anthropic-beta"), "one-2026,two-2026");
    let request = ask(|o| {
        (o.provider, o.model) = (Some("ollama".into()), Some("mine".into()));
        o.context_window = Some(8_192);
    });
    assert_eq!(request.await.body["options"]["num_ctx"], 8_192);
}

#[test]
fn what_options_and_environment_come_to_can_be_asked() {
    let env = env(&[("OPENAI_API_KEY", "k-test"), ("CODEANY_MODEL", "gpt-4o")]);
    let resolved = AgentBuilder::with_env(env).resolved().unwrap();
    assert_eq!(
        (&*resolved.model, resolved.provider, resolved.key_source),
        ("gpt-4o", "openai", "OPENAI_API_KEY")
    );
    assert_eq!(resolved.address, "https://api.openai.com/v1/chat/completions");
    let defaults = AgentBuilder::with_env(Env::default()).resolved().unwrap();
    assert_eq!(
        (&*defaults.model, defaults.provider, defaults.key_source),
        ("claude-sonnet-4-6", "anthropic", "none")
    );
}

#[tokio::test]
async fn a_tool_choice_holds_for_the_first_request() {
    let model = Scripted::new([Reply::call("Glob", r#"{"pattern": "none"}"#), Reply::text("ok")]);
    agent(&model, |o| o.tool_choice = ToolChoice::Any).prompt("go").await.unwrap();
    let choices: Vec<ToolChoice> = model.requests().into_iter().map(|r| r.options.tool_choice).collect();
    assert_eq!(choices, [ToolChoice::Any, ToolChoice::Auto]);

    let model = Scripted::new([
        Reply::failure(ProviderErrorKind::Overloaded, "busy"),
        Reply::call("Glob", r#"{"pattern": "none"}"#),
        Reply::text("ok"),
    ]);
    let set = |o: &mut AgentOptions| {
        o.tool_choice = ToolChoice::Any;
        o.retry.base_delay = std::time::Duration::ZERO;
    };
    agent(&model, set).prompt("go").await.unwrap();
    let choices: Vec<ToolChoice> = model.requests().into_iter().map(|r| r.options.tool_choice).collect();
    assert_eq!(choices, [ToolChoice::Any, ToolChoice::Any, ToolChoice::Auto], "also when it is made again");
}

#[tokio::test]
async fn retries_and_fallback_are_as_told() {
    let down = || {
        Scripted::responding(|r| match &*r.model {
            "claude-haiku-4-5" => Reply::text("ok"),
            _ => Reply::failure(ProviderErrorKind::Overloaded, "busy"),
        })
    };
    let quick = |retries| RetryConfig {
        max_retries: retries,
        base_delay: std::time::Duration::ZERO,
        ..RetryConfig::default()
    };
    let model = down();
    let failed = agent(&model, |o| o.retry = quick(2)).prompt("x").await.unwrap();
    assert_eq!(
        (failed.model_calls, failed.errors.as_slice()),
        (3, &["busy (after 3 attempts)".to_owned()][..])
    );
    let set = |o: &mut AgentOptions| {
        o.retry = quick(1);
        o.fallback_model = Some("claude-haiku-4-5".into());
    };
    let result = agent(&down(), set).prompt("x").await.unwrap();
    assert!(result.is_success());
    let asked: Vec<(&str, u32)> = result.cost_by_model.iter().map(|m| (&*m.model, m.requests)).collect();
    assert_eq!(asked, [("claude-haiku-4-5", 1), ("claude-sonnet-4-6", 2)]);
}

#[tokio::test]
async fn permission_options_decide_what_runs() {
    let folder = tempfile::tempdir().unwrap();
    let ran = async |change: fn(&mut AgentOptions)| {
        let _ = std::fs::remove_file(folder.path().join("made"));
        let model = Scripted::new([Reply::call("Bash", r#"{"command": "echo > made"}"#), Reply::text("ok")]);
        let agent = agent(&model, |o| {
            o.cwd = Some(folder.path().to_owned());
            change(o);
        });
        let result = agent.prompt("make it").await.unwrap();
        let made = folder.path().join("made").exists();
        // Whoever forgot to allow a tool sees it in the result.
        let denied: Vec<&str> = result.denials.iter().map(|d| d.tool.as_str()).collect();
        assert_eq!(denied, if made { vec![] } else { vec!["Bash"] });
        assert_eq!(result.denial_advice().is_some(), !made);
        if let Some(advice) = result.denial_advice() {
            // The narrowest remedy comes first.
            let at = |text: &str| advice.find(text).unwrap_or_else(|| panic!("{text}: {advice}"));
            assert!(at("allow_tool(\"Bash\")") < at("permission_mode("), "{advice}");
        }
        // The model is told why, and nothing about how.
        let told = format!("{:?}", model.requests());
        assert_eq!(told.contains("Bash was refused, because"), !made);
        for remedy in ["allow_tool", "allowed-tools", "bypassPermissions", "permission_mode"] {
            assert!(!told.contains(remedy), "{remedy}");
        }
        made
    };
    assert!(!ran(|_| {}).await);
    assert!(ran(|o| o.permission_mode = PermissionMode::BypassPermissions).await);
    assert!(ran(|o| o.allowed_tools = vec!["Bash".into()]).await);
    assert!(!ran(|o| o.allowed_tools = vec!["Write".into()]).await);
}

#[tokio::test]
async fn limits_and_scheduling_are_kept() {
    let endless = || Scripted::responding(|_| Reply::call("Glob", r#"{"pattern": "none"}"#).usage(10, 10));
    let status = async |change: fn(&mut AgentOptions)| {
        let result = agent(&endless(), change).prompt("go").await.unwrap();
        (result.status, result.model_calls)
    };
    assert_eq!(status(|_| {}).await, (RunStatus::ErrorMaxTurns, 10));
    assert_eq!(status(|o| o.max_turns = Some(2)).await, (RunStatus::ErrorMaxTurns, 2));
    assert_eq!(status(|o| o.max_model_calls = 3).await, (RunStatus::ErrorMaxModelCalls, 3));
    let broke = status(|o| o.max_budget_usd = Some(Cost(1_000))).await;
    assert_eq!(broke, (RunStatus::ErrorMaxBudgetUsd, 0));

    let folder = tempfile::tempdir().unwrap();
    let order = async |scheduling| {
        let model = Scripted::new([
            Reply::call("Bash", r#"{"command": "echo hi > f"}"#).and_call("Glob", r#"{"pattern": "f"}"#),
            Reply::text("ok"),
        ]);
        let agent = agent(&model, |o| {
            o.cwd = Some(folder.path().to_owned());
            o.permission_mode = PermissionMode::BypassPermissions;
            o.tool_scheduling = scheduling;
        });
        agent.prompt("go").await.unwrap();
        std::fs::remove_file(folder.path().join("f")).unwrap();
        newest_results(&model.requests()[1])[1].lines().any(|l| l.ends_with("f") && l.len() < 3)
    };
    assert!(order(ToolScheduling::Ordered).await, "a read after a write sees it");
    assert!(!order(ToolScheduling::ReadsFirst).await);
}

#[tokio::test]
async fn sessions_lie_where_they_are_told_and_another_agent_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = folder.path().join("s");
    let id = SessionId::new("mine").unwrap();
    let agent = |model: &Scripted| {
        let builder = AgentBuilder::with_env(Env::default()).provider(model.clone());
        let set = |o: &mut AgentOptions| {
            o.sessions_dir = Some(sessions.clone());
            o.session_id = Some(id.clone());
        };
        builder.configure(set).build().unwrap()
    };
    let first = Scripted::new([Reply::text("one")]);
    assert_eq!(agent(&first).prompt("a").await.unwrap().session_id, id);
    assert!(sessions.join("mine/transcript.jsonl").exists());
    let second = Scripted::new([Reply::text("two")]);
    agent(&second).prompt("b").await.unwrap();
    let texts: Vec<String> = second.requests()[0].messages.iter().map(|m| m.text()).collect();
    assert_eq!(texts, ["a", "one", "b"]);
}

#[tokio::test]
async fn without_a_home_a_session_that_is_to_be_kept_is_an_error_that_says_so() {
    let agent = AgentBuilder::with_env(Env::default()).provider(Scripted::new([])).build().unwrap();
    let Err(AgentError::Config(ConfigError::NoHome)) = agent.prompt("x").await else { panic!() };
}

#[tokio::test]
async fn a_working_folder_that_is_none_is_named() {
    let model = Scripted::new([]);
    let agent = agent(&model, |o| o.cwd = Some("/no/such/folder".into()));
    let error = agent.prompt("x").await.unwrap_err().to_string();
    assert!(error.contains("/no/such/folder"), "{error}");
    assert!(!Path::new("/no/such").exists());
}

fn refused(env_pairs: &[(&str, &str)], change: impl FnOnce(&mut AgentOptions)) -> String {
    let built = AgentBuilder::with_env(env(env_pairs)).configure(change).build();
    built.err().map(|e| e.to_string()).unwrap_or_default()
}

#[test]
fn what_makes_no_agent_is_said() {
    let none: &[(&str, &str)] = &[];
    let key: &[(&str, &str)] = &[("ANTHROPIC_API_KEY", "k-test")];
    let cases: Vec<(String, &str)> = vec![
        (refused(none, |_| {}), "set ANTHROPIC_API_KEY or CODEANY_API_KEY"),
        (refused(key, |o| o.model = Some(" ".into())), "the model name is empty"),
        (refused(key, |o| o.max_turns = Some(0)), "max_turns is 0"),
        (refused(key, |o| o.max_model_calls = 0), "max_model_calls is 0"),
        (refused(key, |o| o.max_budget_usd = Some(Cost(0))), "max_budget_usd is 0"),
        (refused(key, |o| o.max_tokens = Some(0)), "max_tokens is 0"),
        (refused(key, |o| o.temperature = Some(f64::NAN)), "between 0 and 2"),
        (refused(key, |o| o.stop_sequences = vec![" ".into()]), "stop sequence is empty"),
        (refused(key, |o| o.context_window = Some(0)), "context_window is 0"),
        (refused(key, |o| o.idle_timeout = std::time::Duration::ZERO), "idle_timeout is 0"),
        (refused(key, |o| o.thinking = Some(ThinkingMode::Enabled { budget_tokens: 0 })), "thinking is 0"),
        (refused(&[("OPENAI_API_KEY", "k-test")], |_| {}), "give a model with the option `model`"),
        (
            refused(key, |o| o.provider = Some("nobody".into())),
            "there is no provider \"nobody\": there are anthropic",
        ),
        (refused(key, |o| o.provider = Some("openai".into())), "is not one of openai's"),
        (
            refused(key, |o| o.model = Some("strange".into())),
            "no provider is known for the model \"strange\"",
        ),
        (
            refused(key, |o| o.disallowed_tools = vec!["bash".into()]),
            "there is no tool \"bash\": there are Bash, Edit",
        ),
        (
            refused(key, |o| {
                o.model = Some("claude-unheard-of".into());
                o.max_budget_usd = Some(Cost(1));
            }),
            "register it with `register_model`",
        ),
    ];
    for (got, want) in cases {
        assert!(got.contains(want), "{got:?} does not say {want:?}");
    }
}

#[test]
fn options_come_before_the_environment_and_that_before_defaults() {
    let ok = |env_pairs: &[(&str, &str)], change: fn(&mut AgentOptions)| refused(env_pairs, change);
    // A server of one's own needs no key, and an unknown model is asked for there.
    assert_eq!(ok(&[("CODEANY_BASE_URL", "http://127.0.0.1:1"), ("CODEANY_MODEL", "mine")], |_| {}), "");
    assert_eq!(ok(&[], |o| o.base_url = Some("http://127.0.0.1:1".into())), "");
    assert_eq!(ok(&[], |o| o.api_key = Some(Secret::new("k-test"))), "");
    assert_eq!(ok(&[("CODEANY_API_KEY", "k-test"), ("CODEANY_MODEL", "gpt-4o")], |_| {}), "");
}

#[tokio::test]
async fn a_failed_prompt_leaves_the_agent_usable() {
    let model =
        Scripted::new([Reply::failure(ProviderErrorKind::InvalidRequest, "it broke"), Reply::text("fine")]);
    let agent = agent(&model, |_| {});
    let failed = agent.prompt("x").await.unwrap();
    assert_eq!(
        (failed.status, failed.errors.as_slice()),
        (RunStatus::ErrorDuringExecution, &["it broke".to_owned()][..])
    );
    assert!(agent.prompt(" ").await.is_err(), "an empty prompt is refused");
    assert!(agent.prompt("y").await.unwrap().is_success());
}

#[tokio::test]
async fn a_dropped_prompt_interrupts_its_run() {
    let model = Scripted::new([Reply::text("a").then_stalls(), Reply::text("b")]);
    let agent = agent(&model, |_| {});
    let mut prompt = Box::pin(agent.prompt("x"));
    while model.requests().is_empty() {
        tokio::select! {
            biased;
            _ = &mut prompt => panic!("it stalls"),
            () = tokio::task::yield_now() => {}
        }
    }
    drop(prompt);
    let next = agent.prompt("y").await.unwrap();
    assert_eq!(next.text, "b");
    let last = model.requests().pop().unwrap();
    assert_eq!(last.messages[1].content, [Block::Text("a".into())], "what came is kept");
}

#[tokio::test]
async fn overlapping_prompts_wait_for_each_other() {
    let model = Scripted::responding(|r| Reply::text(&r.messages.len().to_string()));
    let agent = agent(&model, |_| {});
    let (a, b) = tokio::join!(agent.prompt("1"), agent.prompt("2"));
    let mut lengths = [a.unwrap().text, b.unwrap().text];
    lengths.sort();
    assert_eq!(lengths, ["1", "3"]);
}

#[tokio::test]
async fn the_model_is_switched_between_runs_and_within_one() {
    let model = Scripted::responding(|r| match r.messages.len() {
        1 => Reply::call("switch", "{}").usage(10, 1),
        _ => Reply::text("ok").usage(10, 1),
    });
    let place: std::sync::Arc<std::sync::OnceLock<Agent>> = std::sync::Arc::default();
    let inside = std::sync::Arc::clone(&place);
    let switch = open_agent::tool_fn("switch", "Switches.", move |_: Nothing, _| {
        let agent = inside.get().unwrap().clone();
        async move {
            agent.switch_model(" haiku ")?;
            agent.set_thinking(Some(ThinkingMode::Adaptive))?;
            agent.set_effort(Some(Effort::Low));
            Ok("switched")
        }
    });
    let builder =
        AgentBuilder::with_env(Env::default()).provider(model.clone()).tool(switch).allow_tool("switch");
    let agent = builder.configure(|o| o.persist_session = false).build().unwrap();
    assert!(place.set(agent.clone()).is_ok());
    let result = agent.prompt("go").await.unwrap();
    let costs: Vec<(&str, u32)> = result.cost_by_model.iter().map(|m| (&*m.model, m.requests)).collect();
    let catalogue = Catalogue::default();
    let haiku = catalogue.resolve("haiku");
    assert_eq!(costs, [(haiku, 1), ("claude-sonnet-4-6", 1)], "costs are kept apart");
    agent.switch_model("claude-sonnet-4-6").unwrap();
    agent.set_max_thinking_tokens(Some(2_000)).unwrap();
    agent.prompt("more").await.unwrap();
    let asked: Vec<(String, Option<ThinkingMode>, Option<Effort>)> = model
        .requests()
        .iter()
        .map(|r| (r.model.to_string(), r.options.thinking, r.options.effort))
        .collect();
    let (haiku, sonnet) = (haiku.to_owned(), "claude-sonnet-4-6".to_owned());
    let budget = Some(ThinkingMode::Enabled { budget_tokens: 2_000 });
    let low = Some(Effort::Low);
    assert_eq!(
        asked,
        [(sonnet.clone(), None, None), (haiku, Some(ThinkingMode::Adaptive), low), (sonnet, budget, low)]
    );
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

#[test]
fn switches_that_make_no_sense_are_refused() {
    let model = Scripted::new([]);
    let plain = agent(&model, |_| {});
    let text = |r: Result<(), ConfigError>| r.err().map(|e| e.to_string()).unwrap_or_default();
    assert!(text(plain.switch_model(" ")).contains("the model name is empty"));
    assert_eq!(text(plain.switch_model("anything-at-all")), "");
    assert!(text(plain.set_max_thinking_tokens(Some(0))).contains("thinking is 0"));
    assert!(text(plain.set_max_thinking_tokens(Some(-5))).contains("max_thinking_tokens"));
    assert_eq!(text(plain.set_max_thinking_tokens(None)), "");
    let bounded = agent(&model, |o| o.max_budget_usd = Some(Cost(1_000_000_000)));
    assert!(text(bounded.switch_model("unpriced")).contains("register_model"));
}

#[tokio::test]
async fn a_stream_of_messages_is_a_run_each() {
    let model = Scripted::responding(|r| Reply::text(&format!("{} messages", r.messages.len())));
    let agent = agent(&model, |_| {});
    let run = agent.stream_input(futures_util::stream::iter(["a", "b", "c"]));
    let results = run.result().await.unwrap();
    let texts: Vec<&str> = results.iter().map(|r| r.as_ref().unwrap().text.as_str()).collect();
    assert_eq!(texts, ["1 messages", "3 messages", "5 messages"]);
}

#[tokio::test]
async fn an_empty_message_in_a_stream_costs_only_its_own_result() {
    let model = Scripted::responding(|_| Reply::text("ok"));
    let run = agent(&model, |_| {}).stream_input(futures_util::stream::iter(["a", " ", "b"]));
    let good: Vec<bool> = run.result().await.unwrap().iter().map(Result::is_ok).collect();
    assert_eq!(good, [true, false, true]);
}

#[tokio::test]
async fn a_prompt_of_what_only_a_model_can_say_is_refused_and_harms_nothing() {
    let model = Scripted::responding(|_| Reply::text("ok"));
    let agent = agent(&model, |_| {});
    let thought = Block::Thinking(open_agent::model::Thinking { text: "hm".into(), ..Default::default() });
    let refused = agent.prompt(open_agent::Prompt(vec![thought])).await.unwrap_err().to_string();
    assert!(refused.contains("text, pictures and documents"), "{refused}");
    assert!(agent.prompt("x").await.unwrap().is_success());
}

#[tokio::test]
async fn a_tool_that_panics_anywhere_is_a_failed_call_and_readers_end() {
    let early = open_agent::tool_fn("early", "Panics before it waits.", |_: Nothing, _| {
        assert!(std::env::args().count() == 0, "too early");
        async { Ok("") }
    });
    struct Reader;
    impl open_agent::Tool for Reader {
        const NAME: &'static str = "reader";
        type Input = Nothing;
        fn description(&self) -> String {
            "Panics when it names what it touches.".into()
        }
        fn access(&self, _: &Nothing, _: &open_agent::ToolCx) -> Vec<open_agent::model::Access> {
            panic!("no access")
        }
        async fn call(
            &self,
            _: Nothing,
            _: &open_agent::ToolCx,
        ) -> Result<open_agent::ToolOutput, open_agent::ToolError> {
            Ok("".into())
        }
    }
    let model = Scripted::new([Reply::call("early", "{}").and_call("reader", "{}"), Reply::text("on")]);
    let agent = AgentBuilder::with_env(Env::default())
        .provider(model.clone())
        .tool(early)
        .tool(open_agent::erase(Reader))
        .permission_mode(PermissionMode::BypassPermissions)
        .configure(|o| o.persist_session = false)
        .build()
        .unwrap();
    let mut run = agent.stream("x");
    while futures_util::StreamExt::next(&mut run).await.is_some() {}
    assert!(run.result().await.unwrap().is_success());
    let results = newest_results(&model.requests()[1]);
    assert!(results[0].contains("panicked: too early"), "{results:?}");
    assert!(results[1].contains("reader panicked"), "{results:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_blocks_its_thread_does_not_hold_an_interrupt() {
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let (began, begins) = tokio::sync::oneshot::channel::<()>();
    let began = std::sync::Mutex::new(Some(began));
    let wait = std::sync::Arc::new(wait);
    let block = open_agent::tool_fn("block", "Blocks.", move |_: Nothing, _| {
        let began = began.lock().unwrap().take();
        let wait = std::sync::Arc::clone(&wait);
        async move {
            if let Some(began) = began {
                began.send(()).unwrap();
            }
            let _released = wait.lock().unwrap().recv();
            Ok("")
        }
    });
    let model = Scripted::new([Reply::call("block", "{}"), Reply::text("on")]);
    let builder = AgentBuilder::with_env(Env::default()).provider(model).tool(block).allow_tool("block");
    let agent = builder.configure(|o| o.persist_session = false).build().unwrap();
    let run = agent.stream_messages("x");
    begins.await.unwrap();
    assert!(agent.interrupt());
    let result = run.result().await.unwrap();
    assert!(result.is_cancelled());
    drop(release);
}

#[tokio::test]
async fn an_interrupt_ends_one_run_of_a_stream_of_messages() {
    let mut first = true;
    let model = Scripted::responding(move |_| {
        if std::mem::replace(&mut first, false) {
            Reply::text("slow").then_stalls()
        } else {
            Reply::text("ok")
        }
    });
    let agent = agent(&model, |_| {});
    let run = agent.stream_input(futures_util::stream::iter(["a", "b"]));
    while model.requests().is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(agent.interrupt());
    let statuses: Vec<RunStatus> =
        run.result().await.unwrap().iter().map(|r| r.as_ref().unwrap().status).collect();
    assert_eq!(statuses, [RunStatus::Cancelled, RunStatus::Success]);
}

#[tokio::test]
async fn a_request_that_is_fitted_to_the_model_is_an_event() {
    let server = ModelServer::start(Script::always(ServerReply::text("ok"))).unwrap();
    let builder = AgentBuilder::with_env(Env::default()).configure(|o| {
        o.persist_session = false;
        o.base_url = Some(server.url());
        o.thinking = Some(ThinkingMode::Enabled { budget_tokens: 100_000 });
    });
    let mut run = builder.build().unwrap().stream_messages("x");
    let mut told = Vec::new();
    while let Some(envelope) = futures_util::StreamExt::next(&mut run).await {
        if let open_agent::AgentEvent::Notice(notice) = envelope.event {
            told.push(notice.text);
        }
    }
    assert_eq!(
        told,
        ["a thinking budget of 100000 tokens does not fit into max_tokens 16384: 12288 are asked for"]
    );
    assert_eq!(server.requests()[0].body["thinking"]["budget_tokens"], 12_288);
}

#[tokio::test]
async fn a_prompt_that_waits_for_its_turn_can_be_interrupted() {
    let model = Scripted::new([Reply::text("slow").then_stalls()]);
    let agent = agent(&model, |_| {});
    let first = agent.stream_messages("a");
    while model.requests().is_empty() {
        tokio::task::yield_now().await;
    }
    let second = agent.stream_messages("b");
    second.interrupt();
    assert!(matches!(second.result().await, Err(AgentError::Interrupted)));
    first.interrupt();
    assert!(first.result().await.unwrap().is_cancelled());
}

/// The process ends while the model answers: what that answer cost is nowhere in the log.
#[test]
fn an_answer_that_a_crash_took_away_is_counted_and_told_once() {
    for way in ["resume", "prompt"] {
        let folder = tempfile::tempdir().unwrap();
        let agent = |model: &Scripted| {
            let kept = |o: &mut AgentOptions| {
                o.sessions_dir = Some(folder.path().to_owned());
                o.session_id = Some(SessionId::new("s").unwrap());
            };
            AgentBuilder::with_env(Env::default()).provider(model.clone()).configure(kept).build().unwrap()
        };
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let crashing = runtime();
        let model = Scripted::new([Reply::text("half of it").then_stalls()]);
        crashing.block_on(async {
            let mut run = agent(&model).stream("go");
            while !matches!(run.next().await.unwrap().event, AgentEvent::BlockDelta(_)) {}
            std::mem::forget(run);
        });
        drop(crashing);
        runtime().block_on(async {
            let agent = agent(&Scripted::new(["whole", "later"].map(Reply::text)));
            let mut events = agent.events();
            let result = match way {
                "resume" => agent.resume().await.unwrap(),
                _ => agent.prompt("go on").await.unwrap(),
            };
            assert_eq!((result.text.as_str(), result.model_calls), ("whole", 1));
            assert_eq!(result.repeated_requests, u32::from(way == "resume"), "of the run that was cut off");
            assert_eq!(agent.prompt("more").await.unwrap().repeated_requests, 0);
            agent.close().await;
            let mut told = 0;
            while let Some(event) = events.next().await {
                let AgentEvent::Notice(notice) = event.event else { continue };
                told += usize::from(notice.kind == NoticeKind::RequestRepeated);
            }
            assert_eq!(told, 1, "{way}");
        });
    }
}
