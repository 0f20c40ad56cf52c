//! Edit.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use serde_json::{Value, json};

use crate::world::{World, details};

fn edit(path: &str, old: &str, new: &str) -> Value {
    json!({"file_path": path, "old_string": old, "new_string": new})
}

/// Reads the file, edits it, gives its bytes.
async fn after(w: &World, path: &str, old: &str, new: &str) -> Vec<u8> {
    w.read(&w.path(path)).await;
    w.ok("Edit", edit(path, old, new)).await;
    w.bytes(path)
}

#[tokio::test]
async fn one_text_for_another() {
    let w = World::new();
    let path = w.file("a.txt", "one\ntwo\nthree\n");
    let first = edit("a.txt", "two", "2");
    let error = w.fails("Edit", first.clone()).await;
    assert!(error.contains("Read it first"), "{error}");
    w.read(&path).await;
    assert_eq!(w.ok("Edit", first).await, "Edited a.txt: 1 replacement at line 2.");
    assert_eq!(w.bytes("a.txt"), b"one\n2\nthree\n");
    // The edit itself counts as having seen the file.
    let output = w.call("Edit", edit("a.txt", "three", "3")).await.unwrap();
    assert_eq!(w.bytes("a.txt"), b"one\n2\n3\n");
    let details = details(&output);
    assert_eq!(details["filePath"], json!(path));
    assert_eq!(details["structuredPatch"][0]["lines"], json!([" one", " 2", "-three", "+3"]));
    assert_eq!((&details["userModified"], &details["replaceAll"]), (&json!(false), &json!(false)));
}

#[tokio::test]
async fn a_text_that_overlaps_itself_is_in_two_places() {
    let w = World::new();
    w.read(&w.file("a.txt", "aXaXa\n")).await;
    let error = w.fails("Edit", edit("a.txt", "aXa", "b")).await;
    assert!(error.contains("occurs 2 times in a.txt, at line 1"), "{error}");
    assert_eq!(w.bytes("a.txt"), b"aXaXa\n");
}

#[tokio::test]
async fn text_is_literal() {
    let w = World::new();
    w.file("a.txt", "f(x) = $1\n");
    assert_eq!(after(&w, "a.txt", "f(x) = $1", r"\1 $& $0 \n").await, b"\\1 $& $0 \\n\n");
}

#[tokio::test]
async fn a_new_file_and_an_empty_one() {
    let w = World::new();
    w.ok("Edit", edit("d/new.txt", "", "x\n")).await;
    assert_eq!(w.bytes("d/new.txt"), b"x\n");
    let error = w.fails("Edit", edit("d/new.txt", "", "y")).await;
    assert!(error.contains("not empty"), "{error}");
    w.file("empty.txt", "");
    assert_eq!(after(&w, "empty.txt", "", "y").await, b"y");
    assert!(w.fails("Edit", edit("none.txt", "a", "b")).await.contains("does not exist"));
    assert!(w.fails("Edit", edit("empty.txt", "a", "a")).await.contains("the same"));
}

#[tokio::test]
async fn h_edt_01_crlf_files_stay_crlf() {
    let w = World::new();
    w.file("a.txt", "one\r\ntwo\r\nthree\r\n");
    assert_eq!(after(&w, "a.txt", "one\ntwo\n", "1\n1b\n2\n").await, b"1\r\n1b\r\n2\r\nthree\r\n");
    // What Read shows can be used as it is.
    assert_eq!(after(&w, "a.txt", "2\nthree", "2\n3").await, b"1\r\n1b\r\n2\r\n3\r\n");
    w.file("mixed.txt", "a\nb\r\nc\nd\r\ne\r\n");
    assert_eq!(after(&w, "mixed.txt", "b\nc\nd", "b\nX\nc\nd").await, b"a\nb\r\nX\nc\nd\r\ne\r\n");
}

#[tokio::test]
async fn h_edt_02_mode_and_links_stay() {
    let w = World::new();
    let path = w.file("run.sh", "echo 1\n");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    symlink("run.sh", w.path("link.sh")).unwrap();
    assert_eq!(after(&w, "link.sh", "1", "2").await, b"echo 2\n");
    assert!(std::fs::symlink_metadata(w.path("link.sh")).unwrap().is_symlink());
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o755);
}

