//! The test suite that every store must pass, those of other crates too. Each function panics with what is wrong.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use open_agent_session::{MemoryStore, conformance};
//! # async fn test() {
//! conformance::all(|| Arc::new(MemoryStore::new())).await;
//! conformance::damage(|| {
//!     let store = MemoryStore::new();
//!     let rewritten = store.clone();
//!     let rewrite = Box::new(move |id: &_, change: conformance::Change<'_>| rewritten.rewrite(id, change));
//!     conformance::Damageable { store: Arc::new(store), rewrite }
//! })
//! .await;
//! # }
//! ```
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test suite fails by panicking")]

use std::sync::Arc;

use open_agent_model::{CallId, RawJson, Seq, SessionId, Timestamp};

use crate::{
    Claim, DamageKind, Durability, EncodedRecord, Log, Owner, SessionEntry, SessionStore, SessionWriter,
    StoreError, Stored, blob_id, encode,
};

/// Changes the bytes of a log: its lines, a line feed after each.
pub type Change<'a> = &'a dyn Fn(Vec<u8>) -> Vec<u8>;

/// Changes the log of a session that is not claimed.
pub type Rewrite = Box<dyn Fn(&SessionId, Change<'_>)>;

/// A store whose logs can be damaged behind its back. A store that keeps rows splits the changed bytes at line feeds.
pub struct Damageable {
    /// The store.
    pub store: Arc<dyn SessionStore>,
    /// Damages a log.
    pub rewrite: Rewrite,
}

fn id(name: &str) -> SessionId {
    SessionId::new(name).unwrap()
}

fn owner(name: &str) -> Owner {
    Owner(name.into())
}

fn stored(seq: u64) -> Stored {
    let call = CallId { turn: u32::try_from(seq).unwrap(), index: 0 };
    Stored::new(Seq(seq), Timestamp(7), SessionEntry::Started { call })
}

fn record(seq: u64) -> EncodedRecord {
    encode(&stored(seq)).unwrap()
}

/// A record as a later version might write it: of a kind that this version does not know.
fn newer(seq: u64, skip: bool) -> EncodedRecord {
    let entry = SessionEntry::Unknown(RawJson::parse(r#"{"telepathy":{"n": 1.0}}"#).unwrap());
    encode(&Stored { skip, ..Stored::new(Seq(seq), Timestamp(7), entry) }).unwrap()
}

async fn bytes_of(store: &dyn SessionStore, id: &SessionId) -> Vec<Vec<u8>> {
    store.lines(id, Seq(0)).await.unwrap().lines.into_iter().map(|line| line.bytes).collect()
}

async fn open(store: &Arc<dyn SessionStore>, name: &str) -> Result<(SessionWriter, Log), StoreError> {
    SessionWriter::open(Arc::clone(store), id(name), owner("me"), Timestamp(1)).await
}

/// The rules of appending, claiming and reading, each on a store of its own.
pub async fn all(make: impl Fn() -> Arc<dyn SessionStore>) {
    what_is_appended_is_read(&*make()).await;
    records_are_kept_byte_for_byte(&make(), &make()).await;
    a_newer_log_is_read_and_not_written(&make()).await;
    a_second_claim_is_busy_until_the_first_ends(&*make()).await;
    a_zombie_cannot_write(&*make()).await;
    a_writer_that_missed_a_record_is_refused(&*make()).await;
    of_concurrent_appends_after_one_record_one_counts(make()).await;
    places_may_have_gaps_but_ascend(&*make()).await;
    a_parked_claim_goes_on_if_nobody_else_came(&make()).await;
    a_parked_claim_ends_when_another_is_made(&make()).await;
    sessions_do_not_mix(&*make()).await;
    blobs_are_kept_by_session(&*make()).await;
}

async fn blobs_are_kept_by_session(store: &dyn SessionStore) {
    let blobs = store.blobs();
    let (bytes, empty) = (b"\x00\xffbytes".as_slice(), b"".as_slice());
    let (name, of_empty) = (blob_id(bytes), blob_id(empty));
    assert_eq!(blobs.get(&id("a"), &name).await.unwrap(), None);
    // The same twice is the same once, and a claim is not needed.
    for durability in [Durability::Written, Durability::Synced] {
        blobs.put(&id("a"), &name, bytes, durability).await.unwrap();
    }
    blobs.put(&id("a"), &of_empty, empty, Durability::Written).await.unwrap();
    assert_eq!(blobs.get(&id("a"), &name).await.unwrap().as_deref(), Some(bytes));
    assert_eq!(blobs.get(&id("a"), &of_empty).await.unwrap().as_deref(), Some(empty));
    assert_eq!(blobs.get(&id("b"), &name).await.unwrap(), None, "sessions share none");
    // What is not what its name says is not returned.
    let lie = blob_id(b"truth");
    blobs.put(&id("a"), &lie, b"lie", Durability::Written).await.unwrap();
    assert_eq!(blobs.get(&id("a"), &lie).await.unwrap(), None);

    blobs.copy_all(&id("a"), &id("b")).await.unwrap();
    blobs.copy_all(&id("none"), &id("b")).await.unwrap();
    blobs.copy_all(&id("a"), &id("b")).await.unwrap();
    assert_eq!(blobs.get(&id("b"), &name).await.unwrap().as_deref(), Some(bytes));
    assert!(bytes_of(store, &id("a")).await.is_empty(), "the log has nothing of it");
}

async fn what_is_appended_is_read(store: &dyn SessionStore) {
    let (lease, head) = store.acquire(&id("a"), &owner("me")).await.unwrap();
    assert_eq!(head, Seq(0));
    let records: Vec<EncodedRecord> = (1..=5).map(record).collect();
    let claim = Claim { epoch: lease.epoch, expected: head };
    let head = store.append(&id("a"), claim, &records, Durability::Synced).await.unwrap();
    assert_eq!(head, Seq(5));
    let all: Vec<Stored> = (1..=5).map(stored).collect();
    assert_eq!(store.read(&id("a"), Seq(0), usize::MAX).await.unwrap(), all);
    assert_eq!(store.read(&id("a"), Seq(3), 1).await.unwrap(), all[3..4]);
    drop(lease);
    let (_lease, head) = store.acquire(&id("a"), &owner("me")).await.unwrap();
    assert_eq!(head, Seq(5), "a new claim knows the end");
}

/// Whatever a record holds, its bytes come back, and a copy of the log has the same.
async fn records_are_kept_byte_for_byte(store: &Arc<dyn SessionStore>, other: &Arc<dyn SessionStore>) {
    let records = [record(1), newer(2, false), newer(3, true), record(4)];
    let (lease, expected) = store.acquire(&id("a"), &owner("me")).await.unwrap();
    let claim = Claim { epoch: lease.epoch, expected };
    store.append(&id("a"), claim, &records, Durability::Written).await.unwrap();
    let bytes: Vec<Vec<u8>> = records.iter().map(|record| record.bytes().to_vec()).collect();
    assert_eq!(bytes_of(&**store, &id("a")).await, bytes);

    let copy = store.lines(&id("a"), Seq(0)).await.unwrap().into_records();
    let (lease, expected) = other.acquire(&id("copy"), &owner("me")).await.unwrap();
    let claim = Claim { epoch: lease.epoch, expected };
    other.append(&id("copy"), claim, &copy, Durability::Written).await.unwrap();
    assert_eq!(bytes_of(&**other, &id("copy")).await, bytes);
}

async fn a_newer_log_is_read_and_not_written(store: &Arc<dyn SessionStore>) {
    let (lease, expected) = store.acquire(&id("a"), &owner("me")).await.unwrap();
    let claim = Claim { epoch: lease.epoch, expected };
    let records = [record(1), newer(2, false), record(3)];
    store.append(&id("a"), claim, &records, Durability::Written).await.unwrap();
    drop(lease);
    let before = bytes_of(&**store, &id("a")).await;
    for _ in 0..2 {
        match open(store, "a").await {
            Err(StoreError::Newer { line: 2, what, .. }) => assert!(what.contains("telepathy"), "{what}"),
            other => panic!("expected that a newer log is refused, got {:?}", other.map(|(_, log)| log)),
        }
    }
    assert_eq!(bytes_of(&**store, &id("a")).await, before);
    let read = store.read(&id("a"), Seq(0), usize::MAX).await.unwrap();
    assert_eq!(read, [stored(1), stored(3)], "what is known can be read, before and after");
}

async fn a_second_claim_is_busy_until_the_first_ends(store: &dyn SessionStore) {
    let (first, expected) = store.acquire(&id("a"), &owner("first")).await.unwrap();
    match store.acquire(&id("a"), &owner("second")).await {
        Err(StoreError::Busy { owner, .. }) => assert_eq!(owner, "first"),
        other => panic!("expected busy, got {other:?}"),
    }
    let claim = Claim { epoch: first.epoch, expected };
    store.append(&id("a"), claim, &[record(1)], Durability::Written).await.unwrap();
    drop(first);
    let (second, _) = store.acquire(&id("a"), &owner("second")).await.unwrap();
    assert!(second.epoch > claim.epoch, "epochs grow");
    drop(second);
    let (third, _) = store.acquire(&id("a"), &owner("third")).await.unwrap();
    assert!(third.epoch > claim.epoch + 1, "also if nothing was written");
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
    let (lease, expected) = store.acquire(&id("a"), &owner("me")).await.unwrap();
    let claim = Claim { epoch: lease.epoch, expected };
    store.append(&id("a"), claim, &[record(1), record(2)], Durability::Written).await.unwrap();
    for missed in [0, 1] {
        let claim = Claim { expected: Seq(missed), ..claim };
        let refused = store.append(&id("a"), claim, &[record(missed + 1)], Durability::Written).await;
        assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
    }
    assert_eq!(store.read(&id("a"), Seq(0), usize::MAX).await.unwrap(), [stored(1), stored(2)]);
}

async fn of_concurrent_appends_after_one_record_one_counts(store: Arc<dyn SessionStore>) {
    let (lease, _) = store.acquire(&id("a"), &owner("me")).await.unwrap();
    for round in 0..5 {
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..10 {
            let (store, epoch) = (Arc::clone(&store), lease.epoch);
            tasks.spawn(async move {
                let claim = Claim { epoch, expected: Seq(round * 2) };
                let both = [record(round * 2 + 1), record(round * 2 + 2)];
                store.append(&id("a"), claim, &both, Durability::Written).await
            });
        }
        let results = tasks.join_all().await;
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
    }
    let all = store.read(&id("a"), Seq(0), usize::MAX).await.unwrap();
    assert_eq!(all, (1..=10).map(stored).collect::<Vec<_>>());
}

async fn places_may_have_gaps_but_ascend(store: &dyn SessionStore) {
    let (lease, expected) = store.acquire(&id("a"), &owner("me")).await.unwrap();
    let claim = Claim { epoch: lease.epoch, expected };
    for wrong in [vec![record(2), record(2)], vec![record(3), record(2)]] {
        let refused = store.append(&id("a"), claim, &wrong, Durability::Written).await;
        assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
    }
    let head = store.append(&id("a"), claim, &[record(3), record(7)], Durability::Written).await.unwrap();
    assert_eq!(head, Seq(7));
    // After damage a writer knows of later places than the store.
    let claim = Claim { expected: Seq(9), ..claim };
    assert_eq!(store.append(&id("a"), claim, &[record(10)], Durability::Written).await.unwrap(), Seq(10));
    let all = store.read(&id("a"), Seq(0), usize::MAX).await.unwrap();
    assert_eq!(all, [stored(3), stored(7), stored(10)]);
}

async fn a_parked_claim_goes_on_if_nobody_else_came(store: &Arc<dyn SessionStore>) {
    let (mut writer, _) = open(store, "a").await.unwrap();
    for turn in 0..3 {
        writer.park().await;
        writer.park().await;
        if turn == 1 {
            writer.unpark().await.unwrap();
            let second = store.acquire(&id("a"), &owner("second")).await;
            assert!(matches!(second, Err(StoreError::Busy { .. })), "{second:?}");
        }
        let entries = vec![SessionEntry::Interrupted {}];
        let written = writer.append(entries, Timestamp(2), Durability::Written).await.unwrap();
        assert_eq!(written[0].seq, Seq(turn + 2));
    }
    let second = store.acquire(&id("a"), &owner("second")).await;
    assert!(matches!(second, Err(StoreError::Busy { .. })), "{second:?}");
    assert_eq!(store.read(&id("a"), Seq(0), usize::MAX).await.unwrap().len(), 4);
    drop(writer);
    assert_eq!(open(store, "a").await.unwrap().1.records.len(), 5);
}

async fn a_parked_claim_ends_when_another_is_made(store: &Arc<dyn SessionStore>) {
    let (mut parked, _) = open(store, "a").await.unwrap();
    parked.park().await;
    let (mut second, log) = open(store, "a").await.unwrap();
    assert_eq!(log.records.len(), 2, "the session may be claimed while it is parked");
    let entries = || vec![SessionEntry::Interrupted {}];
    for is_over in [false, true] {
        let refused = parked.append(entries(), Timestamp(2), Durability::Written).await;
        assert!(matches!(refused, Err(StoreError::Fenced { .. })), "{refused:?}");
        let refused = parked.unpark().await;
        assert!(matches!(refused, Err(StoreError::Fenced { .. })), "{refused:?}");
        parked.park().await;
        if !is_over {
            second.append(entries(), Timestamp(2), Durability::Written).await.unwrap();
        }
    }
    drop(parked);
    second.append(entries(), Timestamp(2), Durability::Written).await.unwrap();
    assert_eq!(store.read(&id("a"), Seq(0), usize::MAX).await.unwrap().len(), 4);
}

async fn sessions_do_not_mix(store: &dyn SessionStore) {
    let (a, _) = store.acquire(&id("a"), &owner("me")).await.unwrap();
    let (_b, _) = store.acquire(&id("b"), &owner("me")).await.unwrap();
    let claim = Claim { epoch: a.epoch, expected: Seq(0) };
    store.append(&id("a"), claim, &[record(1)], Durability::Written).await.unwrap();
    assert_eq!(store.read(&id("b"), Seq(0), usize::MAX).await.unwrap(), []);
    assert_eq!(store.read(&id("no-such"), Seq(0), usize::MAX).await.unwrap(), []);
}

/// The rules for damaged logs, each on a store of its own: none makes a session unreadable, and writing goes on after it.
pub async fn damage(make: impl Fn() -> Damageable) {
    for (name, change, expected) in cases() {
        let subject = make();
        let (mut writer, _) = open(&subject.store, "a").await.unwrap();
        for turn in 0..3 {
            let entry = SessionEntry::Started { call: CallId { turn, index: 0 } };
            writer.append(vec![entry], Timestamp(2), Durability::Written).await.unwrap();
        }
        drop(writer);
        (subject.rewrite)(&id("a"), &change);
        let before = subject.store.read(&id("a"), Seq(0), usize::MAX).await.unwrap();
        let (mut writer, log) =
            open(&subject.store, "a").await.unwrap_or_else(|error| panic!("{name}: {error}"));
        let places: Vec<u64> = log.records.iter().map(|record| record.seq.0).collect();
        assert_eq!(places, expected.places, "{name}: what was read, and where it goes on");
        assert_eq!(log.records[..before.len()], before, "{name}");
        let kinds: Vec<DamageKind> = log.damage.iter().map(|damage| damage.kind).collect();
        assert_eq!(kinds, expected.damage, "{name}: {:?}", log.damage);
        let entries = vec![SessionEntry::Interrupted {}];
        writer.append(entries, Timestamp(3), Durability::Synced).await.unwrap();
        drop(writer);
        let (_writer, again) = open(&subject.store, "a").await.unwrap();
        assert_eq!(again.records[..log.records.len()], log.records, "{name}: nothing is lost later");
        assert_eq!(again.records.len(), log.records.len() + 2, "{name}: what is appended is read");
        let told_again = log.damage.into_iter().filter(|damage| damage.kind != DamageKind::Torn);
        assert_eq!(again.damage, told_again.collect::<Vec<_>>(), "{name}");
    }
}

struct Expected {
    /// Places of the records after opening, the one that the opening appended included.
    places: Vec<u64>,
    damage: Vec<DamageKind>,
}

type ChangeBox = Box<dyn Fn(Vec<u8>) -> Vec<u8>>;

type Case = (&'static str, ChangeBox, Expected);

/// Changes of a log of four records.
fn cases() -> Vec<Case> {
    fn lines(bytes: &[u8]) -> Vec<Vec<u8>> {
        bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
    }
    fn case(
        name: &'static str,
        change: impl Fn(&mut Vec<Vec<u8>>) + 'static,
        places: &[u64],
        damage: &[DamageKind],
    ) -> Case {
        let change = move |bytes: Vec<u8>| {
            let mut lines = lines(&bytes);
            change(&mut lines);
            lines.concat()
        };
        (name, Box::new(change), Expected { places: places.to_vec(), damage: damage.to_vec() })
    }
    use DamageKind::{Contradiction, Harmless, Lost, Missing, Torn};
    vec![
        case("unchanged", |_| {}, &[1, 2, 3, 4, 5], &[]),
        case("a flipped bit in the middle", |l| l[1][40] ^= 1, &[1, 3, 4, 5], &[Lost]),
        case("a flipped bit in the first line", |l| l[0][6] ^= 1, &[2, 3, 4, 5], &[Lost]),
        case("a flipped bit in the last line", |l| l[3][10] ^= 1, &[1, 2, 3, 5], &[Lost]),
        case("a byte that is no UTF-8", |l| l[2][30] = 0xFF, &[1, 2, 4, 5], &[Lost]),
        case("a NUL", |l| l[2][30] = 0, &[1, 2, 4, 5], &[Lost]),
        case("a missing line", |l| drop(l.remove(1)), &[1, 3, 4, 5], &[Missing]),
        case("swapped lines", |l| l.swap(1, 3), &[1, 2, 3, 4, 5], &[]),
        case("a line twice", |l| l.insert(2, l[1].clone()), &[1, 2, 3, 4, 5], &[]),
        case(
            "two records with one place",
            |l| l.push([record(4).bytes(), b"\n"].concat()),
            &[1, 2, 3, 4, 5],
            &[Contradiction],
        ),
        case("a byte-order mark", |l| drop(l[0].splice(0..0, *b"\xEF\xBB\xBF")), &[1, 2, 3, 4, 5], &[]),
        case("blank lines", |l| l.insert(2, b"\n \n".to_vec()), &[1, 2, 3, 4, 5], &[]),
        case("a stray line at the end", |l| l.push(b"stray\n".to_vec()), &[1, 2, 3, 4, 6], &[Lost]),
        case("a line that is cut in the middle", |l| l[1].truncate(30), &[1, 3, 4, 5], &[Lost]),
        case("a last line that is cut", |l| l[3].truncate(30), &[1, 2, 3, 4], &[Torn]),
        case("a last line without line feed", |l| l[3].retain(|byte| *byte != b'\n'), &[1, 2, 3, 4, 5], &[]),
        case(
            "another byte in the place of the last line feed",
            |l| *l[3].last_mut().unwrap() = b'x',
            &[1, 2, 3, 4, 5],
            &[Harmless],
        ),
        case(
            "another byte in the place of a line feed",
            |l| *l[1].last_mut().unwrap() = 0xFF,
            &[1, 2, 3, 4, 5],
            &[Harmless],
        ),
        case("no record at all", |l| *l = vec![b"garbage\n".to_vec(), b"{}\n".to_vec()], &[3], &[Lost, Lost]),
        case("nothing at all", Vec::clear, &[1], &[]),
    ]
}
