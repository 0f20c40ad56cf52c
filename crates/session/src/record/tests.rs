//! The stored form: what is written, and how lines are told apart.

use open_agent_model::{CallId, RawJson, Seq, Timestamp};

use super::*;
use crate::SessionEntry;

fn started(seq: u64) -> Stored {
    let call = CallId { turn: 0, index: 1 };
    Stored::new(Seq(seq), Timestamp(1_790_000_000_000), SessionEntry::Started { call })
}

/// A line with a right checksum around any header and entry.
fn line(before: &str, after: &str) -> String {
    let crc = crc32fast::hash([before, after].concat().as_bytes());
    format!("{before}\"crc\":{crc},{after}")
}

fn newer(line: &str) -> String {
    match decode(line.as_bytes()) {
        Decoded::Newer { what } => what,
        other => panic!("{line}: {other:?}"),
    }
}

fn damaged(line: &[u8]) -> String {
    match decode(line) {
        Decoded::Damaged(reason) => reason,
        other => panic!("{}: {other:?}", line.escape_ascii()),
    }
}

#[test]
fn a_record_is_one_line_in_the_documented_form() {
    let encoded = encode(&started(4)).unwrap();
    // The checksum was computed with Python's zlib, by the rule in the module's documentation.
    let want =
        r#"{"v":1,"seq":4,"at":1790000000000,"crc":CRC,"entry":{"started":{"call":{"turn":0,"index":1}}}}"#;
    assert_eq!(std::str::from_utf8(encoded.bytes()).unwrap(), want.replace("CRC", "795665927"));
    assert_eq!(encoded.decode(), Decoded::Record(started(4)));
    let skipped = encode(&Stored { skip: true, ..started(4) }).unwrap();
    let text = std::str::from_utf8(skipped.bytes()).unwrap();
    assert!(text.contains(r#","skip":true,"entry":{"#), "{text}");
    assert_eq!(skipped.decode(), Decoded::Record(Stored { skip: true, ..started(4) }));
}

#[test]
fn each_flipped_bit_and_each_cut_is_damage() {
    let whole = encode(&Stored { skip: true, ..started(4) }).unwrap().bytes().to_vec();
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            damaged(&bytes);
        }
        damaged(&whole[..at]);
    }
}

