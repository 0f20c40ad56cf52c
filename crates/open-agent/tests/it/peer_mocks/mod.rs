//! The library against mock servers that others wrote, in both formats and with everything that they can do wrong.

mod aimock;
mod llmock;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use open_agent::model::ProviderErrorKind;
use open_agent::{AgentBuilder, AgentEvent, AgentOptions, Env, QueryResult, RetryConfig, ToolError, tool_fn};

/// Our profile for each of the formats.
const PROVIDERS: [&str; 2] = ["anthropic", "generic"];

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct City {
    /// Which city.
    city: String,
}

/// What came of a prompt.
struct Outcome {
    result: QueryResult,
    /// The failed requests, in order.
    failures: Vec<ProviderErrorKind>,
    /// What the tool was called with.
    cities: Vec<String>,
    /// The pieces of text that were streamed; for a slow reader they are joined.
    pieces: usize,
}

impl Outcome {
    /// It went well, after failures of these kinds.
    fn is_success_after(&self, failures: &[ProviderErrorKind]) -> bool {
        self.result.is_success() && !self.result.text.is_empty() && self.failures == failures
    }

    /// It failed, and the last request so often.
    fn failed_with(&self, kind: ProviderErrorKind, attempts: usize) -> bool {
        !self.result.is_success() && !self.result.errors.is_empty() && self.failures == vec![kind; attempts]
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let r = &self.result;
        write!(f, "{:?} {:?} {:?} after {:?}", r.status, r.text, r.errors, self.failures)
    }
}

/// Two retries, and little patience.
fn options(provider: &str, base_url: &str) -> AgentOptions {
    let mut o = AgentOptions::default();
    o.persist_session = false;
    o.model = Some("mock-model".into());
    o.provider = Some(provider.into());
    o.base_url = Some(base_url.into());
    o.system_prompt = Some("You are a helpful assistant.".into());
    o.tools = Some(Vec::new());
    o.idle_timeout = Duration::from_millis(700);
    o.retry =
        RetryConfig { max_retries: 2, base_delay: Duration::from_millis(200), ..RetryConfig::default() };
    o
}

fn with_tool(mut options: AgentOptions) -> AgentOptions {
    options.tools = Some(vec!["get_weather".into()]);
    options.allowed_tools = vec!["get_weather".into()];
    options
}

async fn prompt(options: AgentOptions, text: &str) -> Outcome {
    let called: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&called);
    let weather = tool_fn("get_weather", "The weather of a city.", move |input: City, _| {
        seen.lock().unwrap().push(input.city);
        async { Ok::<_, ToolError>("Sunny.") }
    });
    let agent = AgentBuilder::with_env(Env::default()).tool(weather).options(options).build().unwrap();
    let mut run = agent.stream(text);
    let (mut failures, mut pieces) = (Vec::new(), 0);
    while let Some(envelope) = run.next().await {
        match envelope.event {
            AgentEvent::ModelFailed(failed) => {
                failures.extend(failed.error.and_then(|e| e.kind.known().copied()))
            }
            AgentEvent::BlockDelta(_) => pieces += 1,
            _ => {}
        }
    }
    let result = run.result().await.unwrap();
    let cities = called.lock().unwrap().clone();
    Outcome { result, failures, cities, pieces }
}
