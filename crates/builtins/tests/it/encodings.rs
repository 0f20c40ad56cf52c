//! Edit, Write and Read on files in other encodings than UTF-8, and on marks.

use serde_json::{Value, json};

use crate::world::World;

fn edit(path: &str, old: &str, new: &str) -> Value {
    json!({"file_path": path, "old_string": old, "new_string": new})
}

fn write(path: &str, content: &str) -> Value {
    json!({"file_path": path, "content": content})
}

/// A file that the session has read.
async fn file(w: &World, name: &str, bytes: &[u8]) {
    let path = w.file(name, bytes);
    w.read(&path).await;
}

#[tokio::test]
async fn characters_of_two_bytes_are_not_split() {
    // In Shift-JIS the second byte of the first character is that of a backslash.
    let table = b"a = 1 // \x95\x5C\x8E\xA6\n";
    let w = World::new();
    file(&w, "table.c", table).await;
    let error = w.fails("Edit", edit("table.c", "\\", "/")).await;
    assert!(error.contains("second half of a character") && error.contains("iconv"), "{error}");
    let error = w.fails("Edit", edit("table.c", "a = 1", "a = \u{e9}")).await;
    assert!(error.contains("unknown encoding") && error.contains("new_string"), "{error}");
    assert_eq!(w.bytes("table.c"), table);
    w.ok("Edit", edit("table.c", "a = 1", "a = 2")).await;
    assert_eq!(w.bytes("table.c"), b"a = 2 // \x95\x5C\x8E\xA6\n");
}

#[tokio::test]
async fn no_utf8_gets_into_a_file_in_gbk() {
    // The first character happens to be UTF-8 as well.
    let gbk = b"// \xC4\xA3\xBF\xE9\xB1\xA3\xB4\xE6\nx = 1\n";
    let w = World::new();
    file(&w, "a.c", gbk).await;
    for (old, new) in [("x = 1", "x = \u{6a21}"), ("\u{123}", "g"), ("\u{bf}", "?")] {
        let error = w.fails("Edit", edit("a.c", old, new)).await;
        assert!(error.contains("unknown encoding"), "{old}: {error}");
        assert_eq!(w.bytes("a.c"), gbk);
    }
    w.ok("Edit", edit("a.c", "x = 1", "x = 2")).await;
    let shown = w.ok("Read", json!({"file_path": "a.c"})).await;
    assert!(shown.contains("[1 line in an unknown encoding") && !shown.contains("Windows-1252"), "{shown}");
    // In western text nothing changes: a letter may follow another.
    file(&w, "latin.txt", b"des caf\xE9s\n").await;
    w.ok("Edit", edit("latin.txt", "s\n", "\n")).await;
    assert_eq!(w.bytes("latin.txt"), b"des caf\xE9\n");
}

#[tokio::test]
async fn write_says_when_the_encoding_is_not_kept() {
    let w = World::new();
    file(&w, "latin.txt", b"caf\xE9\n").await;
    assert_eq!(w.ok("Write", write("latin.txt", "th\u{e9}\n")).await, "Overwrote latin.txt (1 line).");
    assert_eq!(w.bytes("latin.txt"), b"th\xE9\n");
    let says = w.ok("Write", write("latin.txt", "a \u{2192} \u{e9}\n")).await;
    assert!(says.contains("was in Windows-1252") && says.contains("is UTF-8 now"), "{says}");
    assert_eq!(w.bytes("latin.txt"), "a \u{2192} \u{e9}\n".as_bytes());
    file(&w, "gbk.txt", b"\xC4\xA3\xBF\xE9\xB1\xA3\n").await;
    let says = w.ok("Write", write("gbk.txt", "\u{6a21}\n")).await;
    assert!(says.contains("was in an unknown encoding and is UTF-8 now"), "{says}");
    // A stray byte makes UTF-8 no Latin.
    file(&w, "stray.txt", b"\xC3\xA9t\xC3\xA9 \xFF\n").await;
    assert_eq!(w.ok("Write", write("stray.txt", "\u{e9}\n")).await, "Overwrote stray.txt (1 line).");
    assert_eq!(w.bytes("stray.txt"), "\u{e9}\n".as_bytes());
}

#[tokio::test]
async fn a_mark_is_there_once() {
    let w = World::new();
    let marked = |text: &str| format!("\u{feff}{text}").into_bytes();
    file(&w, "a.txt", &marked("one\none\n")).await;
    w.ok("Write", write("a.txt", "\u{feff}1\n1\n")).await;
    assert_eq!(w.bytes("a.txt"), marked("1\n1\n"));
    // What the mark stands before is at the start, so it is there once.
    w.ok("Edit", edit("a.txt", "\u{feff}1", "\u{feff}2")).await;
    assert_eq!(w.bytes("a.txt"), marked("2\n1\n"));
    w.ok("Edit", edit("a.txt", "2", "\u{feff}3")).await;
    assert_eq!(w.bytes("a.txt"), marked("3\n1\n"));
    let error = w.fails("Edit", edit("a.txt", "\u{feff}1", "x")).await;
    assert!(error.contains("is not in the file"), "{error}");
    // Replaced by none, it goes.
    w.ok("Edit", edit("a.txt", "\u{feff}", "")).await;
    assert_eq!(w.bytes("a.txt"), b"3\n1\n");
    // In UTF-16 it tells the encoding, and stays.
    file(&w, "wide.txt", b"\xFF\xFEa\0").await;
    w.ok("Edit", edit("wide.txt", "\u{feff}a", "b")).await;
    assert_eq!(w.bytes("wide.txt"), b"\xFF\xFEb\0");
    w.ok("Write", write("wide.txt", "\u{feff}c")).await;
    assert_eq!(w.bytes("wide.txt"), b"\xFF\xFEc\0");
    file(&w, "empty.txt", &marked("")).await;
    w.ok("Edit", edit("empty.txt", "", "\u{feff}x")).await;
    assert_eq!(w.bytes("empty.txt"), marked("x"));
}
