//! Messages sent at any moment of a session's life: each that was accepted and not taken back reaches the model exactly
//! once and in order.

use std::sync::Arc;

use open_agent_engine::{Command, Driver, EngineError, Progress};
use open_agent_model::scripted::{Reply, Scripted, newest_results};
use open_agent_model::{Answer, Block, Messages, ProviderErrorKind, QueueId, Role, RunStatus};
use open_agent_session::RunLimits;
use open_agent_testkit::cases;
use open_agent_tool::{ToolSet, ToolSource, tool_fn};
use proptest::prelude::*;
use tokio_util::sync::CancellationToken;

use crate::world::{Input, Options, World, finish, spec, status};

/// What is done to a session.
#[derive(Clone, Copy, Debug)]
enum Op {
    Send { steer: bool },
    Unqueue(usize),
    Advance(usize),
    Finish,
    Prompt,
    Next,
    Interrupt,
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        5 => any::<bool>().prop_map(|steer| Op::Send { steer }),
        2 => any::<usize>().prop_map(Op::Unqueue),
        5 => (1..6usize).prop_map(Op::Advance),
        2 => Just(Op::Finish),
        1 => Just(Op::Prompt),
        1 => Just(Op::Next),
        1 => Just(Op::Interrupt),
        1 => Just(Op::Reopen),
    ]
}

