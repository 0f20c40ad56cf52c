//! Laws over random runs: whatever is killed, interrupted or answered at whatever step, what is sent is valid, and no call
//! that must not run twice does.

use std::collections::HashSet;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Once};
use std::task::Context;

use open_agent_engine::{Driver, Machine, Progress, Step};
use open_agent_model::scripted::{Reply, Scripted};
use open_agent_model::{
    Answer, CallId, Effect, MessageId, ModelInfo, ModelRequest, ProviderErrorKind, RequestOptions, Seq,
    SessionId, StopReason, Timestamp,
};
use open_agent_session::{
    Claim, Durability, EncodedRecord, MemoryStore, Opened, Owner, RunLimits, SessionEntry, SessionStore,
    Stored, ToolScheduling, encode,
};
use open_agent_testkit::cases;
use proptest::prelude::*;
use tokio_util::sync::CancellationToken;

use crate::world::{Options, World, finish, session, spec};

/// A model that answers at random, from a seed.
fn random_model(seed: u64) -> Scripted {
    let mut rng = Rng(seed);
    Scripted::responding(move |request| {
        let newest = request.messages.last().map(|m| format!("{:?}", m.content)).unwrap_or_default();
        if newest.contains("Image {") && rng.below(2) == 0 {
            return Reply::failure(ProviderErrorKind::InvalidRequest, "image: too large");
        }
        let mut reply = Reply::default();
        for _ in 0..rng.below(5) {
            let n = rng.below(6);
            let input = format!(r#"{{"n":{n}}}"#);
            reply = match rng.below(17) {
                0..4 => reply.and_call("read", &input),
                4..7 => reply.and_call("write", &input),
                7 => reply.and_call("ask", &input),
                8 => reply.and_call("panic", &input),
                9 => reply.and_call("no such tool", &input),
                10 => reply.and_call("write", r#"{"n": 1"#),
                14..16 => reply.and_call("picture", &input),
                11..14 => reply.and_call("background", &input),
                _ => reply.and_text("some text ").and_thinking("hm"),
            };
        }
        match rng.below(20) {
            0 => reply.stop(StopReason::MaxTokens),
            1 => reply.stop(StopReason::PauseTurn),
            2 => reply.then_fails(ProviderErrorKind::Server, "down"),
            3 => reply.stop(StopReason::Other("odd".into())),
            4 => Reply::text(""),
            _ => reply,
        }
    })
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Polls a future at most `polls` times, then drops it: a kill at a random await point.
async fn killed_after<F: Future>(polls: u64, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..polls {
        let polled =
            std::future::poll_fn(|cx: &mut Context<'_>| std::task::Poll::Ready(future.as_mut().poll(cx)))
                .await;
        if let std::task::Poll::Ready(output) = polled {
            return Some(output);
        }
        tokio::task::yield_now().await;
    }
    None
}

async fn log_of(store: &dyn SessionStore) -> Vec<Stored> {
    store.read(&session(), Seq(0), usize::MAX).await.unwrap()
}

/// What the next prompt would send has to be valid.
fn assert_sendable(records: &[Stored]) {
    let mut machine = Machine::default();
    for record in records {
        machine.apply(record);
    }
    assert_machine_can_send(&machine);
}

fn assert_machine_can_send(machine: &Machine) {
    let mut messages = machine.transcript().messages().clone();
    if messages.last().is_none_or(|m| m.role == open_agent_model::Role::Assistant) {
        let id = MessageId::from_number(1);
        messages.push(Arc::new(open_agent_model::Message::user(id, "next")));
    }
    let (prefix, options) = (Arc::default(), RequestOptions::default());
    let request = ModelRequest {
        model: "m".into(),
        info: Arc::new(ModelInfo::unknown("m")),
        prefix,
        messages,
        options,
    };
    assert_eq!(request.check(), Ok(()));
}

/// Every request was valid, or the run would have ended with this error.
fn assert_no_invalid_request(records: &[Stored]) {
    for record in records {
        if let SessionEntry::ModelFailed(failed) = &record.entry {
            let error = failed.error.as_ref().map(|e| e.message.clone()).unwrap_or_default();
            assert!(!error.contains("valid"), "{error}");
        }
    }
}

/// The model learns of the end of background work once, and only of work that has begun.
fn assert_told_once(records: &[Stored]) {
    let mut running = HashSet::new();
    let mut begun = HashSet::new();
    for record in records {
        match &record.entry {
            SessionEntry::BackgroundStarted(task) => {
                assert!(begun.insert(task.id.clone()) && running.insert(task.id.clone()), "{record:?}");
            }
            SessionEntry::BackgroundEnded(ended) => assert!(running.remove(&ended.id), "{record:?}"),
            _ => {}
        }
    }
}

fn ruled_unsafe(records: &[Stored]) -> HashSet<CallId> {
    let unsafe_ones = records.iter().filter_map(|r| match &r.entry {
        SessionEntry::Ruled(ruled) if ruled.effect == Effect::Unsafe => Some(ruled.call),
        _ => None,
    });
    unsafe_ones.collect()
}

fn started(records: &[Stored]) -> HashSet<CallId> {
    let unsafe_ones = ruled_unsafe(records);
    let started = records.iter().filter_map(|r| match &r.entry {
        SessionEntry::Started { call } if unsafe_ones.contains(call) => Some(*call),
        _ => None,
    });
    started.collect()
}

/// Drives to the end: questions are answered, or a new prompt goes past them.
async fn to_the_end(driver: &mut Driver, rng: &mut Rng) {
    for _ in 0..40 {
        match finish(driver).await {
            Progress::Waiting(asks) if rng.below(4) > 0 => {
                driver.answer(asks[0], Answer::text("yes")).await.unwrap();
            }
            Progress::Waiting(_) => {
                driver.begin(spec("never mind", limits(rng))).await.unwrap();
            }
            _ => return,
        }
    }
    panic!("the run does not end");
}

fn limits(rng: &mut Rng) -> RunLimits {
    let scheduling = if rng.below(2) == 0 { ToolScheduling::Ordered } else { ToolScheduling::ReadsFirst };
    RunLimits {
        max_turns: Some(u32::try_from(2 + rng.below(6)).unwrap()),
        scheduling,
        ..RunLimits::default()
    }
}

/// A run that is killed, interrupted, answered and continued at random moments, over several processes.
async fn random_life(seed: u64) -> Vec<Stored> {
    let mut rng = Rng(seed);
    let world = World::with(random_model(seed), Options::default());
    let store = Arc::clone(&world.host.store);
    let mut effects = std::collections::HashMap::new();
    for process in 0..6 {
        let mut driver = world.open().await;
        let cancel = CancellationToken::new();
        driver.set_cancel(cancel.clone());
        if process == 0 || rng.below(3) == 0 {
            driver.begin(spec("go", limits(&mut rng))).await.unwrap();
        }
        if rng.below(3) == 0 {
            cancel.cancel();
        }
        let polls = rng.below(60);
        killed_after(polls, async {
            loop {
                match driver.advance().await.unwrap() {
                    Progress::Stepped => {}
                    Progress::Waiting(asks) => {
                        if rng.below(2) == 0 {
                            break;
                        }
                        driver.answer(asks[0], Answer::text("yes")).await.unwrap();
                    }
                    _ => break,
                }
            }
        })
        .await;
        drop(driver);
        for (call, n) in world.effects.take() {
            *effects.entry(call).or_insert(0) += n;
        }
    }
    let mut driver = world.open().await;
    to_the_end(&mut driver, &mut rng).await;
    for (call, n) in world.effects.take() {
        *effects.entry(call).or_insert(0) += n;
    }
    let records = log_of(&*store).await;
    assert_no_invalid_request(&records);
    assert_told_once(&records);
    assert_sendable(&records);
    for call in ruled_unsafe(&records) {
        assert!(effects.get(&call).copied().unwrap_or(0) <= 1, "{call} took effect twice");
    }
    records
}

/// Any prefix of a log, folded and advanced by another process, goes on validly and repeats nothing unsafe.
async fn continue_prefix(records: &[Stored], seed: u64) {
    let store: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
    import(&*store, &session(), records).await;
    let options = Options { store: Arc::clone(&store), ..Options::default() };
    let world = World::with(random_model(seed ^ 0xABCD), options);
    let before = started(records);
    let mut driver = world.open().await;
    to_the_end(&mut driver, &mut Rng(seed)).await;
    let effects = world.effects.take();
    let done_before: HashSet<CallId> = before.into_iter().filter(|c| !is_waiting(records, *c)).collect();
    for call in done_before {
        assert!(!effects.contains_key(&call), "{call} had begun before the cut and ran again");
    }
    let after = log_of(&*store).await;
    assert_eq!(&after[..records.len()], records, "nothing is rewritten");
    assert_no_invalid_request(&after);
    assert_told_once(&after);
    assert_sendable(&after);
}

/// A call that put a question ran into nothing yet and runs again on purpose.
fn is_waiting(records: &[Stored], call: CallId) -> bool {
    let last = records.iter().rev().find_map(|r| match &r.entry {
        SessionEntry::Asked { ask, .. } if ask.call == Some(call) => Some(true),
        SessionEntry::Answered { ask, .. } if ask.call == Some(call) => Some(true),
        SessionEntry::Started { call: started } if *started == call => Some(false),
        SessionEntry::Done(done) if done.call == call => Some(false),
        _ => None,
    });
    last == Some(true)
}

async fn import(store: &dyn SessionStore, id: &SessionId, records: &[Stored]) {
    let (lease, expected) = store.acquire(id, &Owner("import".into())).await.unwrap();
    let claim = Claim { epoch: lease.epoch, expected };
    let records: Vec<EncodedRecord> = records.iter().map(|record| encode(record).unwrap()).collect();
    store.append(id, claim, &records, Durability::Written).await.unwrap();
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(future)
}

/// A log of which one record is missing, opened by another process, goes on validly, and no unsafe call that had begun runs
/// again.
fn continue_without(records: &[Stored], missing: usize) {
    let mut machine = Machine::default();
    let kept = records.iter().enumerate().filter(|(at, _)| *at != missing).map(|(_, record)| record);
    kept.for_each(|record| machine.apply(record));
    let mut seq = records.last().map_or(Seq(0), |record| record.seq);
    let mut push = |machine: &mut Machine, entry: SessionEntry| {
        seq = seq.next();
        machine.apply(&Stored::new(seq, Timestamp(0), entry));
    };
    push(&mut machine, SessionEntry::Opened(Opened { epoch: 9, owner: Owner("next".into()) }));
    let begun: HashSet<CallId> =
        started(records).into_iter().filter(|call| !is_waiting(records, *call)).collect();
    for _ in 0..100 {
        match machine.next() {
            Step::Record(entries) => entries.into_iter().for_each(|entry| push(&mut machine, entry)),
            Step::Run(calls) => {
                let again: Vec<&CallId> = calls.iter().filter(|call| begun.contains(call)).collect();
                assert!(again.is_empty(), "{again:?} run again without record {missing} of {records:#?}");
                break;
            }
            _ => break,
        }
    }
    for entry in machine.give_up() {
        push(&mut machine, entry);
    }
    assert_machine_can_send(&machine);
}

static HUSH: Once = Once::new();

/// Keeps quiet about the panics of the tool that panics on purpose, thousands of them. All others are told as before, also
/// those of other tests of this process.
fn hush() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.payload_as_str().is_some_and(|text| text.contains("boom")) {
            before(info);
        }
    }));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(100, 2_000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn h_ctx_02_any_prefix_of_any_life_goes_on_validly(seed: u64, cut in 0.0..1.0f64) {
        HUSH.call_once(hush);
        block_on(async {
            let records = random_life(seed).await;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a place in a short list")]
            let cut = (records.len() as f64 * cut) as usize;
            continue_prefix(&records[..cut], seed).await;
        });
    }
    #[test]
    fn a_log_without_any_one_record_goes_on_validly(seed: u64, cut in 0.0..1.0f64) {
        HUSH.call_once(hush);
        block_on(async {
            let records = random_life(seed).await;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a place in a short list")]
            let cut = (records.len() as f64 * cut) as usize;
            for log in [&records[..cut], &records[..]] {
                (0..log.len()).for_each(|missing| continue_without(log, missing));
            }
        });
    }
}
