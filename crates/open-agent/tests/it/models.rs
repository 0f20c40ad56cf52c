//! What is known about a model has an effect: each field of `ModelInfo`, registered for one agent, and what it changes in
//! the requests.

use open_agent::model::{Block, Message, ModelRequest, ProviderErrorKind, ResultBlock, Source, StopReason};
use open_agent::testing::{Reply, Scripted};
use open_agent::{
    Agent, AgentBuilder, AgentOptions, Cost, Effort, Env, ModelInfo, Price, ProviderHint, ThinkingKinds,
    ThinkingMode, ToolOutput, read_only_tool_fn,
};
use open_agent_testkit::server::{ModelServer, Recorded, Reply as ServerReply, Script};
use serde_json::json;

const MODEL: &str = "mine";

fn unknown() -> ModelInfo {
    ModelInfo::unknown(MODEL)
}

fn builder(info: ModelInfo) -> AgentBuilder {
    AgentBuilder::with_env(Env::default())
        .model(MODEL)
        .register_model(info)
        .configure(|o| o.persist_session = false)
}

fn agent(model: &Scripted, info: ModelInfo) -> Agent {
    builder(info).provider(model.clone()).build().unwrap()
}

fn picture() -> Source {
    Source::Inline { media_type: "image/png".into(), data: "iVBORw0KGgo=".into() }
}

fn pdf() -> Source {
    Source::Inline { media_type: "application/pdf".into(), data: "JVBERi0=".into() }
}

/// A picture, a PDF and a text document.
fn media_prompt() -> open_agent::Prompt {
    let notes = Source::Inline { media_type: "text/plain".into(), data: "aMOk".into() };
    open_agent::Prompt(vec![
        Block::Text("Look.".into()),
        Block::Image(picture()),
        Block::Document { source: pdf(), title: Some("plan.pdf".into()) },
        Block::Document { source: notes, title: None },
    ])
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

fn with_show_tool(builder: AgentBuilder) -> AgentBuilder {
    let show = read_only_tool_fn("show", "Shows a picture and a document.", |_: Nothing, _| async {
        let content = vec![
            ResultBlock::Image { source: picture() },
            ResultBlock::Document { source: pdf(), title: None },
            ResultBlock::text("That is all."),
        ];
        Ok(ToolOutput { content, ..ToolOutput::default() })
    });
    builder.tool(show).allow_tool("show")
}

/// Pictures and documents, in results too.
fn media<'a>(messages: impl IntoIterator<Item = &'a std::sync::Arc<Message>>) -> (usize, usize) {
    let (mut pictures, mut documents) = (0, 0);
    for block in messages.into_iter().flat_map(|m| &m.content) {
        match block {
            Block::Image(_) => pictures += 1,
            Block::Document { .. } => documents += 1,
            Block::ToolResult(result) => {
                pictures += result.content.iter().filter(|b| matches!(b, ResultBlock::Image { .. })).count();
                documents +=
                    result.content.iter().filter(|b| matches!(b, ResultBlock::Document { .. })).count();
            }
            _ => {}
        }
    }
    (pictures, documents)
}

fn last_text(request: &ModelRequest) -> String {
    format!("{:?}", request.messages.last().unwrap().content)
}

#[tokio::test]
async fn the_window_bounds_the_answer_and_is_told_with_a_count() {
    let model = Scripted::responding(|_| Reply::text("ok"));
    let agent = agent(&model, ModelInfo { context_tokens: Some(24_000), ..unknown() });
    let prompt = "word ".repeat(6_000);
    let count = agent.count_tokens(prompt.clone()).await.unwrap();
    assert_eq!(count.context_tokens, Some(24_000));
    agent.prompt(prompt).await.unwrap();
    let asked = model.requests()[0].options.max_tokens;
    assert_eq!(asked, 24_000 - count.input_tokens, "input and answer share the window");
    assert!(asked < 16_384, "{asked}");
}

#[tokio::test]
async fn the_output_limit_bounds_the_answer() {
    let model = Scripted::new([Reply::text("ok")]);
    agent(&model, ModelInfo { max_output_tokens: Some(1_000), ..unknown() }).prompt("Hi").await.unwrap();
    assert_eq!(model.requests()[0].options.max_tokens, 1_000);
}

#[tokio::test]
async fn the_price_makes_the_cost() {
    let price = Price::new(Cost::from_usd("3").unwrap(), Cost::from_usd("15").unwrap());
    for (price, cost) in [(Some(price), Cost::from_usd("0.00018")), (None, None)] {
        let model = Scripted::new([Reply::text("ok").usage(45, 3)]);
        let result = agent(&model, ModelInfo { price, ..unknown() }).prompt("Hi").await.unwrap();
        assert_eq!(result.cost, cost);
    }
}

#[tokio::test]
async fn a_vendor_chooses_the_provider() {
    let of = |info| builder(info).resolved().map(|resolved| resolved.provider);
    assert_eq!(of(ModelInfo { vendor: "deepseek".into(), ..unknown() }).unwrap(), "deepseek");
    assert_eq!(of(ModelInfo { vendor: "anthropic".into(), ..unknown() }).unwrap(), "anthropic");
    assert!(of(unknown()).is_err());
}

