//! Stores against the conformance suite and against crashes.

use std::io::Write;
use std::sync::Arc;

use open_agent_model::{CallId, Seq, SessionId, Timestamp};
use open_agent_session::{
    Durability, JsonlStore, MemoryStore, Owner, SessionEntry, SessionStore, SessionWriter, conformance,
};

#[tokio::test]
async fn memory_store_conforms() {
    conformance::all(|| Arc::new(MemoryStore::new())).await;
}

#[tokio::test]
async fn jsonl_store_conforms() {
    let root = tempfile::tempdir().unwrap();
    let n = std::cell::Cell::new(0);
    conformance::all(|| {
        n.set(n.get() + 1);
        Arc::new(JsonlStore::new(root.path().join(n.get().to_string())))
    })
    .await;
}

async fn write(store: &JsonlStore, id: &SessionId, turns: u32) {
    let (writer, _) =
        SessionWriter::open(Arc::new(store.clone()), id.clone(), Owner("t".into()), Timestamp(1))
            .await
            .unwrap();
    for turn in 0..turns {
        let entry = SessionEntry::Started { call: CallId { turn, index: 0 } };
        writer.append(vec![entry], Timestamp(2), Durability::Written).await.unwrap();
    }
}

#[tokio::test]
async fn h_ses_01_a_record_cut_anywhere_costs_only_itself() {
    let root = tempfile::tempdir().unwrap();
    let id = SessionId::new("s").unwrap();
    let store = JsonlStore::new(root.path());
    write(&store, &id, 3).await;
    let path = store.path(&id);
    let whole = std::fs::read(&path).unwrap();
    let last = whole[..whole.len() - 1].iter().rposition(|b| *b == b'\n').unwrap() + 1;
    for cut in last..whole.len() {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let before = store.read(&id, Seq(0), usize::MAX).await.unwrap();
        // Without its line feed the last record is whole all the same.
        assert_eq!(before.len(), if cut == whole.len() - 1 { 4 } else { 3 }, "cut at {cut}");
        write(&store, &id, 1).await;
        let after = store.read(&id, Seq(0), usize::MAX).await.unwrap();
        assert_eq!(after.len(), before.len() + 2, "the next append starts clean");
        assert_eq!(after[..before.len()], before);
        let now = std::fs::read(&path).unwrap();
        assert_eq!(now[..cut], whole[..cut], "nothing that was written is rewritten");
    }
}

#[tokio::test]
async fn a_missing_record_is_named() {
    let root = tempfile::tempdir().unwrap();
    let id = SessionId::new("s").unwrap();
    let store = JsonlStore::new(root.path());
    write(&store, &id, 3).await;
    let text = std::fs::read_to_string(store.path(&id)).unwrap();
    let without: Vec<&str> = text.lines().enumerate().filter(|(i, _)| *i != 1).map(|(_, l)| l).collect();
    std::fs::File::create(store.path(&id)).unwrap().write_all(without.join("\n").as_bytes()).unwrap();
    let error = store.read(&id, Seq(0), usize::MAX).await.unwrap_err().to_string();
    assert!(error.contains("line 2: record 3 follows record 1"), "{error}");
}

#[tokio::test]
async fn a_log_whose_end_cannot_be_read_is_not_appended_to() {
    let root = tempfile::tempdir().unwrap();
    let id = SessionId::new("s").unwrap();
    let store = JsonlStore::new(root.path());
    write(&store, &id, 1).await;
    // As a later version might write it: a tag that this one knows, in a shape that it does not.
    let line = "{\"v\":9,\"seq\":3,\"at\":1,\"entry\":{\"started\":{\"calls\":[]}}}\n";
    let mut file = std::fs::OpenOptions::new().append(true).open(store.path(&id)).unwrap();
    file.write_all(line.as_bytes()).unwrap();
    let before = std::fs::read(store.path(&id)).unwrap();
    for _ in 0..2 {
        let open = SessionWriter::open(Arc::new(store.clone()), id.clone(), Owner("t".into()), Timestamp(1));
        let error = open.await.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("ends with record 3, of which this version can read 2 only"), "{error}");
    }
    assert_eq!(std::fs::read(store.path(&id)).unwrap(), before);
}

#[tokio::test]
async fn a_file_without_any_record_is_no_empty_session() {
    let root = tempfile::tempdir().unwrap();
    let id = SessionId::new("s").unwrap();
    let store = JsonlStore::new(root.path());
    write(&store, &id, 0).await;
    std::fs::write(store.path(&id), "garbage\n{\"v\":1}\n").unwrap();
    let error = store.acquire(&id, &Owner("t".into())).await.unwrap_err().to_string();
    assert!(error.contains("no line of the file is a record"), "{error}");
}

#[cfg(unix)]
#[tokio::test]
async fn files_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let root = tempfile::tempdir().unwrap();
    let id = SessionId::new("s").unwrap();
    let store = JsonlStore::new(root.path().join("sessions"));
    write(&store, &id, 1).await;
    let mode = |p: &std::path::Path| std::fs::metadata(p).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&store.path(&id)), 0o600);
    assert_eq!(mode(store.path(&id).parent().unwrap()), 0o700);
}

#[tokio::test]
async fn a_log_that_was_deleted_is_not_written_to_in_silence() {
    let root = tempfile::tempdir().unwrap();
    let id = SessionId::new("s").unwrap();
    let store = JsonlStore::new(root.path());
    let open = SessionWriter::open(Arc::new(store.clone()), id.clone(), Owner("t".into()), Timestamp(1));
    let (writer, _) = open.await.unwrap();
    let entry = || vec![SessionEntry::Interrupted {}];
    writer.append(entry(), Timestamp(2), Durability::Written).await.unwrap();
    std::fs::remove_dir_all(root.path().join("s")).unwrap();
    let error = writer.append(entry(), Timestamp(3), Durability::Written).await.unwrap_err().to_string();
    assert!(error.contains("deleted while the session goes on"), "{error}");
}
