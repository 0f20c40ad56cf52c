//! Say how long a model thinks and how much work it puts into an answer, at the start and later.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use open_agent::model::Block;
use open_agent::testing::{Reply, Scripted};
use open_agent::{Effort, ThinkingMode};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = Scripted::responding(|request| {
        println!(
            "asked with thinking {:?} and effort {:?}",
            request.options.thinking, request.options.effort
        );
        Reply::default().and_thinking("Forty-two, surely.").and_text("42")
    });
    let agent = open_agent::Agent::builder()
        .provider(model)
        .effort(Effort::High)
        .configure(|options| options.persist_session = false)
        .build()?;

    let result = agent.prompt("What is the answer?").await?;
    for block in result.messages.iter().flat_map(|m| &m.content) {
        if let Block::Thinking(thinking) = block {
            println!("thought: {} (signed: {})", thinking.text, thinking.signature.is_some());
        }
    }

    agent.set_effort(None);
    agent.set_thinking(Some(ThinkingMode::Enabled { budget_tokens: 4_096 }))?;
    agent.prompt("Are you sure?").await?;

    agent.set_max_thinking_tokens(None)?;
    agent.prompt("Really?").await?;

    if let Err(error) = agent.set_max_thinking_tokens(Some(0)) {
        println!("refused: {error}");
    }
    Ok(())
}