#[tokio::test]
async fn pictures_and_documents_are_sent_to_models_that_take_them_only() {
    for (vision, pdf, sent) in [
        (None, None, (1, 2)),
        (Some(true), Some(true), (1, 2)),
        (Some(false), Some(true), (0, 2)),
        (Some(true), Some(false), (1, 1)),
        (Some(false), Some(false), (0, 1)),
    ] {
        let model = Scripted::responding(|_| Reply::text("ok"));
        let agent = agent(&model, ModelInfo { vision, pdf, ..unknown() });
        agent.count_tokens(media_prompt()).await.unwrap();
        let result = agent.prompt(media_prompt()).await.unwrap();
        assert!(result.is_success(), "{:?}", result.errors);
        let request = &model.requests()[0];
        assert_eq!(media(&request.messages), sent, "{vision:?} {pdf:?}");
        assert_eq!(media(&result.messages), (1, 2), "the session keeps them");
        let shown = last_text(request);
        assert_eq!(
            shown.contains("[A picture is here. It was not sent because mine takes no"),
            sent.0 == 0,
            "{shown}"
        );
        assert_eq!(shown.contains("plan.pdf\\\" is here. It was not sent because"), sent.1 == 1, "{shown}");
        assert!(shown.contains("Look."), "{shown}");
        assert_eq!(result.notices.len(), usize::from(sent != (1, 2)), "{:?}", result.notices);
        agent.prompt("Again.").await.unwrap();
        assert_eq!(media(&model.requests()[1].messages), sent);
    }
}

#[tokio::test]
async fn a_model_that_takes_pictures_sees_those_that_another_was_not_sent() {
    let model = Scripted::responding(|r| match r.messages.len() {
        1 => Reply::call("show", "{}"),
        _ => Reply::text("ok"),
    });
    let blind = ModelInfo { vision: Some(false), pdf: Some(false), ..unknown() };
    let agent = with_show_tool(builder(blind)).provider(model.clone()).build().unwrap();
    let result = agent.prompt(media_prompt()).await.unwrap();
    agent.switch_model("claude-sonnet-4-6").unwrap();
    agent.prompt("And now?").await.unwrap();
    agent.switch_model(MODEL).unwrap();
    agent.prompt("And now?").await.unwrap();
    let sent: Vec<(usize, usize)> = model.requests().iter().map(|r| media(&r.messages)).collect();
    assert_eq!(sent, [(0, 1), (0, 1), (2, 3), (0, 1)]);
    assert_eq!(media(&result.messages), (2, 3), "the session keeps what a tool showed");
    let shown = last_text(&model.requests()[1]);
    assert!(shown.contains("A picture is here") && shown.contains("A document is here"), "{shown}");
    assert!(shown.contains("That is all."), "{shown}");
}

#[tokio::test]
async fn each_model_is_sent_what_it_takes_of_the_same_message() {
    let model = Scripted::responding(|_| Reply::text("ok"));
    let blind = ModelInfo { vision: Some(false), pdf: Some(false), ..unknown() };
    let reads = ModelInfo { vision: Some(false), ..ModelInfo::unknown("reads") };
    let agent = builder(blind).register_model(reads).provider(model.clone()).build().unwrap();
    agent.prompt(media_prompt()).await.unwrap();
    agent.switch_model("reads").unwrap();
    agent.prompt("And you?").await.unwrap();
    let sent: Vec<(usize, usize)> = model.requests().iter().map(|r| media(&r.messages)).collect();
    assert_eq!(sent, [(0, 1), (0, 2)]);
}

#[tokio::test]
async fn what_was_not_sent_is_not_blamed_for_a_refusal() {
    let refusal = Reply::failure(ProviderErrorKind::InvalidRequest, "400: no");
    let model = Scripted::new([refusal, Reply::text("ok")]);
    let agent = agent(&model, ModelInfo { vision: Some(false), ..unknown() });
    let prompt = || open_agent::Prompt(vec![Block::Text("Look.".into()), Block::Image(picture())]);
    let failed = agent.prompt(prompt()).await.unwrap();
    assert_eq!((failed.is_success(), failed.model_calls), (false, 1));
    agent.switch_model("claude-sonnet-4-6").unwrap();
    agent.prompt("Go on.").await.unwrap();
    assert_eq!(media(&model.requests().last().unwrap().messages), (1, 0), "it is still there");
}

/// The request that goes out to a server with that profile.
async fn sent(profile: &str, info: ModelInfo, change: impl FnOnce(&mut AgentOptions)) -> Recorded {
    let reply = |turn: usize, _: &Recorded| match turn {
        0 => ServerReply::tool("show", json!({})),
        _ => ServerReply::text("ok"),
    };
    let server = ModelServer::start(Script::from_fn(reply)).unwrap();
    let builder = builder(info)
        .configure(|o| (o.provider, o.base_url) = (Some(profile.into()), Some(server.url())))
        .configure(change);
    let result = with_show_tool(builder).build().unwrap().prompt(media_prompt()).await.unwrap();
    assert!(result.is_success(), "{:?}", result.errors);
    assert_eq!(server.violations(), [""; 0]);
    server.requests().pop().unwrap()
}

