//! Long runs: what a request costs must not depend on how much was said before it. Counts, not times: a walk through the
//! whole conversation at each request is no more than microseconds in the beginning, and quadratic in the end.

use std::sync::{Arc, Mutex};

use open_agent_engine::{Driver, EventSink, Host};
use open_agent_model::scripted::{Reply, Scripted};
use open_agent_model::{
    BoxFuture, Message, MessageId, ModelInfo, ModelRequest, ModelStream, Provider, ProviderError, RunStatus,
    visits,
};
use open_agent_session::RunLimits;
use open_agent_testkit::cases;

use crate::world::{World, finish, session, spec, status};

fn turns() -> usize {
    cases(300, 2_000)
}

/// Answers from a script and counts the messages that the loop looks at between two requests.
struct Counting {
    script: Scripted,
    vision: Option<bool>,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    before: u64,
    looked_at: Vec<u64>,
    messages: usize,
}

impl Provider for Counting {
    fn capabilities(&self, model: &ModelInfo) -> ModelInfo {
        ModelInfo { vision: self.vision, ..model.clone() }
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ProviderError>> {
        let mut counts = self.counts.lock().unwrap();
        let looked_at = visits() - counts.before;
        counts.looked_at.push(looked_at);
        counts.messages = request.messages.len();
        // The script checks what it gets, which is no part of what is counted.
        let message = Message::user(MessageId::from_number(1), "go");
        let short = ModelRequest { messages: std::iter::once(Arc::new(message)).collect(), ..request };
        let stream = self.script.stream(short);
        counts.before = visits();
        stream
    }
}

async fn counts_of_a_run(vision: Option<bool>) -> Counts {
    let mut turn = 0;
    let script = Scripted::responding(move |_| {
        turn += 1;
        match turn {
            _ if turn > turns() => Reply::text("done"),
            _ if turn % 10 == 0 => Reply::call("picture", "{}"),
            // Its end is told in a message that joins the last one.
            _ if turn % 10 == 5 => Reply::call("background", "{}"),
            _ => Reply::call("read", "{}"),
        }
    });
    let world = World::new(script.clone());
    let counts = Mutex::new(Counts { before: visits(), ..Counts::default() });
    let provider = Arc::new(Counting { script, vision, counts });
    let host = Arc::into_inner(world.host).unwrap();
    let host = Host { provider: Arc::clone(&provider) as Arc<dyn Provider>, ..host };
    let mut driver = Driver::open(Arc::new(host), session(), EventSink::none()).await.unwrap();
    let limits = RunLimits { max_turns: None, max_model_calls: u32::MAX, ..RunLimits::default() };
    driver.begin(spec("go", limits)).await.unwrap();
    finish(&mut driver).await;
    assert_eq!(status(driver.machine().run().unwrap()), RunStatus::Success);
    std::mem::take(&mut provider.counts.lock().unwrap())
}

/// The check and the estimate look at the answer and at its results, and so does the search for pictures where the model
/// takes none.
#[tokio::test]
async fn a_request_looks_at_new_messages_only() {
    for (vision, walks) in [(None, 2), (Some(false), 3)] {
        let counts = counts_of_a_run(vision).await;
        assert_eq!((counts.looked_at.len(), counts.messages), (turns() + 1, 2 * turns() + 1));
        let all: u64 = counts.looked_at.iter().sum();
        assert!(all >= walks * counts.messages as u64, "each message is checked and measured: {all}");
        let most = counts.looked_at.iter().max();
        assert!(most <= Some(&(2 * walks)), "{vision:?}: {most:?} messages were looked at for one request");
    }
}
