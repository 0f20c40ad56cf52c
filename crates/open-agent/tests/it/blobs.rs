//! Large contents of a session: stored once beside its log, sent whole to the model, read page by page by its name, and
//! told where they are lost.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use open_agent::model::{
    Block, Message, MessageId, ModelRequest, ResultBlock, Role, RunId, Source, Timestamp,
};
use open_agent::session::{
    Durability, JsonlStore, MemoryStore, ModelSettings, NoticeKind, Origin, Owner, Queued, RunLimits,
    RunStarted, SessionEntry, SessionStarted, SessionStore, SessionWriter, UserMessage, blob_id,
};
use open_agent::testing::{Reply, Scripted, input, newest_results};
use open_agent::{
    Agent, AgentBuilder, AgentEvent, AgentId, Env, PermissionMode, QueueId, SessionId, read_only_tool_fn,
};
use serde_json::json;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

fn session() -> SessionId {
    SessionId::new("s").unwrap()
}

fn builder(model: &Scripted, project: &Path, store: impl SessionStore + 'static) -> AgentBuilder {
    let builder =
        AgentBuilder::with_env(Env::default()).provider(model.clone()).cwd(project).session_store(store);
    builder.configure(|o| o.session_id = Some(session()))
}

fn agent(model: &Scripted, project: &Path, store: impl SessionStore + 'static) -> Agent {
    builder(model, project, store).build().unwrap()
}

/// A picture of about 3 MB.
fn write_picture(project: &Path) -> Vec<u8> {
    let mut png = b"\x89PNG\r\n\x1A\n".to_vec();
    let mut chunk = |kind: &[u8], data: &[u8]| {
        png.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
        png.extend(kind);
        png.extend(data);
        png.extend([0; 4]);
    };
    chunk(b"IHDR", &[&2_u32.to_be_bytes()[..], &3_u32.to_be_bytes(), &[8, 6, 0, 0, 0]].concat());
    chunk(
        b"IDAT",
        &(0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect::<Vec<u8>>(),
    );
    chunk(b"IEND", b"");
    fs::write(project.join("a.png"), &png).unwrap();
    png
}

fn read(path: &str) -> Reply {
    Reply::call("Read", &input(&json!({ "file_path": path })))
}

/// The base64 of each picture of a request, in order.
fn pictures(request: &ModelRequest) -> Vec<&str> {
    let results = request.messages.iter().flat_map(|m| &m.content).filter_map(|block| match block {
        Block::ToolResult(result) => Some(&result.content),
        _ => None,
    });
    let sources = results.flatten().filter_map(|part| match part {
        ResultBlock::Image { source } => Some(source.base64().expect("the content is known").1),
        _ => None,
    });
    sources.collect()
}

#[tokio::test]
async fn a_log_grows_once_by_a_picture_that_is_read_five_times() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = folder.path().join("sessions");
    let png = write_picture(folder.path());
    let model = Scripted::new([read("a.png"), Reply::text("1")]);
    agent(&model, folder.path(), JsonlStore::new(&sessions)).prompt("go").await.unwrap();
    let transcript = sessions.join("s/transcript.jsonl");
    let length = || fs::metadata(&transcript).unwrap().len();
    let first = length();
    assert!(first < 30_000, "{first}");
    let base64 = STANDARD.encode(&png);
    let mut seen = 1;
    // Another process goes on, and another after that.
    for _ in 0..2 {
        let model = Scripted::new([read("a.png"), read("a.png"), Reply::text("2")]);
        let before = length();
        agent(&model, folder.path(), JsonlStore::new(&sessions)).prompt("again").await.unwrap();
        assert!(length() - before < 10_000, "{}", length() - before);
        seen += 2;
        let requests = model.requests();
        // The model gets each picture whole, those of earlier processes too.
        assert_eq!(pictures(&requests[2]), vec![base64.as_str(); seen]);
    }
    let blobs = fs::read_dir(sessions.join("s/blobs")).unwrap().map(|e| e.unwrap().path());
    let blobs: Vec<Vec<u8>> = blobs.map(|path| fs::read(path).unwrap()).collect();
    assert_eq!(blobs, [png]);
}

