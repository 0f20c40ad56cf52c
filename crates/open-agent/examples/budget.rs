//! Limit what an agent may spend. The limit is checked before each request: one that might pass it is not sent.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use open_agent::testing::{Reply, Scripted};
use open_agent::{Cost, ModelInfo, Price};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let usd = |text| Cost::from_usd(text).ok_or("not an amount of dollars");
    let limit = usd("0.10")?;

    // A model that would go on for ever, at 0.04 dollars a request.
    let endless = || {
        Scripted::responding(|_| {
            Reply::text("More. ").and_call("Glob", r#"{"pattern": "*.none"}"#).usage(10_000, 1_000)
        })
    };
    let builder = open_agent::Agent::builder()
        .provider(endless())
        .model("my-model")
        .max_budget_usd(limit)
        .configure(|options| options.persist_session = false);

    // A budget is of no use without a price.
    if let Err(error) = builder.clone().build() {
        println!("refused: {error}");
    }

    let price = Price::new(usd("3")?, usd("10")?);
    let agent =
        builder.register_model(ModelInfo { price: Some(price), ..ModelInfo::unknown("my-model") }).build()?;
    let result = agent.prompt("Spend it all.").await?;
    println!("{:?} after {} requests", result.status, result.model_calls);
    println!("{}", result.errors.join("; "));
    println!("spent {} of {limit}, and kept {:?}", result.cost.unwrap_or_default(), result.text);
    Ok(())
}
