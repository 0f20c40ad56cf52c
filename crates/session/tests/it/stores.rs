//! Stores against the conformance suite and against crashes.

use std::sync::Arc;

use open_agent_model::{CallId, RawJson, Seq, SessionId, Timestamp};
use open_agent_session::{
    Done, Durability, JsonlStore, MemoryStore, SessionEntry, SessionStore, StoreError, conformance,
};

use crate::{open, open_as, session};

#[tokio::test]
async fn memory_store_conforms() {
    conformance::all(|| Arc::new(MemoryStore::new())).await;
    conformance::damage(|| {
        let store = MemoryStore::new();
        let rewritten = store.clone();
        let rewrite =
            Box::new(move |id: &SessionId, change: conformance::Change<'_>| rewritten.rewrite(id, change));
        conformance::Damageable { store: Arc::new(store), rewrite }
    })
    .await;
}

#[tokio::test]
async fn jsonl_store_conforms() {
    let root = tempfile::tempdir().unwrap();
    let n = std::cell::Cell::new(0);
    let next = || {
        n.set(n.get() + 1);
        JsonlStore::new(root.path().join(n.get().to_string()))
    };
    conformance::all(|| Arc::new(next())).await;
    conformance::damage(|| {
        let store = next();
        let rewritten = store.clone();
        let rewrite = Box::new(move |id: &SessionId, change: conformance::Change<'_>| {
            let path = rewritten.path(id);
            std::fs::write(&path, change(std::fs::read(&path).unwrap())).unwrap();
        });
        conformance::Damageable { store: Arc::new(store), rewrite }
    })
    .await;
}

async fn write(store: &JsonlStore, turns: u32) {
    let (mut writer, _) = open(store).await.unwrap();
    for turn in 0..turns {
        let entry = SessionEntry::Started { call: CallId { turn, index: 0 } };
        writer.append(vec![entry], Timestamp(2), Durability::Written).await.unwrap();
    }
}

#[tokio::test]
async fn h_ses_01_a_record_cut_anywhere_costs_only_itself() {
    let root = tempfile::tempdir().unwrap();
    let id = session();
    let store = JsonlStore::new(root.path());
    write(&store, 3).await;
    let path = store.path(&id);
    let whole = std::fs::read(&path).unwrap();
    let last = whole[..whole.len() - 1].iter().rposition(|b| *b == b'\n').unwrap() + 1;
    for cut in last..whole.len() {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let before = store.read(&id, Seq(0), usize::MAX).await.unwrap();
        // Without its line feed the last record is whole all the same.
        assert_eq!(before.len(), if cut == whole.len() - 1 { 4 } else { 3 }, "cut at {cut}");
        write(&store, 1).await;
        let after = store.read(&id, Seq(0), usize::MAX).await.unwrap();
        assert_eq!(after.len(), before.len() + 2, "the next append starts clean");
        assert_eq!(after[..before.len()], before);
        let places: Vec<u64> = after.iter().map(|record| record.seq.0).collect();
        assert!(places.is_sorted() && places.last() == Some(&(places.len() as u64)), "no gap: {places:?}");
        let now = std::fs::read(&path).unwrap();
        assert_eq!(now[..cut], whole[..cut], "nothing that was written is rewritten");
    }
}

#[tokio::test]
async fn a_log_whose_end_is_far_from_its_last_record_is_opened() {
    let root = tempfile::tempdir().unwrap();
    let store = JsonlStore::new(root.path());
    write(&store, 2).await;
    let path = store.path(&session());
    let mut bytes = std::fs::read(&path).unwrap();
    // Larger than the part that is read first, with a line feed in no good place.
    bytes.extend(std::iter::repeat_n(b'x', 150_000));
    bytes.extend(std::iter::repeat_n(b'\n', 70_000));
    std::fs::write(&path, bytes).unwrap();
    let (_writer, log) = open(&store).await.unwrap();
    let places: Vec<u64> = log.records.iter().map(|record| record.seq.0).collect();
    assert_eq!(places, [1, 2, 3, 5]);
    assert_eq!((log.damage.len(), log.damage[0].line), (1, 4));
}

#[tokio::test]
async fn damage_and_what_is_newer_are_named_with_file_and_line() {
    let root = tempfile::tempdir().unwrap();
    let store = JsonlStore::new(root.path());
    write(&store, 2).await;
    let path = store.path(&session());
    let mut bytes = std::fs::read(&path).unwrap();
    let second = bytes.iter().position(|b| *b == b'\n').unwrap() + 9;
    bytes[second] ^= 2;
    std::fs::write(&path, &bytes).unwrap();
    let (writer, log) = open(&store).await.unwrap();
    let text = log.damage[0].to_string();
    assert!(text.starts_with(&format!("{}, line 2: its checksum is wrong", path.display())), "{text}");
    drop(writer);

    let before = r#"{"v":2,"seq":5,"at":1,"#;
    let after = r#""entry":{"started":{"calls":[]}}}"#;
    let crc = crc32fast::hash([before, after].concat().as_bytes());
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend_from_slice(format!("{before}\"crc\":{crc},{after}\n").as_bytes());
    std::fs::write(&path, &bytes).unwrap();
    let error = open(&store).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, StoreError::Newer { line: 5, .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.starts_with(&format!("{}, line 5: it is in format 2", path.display())), "{text}");
    assert!(text.contains("can only read it"), "{text}");
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}

#[tokio::test]
async fn json_over_several_lines_is_the_same_now_and_when_read_again() {
    let root = tempfile::tempdir().unwrap();
    let store = JsonlStore::new(root.path());
    let (mut writer, _) = open(&store).await.unwrap();
    let mut done =
        Done::without_result(CallId { turn: 0, index: 0 }, open_agent_model::Outcome::Error, "text");
    done.details = Some(RawJson::parse("{\n  \"a\": 1\n}").unwrap());
    let entry = SessionEntry::Done(done);
    let written = writer.append(vec![entry], Timestamp(2), Durability::Written).await.unwrap();
    let SessionEntry::Done(done) = &written[0].entry else { panic!("{written:?}") };
    assert_eq!(done.details.as_ref().unwrap().get(), r#"{   "a": 1 }"#);
    assert_eq!(store.read(&session(), Seq(1), 1).await.unwrap(), written);
    assert_eq!(std::fs::read_to_string(store.path(&session())).unwrap().lines().count(), 2);
}

#[tokio::test]
async fn a_large_log_is_read() {
    let root = tempfile::tempdir().unwrap();
    let store = JsonlStore::new(root.path());
    let (mut writer, _) = open(&store).await.unwrap();
    let raw = format!(r#"{{"interrupted":{{"why":"{}"}}}}"#, "x".repeat(300_000));
    let entry = SessionEntry::Unknown(RawJson::parse(raw).unwrap());
    for _ in 0..5 {
        writer.append(vec![entry.clone()], Timestamp(2), Durability::Written).await.unwrap();
    }
    drop(writer);
    assert_eq!(open_as(Arc::new(store), "t").await.unwrap().1.records.len(), 7);
}

#[tokio::test]
async fn files_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let root = tempfile::tempdir().unwrap();
    let store = JsonlStore::new(root.path().join("sessions"));
    write(&store, 1).await;
    let mode = |p: &std::path::Path| std::fs::metadata(p).unwrap().permissions().mode() & 0o777;
    let path = store.path(&session());
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&path.with_file_name("owner")), 0o600);
    assert_eq!(mode(path.parent().unwrap()), 0o700);
}
