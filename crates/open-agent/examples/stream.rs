//! Watch a run as it happens: text in pieces, calls with their rulings and results, the end.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use open_agent::engine::DeltaKind;
use open_agent::testing::{Reply, Scripted};
use open_agent::{AgentEvent, read_only_tool_fn};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Weather {
    /// Which city.
    city: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let weather =
        read_only_tool_fn("weather", "Tells the weather in a city.", |input: Weather, _cx| async move {
            Ok(format!("Sunny in {}.", input.city))
        });
    let model = Scripted::new([
        Reply::text("Let me see. ")
            .and_call("weather", r#"{"city": "Oslo"}"#)
            .and_call("weather", r#"{"town": "Rome"}"#),
        Reply::text("It is sunny in Oslo."),
    ]);
    let agent = open_agent::Agent::builder()
        .provider(model)
        .tool(weather)
        .configure(|options| options.persist_session = false)
        .build()?;

    let mut run = agent.stream("How is the weather in Oslo?");
    let mut text = String::new();
    while let Some(envelope) = run.next().await {
        match envelope.event {
            AgentEvent::BlockDelta(delta) if delta.kind == DeltaKind::Text => text.push_str(&delta.text),
            AgentEvent::AssistantMessage(_) if !text.is_empty() => {
                println!("model: {}", std::mem::take(&mut text));
            }
            AgentEvent::ToolRuled(ruled) => {
                println!("{} {}: {:?}", ruled.tool, ruled.input.get(), ruled.ruling.decision);
            }
            AgentEvent::ToolFinished(done) => println!("{} finished, error: {}", done.tool, done.is_error),
            AgentEvent::RunEnded(ended) => println!("run ended: {:?}", ended.status),
            _ => {}
        }
    }
    let result = run.result().await?;
    println!("result: {}", result.text);
    Ok(())
}
