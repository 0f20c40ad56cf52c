//! Ask, and wait for the answer. The model is a script, so that this runs without a key; the tools are real.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use open_agent::testing::{Reply, Scripted};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = Scripted::new([
        Reply::text("I look at the file.")
            .and_call("Read", r#"{"file_path": "Cargo.toml", "limit": 2}"#)
            .usage(900, 40),
        Reply::text("It is the package `open-agent`.").usage(980, 12),
    ]);
    let agent = open_agent::Agent::builder()
        .provider(model) // with a key in the environment, leave this line out
        .cwd(env!("CARGO_MANIFEST_DIR"))
        .configure(|options| options.persist_session = false)
        .build()?;

    let result = agent.prompt("Which package is this?").await?;

    println!("{}", result.text);
    println!("{:?} after {} turns, {}", result.status, result.turns, result.cost.unwrap_or_default());
    for message in &result.messages {
        println!("{:?}: {} block(s)", message.role, message.content.len());
    }
    Ok(())
}
