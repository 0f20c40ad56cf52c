//! Switch models in a conversation. What each one cost is kept apart.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use open_agent::testing::{Reply, Scripted};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = Scripted::new([
        Reply::text("A plan with three steps.").usage(45, 3),
        Reply::text("Step one is done.").usage(52, 156),
    ]);
    let agent = open_agent::Agent::builder()
        .provider(model)
        .model("claude-sonnet-4-6")
        .configure(|options| options.persist_session = false)
        .build()?;

    let plan = agent.prompt("Make a plan.").await?;
    // `haiku` alone is the newest of its family.
    agent.switch_model("claude-haiku-4-5")?;
    let work = agent.prompt("Do step one.").await?;

    for result in [plan, work] {
        for model in &result.cost_by_model {
            let usage = model.usage;
            let cost = model.cost.unwrap_or_default();
            println!("{}: {} in, {} out, {cost}", model.model, usage.input_tokens, usage.output_tokens);
        }
    }
    if let Err(error) = agent.switch_model("  ") {
        println!("refused: {error}");
    }
    Ok(())
}