/// A model whose answers follow from the number of messages, with and without calls.
fn model(seed: usize) -> Scripted {
    Scripted::responding(move |request| match (request.messages.len() + seed) % 5 {
        0 => Reply::call("read", r#"{"n":1}"#).and_call("write", r#"{"n":2}"#),
        1 => Reply::call("write", r#"{"n":1}"#).and_call("ask", "{}").and_call("read", "{}"),
        2 => Reply::call("read", "{}"),
        _ => Reply::text("ok"),
    })
}

/// A message that was accepted, and what has to become of it.
#[derive(Clone, Debug, PartialEq)]
struct Expected {
    text: String,
    steer: bool,
    id: QueueId,
}

/// The session and what it should hold by what was done to it.
struct Life {
    world: World,
    driver: Driver,
    accepted: Vec<QueueId>,
    /// Accepted, not taken back, not yet seen delivered; in order.
    pending: Vec<Expected>,
    /// What the model was told of messages and prompts.
    told: Vec<String>,
    sent: usize,
    prompts: usize,
}

/// Each text of the users, as the model gets them.
fn told_in(messages: &Messages) -> Vec<String> {
    let users = messages.iter().filter(|m| m.role == Role::User);
    let texts = users.flat_map(|m| &m.content).filter_map(|b| match b {
        Block::Text(text) => Some(text.clone()),
        _ => None,
    });
    texts.collect()
}

impl Life {
    async fn new(seed: usize) -> Self {
        let world = World::new(model(seed));
        let driver = world.open().await;
        let (accepted, pending, told) = (Vec::new(), Vec::new(), Vec::new());
        Self { world, driver, accepted, pending, told, sent: 0, prompts: 0 }
    }

    async fn act(&mut self, op: Op) {
        match op {
            Op::Send { steer } => {
                self.sent += 1;
                let text = format!("message {}", self.sent);
                let command = Command::Send { prompt: vec![Block::Text(text.clone())], steer };
                let id = self.driver.command(command).await.unwrap().queued.unwrap();
                self.accepted.push(id);
                self.pending.push(Expected { text, steer, id });
            }
            Op::Unqueue(_) if self.accepted.is_empty() => {}
            Op::Unqueue(which) => {
                let id = self.accepted[which % self.accepted.len()];
                let place = self.pending.iter().position(|p| p.id == id);
                let taken = self.driver.command(Command::Unqueue(id)).await;
                match place {
                    Some(place) => {
                        taken.unwrap();
                        self.pending.remove(place);
                        let again = self.driver.command(Command::Unqueue(id)).await;
                        assert!(matches!(again, Err(EngineError::NotQueued(i)) if i == id), "{again:?}");
                    }
                    None => assert!(matches!(taken, Err(EngineError::NotQueued(i)) if i == id), "{taken:?}"),
                }
            }
            Op::Advance(steps) => {
                for _ in 0..steps {
                    self.step().await;
                }
            }
            Op::Finish => while self.step().await {},
            Op::Prompt => {
                self.prompts += 1;
                let text = format!("prompt {}", self.prompts);
                self.driver.begin(spec(&text, RunLimits::default())).await.unwrap();
                self.expect_all_told();
                assert_eq!(self.told.pop(), Some(text), "the prompt comes after what was sent before it");
                self.told = told_in(self.driver.machine().transcript().messages());
            }
            Op::Next => {
                let begun = self.driver.begin_queued(spec("not used", RunLimits::default())).await.unwrap();
                assert_eq!(begun.is_some(), !self.pending.is_empty());
                self.expect_all_told();
            }
            Op::Interrupt => {
                let cancel = CancellationToken::new();
                cancel.cancel();
                self.driver.set_cancel(cancel);
                self.driver.advance().await.unwrap();
                self.driver.set_cancel(CancellationToken::new());
            }
            Op::Reopen => {
                self.driver.park().await;
                self.driver = self.world.open().await;
            }
        }
        self.check();
    }

    /// One step; false if nothing is left to be done.
    async fn step(&mut self) -> bool {
        let before = self.pending.iter().filter(|p| p.steer).count();
        let asked = self.world.model.requests().len();
        let progress = self.driver.advance().await.unwrap();
        self.check();
        if self.world.model.requests().len() > asked {
            // Whatever was to be told during the run is in the request.
            assert!(self.pending.iter().all(|p| !p.steer), "{before} waited, {:?} still do", self.pending);
            let request = self.world.model.requests().pop().unwrap();
            assert_eq!(told_in(&request.messages), self.told);
        }
        match progress {
            Progress::Stepped => true,
            Progress::Waiting(asks) => {
                self.driver.answer(asks[0], Answer::text("yes")).await.unwrap();
                true
            }
            _ => false,
        }
    }

    /// What is told only grows, by the messages that waited longest, and the queue holds the others.
    fn check(&mut self) {
        let told = told_in(self.driver.machine().transcript().messages());
        assert!(told.starts_with(&self.told), "{told:?} after {:?}", self.told);
        for text in told[self.told.len()..].iter().filter(|text| text.starts_with("message")) {
            let place = self.pending.iter().position(|p| p.text == *text);
            let place =
                place.unwrap_or_else(|| panic!("{text} is told, but does not wait: {:?}", self.pending));
            let delivered = self.pending.remove(place);
            let overtaken = self.pending[..place].iter().find(|p| p.steer || !delivered.steer);
            assert_eq!(overtaken, None, "{text} overtook it");
        }
        self.told = told;
        let queue = self.driver.machine().queue().iter().map(|queued| queued.id);
        assert!(queue.eq(self.pending.iter().map(|p| p.id)), "{:?}", self.pending);
    }

    fn expect_all_told(&mut self) {
        let before = std::mem::take(&mut self.told);
        let told = told_in(self.driver.machine().transcript().messages());
        let mut expected = before;
        expected.extend(self.pending.iter().map(|p| p.text.clone()));
        assert!(told.starts_with(&expected), "{told:?} instead of {expected:?}");
        self.pending.clear();
        self.told = told;
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(40, 1_500), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_message_is_told_once_and_in_order(seed in 0..5usize, ops in prop::collection::vec(op(), 1..40)) {
        block_on(async {
            let mut life = Life::new(seed).await;
            for op in ops {
                life.act(op).await;
            }
            // Whatever came before, the next prompt takes along all that is left.
            life.act(Op::Prompt).await;
            life.act(Op::Finish).await;
            assert_eq!(life.pending, []);
            let last = life.world.model.requests().pop().unwrap();
            assert_eq!(told_in(&last.messages), life.told);
        });
    }
}

#[tokio::test]
async fn a_run_of_queued_messages_waits_for_the_calls_that_it_ends() {
    let (mailbox, inbox) = open_agent_engine::mailbox();
    let tool = tool_fn("slow", "Stops when it is told to.", move |_: Input, cx| {
        // A command lets the step end while the call goes on.
        assert!(mailbox.post(Command::Send { prompt: vec![Block::Text("more".into())], steer: false }));
        async move {
            cx.cancel().cancelled().await;
            Ok("stopped in time")
        }
    });
    let extra: Vec<Arc<dyn ToolSource>> = vec![Arc::new(Arc::new(ToolSet::new([tool])))];
    let model = Scripted::new([Reply::call("slow", "{}"), Reply::text("ok")]);
    let world = World::with(model, Options { extra, ..Options::default() });
    let mut driver = world.open().await;
    driver.set_inbox(inbox);
    driver.begin(spec("go", RunLimits::default())).await.unwrap();
    while driver.machine().queue().is_empty() {
        driver.advance().await.unwrap();
    }
    driver.begin_queued(spec("", RunLimits::default())).await.unwrap().unwrap();
    finish(&mut driver).await;
    assert_eq!(status(driver.machine().run().unwrap()), RunStatus::Success);
    let request = world.model.requests().pop().unwrap();
    assert_eq!(newest_results(&request), ["stopped in time"]);
    assert_eq!(told_in(&request.messages), ["go", "more"]);
}

#[tokio::test]
async fn the_failure_of_an_earlier_run_is_not_that_of_a_run_of_queued_messages() {
    let model =
        Scripted::new([Reply::failure(ProviderErrorKind::Authentication, "no key"), Reply::text("ok")]);
    let world = World::new(model);
    let mut driver = world.open().await;
    driver.begin(spec("go", RunLimits::default())).await.unwrap();
    let send = Command::Send { prompt: vec![Block::Text("again".into())], steer: false };
    driver.command(send).await.unwrap();
    finish(&mut driver).await;
    assert!(driver.failure().is_some() && driver.machine().has_next_run());
    driver.begin_queued(spec("", RunLimits::default())).await.unwrap().unwrap();
    assert!(driver.failure().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_command_to_a_run_that_could_not_begin_is_refused_and_not_kept_waiting() {
    let world = World::new(Scripted::new([]));
    let mut driver = world.open().await;
    let (mailbox, inbox) = open_agent_engine::mailbox();
    driver.set_inbox(inbox);
    let send = Command::Send { prompt: vec![Block::Text("more".into())], steer: true };
    // The clock stands still: the time is over only when nobody can do anything any more.
    let receipt = tokio::time::timeout(std::time::Duration::from_secs(1), mailbox.send(send));
    let (receipt, ()) = tokio::join!(receipt, async {
        assert!(matches!(driver.begin(spec(" ", RunLimits::default())).await, Err(EngineError::EmptyPrompt)));
        driver.refuse_inbox();
    });
    assert!(matches!(receipt, Ok(Err(EngineError::NoRun))), "{receipt:?}");
    assert!(driver.machine().queue().is_empty());
}