#[tokio::test]
async fn a_blob_that_is_gone_is_told_once_and_a_note_stands_in_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = folder.path().join("sessions");
    let png = write_picture(folder.path());
    let long =
        read_only_tool_fn("long", "Answers at length.", |_: Nothing, _| async { Ok("long ".repeat(10_000)) });
    let model = Scripted::new([read("a.png"), Reply::call("long", "{}"), Reply::text("1")]);
    let with_tool = builder(&model, folder.path(), JsonlStore::new(&sessions)).tool(long);
    with_tool.build().unwrap().prompt("go").await.unwrap();
    let blobs = sessions.join("s/blobs");
    assert_eq!(fs::read_dir(&blobs).unwrap().count(), 2);
    // One is damaged, one is missing.
    fs::write(blobs.join(blob_id(&png).as_str()), &png[1..]).unwrap();
    fs::remove_file(blobs.join(blob_id("long ".repeat(10_000).as_bytes()).as_str())).unwrap();

    for told in [1, 0] {
        let model = Scripted::new([Reply::text("2")]);
        let mut stream = agent(&model, folder.path(), JsonlStore::new(&sessions)).stream("and now?");
        let mut notices = Vec::new();
        while let Some(envelope) = stream.next().await {
            match envelope.event {
                AgentEvent::Notice(notice) if notice.kind == NoticeKind::BlobsLost => notices.push(notice),
                _ => {}
            }
        }
        assert!(stream.result().await.unwrap().is_success());
        assert_eq!(notices.len(), told, "{notices:?}");
        if let Some(notice) = notices.first() {
            assert!(
                notice.text.starts_with("2 blobs of this session are missing or damaged"),
                "{}",
                notice.text
            );
        }
        let request = &model.requests()[0];
        assert!(pictures(request).is_empty());
        let results: Vec<String> = request
            .messages
            .iter()
            .filter_map(|m| match m.content.first() {
                Some(Block::ToolResult(result)) => Some(format!("{:?}", result.content)),
                _ => None,
            })
            .collect();
        assert!(
            results[0].contains("[A picture was here. It is lost: the file that held it is missing"),
            "{results:?}"
        );
        assert!(results[1].contains("[A text was here. It is lost"), "{results:?}");
    }
}

/// What a model does not see of a result it can read by its name, in every store.
#[tokio::test]
async fn what_was_cut_of_a_result_is_read_page_by_page() {
    let folder = tempfile::tempdir().unwrap();
    let whole: String = (1..=30_000).map(|n| format!("line {n}\n")).collect();
    let path = blob_id(whole.as_bytes()).path();
    async fn pages(model: &Scripted, builder: AgentBuilder, whole: &str) {
        let path = blob_id(whole.as_bytes()).path();
        let whole = whole.to_owned();
        let long = read_only_tool_fn("long", "Answers at length.", move |_: Nothing, _| {
            let whole = whole.clone();
            async move { Ok(whole) }
        });
        // Its own results need no permission.
        let agent = builder.tool(long).build().unwrap();
        assert!(agent.prompt("go").await.unwrap().is_success());
        let requests = model.requests();
        let cut = &newest_results(&requests[1])[0];
        assert!(cut.len() < 101_000 && cut.contains(&format!("all of it is in {path}")), "{}", cut.len());
        assert_eq!(
            newest_results(&requests[2])[0],
            " 15000\tline 15000\n 15001\tline 15001\n\n[Lines 15000-15001 of 30000. Read on with offset 15002.]"
        );
        assert!(newest_results(&requests[3])[0].contains("names no blob"));
    }
    let script = || {
        Scripted::new([
            Reply::call("long", "{}"),
            Reply::call("Read", &input(&json!({ "file_path": path, "offset": 15_000, "limit": 2 }))),
            read("blob:../../etc/passwd"),
            Reply::text("done"),
        ])
    };
    let model = script();
    pages(&model, builder(&model, folder.path(), MemoryStore::new()), &whole).await;
    let model = script();
    pages(&model, builder(&model, folder.path(), JsonlStore::new(folder.path().join("sessions"))), &whole)
        .await;
}