#[tokio::test]
async fn h_edt_03_bytes_that_are_no_utf8_stay() {
    let w = World::new();
    w.file("latin.txt", b"caf\xE9 = 1\nna\xEFve = 2\n");
    assert_eq!(after(&w, "latin.txt", "= 2", "= 3").await, b"caf\xE9 = 1\nna\xEFve = 3\n");
    // The text as Read shows it is found, and new characters get the file's encoding.
    assert_eq!(after(&w, "latin.txt", "café", "thé café").await, b"th\xE9 caf\xE9 = 1\nna\xEFve = 3\n");
    assert_eq!(
        after(&w, "latin.txt", "= 3", "= “ü”").await,
        b"th\xE9 caf\xE9 = 1\nna\xEFve = \x93\xFC\x94\n"
    );
    let before = w.bytes("latin.txt");
    let error = w.fails("Edit", edit("latin.txt", "café", "☕")).await;
    assert!(error.contains("Windows-1252") && w.bytes("latin.txt") == before, "{error}");
    // Mostly UTF-8 with a stray byte.
    w.file("stray.txt", b"\xC3\xA9t\xC3\xA9 \xFF\nx\n");
    assert_eq!(after(&w, "stray.txt", "x", "é☕").await, b"\xC3\xA9t\xC3\xA9 \xFF\n\xC3\xA9\xE2\x98\x95\n");
    assert_eq!(after(&w, "stray.txt", "été", "hiver").await, b"hiver \xFF\n\xC3\xA9\xE2\x98\x95\n");
}

#[tokio::test]
async fn h_edt_04_marks_and_utf16_stay() {
    let w = World::new();
    w.file("mark.txt", "\u{feff}first é\nsecond\n");
    assert_eq!(
        after(&w, "mark.txt", "first é\nsec", "1st é\nsec").await,
        "\u{feff}1st é\nsecond\n".as_bytes()
    );
    for (mark, unit) in
        [(&b"\xFF\xFE"[..], u16::to_le_bytes as fn(u16) -> [u8; 2]), (&b"\xFE\xFF"[..], u16::to_be_bytes)]
    {
        let bytes = |text: &str| [mark, &text.encode_utf16().flat_map(unit).collect::<Vec<u8>>()].concat();
        w.file("wide.txt", bytes("eins ü\r\nzwei 😀\r\n"));
        let edited = after(&w, "wide.txt", "eins ü\nzwei", "1 ä\n1b\n2").await;
        assert_eq!(edited, bytes("1 ä\r\n1b\r\n2 😀\r\n"));
    }
    // A broken half of a pair cannot be kept, so nothing is written.
    w.file("broken.txt", b"\xFF\xFEa\0\x00\xD8b\0");
    w.read(&w.path("broken.txt")).await;
    let error = w.fails("Edit", edit("broken.txt", "a", "x")).await;
    assert!(error.contains("broken UTF-16"), "{error}");
    assert_eq!(w.bytes("broken.txt"), b"\xFF\xFEa\0\x00\xD8b\0");
}

#[tokio::test]
async fn h_edt_05_a_miss_explains_itself() {
    let w = World::new();
    let body =
        "fn main() {\n\tlet name = “Ada”;\n\tprintln!(\"{name}\");   \n}\n\nfn other() {}\nfn other() {}\n";
    let path = w.file("a.rs", body);
    w.read(&path).await;
    for (old, says) in [
        ("    let name = “Ada”;", "Line 2 differs in tabs and spaces: the file has `\\tlet name = “Ada”;`"),
        ("\tlet name = \"Ada\";", "Line 2 differs in quotes, dashes or special spaces"),
        ("     2\t\tlet name = “Ada”;\n     3\t\tprintln!", "line numbers in front"),
        ("\tprintln!(\"{name}\");\n}", "Line 3 differs in spaces at the line's end"),
        ("FN MAIN() {", "Line 1 differs in capital letters"),
        ("fn main() {\\n", "backslash"),
        (
            "\tlet name = “Grace”;\n\tprintln!(\"{name}\");",
            "The nearest lines are:\n     2\t\tlet name = “Ada”;\n     3\t",
        ),
        ("nothing like it at all", "Nothing in the file is like it"),
        ("fn other() {}", "occurs 2 times in a.rs, at lines 6, 7"),
    ] {
        let error = w.fails("Edit", edit("a.rs", old, "x")).await;
        assert!(error.contains(says), "{old:?}: {error}");
        assert_eq!(w.bytes("a.rs"), body.as_bytes());
    }
    let all =
        json!({"file_path": "a.rs", "old_string": "fn other", "new_string": "fn o", "replace_all": true});
    assert_eq!(w.ok("Edit", all).await, "Edited a.rs: 2 replacements at lines 6, 7.");
}

