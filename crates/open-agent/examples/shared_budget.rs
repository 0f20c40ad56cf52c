//! Let several agents spend from one budget. A request that does not fit because of what others have reserved waits for its
//! turn; together the agents stay within the limit.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::Arc;

use open_agent::testing::{Reply, Scripted};
use open_agent::{Budget, Cost, RunStatus};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let usd = |text| Cost::from_usd(text).ok_or("not an amount of dollars");
    let all = Arc::new(Budget::new(usd("0.50")?));
    // A part of it: these agents may spend 0.10 dollars, and never more than what is left of all.
    let helpers = Arc::new(Budget::child_of(&all, usd("0.10")?));

    // A model that would go on for ever, at 0.03 dollars a request.
    let endless = Scripted::responding(|_| {
        Reply::text("More. ").and_call("Glob", r#"{"pattern": "*.none"}"#).usage(5_000, 1_000)
    });
    let builder = open_agent::Agent::builder()
        .provider(endless)
        .model("claude-sonnet-4-6")
        // The most that an answer can cost is reserved while it is awaited: 1,000 tokens at 15 dollars a million.
        .configure(|options| options.max_tokens = Some(1_000))
        .configure(|options| options.persist_session = false)
        .budget(Arc::clone(&helpers));
    let agents = [builder.clone().build()?, builder.clone().build()?, builder.build()?];

    let [a, b, c] = &agents;
    let (a, b, c) = tokio::join!(a.prompt("Help."), b.prompt("Help."), c.prompt("Help."));
    let results = [a?, b?, c?];
    println!("all ended by the budget: {}", results.iter().all(|r| r.status == RunStatus::ErrorMaxBudgetUsd));
    println!("{}", results[0].errors.join("; "));
    for agent in &agents {
        println!("an agent spent {}", agent.budget().spent());
    }
    let left = all.left().unwrap_or_default();
    println!("the helpers spent {}, and {left} are left for others", helpers.spent());
    Ok(())
}