/// The message of a prompt with a picture.
fn picture_message(png: &[u8]) -> Arc<Message> {
    let source = Source::Inline { media_type: "image/png".into(), data: STANDARD.encode(png).into() };
    let content = vec![Block::Image(source)];
    Arc::new(Message { id: MessageId::from_number(7), role: Role::User, content, model: None })
}

/// A process ended while a run went on and a picture waited in its queue.
#[tokio::test]
async fn a_picture_that_waited_in_the_queue_is_sent_by_the_process_that_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let png = write_picture(folder.path());
    let store = MemoryStore::new();
    let started = SessionStarted {
        root: folder.path().canonicalize().unwrap(),
        agent: AgentId::main(),
        parent: None,
        forked_from: None,
        product: "test".into(),
    };
    let (shared, owner) = (Arc::new(store.clone()), Owner("first".into()));
    let (mut writer, _) =
        SessionWriter::open_or_start(shared, session(), owner, Timestamp(1), started).await.unwrap();
    let settings = ModelSettings { model: "m".into(), thinking: None, effort: None };
    let (run, limits) = (RunId::from_number(1), RunLimits::default());
    let prompt = Arc::new(Message::user(MessageId::from_number(6), "go"));
    let origin = Origin::Prompt;
    let entries = vec![
        SessionEntry::RunStarted(RunStarted { run, settings, mode: PermissionMode::Default, limits }),
        SessionEntry::User(UserMessage { message: prompt, origin: origin.into() }),
        SessionEntry::Queued(Queued {
            id: QueueId::from_number(8),
            message: picture_message(&png),
            origin: origin.into(),
            steer: false,
        }),
    ];
    writer.append(entries, Timestamp(2), Durability::Written).await.unwrap();
    drop(writer);
    let model = Scripted::new([Reply::text("one"), Reply::text("two")]);
    agent(&model, folder.path(), store).resume().await.unwrap();
    let requests = model.requests();
    let newest = requests[1].messages.last().unwrap();
    let Some(Block::Image(source)) = newest.content.first() else { panic!("{newest:?}") };
    assert_eq!(source.base64(), Some(("image/png", STANDARD.encode(&png).as_str())));
}

#[tokio::test]
async fn tokens_are_counted_of_what_is_in_blobs_too_and_a_picture_is_read_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let png = write_picture(folder.path());
    let store = MemoryStore::new();
    let long =
        read_only_tool_fn("long", "Answers at length.", |_: Nothing, _| async { Ok("long ".repeat(10_000)) });
    let model = Scripted::new([Reply::call("long", "{}"), read("a.png"), Reply::text("1")]);
    builder(&model, folder.path(), store.clone()).tool(long).build().unwrap().prompt("go").await.unwrap();

    let model = Scripted::new([read(&blob_id(&png).path()), Reply::text("2")]);
    let agent = agent(&model, folder.path(), store);
    let count = agent.count_tokens("and now?").await.unwrap();
    assert!(count.estimated && count.input_tokens > 16_000, "{count:?}");
    let mut stream = agent.stream("again");
    let mut sizes = Vec::new();
    while let Some(envelope) = stream.next().await {
        if let AgentEvent::ToolFinished(finished) = envelope.event {
            let details: serde_json::Value = finished.details.unwrap().to().unwrap();
            sizes.push(details["file"]["originalSize"].as_u64());
        }
    }
    stream.result().await.unwrap();
    assert_eq!(sizes, [Some(png.len() as u64)]);
    let base64 = STANDARD.encode(&png);
    assert_eq!(pictures(&model.requests()[1]), [base64.as_str(); 2]);
}
