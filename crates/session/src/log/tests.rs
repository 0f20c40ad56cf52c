//! Damage, line by line. The law over random logs is in `tests/it/damage.rs`.

use open_agent_model::{CallId, RawJson, Timestamp};

use super::*;
use crate::{SessionEntry, encode};

fn bytes(seq: u64) -> Vec<u8> {
    let call = CallId { turn: u32::try_from(seq).unwrap(), index: 0 };
    encode(&Stored::new(Seq(seq), Timestamp(7), SessionEntry::Started { call })).unwrap().bytes().to_vec()
}

/// Lines with a line feed each.
fn lines(parts: &[&[u8]]) -> Vec<u8> {
    parts.iter().flat_map(|part| [*part, b"\n"].concat()).collect()
}

fn read(bytes: &[u8]) -> Log {
    Log::read(RawLog::from_bytes("log", bytes))
}

/// Places of the records, damage as `(line, kind)`, and the next place.
fn outcome(bytes: &[u8]) -> (Vec<u64>, Vec<(u64, DamageKind)>, u64) {
    let log = read(bytes);
    let damage = log.damage.iter().map(|damage| (damage.line, damage.kind)).collect();
    (log.records.iter().map(|record| record.seq.0).collect(), damage, log.next().0)
}

use DamageKind::{Contradiction, Harmless, Lost, Missing, Torn};

#[test]
fn whole_logs_have_no_damage() {
    assert_eq!(outcome(b""), (vec![], vec![], 1));
    let log = lines(&[&bytes(1), &bytes(2)]);
    assert_eq!(outcome(&log), (vec![1, 2], vec![], 3));
    assert_eq!(outcome(&log[..log.len() - 1]), (vec![1, 2], vec![], 3), "the last line feed is missing");
    assert_eq!(outcome(&[b"\xEF\xBB\xBF", &*log].concat()), (vec![1, 2], vec![], 3), "a byte-order mark");
    let windows = lines(&[&[&*bytes(1), b"\r"].concat(), b"", b"  ", &[&*bytes(2), b"\r"].concat()]);
    assert_eq!(outcome(&windows), (vec![1, 2], vec![], 3), "line ends of Windows, blank lines");
    let indented = lines(&[b"", &[b"  ", &*bytes(1)].concat(), &bytes(2)]);
    assert_eq!(outcome(&indented), (vec![1, 2], vec![], 3));
}

#[test]
fn a_damaged_line_is_a_gap_wherever_it_is() {
    let bad = |seq| bytes(seq).into_iter().map(|b| if b == b's' { b't' } else { b }).collect::<Vec<u8>>();
    assert_eq!(outcome(&lines(&[&bytes(1), &bad(2), &bytes(3)])), (vec![1, 3], vec![(2, Lost)], 4));
    assert_eq!(outcome(&lines(&[&bad(1), &bytes(2)])), (vec![2], vec![(1, Lost)], 3));
    // At the end the next record leaves a gap: places 2 and 3 are missing.
    let log = lines(&[&bytes(1), &bad(2), &bad(3)]);
    assert_eq!(outcome(&log), (vec![1], vec![(2, Lost), (3, Lost)], 4));
    let stray = lines(&[&bytes(1), &bytes(2), b"a stray line"]);
    assert_eq!(outcome(&stray), (vec![1, 2], vec![(3, Lost)], 4));
    let text = read(&stray).damage[0].to_string();
    assert_eq!(text, "log, line 3: it is no record: it has no checksum");
}

#[test]
fn nothing_but_damage_is_an_empty_session_after_a_gap() {
    assert_eq!(outcome(b"garbage\n{\"v\":1}\n"), (vec![], vec![(1, Lost), (2, Lost)], 3));
    assert_eq!(outcome(b"\0\0\0\0\n"), (vec![], vec![(1, Lost)], 2));
    assert_eq!(outcome(b"\xFF\xFE garbage"), (vec![], vec![(1, Torn)], 1));
}

