//! The law of damage: in any log any record may be removed, cut or changed, and the session goes on with all others.

use open_agent_model::{CallId, RawJson, Seq, Timestamp};
use open_agent_session::{
    Damage, DamageKind, Done, JsonlStore, Log, RawLog, SessionEntry, SessionStore, Stored, encode,
};
use proptest::prelude::*;

use crate::{open, session};

/// Random logs; each is damaged in several ways at each of its records.
const CASES: u32 = 64;

fn entry() -> impl Strategy<Value = SessionEntry> {
    let call = (0..9u32, 0..3u16).prop_map(|(turn, index)| CallId { turn, index });
    // Text of all kinds, also such as looks like records, seals and line ends.
    let text = prop_oneof![
        "\\PC{0,40}",
        Just("\t#torn".to_owned()),
        Just("\n{\"v\":1,\"seq\":2,".to_owned()),
        ".{0,10}"
    ];
    let raw = prop_oneof![
        Just("{\n}".to_owned()),
        (1..9u64).prop_map(|seq| {
            let forged = Stored::new(Seq(seq), Timestamp(3), SessionEntry::Interrupted {});
            String::from_utf8(encode(&forged).unwrap().bytes().to_vec()).unwrap()
        }),
    ];
    prop_oneof![
        call.clone().prop_map(|call| SessionEntry::Started { call }),
        Just(SessionEntry::Interrupted {}),
        (call, text, raw).prop_map(|(call, text, raw)| {
            let mut done = Done::without_result(call, open_agent_model::Outcome::Error, text);
            done.details = Some(RawJson::parse(raw).unwrap());
            SessionEntry::Done(done)
        }),
    ]
}

/// What is done to one line, which ends with its line feed.
#[derive(Clone, Debug)]
enum Change {
    Remove,
    /// Cuts the line after a part of it, its line feed too or not.
    Cut(prop::sample::Index, bool),
    Flip(prop::sample::Index, u8),
    Replace(prop::sample::Index, u8),
    LineFeed(u8),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        Just(Change::Remove),
        (any::<prop::sample::Index>(), any::<bool>()).prop_map(|(at, keeps)| Change::Cut(at, keeps)),
        (any::<prop::sample::Index>(), 0..8u8).prop_map(|(at, bit)| Change::Flip(at, bit)),
        (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(at, byte)| Change::Replace(at, byte)),
        (0..8u8).prop_map(Change::LineFeed),
    ]
}

impl Change {
    fn apply(&self, line: &mut Vec<u8>) {
        match self {
            Self::Remove => line.clear(),
            Self::Cut(at, keeps_line_feed) => {
                line.truncate(at.index(line.len()));
                if *keeps_line_feed {
                    line.push(b'\n');
                }
            }
            Self::Flip(at, bit) => {
                let at = at.index(line.len());
                line[at] ^= 1 << bit;
            }
            Self::Replace(at, byte) => {
                let at = at.index(line.len());
                line[at] = *byte;
            }
            Self::LineFeed(bit) => *line.last_mut().unwrap() ^= 1 << bit,
        }
    }
}

fn log_of(entries: Vec<SessionEntry>) -> Vec<Vec<u8>> {
    let records = entries.into_iter().zip(1..).map(|(entry, seq)| Stored::new(Seq(seq), Timestamp(2), entry));
    records.map(|record| [encode(&record).unwrap().bytes(), b"\n"].concat()).collect()
}

fn read(lines: &[Vec<u8>]) -> Log {
    Log::read(RawLog::from_bytes("log", &lines.concat()))
}

/// Checks what is read of a log of which one line was changed.
fn check_read(whole: &[Stored], changed: &[Vec<u8>], at: usize) -> Result<Log, TestCaseError> {
    let log = read(changed);
    prop_assert!(log.newer.is_none());
    let others = |record: &&Stored| record.seq.0 != at as u64 + 1;
    let expected: Vec<&Stored> = whole.iter().filter(others).collect();
    let found: Vec<&Stored> = log.records.iter().filter(others).collect();
    prop_assert_eq!(found, expected, "all others are returned as they were");
    let is_whole = log.records.iter().find(|record| !others(record)).map(|record| *record == whole[at]);
    prop_assert_ne!(is_whole, Some(false), "the record itself is as it was, or missing");
    // A line feed in a line's middle makes two damaged lines of it.
    let near = |damage: &Damage| (at as u64..=at as u64 + 2).contains(&damage.line);
    prop_assert!(log.damage.iter().all(near), "{:?}", log.damage);
    let is_visible = changed[at].iter().any(|byte| !byte.is_ascii_whitespace());
    prop_assert!(is_whole.is_some() || !is_visible || !log.damage.is_empty(), "damage is reported");
    Ok(log)
}

/// Opens the log on disk, appends, and reads all of it again.
async fn check_append(store: &JsonlStore, log: &Log, bytes: &[u8], last: u64) -> Result<(), TestCaseError> {
    let path = store.path(&session());
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, bytes).unwrap();
    let (writer, opened) = open(store).await.unwrap();
    prop_assert_eq!(&opened.records[..log.records.len()], &log.records[..]);
    let new = opened.records.last().unwrap().seq;
    prop_assert_eq!(new, log.next());
    let lost_at_end = log.records.last().is_none_or(|record| record.seq.0 < last)
        && log.damage.iter().any(|damage| damage.kind == DamageKind::Lost);
    prop_assert!(!lost_at_end || new.0 > last, "a damaged last record leaves a gap: {new:?}");
    drop(writer);
    prop_assert!(std::fs::read(&path).unwrap().starts_with(bytes), "nothing is rewritten");
    let (_writer, again) = open(store).await.unwrap();
    prop_assert_eq!(&again.records[..opened.records.len()], &opened.records[..]);
    prop_assert_eq!(again.records.len(), opened.records.len() + 1, "the next append is clean");
    let texts = |log: &Log| log.damage.iter().map(|damage| (damage.line, damage.kind)).collect::<Vec<_>>();
    prop_assert_eq!(texts(&opened), texts(log));
    let remaining = opened.damage.iter().filter(|damage| damage.kind != DamageKind::Torn);
    prop_assert!(again.damage.iter().eq(remaining), "{:?}", again.damage);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_damaged_record_costs_only_itself(
        entries in prop::collection::vec(entry(), 1..7),
        changes in prop::collection::vec(change(), 4),
    ) {
        let whole = log_of(entries);
        let records = read(&whole).records;
        prop_assert_eq!(records.len(), whole.len());
        let root = tempfile::tempdir().unwrap();
        let store = JsonlStore::new(root.path());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for at in 0..whole.len() {
            for (n, change) in changes.iter().enumerate() {
                let mut changed = whole.clone();
                change.apply(&mut changed[at]);
                let log = check_read(&records, &changed, at)?;
                // Files are slow: one change of each record is tried on disk.
                if n == at % changes.len() {
                    let bytes = changed.concat();
                    runtime.block_on(check_append(&store, &log, &bytes, whole.len() as u64))?;
                }
            }
        }
    }

    #[test]
    fn no_bytes_at_all_make_a_session_unreadable(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let root = tempfile::tempdir().unwrap();
        let store = JsonlStore::new(root.path());
        let log = Log::read(RawLog::from_bytes("log", &bytes));
        prop_assert!(log.records.is_empty());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(check_append(&store, &log, &bytes, 0))?;
        let read = runtime.block_on(store.read(&session(), Seq(0), usize::MAX)).unwrap();
        prop_assert_eq!(read.len(), 2);
    }
}
