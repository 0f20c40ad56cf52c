//! What every event says of the place that it belongs to.

use open_agent_engine::{AgentEvent, DeltaKind, EventSink};
use open_agent_model::AgentId;
use open_agent_model::scripted::{Reply, Scripted};
use open_agent_session::RunLimits;

use crate::world::{World, collect, finish, spec};

#[tokio::test]
async fn every_event_says_its_own_run_and_turn() {
    let two = || [Reply::call("read", r#"{"n":1}"#), Reply::text("done")];
    let world = World::new(Scripted::new(two().into_iter().chain(two())));
    let (mut driver, first) = world.run(RunLimits::default()).await;
    let (sink, stream) = EventSink::live();
    driver.set_sink(sink.clone());
    let run = driver.begin(spec("again", RunLimits::default())).await.unwrap();
    finish(&mut driver).await;
    sink.finish();
    let second = collect(stream).await;
    assert!(second.iter().all(|e| e.run == Some(run)), "also the prompt's own event");
    let is_main = |e: &open_agent_engine::Envelope| e.agent == AgentId::main() && e.parent.is_none();
    assert!(first.iter().chain(&second).all(is_main));
    for (events, begins) in [(first, 0), (second, 2)] {
        for event in &events {
            let turn = match &event.event {
                AgentEvent::ToolRuled(r) => r.call.turn,
                AgentEvent::ToolFinished(f) => f.call.turn,
                AgentEvent::BlockDelta(d) if d.kind == DeltaKind::Text => begins + 1,
                AgentEvent::AssistantMessage(a) if a.message.tool_uses().next().is_some() => begins,
                AgentEvent::AssistantMessage(_) => begins + 1,
                _ => continue,
            };
            assert_eq!(event.turn, turn, "{event:?}");
        }
    }
}