#[test]
fn missing_swapped_and_repeated_lines_are_put_right() {
    assert_eq!(outcome(&lines(&[&bytes(1), &bytes(3)])), (vec![1, 3], vec![(2, Missing)], 4));
    assert_eq!(outcome(&lines(&[&bytes(2), &bytes(1), &bytes(4)])), (vec![1, 2, 4], vec![(3, Missing)], 5));
    assert_eq!(outcome(&lines(&[&bytes(2), &bytes(1), &bytes(3)])), (vec![1, 2, 3], vec![], 4));
    assert_eq!(outcome(&lines(&[&bytes(1), &bytes(2), &bytes(2)])), (vec![1, 2], vec![], 3));
    let other = encode(&Stored::new(Seq(2), Timestamp(8), SessionEntry::Interrupted {})).unwrap();
    let log = lines(&[&bytes(1), &bytes(2), other.bytes()]);
    assert_eq!(outcome(&log), (vec![1, 2], vec![(3, Contradiction)], 3));
    assert_eq!(read(&log).records[1].at, Timestamp(7), "the first one counts");
    assert_eq!(RawLog::from_bytes("log", &log).into_records()[1].bytes(), bytes(2));
}

#[test]
fn what_is_missing_without_a_trace_is_told() {
    let told = |log: &[u8]| read(log).damage.iter().map(ToString::to_string).collect::<Vec<_>>();
    let one = "log, line 1: record 1, which belongs before it, is missing";
    assert_eq!(told(&lines(&[&bytes(2)])), [one]);
    let two = "log, line 2: records 2 to 3, which belong before it, are missing";
    assert_eq!(told(&lines(&[&bytes(1), &bytes(4), &bytes(5)])), [two]);
    // A damaged line stands for one record, wherever it came from.
    let garbage = b"garbage";
    assert_eq!(outcome(&lines(&[&bytes(1), garbage, &bytes(3)])).1, [(2, Lost)]);
    let damage = told(&lines(&[&bytes(1), garbage, &bytes(5)]));
    assert_eq!(damage[1], "log, line 3: 2 of the records 2 to 4, which belong before it, are missing");
    assert_eq!(outcome(&lines(&[garbage, &bytes(1), &bytes(3)])).1, [(1, Lost), (3, Missing)]);
    assert_eq!(outcome(&lines(&[&bytes(0), &bytes(1)])).1, [], "no place is before the first");
}

#[test]
fn a_torn_last_line_leaves_no_gap_and_is_told_once() {
    let whole = lines(&[&bytes(1), &bytes(2)]);
    let start = lines(&[&bytes(1)]).len();
    for cut in start + 1..whole.len() - 1 {
        let torn = &whole[..cut];
        assert_eq!(outcome(torn), (vec![1], vec![(2, Torn)], 2), "cut at {cut}");
        let tail = Tail::of(torn);
        assert_eq!(tail, Tail { head: Seq(1), prefix: b"\t#torn\n" });
        let continued = [torn, tail.prefix, &bytes(2), b"\n"].concat();
        assert_eq!(outcome(&continued), (vec![1, 2], vec![], 3), "cut at {cut}");
    }
    // One byte too many or another one in the place of the line feed: the record is whole.
    for byte in [b'x', 0, 0xFF, b'}', b'"', 0x0B] {
        let odd = [&whole[..whole.len() - 1], &[byte]].concat();
        let (records, damage, next) = outcome(&odd);
        assert_eq!((records, next), (vec![1, 2], 3), "{byte}");
        assert!(damage.is_empty() || damage == [(2, Harmless)], "{byte}: {damage:?}");
        assert_eq!(Tail::of(&odd).prefix, b"\n");
        assert_eq!(outcome(&[&*odd, b"\n", &bytes(3), b"\n"].concat()).0, [1, 2, 3], "{byte}");
    }
}

