//! Claims of files: their handles, their fence, and what others may do to a transcript meanwhile.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use open_agent_model::{Seq, Timestamp};
use open_agent_session::{Durability, JsonlStore, SessionEntry, SessionStore, SessionWriter, StoreError};

use crate::{open, open_as, session};

async fn append(writer: &mut SessionWriter) -> Result<Seq, StoreError> {
    let records =
        writer.append(vec![SessionEntry::Interrupted {}], Timestamp(2), Durability::Written).await?;
    Ok(records[0].seq)
}

/// Files below `root` that this process has open.
fn open_files(root: &Path) -> Vec<PathBuf> {
    let links =
        fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.filter(|path| path.starts_with(root)).collect()
}

/// A store whose session has two records, and its writer.
async fn begun(root: &Path) -> (JsonlStore, SessionWriter, PathBuf) {
    let store = JsonlStore::new(root.join("sessions"));
    let (mut writer, _) = open(&store).await.unwrap();
    append(&mut writer).await.unwrap();
    let path = store.path(&session());
    (store, writer, path)
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_active_session_has_one_file_open_and_an_idle_one_none() {
    let root = tempfile::tempdir().unwrap();
    let (store, mut writer, path) = begun(root.path()).await;
    for _ in 0..2 {
        assert_eq!(open_files(root.path()), std::slice::from_ref(&path));
        writer.park().await;
        assert_eq!(open_files(root.path()), Vec::<PathBuf>::new());
        store.read(&session(), Seq(0), usize::MAX).await.unwrap();
        assert_eq!(open_files(root.path()), Vec::<PathBuf>::new(), "reading keeps nothing open");
        append(&mut writer).await.unwrap();
    }
    drop(writer);
    assert_eq!(open_files(root.path()), Vec::<PathBuf>::new());
}

type Accident = fn(&Path);

/// What can happen to a transcript, and a part of the error that tells it.
fn accidents() -> Vec<(&'static str, Accident)> {
    vec![
        ("was truncated from", |path| {
            fs::OpenOptions::new().write(true).open(path).unwrap().set_len(10).unwrap();
        }),
        ("was truncated from", |path| drop(fs::File::create(path).unwrap())),
        ("was removed", |path| fs::remove_file(path).unwrap()),
        ("was removed", |path| fs::remove_dir_all(path.parent().unwrap()).unwrap()),
        ("was removed or moved", |path| fs::rename(path, path.with_extension("old")).unwrap()),
        ("was replaced", |path| {
            let bytes = fs::read(path).unwrap();
            fs::remove_file(path).unwrap();
            // The old inode is still open, so the new file cannot have its number.
            fs::write(path, bytes).unwrap();
        }),
        ("was replaced", |path| {
            fs::remove_file(path).unwrap();
            symlink("/dev/null", path).unwrap();
        }),
    ]
}

#[tokio::test]
async fn whatever_happens_to_a_transcript_is_told_at_the_next_append() {
    for (told, accident) in accidents() {
        let root = tempfile::tempdir().unwrap();
        let (_store, mut writer, path) = begun(root.path()).await;
        accident(&path);
        for _ in 0..2 {
            let error = append(&mut writer).await.unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, StoreError::Changed { .. }), "{error:?}");
            assert!(text.starts_with(path.to_str().unwrap()) && text.contains(told), "{told}: {text}");
        }
    }
}

#[tokio::test]
async fn what_happens_to_a_parked_transcript_is_told_too() {
    for (told, accident) in accidents() {
        let root = tempfile::tempdir().unwrap();
        let (_store, mut writer, path) = begun(root.path()).await;
        // Keeps the inode in use, so that a new file cannot have its number.
        let _handle = fs::File::open(&path).unwrap();
        writer.park().await;
        accident(&path);
        let text = append(&mut writer).await.unwrap_err().to_string();
        assert!(text.starts_with(path.to_str().unwrap()), "{told}: {text}");
    }
    // The same file with the same length and other bytes.
    let root = tempfile::tempdir().unwrap();
    let (_store, mut writer, path) = begun(root.path()).await;
    writer.park().await;
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() = b' ';
    fs::OpenOptions::new().write(true).open(&path).unwrap().write_all(&bytes).unwrap();
    assert!(matches!(append(&mut writer).await, Err(StoreError::Fenced { .. })));
}

