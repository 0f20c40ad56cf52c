//! Tools that come and go while a session goes on: the prefix stays as it was sent, and the model is told once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use open_agent_model::scripted::{Reply, Scripted, newest_results};
use open_agent_model::{Block, Role};
use open_agent_session::{NoticeKind, RunLimits};
use open_agent_tool::{DynTool, ToolSet, ToolSource, tool_fn};

use crate::world::{Input, Options, World, finish, spec};

/// A source whose tools the test sets.
#[derive(Clone, Default)]
struct Shelf(Arc<(AtomicU64, Mutex<Vec<&'static str>>)>);

impl Shelf {
    fn set(&self, names: &[&'static str]) {
        *self.0.1.lock().unwrap() = names.to_vec();
        self.0.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl ToolSource for Shelf {
    fn snapshot(&self) -> (u64, Arc<ToolSet>) {
        let tool = |name: &&'static str| -> Arc<dyn DynTool> {
            let name = *name;
            tool_fn(name, "Says its name.", move |_: Input, _| async move { Ok(format!("I am {name}.")) })
        };
        let tools: Vec<_> = self.0.1.lock().unwrap().iter().map(tool).collect();
        (self.0.0.load(Ordering::Relaxed), Arc::new(ToolSet::new(tools)))
    }
}

fn world(script: impl IntoIterator<Item = Reply>) -> (World, Shelf) {
    let shelf = Shelf::default();
    shelf.set(&["hammer"]);
    let extra: Vec<Arc<dyn ToolSource>> = vec![Arc::new(shelf.clone())];
    (World::with(Scripted::new(script), Options { extra, ..Options::default() }), shelf)
}

fn newest_user_text(request: &open_agent_model::ModelRequest) -> String {
    let last = request.messages.iter().rev().find(|m| m.role == Role::User).unwrap();
    last.content
        .iter()
        .map(|b| if let Block::Text(text) = b { text.clone() } else { String::new() })
        .collect()
}

#[tokio::test]
async fn an_added_tool_is_told_once_and_can_be_called_while_the_prefix_stays() {
    let script =
        [Reply::text("one"), Reply::call("saw", r#"{"n":1}"#), Reply::text("two"), Reply::text("three")];
    let (world, shelf) = world(script);
    let (mut driver, _) = world.run(RunLimits::default()).await;
    shelf.set(&["hammer", "saw"]);
    for _ in 0..2 {
        driver.begin(spec("more", RunLimits::default())).await.unwrap();
        finish(&mut driver).await;
    }
    let requests = world.model.requests();
    assert!(requests.iter().all(|r| Arc::ptr_eq(&r.prefix, &requests[0].prefix)), "the prefix is frozen");
    let told = newest_user_text(&requests[1]);
    assert!(told.contains("These tools were added: saw: Says its name."), "{told}");
    assert_eq!(newest_results(&requests[2]), ["I am saw."]);
    let again = newest_user_text(&requests[3]);
    assert!(!again.contains("saw"), "{again}");
    let notices = &driver.machine().run().unwrap().notices;
    assert!(notices.iter().all(|n| n.kind != NoticeKind::ToolsChanged), "the second run has nothing to tell");
}

#[tokio::test]
async fn a_removed_tool_is_told_and_its_calls_are_refused_with_the_reason() {
    let script = [Reply::text("one"), Reply::call("hammer", r#"{"n":1}"#), Reply::text("two")];
    let (world, shelf) = world(script);
    let (mut driver, _) = world.run(RunLimits::default()).await;
    shelf.set(&[]);
    driver.begin(spec("more", RunLimits::default())).await.unwrap();
    finish(&mut driver).await;
    let requests = world.model.requests();
    let told = newest_user_text(&requests[1]);
    assert!(told.contains("These tools were removed and cannot be called any more: hammer."), "{told}");
    assert_eq!(newest_results(&requests[2]), ["hammer was removed and cannot be called any more."]);
    let notices = &driver.machine().run().unwrap().notices;
    assert_eq!(notices.iter().filter(|n| n.kind == NoticeKind::ToolsChanged).count(), 1);
}

#[tokio::test]
async fn the_prefix_is_rendered_anew_on_request() {
    let (world, shelf) = world([Reply::text("one"), Reply::text("two")]);
    let (mut driver, _) = world.run(RunLimits::default()).await;
    shelf.set(&["hammer", "saw"]);
    let refreshing =
        open_agent_engine::RunSpec { refresh_prefix: true, ..spec("more", RunLimits::default()) };
    driver.begin(refreshing).await.unwrap();
    finish(&mut driver).await;
    let requests = world.model.requests();
    assert!(requests[1].prefix.tools.iter().any(|tool| tool.name == "saw"));
    assert!(!newest_user_text(&requests[1]).contains("added"), "what the prefix says is not told again");
}
