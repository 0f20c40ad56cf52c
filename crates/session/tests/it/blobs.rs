//! What is too large for a record is kept beside the log: once a session, under the name of its hash.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use open_agent_model::{
    Blob, BlobId, Block, CallId, Message, MessageId, Outcome, QueueId, ResultBlock, ResultText, Role, Seq,
    SessionId, Source, Timestamp,
};
use open_agent_session::{
    Done, Durability, JsonlStore, MemoryStore, Origin, Queued, SessionEntry, SessionStore, SessionWriter,
    Stored, UserMessage, blob_id,
};

use crate::{open, session};

const CALL: CallId = CallId { turn: 0, index: 0 };

fn inline(bytes: &[u8]) -> Source {
    Source::Inline { media_type: "image/png".into(), data: STANDARD.encode(bytes).into() }
}

fn picture(bytes: &[u8]) -> SessionEntry {
    done(vec![ResultBlock::Image { source: inline(bytes) }])
}

fn done(content: Vec<ResultBlock>) -> SessionEntry {
    SessionEntry::Done(Done { content, ..Done::without_result(CALL, Outcome::Ok, "") })
}

fn prompt(content: Vec<Block>) -> Arc<Message> {
    Arc::new(Message { id: MessageId::from_number(1), role: Role::User, content, model: None })
}

async fn append(writer: &mut SessionWriter, entry: SessionEntry) -> Stored {
    let durability = Durability::Written;
    writer.append(vec![entry], Timestamp(2), durability).await.unwrap().remove(0)
}

fn files(root: &Path) -> Vec<PathBuf> {
    let folder = root.join(session().as_str()).join("blobs");
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).map(|entries| entries.map(|e| e.unwrap().path()).collect()).unwrap_or_default();
    files.sort();
    files
}

