//! The test suite that every store must pass. Each function panics with what is wrong.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test suite fails by panicking")]

use std::sync::Arc;

use open_agent_model::{CallId, RawJson, Seq, SessionId, Timestamp};

use crate::{Claim, Durability, Owner, SessionEntry, SessionStore, SessionWriter, StoreError, Stored};

fn id(name: &str) -> SessionId {
    SessionId::new(name).unwrap()
}

fn owner(name: &str) -> Owner {
    Owner(name.into())
}

fn record(seq: u64) -> Stored {
    let call = CallId { turn: u32::try_from(seq).unwrap(), index: 0 };
    Stored { seq: Seq(seq), at: Timestamp(7), entry: SessionEntry::Started { call } }
}

/// All of the suite, each part on a store of its own.
pub async fn all(make: impl Fn() -> Arc<dyn SessionStore>) {
    what_is_appended_is_read(&*make()).await;
    a_second_claim_is_busy_until_the_first_ends(&*make()).await;
    a_zombie_cannot_write(&*make()).await;
    a_writer_that_missed_a_record_is_refused(&*make()).await;
    sessions_do_not_mix(&*make()).await;
    concurrent_appends_are_numbered_without_gaps(make()).await;
}

async fn what_is_appended_is_read(store: &dyn SessionStore) {
    let (lease, head) = store.acquire(&id("a"), &owner("me")).await.unwrap();
    assert_eq!(head, Seq(0));
    let mut records: Vec<Stored> = (1..=5).map(record).collect();
    records[2].entry = SessionEntry::Unknown(RawJson::parse(r#"{"later":{"n": 1.0}}"#).unwrap());
    let claim = Claim { epoch: lease.epoch, expected: head };
    let head = store.append(&id("a"), claim, &records, Durability::Synced).await.unwrap();
    assert_eq!(head, Seq(5));
    assert_eq!(store.read(&id("a"), Seq(0), usize::MAX).await.unwrap(), records);
    assert_eq!(store.read(&id("a"), Seq(3), 1).await.unwrap(), records[3..4]);
    drop(lease);
    let (_lease, head) = store.acquire(&id("a"), &owner("me")).await.unwrap();
    assert_eq!(head, Seq(5), "a new claim knows the end");
}

async fn a_second_claim_is_busy_until_the_first_ends(store: &dyn SessionStore) {
    let (first, _) = store.acquire(&id("a"), &owner("first")).await.unwrap();
    match store.acquire(&id("a"), &owner("second")).await {
        Err(StoreError::Busy { owner, .. }) => assert_eq!(owner, "first"),
        other => panic!("expected busy, got {other:?}"),
    }
    let epoch = first.epoch;
    drop(first);
    let (second, _) = store.acquire(&id("a"), &owner("second")).await.unwrap();
    assert!(second.epoch > epoch, "epochs grow");
}

async fn a_zombie_cannot_write(store: &dyn SessionStore) {
    let (first, head) = store.acquire(&id("a"), &owner("first")).await.unwrap();
    let old = Claim { epoch: first.epoch, expected: head };
    drop(first);
    let refused = store.append(&id("a"), old, &[record(1)], Durability::Written).await;
    let (_second, _) = store.acquire(&id("a"), &owner("second")).await.unwrap();
    let after = store.append(&id("a"), old, &[record(1)], Durability::Written).await;
    assert!(matches!(after, Err(StoreError::Fenced { .. })), "{after:?}");
    // Before anybody else claimed it, a store may accept the late record or refuse it, but not lose it silently.
    let kept = store.read(&id("a"), Seq(0), usize::MAX).await.unwrap().len();
    assert_eq!(kept, usize::from(refused.is_ok()));
}

async fn a_writer_that_missed_a_record_is_refused(store: &dyn SessionStore) {
    let (lease, _) = store.acquire(&id("a"), &owner("me")).await.unwrap();
    let claim = Claim { epoch: lease.epoch, expected: Seq(3) };
    let refused = store.append(&id("a"), claim, &[record(4)], Durability::Written).await;
    assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
    assert_eq!(store.read(&id("a"), Seq(0), usize::MAX).await.unwrap(), []);
}

async fn sessions_do_not_mix(store: &dyn SessionStore) {
    let (a, _) = store.acquire(&id("a"), &owner("me")).await.unwrap();
    let (_b, _) = store.acquire(&id("b"), &owner("me")).await.unwrap();
    let claim = Claim { epoch: a.epoch, expected: Seq(0) };
    store.append(&id("a"), claim, &[record(1)], Durability::Written).await.unwrap();
    assert_eq!(store.read(&id("b"), Seq(0), usize::MAX).await.unwrap(), []);
    assert_eq!(store.read(&id("no-such"), Seq(0), usize::MAX).await.unwrap(), []);
}

async fn concurrent_appends_are_numbered_without_gaps(store: Arc<dyn SessionStore>) {
    let (writer, records) =
        SessionWriter::open(Arc::clone(&store), id("a"), owner("me"), Timestamp(1)).await.unwrap();
    assert_eq!(records.len(), 1, "the claim is in the log");
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..20 {
        let writer = writer.clone();
        tasks.spawn(async move {
            let entry = SessionEntry::Started { call: CallId { turn: i, index: 0 } };
            writer.append(vec![entry.clone(), entry], Timestamp(2), Durability::Written).await.unwrap();
        });
    }
    tasks.join_all().await;
    let all = store.read(&id("a"), Seq(0), usize::MAX).await.unwrap();
    let seqs: Vec<u64> = all.iter().map(|r| r.seq.0).collect();
    assert_eq!(seqs, (1..=41).collect::<Vec<_>>());
}
