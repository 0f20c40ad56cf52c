//! Interrupt a run in the middle of an answer. What came is kept, and the conversation goes on.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use open_agent::AgentEvent;
use open_agent::testing::{Reply, Scripted};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The first answer stalls after a few words, as a busy server's may.
    let model = Scripted::new([Reply::text("The answer is").then_stalls(), Reply::text("Forty-two.")]);
    let agent = open_agent::Agent::builder()
        .provider(model)
        .configure(|options| options.persist_session = false)
        .build()?;

    let mut run = agent.stream("What is the answer?");
    while let Some(envelope) = run.next().await {
        if let AgentEvent::BlockDelta(_) = envelope.event {
            // Any clone of the agent can do it, from any task.
            println!("interrupted: {}", agent.interrupt());
            break;
        }
    }
    let result = run.result().await?;
    println!("{:?}, cancelled: {}, text so far: {:?}", result.status, result.is_cancelled(), result.text);

    let result = agent.prompt("Once more, please.").await?;
    println!("{:?}: {}", result.status, result.text);
    println!("nothing to interrupt now: {}", !agent.interrupt());
    Ok(())
}