#[test]
fn an_unknown_kind_or_value_or_version_is_newer() {
    let kind = line(r#"{"v":1,"seq":4,"at":5,"#, r#""entry":{"telepathy":{"a": 1.0}}}"#);
    assert_eq!(newer(&kind), "this version does not know `telepathy`");
    // `scheduling` decides in which order calls run.
    let value = r#""entry":{"withheld":{"scope":"half_of_it","reason":"r"}}}"#;
    assert_eq!(newer(&line(r#"{"v":1,"seq":4,"at":5,"#, value)), "this version does not know `half_of_it`");
    let version = line(r#"{"v":9,"seq":4,"at":5,"#, r#""entry":{"interrupted":{}}}"#);
    assert!(newer(&version).contains("format 9"), "{version}");
    assert!(newer(&line(r#"{"v":9,"seq":4,"#, r#""body":{}}"#)).contains("format 9"));
}

#[test]
fn a_newer_record_may_allow_to_be_skipped_and_keeps_its_version() {
    for v in [1, 9] {
        let text = line(
            &format!(r#"{{"v":{v},"seq":4,"at":5,"#),
            r#""skip":true,"entry":{"telepathy":{"a": 1.0}}}"#,
        );
        let Decoded::Record(record) = decode(text.as_bytes()) else { panic!("{text}") };
        let raw = RawJson::parse(r#"{"telepathy":{"a": 1.0}}"#).unwrap();
        assert_eq!((record.v, record.skip, &record.entry), (v, true, &SessionEntry::Unknown(raw)));
        assert_eq!(encode(&record).unwrap().bytes(), text.as_bytes(), "written back as it was");
    }
}

#[test]
fn a_known_kind_in_a_wrong_shape_is_damage_also_with_a_right_checksum() {
    for entry in
        [r#"{"started":{"cull":1}}"#, r#"{"started":7}"#, "{}", "7", r#"{"interrupted":{},"started":{}}"#]
    {
        let text = line(r#"{"v":1,"seq":4,"at":5,"#, &format!(r#""entry":{entry}}}"#));
        damaged(text.as_bytes());
        // Allowing to be skipped does not make it less wrong.
        let text = line(r#"{"v":1,"seq":4,"at":5,"#, &format!(r#""skip":true,"entry":{entry}}}"#));
        damaged(text.as_bytes());
    }
    // A word in a text does not make a record newer.
    let entry = r#""entry":{"interrupted":"unknown variant `x`"}}"#;
    damaged(line(r#"{"v":1,"seq":4,"at":5,"#, entry).as_bytes());
}

#[test]
fn unknown_fields_are_read_over_and_copied() {
    let text = line(
        r#"{"v":1,"seq":4,"at":5,"#,
        r#""node":{"crc":3},"entry":{"started":{"call":{"turn":0,"index":1},"since":7}}}"#,
    );
    let copied = EncodedRecord::from_bytes(text.clone().into_bytes()).unwrap();
    assert_eq!(copied.seq(), Seq(4));
    assert_eq!(copied.bytes(), text.as_bytes());
    assert!(matches!(copied.decode(), Decoded::Record(_)));
    // The checksum covers what is not known.
    damaged(text.replace(r#""since":7"#, r#""since":8"#).as_bytes());
    assert!(EncodedRecord::from_bytes(text.replace(r#""crc":3"#, r#""crc":4"#).into_bytes()).is_err());
}

#[test]
fn fields_may_follow_the_entry() {
    let known = line(r#"{"v":1,"seq":4,"at":5,"#, r#""entry":{"interrupted":{}},"note":{"entry":{}}}"#);
    let Decoded::Record(record) = decode(known.as_bytes()) else { panic!("{known}") };
    assert_eq!(record, Stored::new(Seq(4), Timestamp(5), SessionEntry::Interrupted {}));
    let skipped = line(r#"{"v":1,"seq":4,"at":5,"#, r#""entry":{"telepathy":{}},"skip":true}"#);
    let Decoded::Record(record) = decode(skipped.as_bytes()) else { panic!("{skipped}") };
    let raw = RawJson::parse(r#"{"telepathy":{}}"#).unwrap();
    assert_eq!((record.skip, record.entry), (true, SessionEntry::Unknown(raw)));
    // Right checksums around what is no JSON.
    damaged(line(r#"{"v":1,"seq":+4,"at":5,"#, r#""entry":{"interrupted":{}}}"#).as_bytes());
    damaged(line(r#"{"v":1,"seq":4,"at":5,"#, r#""entry":{"interrupted":{}}}}"#).as_bytes());
}

#[test]
fn a_line_without_checksum_is_no_record() {
    damaged(br#"{"v":1,"seq":4,"at":5,"entry":{"interrupted":{}}}"#);
    damaged(b"hello");
    damaged(b"");
    damaged(br#"{"v":1,"seq":4,"at":5,"crc":"#);
    let late = format!(r#"{{"v":1,"seq":4,"at":5,"pad":"{}","#, "x".repeat(2_000));
    damaged(line(&late, r#""entry":{"interrupted":{}}}"#).as_bytes());
}

#[test]
fn line_feeds_in_a_models_json_do_not_break_the_line() {
    let raw = RawJson::parse("{\n  \"path\": \"a\\nb\"\r\n}").unwrap();
    let mut record = started(1);
    record.skip = true;
    record.entry = SessionEntry::Unknown(RawJson::parse(format!("{{\"telepathy\":{}}}", raw.get())).unwrap());
    let (encoded, is_changed) = encode_tracked(&record).unwrap();
    assert!(is_changed && !encoded.bytes().contains(&b'\n'));
    let Decoded::Record(stored) = encoded.decode() else { panic!("{encoded:?}") };
    let SessionEntry::Unknown(again) = &stored.entry else { panic!("{stored:?}") };
    assert_eq!(again.get(), r#"{"telepathy":{   "path": "a\nb"  }}"#);
    assert!(!encode_tracked(&stored).unwrap().1);
}

#[test]
fn nothing_in_a_record_looks_like_the_beginning_of_one() {
    let raw = r#"{"telepathy":[{"v":1},{"v":{"v":"{\"v\":"}}]}"#;
    let record =
        Stored { entry: SessionEntry::Unknown(RawJson::parse(raw).unwrap()), skip: true, ..started(1) };
    let (encoded, is_changed) = encode_tracked(&record).unwrap();
    assert!(is_changed);
    assert_eq!(memchr::memmem::find_iter(encoded.bytes(), RECORD_START).collect::<Vec<_>>(), [0]);
    let Decoded::Record(stored) = encoded.decode() else { panic!("{encoded:?}") };
    let SessionEntry::Unknown(again) = &stored.entry else { panic!("{stored:?}") };
    assert_eq!(again.get(), r#"{"telepathy":[{ "v":1},{ "v":{ "v":"{\"v\":"}}]}"#);
}

#[test]
fn every_kind_that_is_written_is_known_to_the_reader() {
    // serde names all variants that it has; a kind that is renamed when written only would be newer than itself.
    let error = serde_json::from_str::<SessionEntry>(r#"{"telepathy":1}"#).unwrap_err().to_string();
    assert!(error.starts_with("unknown variant `telepathy`, expected one of"), "{error}");
}
