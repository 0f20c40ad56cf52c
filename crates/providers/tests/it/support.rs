//! What the tests share: a conversation with everything in it, and the collecting of answers.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
pub(crate) use open_agent_model::Assembled;
use open_agent_model::{
    Assembler, Block, BrokenInput, Message, MessageId, ModelEvent, ModelInfo, ModelRequest, Prefix, Provider,
    ProviderError, RawJson, RequestOptions, ResultBlock, Role, Secret, Section, Source, Thinking, ToolResult,
    ToolSpec, ToolUse, ToolUseId,
};
use open_agent_providers::{Profile, ProviderConfig, provider};
use open_agent_testkit::server::ModelServer;

pub(crate) const KEY: &str = "sk-canary-1234567890";

pub(crate) fn profile(name: &str) -> &'static Profile {
    Profile::by_name(name).unwrap()
}

/// The address as a user of that profile would write it.
pub(crate) fn config(name: &str, server: &ModelServer) -> ProviderConfig {
    at(name, &server.url())
}

pub(crate) fn at(name: &str, url: &str) -> ProviderConfig {
    ProviderConfig::new(profile(name))
        .with_base_url(url)
        .with_key(Secret::new(KEY))
        .with_idle_timeout(Duration::from_secs(20))
}

pub(crate) fn provider_for(name: &str, server: &ModelServer) -> Arc<dyn Provider> {
    provider(config(name, server)).unwrap()
}

pub(crate) fn message(role: Role, content: Vec<Block>) -> Arc<Message> {
    let model = (role == Role::Assistant).then(|| "m".into());
    Arc::new(Message { id: MessageId::from_number(1), role, content, model })
}

pub(crate) fn text(text: &str) -> Block {
    Block::Text(text.into())
}

pub(crate) fn call(id: &str, name: &str, input: &str) -> Block {
    let input = RawJson::parse(input).unwrap();
    Block::ToolUse(ToolUse { id: ToolUseId::new(id), name: name.into(), input, broken: None })
}

pub(crate) fn result(id: &str, content: Vec<ResultBlock>, is_error: bool) -> Block {
    Block::ToolResult(ToolResult { tool_use_id: ToolUseId::new(id), content, is_error })
}

pub(crate) fn request(messages: Vec<Arc<Message>>) -> ModelRequest {
    ModelRequest {
        model: "m".into(),
        info: Arc::new(ModelInfo::unknown("m")),
        prefix: Arc::new(Prefix::default()),
        messages: messages.into(),
        options: RequestOptions { max_tokens: 4096, ..RequestOptions::default() },
    }
}

pub(crate) fn hello() -> ModelRequest {
    request(vec![message(Role::User, vec![text("Say hello.")])])
}

pub(crate) fn tools() -> Arc<Prefix> {
    let spec = |name: &str| ToolSpec {
        name: name.into(),
        description: format!("The tool {name}."),
        input_schema: RawJson::parse(r#"{"type":"object","properties":{"path":{"type":"string"}}}"#).unwrap(),
    };
    let section = |name: &str, text: &str| Section { name: name.into(), text: text.into() };
    Arc::new(Prefix {
        system: vec![section("role", "You are an agent."), section("rules", "Be \"brief\".")],
        tools: vec![spec("Read"), spec("Grep")],
    })
}

fn png() -> Source {
    Source::Inline { media_type: "image/png".into(), data: "iVBORw0KGgo=".into() }
}

fn pdf() -> Source {
    Source::Inline { media_type: "application/pdf".into(), data: "JVBERi0=".into() }
}

/// Each kind of block in each place where it may stand.
pub(crate) fn everything() -> ModelRequest {
    let thinking = |signature: Option<&str>| {
        Block::Thinking(Thinking {
            text: "Let me see.".into(),
            signature: signature.map(str::to_owned),
            details: None,
        })
    };
    let broken = Block::ToolUse(ToolUse {
        id: ToolUseId::new("c3"),
        name: "Read".into(),
        input: RawJson::object(),
        broken: Some(BrokenInput {
            raw: "{\"path\": brok".into(),
            error: "expected value".into(),
            cut: false,
        }),
    });
    let mut request = request(vec![
        message(
            Role::User,
            vec![
                text("What is this?"),
                Block::Image(png()),
                Block::Document { source: pdf(), title: Some("plan.pdf".into()) },
                Block::Image(Source::Url { url: "https://example.com/a.png".into() }),
            ],
        ),
        message(
            Role::Assistant,
            vec![
                thinking(Some("sig")),
                Block::RedactedThinking { data: "cipher".into() },
                text("I look."),
                call("c1", "Read", r#"{"path": "a",  "n": 1.0e2}"#),
                call("c2", "Grep", "{}"),
                broken,
            ],
        ),
        message(
            Role::User,
            vec![
                result(
                    "c1",
                    vec![ResultBlock::text("1\tänder"), ResultBlock::Image { source: png() }],
                    false,
                ),
                result("c2", vec![], false),
                result("c3", vec![ResultBlock::text("the arguments are no JSON")], true),
                text("Go on."),
            ],
        ),
        message(Role::Assistant, vec![thinking(None)]),
        message(
            Role::User,
            vec![Block::Document {
                source: Source::Inline { media_type: "text/plain".into(), data: "aMOk".into() },
                title: None,
            }],
        ),
    ]);
    request.prefix = tools();
    request
}

/// All events, then how it ended.
pub(crate) async fn events(
    provider: &dyn Provider,
    request: ModelRequest,
) -> (Vec<ModelEvent>, Option<ProviderError>) {
    let mut stream = match provider.stream(request).await {
        Ok(stream) => stream,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let mut out = Vec::new();
    while let Some(event) = stream.next().await {
        match event {
            Ok(event) => out.push(event),
            Err(error) => return (out, Some(error)),
        }
    }
    (out, None)
}

pub(crate) async fn collect(
    provider: &dyn Provider,
    request: ModelRequest,
) -> Result<Assembled, ProviderError> {
    let (events, error) = events(provider, request).await;
    let mut assembler = Assembler::new();
    for event in &events {
        assembler.push(event);
    }
    error.map_or_else(|| assembler.finish(), Err)
}