fn bytes(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|n| (n as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

#[tokio::test]
async fn a_picture_is_stored_once_however_often_it_is_read() {
    let root = tempfile::tempdir().unwrap();
    let store = JsonlStore::new(root.path());
    let (mut writer, _) = open(&store).await.unwrap();
    let bytes = bytes(1, 300_000);
    let length = || fs::metadata(store.path(&session())).unwrap().len();
    let before = length();
    let mut records = Vec::new();
    for _ in 0..5 {
        records.push(append(&mut writer, picture(&bytes)).await);
    }
    assert!(length() - before < 5 * 600, "{}", length() - before);
    let [file] = files(root.path()).try_into().unwrap();
    assert_eq!(file.file_name().unwrap().to_str(), Some(blob_id(&bytes).as_str()));
    assert_eq!(fs::read(&file).unwrap(), bytes);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    // Who has it needs no disk, and memory holds it once.
    let contents: Vec<*const u8> = records
        .iter()
        .flat_map(|record| record.entry.blobs())
        .map(|used| used.blob().content().unwrap())
        .inspect(|content| assert_eq!(STANDARD.decode(content).unwrap(), bytes))
        .map(str::as_ptr)
        .collect();
    assert_eq!(contents, [contents[0]; 5]);
    // Who reads the log has the reference.
    let read = store.read(&session(), Seq(0), usize::MAX).await.unwrap();
    let uses: Vec<&Blob> = read.iter().flat_map(|r| r.entry.blobs()).map(|used| used.blob()).collect();
    assert_eq!(uses.len(), 5);
    assert_eq!((uses[0].content(), uses[0].bytes()), (None, 300_000));
    assert_eq!(store.blobs().get(&session(), uses[0].id()).await.unwrap(), Some(bytes));
}

#[tokio::test]
async fn only_what_is_large_is_put_out_of_line_wherever_it_stands() {
    let store = MemoryStore::new();
    let (mut writer, _) = open(&store).await.unwrap();
    let (small, large) = ("s".repeat(32 * 1024), "l".repeat(32 * 1024 + 1));
    let (icon, photo) = (inline(&bytes(1, 768)), inline(&bytes(1, 769)));
    let url = Source::Url { url: "https://a.example".into() };
    let is_out = |record: &Stored| record.entry.blobs().count();
    for (part, expected) in [
        (ResultBlock::text(small.clone()), 0),
        (ResultBlock::text(large.clone()), 1),
        (ResultBlock::Resource { uri: "u".into(), text: small.into() }, 0),
        (ResultBlock::Resource { uri: "u".into(), text: large.clone().into() }, 1),
        (ResultBlock::Image { source: icon.clone() }, 0),
        (ResultBlock::Image { source: photo.clone() }, 1),
        (ResultBlock::Document { source: photo.clone(), title: None }, 1),
        (ResultBlock::Image { source: url }, 0),
        // No base64: it stays as it came.
        (
            ResultBlock::Image {
                source: Source::Inline { media_type: "a/b".into(), data: "*".repeat(2_000).into() },
            },
            0,
        ),
    ] {
        let record = append(&mut writer, done(vec![part.clone()])).await;
        assert_eq!(is_out(&record), expected, "{part:?}");
        let SessionEntry::Done(kept) = &record.entry else { panic!() };
        let same_text = match (&kept.content[0], &part) {
            (ResultBlock::Text { text: now }, ResultBlock::Text { text: then })
            | (ResultBlock::Resource { text: now, .. }, ResultBlock::Resource { text: then, .. }) => {
                **now == **then
            }
            _ => true,
        };
        assert!(same_text);
    }
    // A prompt's text stays: it is what the user wrote.
    let message = prompt(vec![Block::Text(large), Block::Image(photo.clone()), Block::Image(icon)]);
    let user = UserMessage { message: Arc::clone(&message), origin: Origin::Prompt.into() };
    assert_eq!(is_out(&append(&mut writer, SessionEntry::User(user)).await), 1);
    let id = QueueId::from_number(1);
    let queued = Queued { id, message: Arc::clone(&message), origin: Origin::Prompt.into(), steer: true };
    assert_eq!(is_out(&append(&mut writer, SessionEntry::Queued(queued)).await), 1);
    assert_eq!(message.content[1], Block::Image(photo), "the caller's message is not changed");
}

/// What JSON changes on its way into a record must not cost the content.
#[tokio::test]
async fn a_record_whose_stored_form_differs_keeps_its_contents() {
    let store = MemoryStore::new();
    let (mut writer, _) = open(&store).await.unwrap();
    let content = vec![ResultBlock::Image { source: inline(&bytes(1, 2_000)) }];
    let details = Some(open_agent_model::RawJson::parse("{\n}").unwrap());
    let entry = Done { content, details, ..Done::without_result(CALL, Outcome::Ok, "") };
    let record = append(&mut writer, SessionEntry::Done(entry)).await;
    assert!(record.entry.blobs().all(|used| used.blob().content().is_some()));
    assert_eq!(record.entry.blobs().count(), 1);
}

#[tokio::test]
async fn a_reference_from_another_session_brings_its_content_along() {
    let root = tempfile::tempdir().unwrap();
    let store = JsonlStore::new(root.path());
    let (mut writer, _) = open(&store).await.unwrap();
    let bytes = bytes(1, 2_000);
    let record = append(&mut writer, picture(&bytes)).await;
    let SessionEntry::Done(first) = record.entry else { panic!() };
    let other = SessionId::new("other").unwrap();
    let dynamic: Arc<dyn SessionStore> = Arc::new(store.clone());
    let owner = open_agent_session::Owner("me".into());
    let (mut second, _) = SessionWriter::open(dynamic, other.clone(), owner, Timestamp(1)).await.unwrap();
    let id = blob_id(&bytes);
    assert_eq!(store.blobs().get(&other, &id).await.unwrap(), None, "sessions share none");
    append(&mut second, SessionEntry::Done(first)).await;
    assert_eq!(store.blobs().get(&other, &id).await.unwrap(), Some(bytes));
    // A name that is not that of the content is not believed.
    let lie = Blob::new(blob_id(b"other"), 5);
    lie.fill("text".into());
    append(&mut second, done(vec![ResultBlock::Text { text: ResultText::Blob(lie.clone()) }])).await;
    assert_eq!(fs::read_dir(root.path().join("other/blobs")).unwrap().count(), 1);
}

#[tokio::test]
async fn a_blob_that_is_damaged_is_not_returned_and_can_be_stored_again() {
    let root = tempfile::tempdir().unwrap();
    let store = JsonlStore::new(root.path());
    let (mut writer, _) = open(&store).await.unwrap();
    let bytes = bytes(1, 2_000);
    append(&mut writer, picture(&bytes)).await;
    drop(writer);
    let (id, file) = (blob_id(&bytes), files(root.path()).remove(0));
    let get = || async { store.blobs().get(&session(), &id).await.unwrap() };
    let mut flipped = bytes.clone();
    flipped[1_000] ^= 4;
    for damaged in [flipped, bytes[..1_999].to_vec(), Vec::new()] {
        fs::write(&file, damaged).unwrap();
        assert_eq!(get().await, None);
    }
    let (mut writer, _) = open(&store).await.unwrap();
    append(&mut writer, picture(&bytes)).await;
    assert_eq!(get().await, Some(bytes.clone()), "reading the picture again mends it");
    fs::remove_file(&file).unwrap();
    fs::write(root.path().join("outside"), &bytes).unwrap();
    std::os::unix::fs::symlink(root.path().join("outside"), &file).unwrap();
    assert_eq!(get().await, None, "a link is not followed");
    assert_eq!(store.blobs().get(&session(), &blob_id(b"none")).await.unwrap(), None);
    assert_eq!(files(root.path()).len(), 1, "nothing half written is left");
}

#[tokio::test]
async fn a_copy_shares_bytes_and_no_fate() {
    let root = tempfile::tempdir().unwrap();
    let store = JsonlStore::new(root.path());
    let (mut writer, _) = open(&store).await.unwrap();
    append(&mut writer, picture(&bytes(1, 2_000))).await;
    append(&mut writer, picture(&bytes(2, 2_000))).await;
    let copy = SessionId::new("copy").unwrap();
    for _ in 0..2 {
        store.blobs().copy_all(&session(), &copy).await.unwrap();
    }
    let original = files(root.path());
    assert_eq!(original.len(), 2);
    assert_eq!(fs::metadata(&original[0]).unwrap().nlink(), 2, "linked, not copied");
    fs::remove_dir_all(root.path().join(session().as_str())).unwrap();
    for seed in [1, 2] {
        let bytes = bytes(seed, 2_000);
        assert_eq!(store.blobs().get(&copy, &blob_id(&bytes)).await.unwrap(), Some(bytes));
    }
    store.blobs().copy_all(&session(), &copy).await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_stored_is_an_error_and_no_record() {
    let root = tempfile::tempdir().unwrap();
    let store = JsonlStore::new(root.path());
    let (mut writer, log) = open(&store).await.unwrap();
    // A file stands where the folder would be.
    fs::write(root.path().join(session().as_str()).join("blobs"), "").unwrap();
    let result = writer.append(vec![picture(&bytes(1, 2_000))], Timestamp(2), Durability::Written).await;
    let error = result.unwrap_err().to_string();
    assert!(error.contains("blobs"), "{error}");
    let read = store.read(&session(), Seq(0), usize::MAX).await.unwrap();
    assert_eq!(read, log.records);
    append(&mut writer, done(vec![ResultBlock::text("small")])).await;
}

#[test]
fn a_name_is_the_sha_256_of_the_bytes() {
    // FIPS 180-4 gives this value for "abc".
    let name = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(blob_id(b"abc"), BlobId::new(name).unwrap());
}
