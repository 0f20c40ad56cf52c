//! Feed an agent from a stream of messages: each is a run of its own, and the conversation goes on.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use open_agent::testing::{Reply, Scripted};
use open_agent::{AgentEvent, Prompt};
use tokio::sync::mpsc;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = Scripted::responding(|request| {
        let said: Vec<String> = request.messages.iter().map(|m| m.text()).collect();
        Reply::text(&format!("So far we said: {}", said.join(" / ")))
    });
    let agent = open_agent::Agent::builder()
        .provider(model)
        .configure(|options| options.persist_session = false)
        .build()?;

    let (send, mut receive) = mpsc::channel::<Prompt>(1);
    let messages = futures_util::stream::poll_fn(move |cx| receive.poll_recv(cx));
    let mut run = agent.stream_input(messages);

    let mut ends = 0;
    send.send("Hello.".into()).await?;
    let mut send = Some(send);
    while let Some(envelope) = run.next().await {
        match envelope.event {
            AgentEvent::AssistantMessage(answer) => println!("{}", answer.message.text()),
            AgentEvent::RunEnded(ended) => {
                ends += 1;
                println!("run {ends}: {:?}", ended.status);
                // The next message is sent when the last one is answered; after two, the stream ends.
                match send.take() {
                    Some(open) if ends == 1 => {
                        open.send("And again.".into()).await?;
                        send = Some(open);
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
    println!("{} results", run.result().await?.len());
    Ok(())
}
