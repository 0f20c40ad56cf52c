//! The ten lines of the README.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use open_agent::Agent;
use open_agent::testing::{Reply, Scripted};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = Scripted::new([
        Reply::call("Glob", r#"{"pattern": "*.toml"}"#),
        Reply::text("It is a Rust project."),
    ]);
    let agent = Agent::builder().provider(model).build()?; // with a key in the environment, leave `.provider(…)` out
    let result = agent.prompt("What kind of project is this?").await?;
    println!("{} ({} turns)", result.text, result.turns);
    Ok(())
}
