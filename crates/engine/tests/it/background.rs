//! Background work in the log: it is told when it begins, and the model is told once when it is over.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use open_agent_engine::wire::claude::{ClaudeFrames, ClaudeSetup};
use open_agent_engine::{AgentEvent, Command, Driver, EngineError, Envelope, EventSink, mailbox, replay};
use open_agent_model::scripted::{Reply, Scripted};
use open_agent_model::{
    BackgroundEnd, BackgroundId, BackgroundKind, BackgroundOutcome, Block, CallId, ModelRequest, Role, Seq,
    SessionId, StopReason,
};
use open_agent_session::{RunLimits, SessionEntry, Stored};
use open_agent_tool::{BackgroundSpec, ToolSet, ToolSource, tool_fn};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::world::{Input, Options, World, finish, owner, session, spec};

/// With this input, `background` returns only when it is interrupted.
const HANGS: u32 = 9;

type Ends = Arc<Mutex<HashMap<CallId, oneshot::Sender<BackgroundEnd>>>>;

/// `background` starts work that ends when the test says so; `end` has work number `n` end, and waits for that.
fn tools(ends: &Ends) -> Arc<dyn ToolSource> {
    let all = Arc::clone(ends);
    let background = tool_fn("background", "Starts.", move |input: Input, cx| {
        let all = Arc::clone(&all);
        async move {
            let (tell, told) = oneshot::channel();
            all.lock().unwrap().insert(cx.call(), tell);
            let spec = BackgroundSpec {
                owner: cx.owner(),
                kind: BackgroundKind::Bash,
                description: "make all\nand more".into(),
                call: cx.call(),
                output: Some("/out.txt".into()),
            };
            let work = cx.background().start(
                spec,
                Box::new(|stop| {
                    Box::pin(async move {
                        tokio::select! {
                            end = told => end.unwrap(),
                            () = stop.cancelled() => BackgroundEnd::of(BackgroundOutcome::Stopped),
                        }
                    })
                }),
            )?;
            if input.n == HANGS {
                cx.cancel().cancelled().await;
            }
            Ok(work.id.0)
        }
    });
    let all = Arc::clone(ends);
    let end = tool_fn("end", "Ends.", move |input: Input, cx| {
        let all = Arc::clone(&all);
        async move {
            let call = CallId { turn: input.n, index: 0 };
            let tell = all.lock().unwrap().remove(&call).unwrap();
            tell.send(BackgroundEnd::with_detail(BackgroundOutcome::Failed, "ended with exit code 2"))
                .unwrap();
            let id = BackgroundId::of(BackgroundKind::Bash, call);
            while cx.background().find(&cx.owner(), &id).unwrap().is_running() {
                tokio::task::yield_now().await;
            }
            Ok("told")
        }
    });
    Arc::new(Arc::new(ToolSet::new([background, end])))
}

fn world(ends: &Ends, replies: impl IntoIterator<Item = Reply>) -> World {
    let options = Options { extra: vec![tools(ends)], ..Options::default() };
    World::with(Scripted::new(replies), options)
}

/// The notes in a request.
fn notes(request: &ModelRequest) -> Vec<String> {
    let texts = request.messages.iter().filter(|m| m.role == Role::User).flat_map(|m| &m.content);
    let texts = texts.filter_map(|b| if let Block::Text(text) = b { Some(text.clone()) } else { None });
    texts.filter(|text| text.contains("background command")).collect()
}

async fn log_of(world: &World) -> Vec<Stored> {
    world.host.store.read(&session(), Seq(0), usize::MAX).await.unwrap()
}

