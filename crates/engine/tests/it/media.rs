//! Pictures and documents that a provider refuses: one must never spoil a session.

use std::sync::Arc;

use open_agent_engine::{AgentEvent, Driver, EventSink, RunSpec};
use open_agent_model::scripted::{Reply, Scripted};
use open_agent_model::{Block, Message, ModelRequest, ProviderErrorKind, RunStatus};
use open_agent_session::{NoticeKind, RunLimits};

use crate::world::{World, finish, picture, session, spec};

const TOO_LARGE: &str = "400: messages.2.content.0: image exceeds 5 MB maximum";

fn refusal() -> Reply {
    Reply::failure(ProviderErrorKind::InvalidRequest, TOO_LARGE)
}

fn pictures(request: &ModelRequest) -> usize {
    let blocks = request.messages.iter().flat_map(|m| &m.content);
    blocks.filter(|b| format!("{b:?}").contains("Image")).count()
}

fn last(request: &ModelRequest) -> &Message {
    request.messages.last().unwrap()
}

#[tokio::test]
async fn h_red_01_a_refused_picture_is_taken_out_and_the_request_made_once_more() {
    let model =
        Scripted::new([Reply::call("picture", "{}"), refusal(), Reply::text("seen"), Reply::text("more")]);
    let world = World::new(model);
    let (mut driver, events) = world.run(RunLimits::default()).await;
    let run = driver.machine().run().unwrap();
    assert_eq!((run.ended.as_ref().unwrap().status, run.summary.words.text()), (RunStatus::Success, "seen"));
    assert_eq!(run.notices.iter().filter(|n| n.kind == NoticeKind::MediaWithheld).count(), 1);
    let told = |e: &AgentEvent| matches!(e, AgentEvent::Notice(n) if n.text.contains("image exceeds 5 MB"));
    assert!(events.iter().any(|e| told(&e.event)));
    let requests = world.model.requests();
    assert_eq!(requests.iter().map(pictures).collect::<Vec<_>>(), [0, 1, 0]);
    let note = format!("{:?}", last(&requests[2]));
    assert!(note.contains("A picture was here") && note.contains("image exceeds 5 MB"), "{note}");

    driver.begin(spec("go on", RunLimits::default())).await.unwrap();
    finish(&mut driver).await;
    let before = world.model.requests();
    assert_eq!(pictures(&before[3]), 0, "the session is not spoilt");
    drop(driver);
    let again = Driver::open(Arc::clone(&world.host), session(), EventSink::none()).await.unwrap();
    let kept = again.machine().transcript().messages();
    let as_sent = kept.iter().take(before[3].messages.len());
    assert!(as_sent.eq(&before[3].messages), "and neither is it after a restart");
}

#[tokio::test]
async fn h_red_01_what_was_accepted_is_kept_until_it_is_refused_as_well() {
    let model = Scripted::new([
        Reply::call("picture", "{}"),
        Reply::call("picture", "{}"),
        refusal(),
        refusal(),
        Reply::text("blind"),
    ]);
    let world = World::new(model);
    let (driver, _) = world.run(RunLimits::default()).await;
    assert_eq!(driver.machine().run().unwrap().summary.words.text(), "blind");
    let sent: Vec<usize> = world.model.requests().iter().map(pictures).collect();
    assert_eq!(sent, [0, 1, 2, 1, 0], "the newest first, then all");
}

#[tokio::test]
async fn h_red_01_a_refusal_that_stays_ends_the_run() {
    let world = World::new(Scripted::responding(|_| refusal()));
    let mut driver = world.open().await;
    let prompt = vec![Block::Text("look".into()), Block::Image(picture())];
    driver.begin(RunSpec { prompt, ..spec("", RunLimits::default()) }).await.unwrap();
    finish(&mut driver).await;
    let ended = driver.machine().run().unwrap().ended.clone().unwrap();
    assert_eq!((ended.status, ended.errors), (RunStatus::ErrorDuringExecution, vec![TOO_LARGE.to_owned()]));
    let requests = world.model.requests();
    assert_eq!(requests.iter().map(pictures).collect::<Vec<_>>(), [1, 0]);
    assert!(last(&requests[1]).text().starts_with("look"));
}

#[tokio::test]
async fn h_red_01_a_new_picture_is_suspected_whatever_the_refusal_says() {
    for said in ["messages.3.content: Input should be a valid string", "参数有误，请检查文档。"] {
        let vague = || Reply::failure(ProviderErrorKind::InvalidRequest, said);
        let world =
            World::new(Scripted::new([Reply::call("picture", "{}"), vague(), Reply::text("seen"), vague()]));
        let (mut driver, _) = world.run(RunLimits::default()).await;
        assert_eq!(driver.machine().run().unwrap().summary.words.text(), "seen", "{said}");
        driver.begin(spec("again", RunLimits::default())).await.unwrap();
        finish(&mut driver).await;
        assert_eq!(world.model.requests().len(), 4, "without pictures, a refusal is one");
    }
}

#[tokio::test]
async fn a_refusal_of_something_else_leaves_pictures_where_they_are() {
    let other = Reply::failure(ProviderErrorKind::InvalidRequest, "tools.0.name: too long");
    let world = World::new(Scripted::new([Reply::call("picture", "{}"), other, Reply::text("seen")]));
    let (mut driver, _) = world.run(RunLimits::default()).await;
    assert_eq!(
        driver.machine().run().unwrap().ended.as_ref().unwrap().status,
        RunStatus::ErrorDuringExecution
    );
    driver.begin(spec("again", RunLimits::default())).await.unwrap();
    finish(&mut driver).await;
    assert_eq!(pictures(&world.model.requests()[2]), 1);
}