#[tokio::test]
async fn a_writer_whose_log_was_written_to_by_somebody_else_is_fenced_and_the_log_stays_readable() {
    let root = tempfile::tempdir().unwrap();
    let (store, mut writer, path) = begun(root.path()).await;
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"a stray line\n").unwrap();
    let before = fs::read(&path).unwrap();
    for _ in 0..2 {
        let refused = append(&mut writer).await;
        assert!(matches!(refused, Err(StoreError::Fenced { .. })), "{refused:?}");
    }
    assert_eq!(fs::read(&path).unwrap(), before, "nothing was appended after it");
    drop(writer);
    let (_writer, log) = open(&store).await.unwrap();
    assert_eq!((log.records.len(), log.damage.len()), (3, 1));
}

#[tokio::test]
async fn nothing_beside_the_transcript_can_be_removed_so_that_two_can_write() {
    let root = tempfile::tempdir().unwrap();
    let (store, mut writer, path) = begun(root.path()).await;
    for entry in fs::read_dir(path.parent().unwrap()).unwrap() {
        let other = entry.unwrap().path();
        if other != path {
            fs::remove_file(other).unwrap();
        }
    }
    // As another process would: with a store of its own.
    let second = open(&JsonlStore::new(root.path().join("sessions"))).await;
    assert!(matches!(second, Err(StoreError::Busy { .. })), "{:?}", second.map(|(_, log)| log));
    append(&mut writer).await.unwrap();
    drop(writer);
    let (lease, _) = store.acquire(&session(), &open_agent_session::Owner("t".into())).await.unwrap();
    assert!(lease.epoch > 1, "the epoch grows without its note: {}", lease.epoch);
}

#[tokio::test]
async fn of_two_writers_after_the_transcript_was_removed_the_first_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let (_store, mut first, path) = begun(root.path()).await;
    fs::remove_file(&path).unwrap();
    let (mut second, log) = open(&JsonlStore::new(root.path().join("sessions"))).await.unwrap();
    assert_eq!(log.records.len(), 1, "it begins anew");
    assert!(matches!(append(&mut first).await, Err(StoreError::Changed { .. })));
    assert_eq!(append(&mut second).await.unwrap(), Seq(2));
}

#[tokio::test]
async fn a_claim_in_another_process_ends_a_parked_one() {
    let root = tempfile::tempdir().unwrap();
    let (_store, mut first, _) = begun(root.path()).await;
    first.park().await;
    let other: Arc<dyn SessionStore> = Arc::new(JsonlStore::new(root.path().join("sessions")));
    let (mut second, log) = open_as(Arc::clone(&other), "the second").await.unwrap();
    assert_eq!(log.records.len(), 3);
    assert!(matches!(append(&mut first).await, Err(StoreError::Fenced { .. })));
    second.park().await;
    assert!(matches!(append(&mut first).await, Err(StoreError::Fenced { .. })), "it wrote");
    // A claim that wrote nothing does not end the one that is parked, and messages name the right owner afterwards.
    let third = JsonlStore::new(root.path().join("sessions"));
    drop(third.acquire(&session(), &open_agent_session::Owner("the third".into())).await.unwrap());
    append(&mut second).await.unwrap();
    match open(&JsonlStore::new(root.path().join("sessions"))).await {
        Err(StoreError::Busy { owner, .. }) => assert_eq!(owner, "the second"),
        other => panic!("{:?}", other.map(|(_, log)| log)),
    }
}

#[tokio::test]
async fn what_is_no_file_is_refused_and_does_not_block() {
    let root = tempfile::tempdir().unwrap();
    let store = JsonlStore::new(root.path());
    let path = store.path(&session());
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    symlink("/dev/null", &path).unwrap();
    assert!(open(&store).await.map(|_| ()).unwrap_err().to_string().contains("is not a regular file"));
    assert!(store.read(&session(), Seq(0), 1).await.is_err());
    fs::remove_file(&path).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    assert!(open(&store).await.map(|_| ()).unwrap_err().to_string().contains("is not a regular file"));
    assert!(store.read(&session(), Seq(0), 1).await.is_err());
}