fn frames(events: &[Envelope]) -> Vec<serde_json::Value> {
    let mut frames = ClaudeFrames::new(session(), ClaudeSetup::default());
    let mut out = Vec::new();
    events.iter().for_each(|event| frames.push(event, &mut out));
    let lines = String::from_utf8(out).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn the_model_is_told_once_and_those_who_watch_too() {
    let ends = Ends::default();
    let world = world(
        &ends,
        [
            Reply::call("background", "{}"),
            Reply::call("read", "{}"),
            Reply::call("end", r#"{"n":0}"#),
            Reply::call("read", "{}"),
            Reply::text("done"),
        ],
    );
    let (_, events) = world.run(RunLimits::default()).await;
    let told: Vec<usize> = world.model.requests().iter().map(|r| notes(r).len()).collect();
    assert_eq!(told, [0, 0, 0, 1, 1], "once, with the request after the end, and it stays in the history");
    let note = notes(&world.model.requests()[3]).remove(0);
    assert!(
        note.contains("bash_0_0 (make all) ended with exit code 2") && note.contains("/out.txt"),
        "{note}"
    );
    let durable: Vec<Envelope> = events.into_iter().filter(|e| e.seq.is_some()).collect();
    assert_eq!(replay(&session(), &log_of(&world).await), durable);
    let started = durable.iter().position(|e| matches!(&e.event, AgentEvent::BackgroundStarted(_))).unwrap();
    let AgentEvent::ToolFinished(finished) = &durable[started + 1].event else { panic!("{durable:?}") };
    let frames = frames(&durable);
    let of = |subtype: &str| frames.iter().find(|f| f["subtype"] == subtype).unwrap().clone();
    let frame = of("task_started");
    assert_eq!(frame["tool_use_id"], finished.tool_use_id.as_str());
    assert_eq!((&frame["task_id"], &frame["task_type"]), (&"bash_0_0".into(), &"local_bash".into()));
    assert_eq!(
        (&frame["description"], &frame["output_file"]),
        (&"make all\nand more".into(), &"/out.txt".into())
    );
    let frame = of("task_notification");
    assert_eq!((&frame["task_id"], &frame["status"]), (&"bash_0_0".into(), &"failed".into()));
    assert_eq!(
        (&frame["summary"], &frame["output_file"]),
        (&"bash_0_0 ended with exit code 2".into(), &"/out.txt".into())
    );
}

#[tokio::test]
async fn what_ends_between_runs_is_told_with_the_next_prompt() {
    let ends = Ends::default();
    let world = world(&ends, [Reply::call("background", "{}"), Reply::text("one"), Reply::text("two")]);
    let (mut driver, _) = world.run(RunLimits::default()).await;
    let id = BackgroundId("bash_0_0".into());
    world.host.ports.background.stop(&owner(), &id).await.unwrap();
    driver.begin(spec("again", RunLimits::default())).await.unwrap();
    finish(&mut driver).await;
    let requests = world.model.requests();
    assert_eq!(notes(&requests[1]), Vec::<String>::new());
    assert!(notes(&requests[2])[0].contains("was stopped"));
}

/// The process that had started it is gone, and it with that.
#[tokio::test]
async fn what_ended_with_its_agent_is_told_by_the_next_one() {
    let ends = Ends::default();
    let first = world(&ends, [Reply::call("background", "{}"), Reply::text("one")]);
    drop(first.run(RunLimits::default()).await);
    let options = Options { store: Arc::clone(&first.host.store), ..Options::default() };
    let second = World::with(Scripted::new([Reply::text("two"), Reply::text("three")]), options);
    for _ in 0..2 {
        second.run(RunLimits::default()).await;
    }
    let requests = second.model.requests();
    assert!(notes(&requests[0])[0].contains("ended with the program that had started it"));
    assert_eq!(notes(&requests[1]).len(), 1, "once");
    let ended =
        log_of(&second).await.into_iter().filter(|r| matches!(r.entry, SessionEntry::BackgroundEnded(_)));
    assert_eq!(ended.count(), 1);
}

/// A paused answer has to be the last message of the request that goes on with it.
#[tokio::test]
async fn a_paused_answer_is_not_parted_from_its_request() {
    let ends = Ends::default();
    let world = world(
        &ends,
        [
            Reply::call("background", "{}"),
            Reply::text("half").stop(StopReason::PauseTurn),
            Reply::call("read", "{}"),
            Reply::text("done"),
        ],
    );
    let mut driver = world.open().await;
    driver.set_sink(EventSink::none());
    driver.begin(spec("go", RunLimits::default())).await.unwrap();
    while world.model.requests().len() < 2 {
        driver.advance().await.unwrap();
    }
    world.host.ports.background.stop(&owner(), &BackgroundId("bash_0_0".into())).await.unwrap();
    finish(&mut driver).await;
    let requests = world.model.requests();
    assert_eq!(requests[2].messages.last().unwrap().role, Role::Assistant);
    assert_eq!([notes(&requests[2]).len(), notes(&requests[3]).len()], [0, 1]);
}

#[tokio::test]
async fn work_that_began_is_known_though_its_call_was_interrupted() {
    let ends = Ends::default();
    let world = world(&ends, [Reply::call("background", r#"{"n":9}"#)]);
    let mut driver = world.open().await;
    let cancel = CancellationToken::new();
    driver.set_cancel(cancel.clone());
    driver.begin(spec("go", RunLimits::default())).await.unwrap();
    tokio::join!(finish(&mut driver), async {
        while ends.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        cancel.cancel();
    });
    let log = log_of(&world).await;
    let place = |is: fn(&SessionEntry) -> bool| log.iter().position(|r| is(&r.entry));
    let started = place(|e| matches!(e, SessionEntry::BackgroundStarted(_)));
    let done = place(|e| matches!(e, SessionEntry::Done(_)));
    assert!(started.is_some() && started < done, "{started:?} {done:?}");
}

#[tokio::test]
async fn work_is_stopped_by_command_while_a_call_runs_on() {
    let ends = Ends::default();
    let world = world(&ends, [Reply::call("background", r#"{"n":9}"#)]);
    let mut driver = world.open().await;
    let (mailbox, inbox) = mailbox();
    driver.set_inbox(inbox);
    driver.begin(spec("go", RunLimits::default())).await.unwrap();
    let id = BackgroundId("bash_0_0".into());
    let ended = || world.host.ports.background.find(&owner(), &id).unwrap().end;
    tokio::join!(finish(&mut driver), async {
        while ends.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        let unknown = mailbox.send(Command::StopBackground(BackgroundId("bash_7_0".into()))).await;
        assert!(matches!(unknown, Err(EngineError::NoBackgroundWork(_))), "{unknown:?}");
        let receipt = mailbox.send(Command::StopBackground(id.clone())).await.unwrap();
        assert!(receipt.seq.0 > 0 && receipt.queued.is_none());
        while ended().is_none() {
            tokio::task::yield_now().await;
        }
        mailbox.send(Command::Interrupt).await.unwrap();
    });
    assert_eq!(ended(), Some(BackgroundEnd::of(BackgroundOutcome::Stopped)));
}

/// Two sessions share a host, as agents of one process may.
#[tokio::test]
async fn a_session_hears_nothing_of_the_work_of_another_one() {
    let ends = Ends::default();
    let replies =
        [Reply::call("background", "{}"), Reply::text("one"), Reply::text("two"), Reply::text("three")];
    let world = world(&ends, replies);
    let (mut first, _) = world.run(RunLimits::default()).await;
    let other = SessionId::new("other").unwrap();
    let mut second = Driver::open(Arc::clone(&world.host), other.clone(), EventSink::none()).await.unwrap();
    assert!(first.has_background() && !second.has_background());
    let id = BackgroundId("bash_0_0".into());
    let stop = second.command(Command::StopBackground(id.clone())).await;
    assert!(matches!(stop, Err(EngineError::NoBackgroundWork(_))), "{stop:?}");
    world.host.ports.background.stop(&owner(), &id).await.unwrap();
    assert!(first.has_ended_background() && !second.has_ended_background());
    for driver in [&mut second, &mut first] {
        driver.begin(spec("again", RunLimits::default())).await.unwrap();
        finish(driver).await;
    }
    let requests = world.model.requests();
    assert_eq!([notes(&requests[2]).len(), notes(&requests[3]).len()], [0, 1]);
    let theirs = world.host.store.read(&other, Seq(0), usize::MAX).await.unwrap();
    assert!(!theirs.iter().any(|r| matches!(r.entry, SessionEntry::BackgroundStarted(_))));
}
