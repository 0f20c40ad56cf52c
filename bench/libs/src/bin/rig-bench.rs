//! rig: an agent with one tool that reads a file, streamed. argv: url agents

use std::time::Instant;

use futures::{StreamExt, stream};
use rig::AgentBuilder;
use rig::tool::{Tool, ToolContext};

#[derive(serde::Deserialize)]
struct Args {
    path: String,
}

struct Read;

impl Tool for Read {
    const NAME: &'static str = "read_file";
    type Args = Args;
    type Output = String;
    type Error = std::io::Error;

    fn description(&self) -> String {
        "Read a file.".into()
    }

    fn parameters(&self) -> serde_json::Value {
        serde_json::json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]})
    }

    async fn call(&self, _: &mut ToolContext, args: Args) -> Result<String, std::io::Error> {
        tokio::fs::read_to_string(args.path).await
    }
}

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let url = args.next().expect("url");
    let agents: usize = args.next().and_then(|count| count.parse().ok()).unwrap_or(1);
    let (base, started) = (bench_libs::rss(), Instant::now());
    let runs = (0..agents).map(|_| {
        let url = url.clone();
        tokio::spawn(async move {
            let client = rig::providers::anthropic::AnthropicConfig::new("x").with_base_url(&url).client();
            let model = client.completion("claude-sonnet-4-5");
            let agent = AgentBuilder::new(model).preamble("You are a coding agent.").tool(Read).build();
            let mut stream = agent.prompt("Read the files.").max_turns(10_000).stream();
            let mut items = 0usize;
            while let Some(item) = stream.next().await {
                item.expect("item");
                items += 1;
            }
            drop(stream);
            (agent, items)
        })
    });
    // The agents are kept until the memory has been read.
    let done: Vec<_> = stream::iter(runs)
        .buffer_unordered(bench_libs::AT_ONCE)
        .map(|agent| agent.expect("agent"))
        .collect()
        .await;
    bench_libs::report(started, base, agents, done.iter().map(|(_, items)| items).sum());
}