#[test]
fn records_around_a_damaged_line_feed_are_whole() {
    for byte in [b'x', 0, 0xFF, b'{', b'}', b'"', b'0', 0x80] {
        let log = [&*bytes(1), &[byte], &bytes(2), &[byte], &bytes(3), b"\n"].concat();
        assert_eq!(outcome(&log), (vec![1, 2, 3], vec![(1, Harmless), (1, Harmless)], 4), "{byte}");
    }
    let spaced = [&*bytes(1), b" ", &bytes(2), b"\n"].concat();
    assert_eq!(outcome(&spaced), (vec![1, 2], vec![(1, Harmless)], 3), "a space for a line feed");
    let glued = [&*bytes(1), &bytes(2), b"\n"].concat();
    assert_eq!(outcome(&glued), (vec![1, 2], vec![], 3), "the line feed is missing");
}

#[test]
fn a_line_feed_within_a_record_damages_only_that_one() {
    let middle = bytes(2);
    for at in 0..middle.len() {
        let mut split = middle.clone();
        split[at] = b'\n';
        let log = lines(&[&bytes(1), &split, &bytes(3)]);
        let (records, damage, next) = outcome(&log);
        assert_eq!((records, next), (vec![1, 3], 4), "{at}");
        assert!(!damage.is_empty() && damage.iter().all(|(_, kind)| *kind == Lost), "{at}: {damage:?}");
    }
}

#[test]
fn a_cut_line_without_line_feed_does_not_hide_the_next_one() {
    let middle = bytes(2);
    for cut in 1..middle.len() {
        let log = [&lines(&[&bytes(1)]), &middle[..cut], &bytes(3), b"\n", &bytes(4), b"\n"].concat();
        assert_eq!(outcome(&log), (vec![1, 3, 4], vec![(2, Lost)], 5), "cut at {cut}");
    }
}

#[test]
fn json_that_a_model_wrote_is_never_taken_for_a_record() {
    let forged = String::from_utf8(bytes(9)).unwrap();
    let entry = SessionEntry::Unknown(RawJson::parse(format!(r#"{{"x":{forged}}}"#)).unwrap());
    let record = Stored { skip: true, ..Stored::new(Seq(2), Timestamp(7), entry) };
    let carrier = encode(&record).unwrap().bytes().to_vec();
    for at in 0..carrier.len() {
        for bit in 0..8 {
            let mut damaged = carrier.clone();
            damaged[at] ^= 1 << bit;
            let log = lines(&[&bytes(1), &damaged, &bytes(3)]);
            assert_eq!(outcome(&log).0, [1, 3], "{at}");
        }
    }
    for cut in 1..carrier.len() {
        let ended = lines(&[&bytes(1), &carrier[..cut], &bytes(3)]);
        assert_eq!(outcome(&ended).0, [1, 3], "cut at {cut}");
        let torn = [&lines(&[&bytes(1)]), &carrier[..cut]].concat();
        assert_eq!(outcome(&torn).0, [1], "cut at {cut}");
        let tail = Tail::of(&torn);
        assert_eq!(tail.head, Seq(1), "cut at {cut}");
        assert_eq!(outcome(&[&*torn, tail.prefix, &bytes(2), b"\n"].concat()).0, [1, 2], "cut at {cut}");
    }
}

#[test]
fn newer_records_count_for_the_place_and_are_copied() {
    let newer = {
        let entry = SessionEntry::Unknown(RawJson::parse(r#"{"telepathy":{}}"#).unwrap());
        encode(&Stored::new(Seq(2), Timestamp(7), entry)).unwrap().bytes().to_vec()
    };
    let log = lines(&[&bytes(1), &newer, &bytes(3)]);
    assert_eq!(outcome(&log), (vec![1, 3], vec![], 4));
    let found = read(&log).newer.unwrap();
    assert_eq!((&*found.source, found.line), ("log", 2));
    assert!(found.what.contains("`telepathy`"), "{found:?}");
    let copy: Vec<Vec<u8>> =
        RawLog::from_bytes("log", &log).into_records().iter().map(|record| record.bytes().to_vec()).collect();
    assert_eq!(copy, [bytes(1), newer, bytes(3)]);
}