#[tokio::test]
async fn a_change_with_its_time_set_back_is_seen_and_chmod_is_none() {
    let w = World::new();
    // The script's mode is not its content.
    let path = w.file("a.txt", "one\n");
    w.read(&path).await;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    w.ok("Edit", edit("a.txt", "one", "two")).await;

    // As `touch -r` does after a change of the same length.
    let known = std::fs::metadata(&path).unwrap();
    let since = || std::fs::metadata(&path).map(|m| (m.ctime(), m.ctime_nsec())).unwrap();
    while since() == (known.ctime(), known.ctime_nsec()) {
        std::fs::write(&path, "six\n").unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(known.modified().unwrap()).unwrap();
    }
    let error = w.fails("Edit", edit("a.txt", "two", "2")).await;
    assert!(error.contains("was changed by someone else"), "{error}");
    let error = w.fails("Write", json!({"file_path": "a.txt", "content": "2"})).await;
    assert!(error.contains("was changed by someone else"), "{error}");

    // As `cp -p` and `mv` do: another file of the same time and length.
    w.read(&path).await;
    let known = std::fs::metadata(&path).unwrap();
    let other = w.file("b.txt", "ten\n");
    let file = std::fs::File::options().write(true).open(&other).unwrap();
    file.set_modified(known.modified().unwrap()).unwrap();
    std::fs::rename(&other, &path).unwrap();
    let error = w.fails("Edit", edit("a.txt", "six", "6")).await;
    assert!(error.contains("was changed by someone else"), "{error}");
    assert_eq!(w.bytes("a.txt"), b"ten\n");
}

#[tokio::test]
async fn what_was_changed_meanwhile_is_not_lost() {
    let w = World::new();
    let path = w.file("a.txt", "one\n");
    w.read(&path).await;
    w.file("a.txt", "someone else's\n");
    let error = w.fails("Edit", edit("a.txt", "one", "1")).await;
    assert!(error.contains("was changed by someone else"), "{error}");
    assert_eq!(w.bytes("a.txt"), b"someone else's\n");
    w.read(&path).await;
    w.ok("Edit", edit("a.txt", "else", "ELSE")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_sessions_that_edit_a_file_none_loses_an_edit_reported_as_done() {
    const EDITS: usize = 20;
    let (a, b) = (World::new(), World::new());
    let path = a.file("a.txt", (0..2 * EDITS).map(|n| format!("<{n}>\n")).collect::<String>());
    let name = path.to_str().unwrap();
    let edits = async |w: &World, from: usize| {
        for n in from..from + EDITS {
            loop {
                w.read(&path).await;
                let input = edit(name, &format!("<{n}>"), &format!("[{n}]"));
                match w.call("Edit", input).await {
                    Ok(_) => break,
                    Err(error) => assert!(error.text().contains("changed by someone else"), "{error:?}"),
                }
            }
        }
    };
    tokio::join!(edits(&a, 0), edits(&b, EDITS));
    let all: String = (0..2 * EDITS).map(|n| format!("[{n}]\n")).collect();
    assert_eq!(String::from_utf8(a.bytes("a.txt")).unwrap(), all);
}

#[tokio::test]
async fn what_is_no_text_is_refused() {
    let w = World::new();
    std::fs::create_dir(w.path("d")).unwrap();
    assert!(w.fails("Edit", edit("d", "a", "b")).await.contains("is a folder"));
    assert!(w.fails("Edit", edit("/dev/zero", "a", "b")).await.contains("is a device"));
    assert!(w.fails("Edit", edit("", "a", "b")).await.contains("the path is empty"));
    let _socket = std::os::unix::net::UnixListener::bind(w.path("socket")).unwrap();
    assert!(w.fails("Edit", edit("socket", "a", "b")).await.contains("is a socket"));
}