#[tokio::test]
async fn thinking_kinds_and_efforts_decide_what_is_asked_for() {
    let adaptive = |o: &mut AgentOptions| o.thinking = Some(ThinkingMode::Adaptive);
    let max = |o: &mut AgentOptions| o.effort = Some(Effort::Max);
    let all =
        ModelInfo { thinking: Some(ThinkingKinds::ALL), efforts: Some(Effort::ALL.to_vec()), ..unknown() };
    let low = ModelInfo { efforts: Some(vec![Effort::Low]), ..unknown() };
    let none = ModelInfo { thinking: Some(ThinkingKinds::NONE), efforts: Some(vec![]), ..unknown() };
    for (info, thinking, effort) in [
        (unknown(), "enabled", None),
        (all.clone(), "adaptive", Some("max")),
        (low.clone(), "enabled", Some("low")),
        (none.clone(), "", None),
    ] {
        let body = sent("anthropic", info.clone(), adaptive).await.body;
        assert_eq!(body["thinking"]["type"].as_str().unwrap_or_default(), thinking, "{info:?}");
        let body = sent("anthropic", info, max).await.body;
        assert_eq!(body["output_config"]["effort"].as_str(), effort);
    }
    for (info, effort) in [(unknown(), Some("high")), (all, Some("max")), (low, Some("low")), (none, None)] {
        assert_eq!(sent("openai", info, max).await.body["reasoning_effort"].as_str(), effort);
    }
}

#[tokio::test]
async fn pictures_of_results_follow_them_where_a_model_takes_none_inside() {
    for (inside, parts) in [(None, 3), (Some(true), 3), (Some(false), 2)] {
        let body = sent("anthropic", ModelInfo { media_in_results: inside, ..unknown() }, |_| {}).await.body;
        let last = body["messages"].as_array().unwrap().last().unwrap()["content"].clone();
        let result = &last[0];
        assert_eq!(
            (&result["type"], result["content"].as_array().unwrap().len()),
            (&json!("tool_result"), parts)
        );
        let kinds: Vec<&str> = last.as_array().unwrap().iter().map(|b| b["type"].as_str().unwrap()).collect();
        if inside == Some(false) {
            assert_eq!(kinds, ["tool_result", "text", "image", "document"]);
            assert!(last[1]["text"].as_str().unwrap().starts_with("Attached by tool call "), "{last}");
            assert_eq!(result["content"][1]["text"], "(attached below)");
        } else {
            assert_eq!(kinds, ["tool_result"]);
            assert_eq!(result["content"][0]["type"], "image");
        }
    }
    // An API without pictures in results gets them the same way, whatever the model could.
    let body = sent("openai", ModelInfo { media_in_results: Some(true), ..unknown() }, |_| {}).await.body;
    let last = body["messages"].as_array().unwrap().last().unwrap()["content"].clone();
    assert_eq!(last[1]["type"], "image_url", "{last}");
    // One without documents is sent a note.
    let body = sent("deepseek", unknown(), |_| {}).await.body.to_string();
    assert!(body.contains("plan.pdf") && !body.contains("JVBERi0="), "{body}");
}

#[tokio::test]
async fn a_failure_has_its_kind_and_what_to_change() {
    let server =
        ModelServer::start(Script::new([ServerReply::raw(200, "text/html", "<html>Log in</html>")])).unwrap();
    let set = |o: &mut AgentOptions| {
        (o.provider, o.base_url) = (Some("generic".into()), Some(server.url()));
    };
    let agent = builder(unknown()).configure(set).build().unwrap();
    let result = agent.prompt("Hi").await.unwrap();
    let failure = result.failure.clone().unwrap();
    assert_eq!(
        (failure.kind, failure.hint.as_deref()),
        (ProviderErrorKind::Configuration, Some(&ProviderHint::CheckBaseUrl))
    );
    assert!(
        result.explanation().ends_with("web page, not JSON: check the option `base_url`"),
        "{}",
        result.explanation()
    );
    assert!(!result.explanation().contains("--"), "{}", result.explanation());
    assert_eq!(result.errors, [failure.message]);

    let full = Reply::text("and so").stop(StopReason::ContextWindowExceeded);
    let model =
        Scripted::new([Reply::failure(ProviderErrorKind::InvalidRequest, "no"), full, Reply::text("ok")]);
    let agent = self::agent(&model, unknown());
    assert!(agent.prompt("Hi").await.unwrap().failure.is_some());
    let other = agent.prompt("Hi").await.unwrap();
    assert_eq!((other.is_success(), other.failure.is_none()), (false, true), "it belongs to its own run");
    let fine = agent.prompt("Hi").await.unwrap();
    assert_eq!((fine.failure.is_none(), fine.explanation().as_str()), (true, ""));
}
