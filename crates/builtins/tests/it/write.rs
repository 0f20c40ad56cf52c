//! Write.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use serde_json::{Value, json};

use crate::world::{World, details};

fn write(path: &str, content: &str) -> Value {
    json!({"file_path": path, "content": content})
}

/// Reads the file, overwrites it, gives its bytes.
async fn after(w: &World, path: &str, content: &str) -> Vec<u8> {
    w.read(&w.path(path)).await;
    w.ok("Write", write(path, content)).await;
    w.bytes(path)
}

#[tokio::test]
async fn new_files_need_no_reading_and_old_ones_do() {
    let w = World::new();
    let output = w.call("Write", write("d/a.txt", "1\n")).await.unwrap();
    let created = details(&output);
    assert_eq!((&created["type"], &created["originalFile"]), (&json!("create"), &json!(null)));
    assert_eq!(created["structuredPatch"], json!([]));
    let output = w.call("Write", write("d/a.txt", "2\n")).await.unwrap();
    let updated = details(&output);
    assert_eq!((&updated["type"], &updated["originalFile"]), (&json!("update"), &json!("1\n")));
    assert_eq!(updated["structuredPatch"][0]["lines"], json!(["-1", "+2"]));
    assert_eq!(w.bytes("d/a.txt"), b"2\n");
    w.file("old.txt", "x");
    let error = w.fails("Write", write("old.txt", "y")).await;
    assert!(error.contains("Read it first"), "{error}");
    assert_eq!(w.bytes("old.txt"), b"x");
}

#[tokio::test]
async fn a_file_that_was_changed_meanwhile_stays() {
    let w = World::new();
    let path = w.file("a.txt", "x");
    w.read(&path).await;
    w.file("a.txt", "other");
    let error = w.fails("Write", write("a.txt", "y")).await;
    assert!(error.contains("was changed by someone else"), "{error}");
    assert_eq!(w.bytes("a.txt"), b"other");
    // Gone is gone: then it is a new file.
    std::fs::remove_file(&path).unwrap();
    assert!(w.ok("Write", write("a.txt", "y")).await.starts_with("Created"));
}

#[tokio::test]
async fn h_edt_02_line_ends_mode_and_links_stay() {
    let w = World::new();
    let path = w.file("a.sh", "one\r\ntwo\r\n");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o750)).unwrap();
    symlink("a.sh", w.path("link")).unwrap();
    assert_eq!(after(&w, "link", "1\n2\n3\n").await, b"1\r\n2\r\n3\r\n");
    assert!(std::fs::symlink_metadata(w.path("link")).unwrap().is_symlink());
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o750);
    w.file("mixed.txt", "a\r\nb\nc\r\n");
    assert_eq!(after(&w, "mixed.txt", "a\nb\nnew\nc\n").await, b"a\r\nb\nnew\r\nc\r\n");
    // Whoever writes CRLF means it.
    w.file("lf.txt", "a\nb\n");
    assert_eq!(after(&w, "lf.txt", "a\r\nb\n").await, b"a\r\nb\n");
}

#[tokio::test]
async fn h_edt_04_marks_and_encodings_stay() {
    let w = World::new();
    w.file("mark.txt", "\u{feff}é\n");
    assert_eq!(after(&w, "mark.txt", "à\n").await, "\u{feff}à\n".as_bytes());
    w.file("wide.txt", b"\xFF\xFEa\0\r\0\n\0");
    assert_eq!(after(&w, "wide.txt", "ü\n").await, b"\xFF\xFE\xFC\0\r\0\n\0");
    w.file("latin.txt", b"\xE9\n");
    assert_eq!(after(&w, "latin.txt", "à\n").await, b"\xE0\n");
    // What Latin has no sign for makes it UTF-8.
    assert_eq!(after(&w, "latin.txt", "à☕\n").await, "à☕\n".as_bytes());
}

#[tokio::test]
async fn what_is_no_file_is_refused() {
    let w = World::new();
    std::fs::create_dir(w.path("d")).unwrap();
    assert!(w.fails("Write", write("d", "x")).await.contains("is a folder"));
    assert!(w.fails("Write", write("/dev/full", "x")).await.contains("is a device"));
    for path in ["new/", "new/."] {
        assert!(w.fails("Write", write(path, "x")).await.contains("names a folder"));
        let made = json!({"file_path": path, "old_string": "", "new_string": "x"});
        assert!(w.fails("Edit", made).await.contains("names a folder"));
    }
    assert!(!w.path("new").exists());
    w.file("f", "x");
    assert!(w.call("Write", write("f/below", "x")).await.is_err());
}

#[tokio::test]
async fn what_read_cannot_show_can_be_written_after_it_was_looked_at() {
    let w = World::new();
    for (name, bytes) in [("prog", &b"\x7FELF\x02\x01\0\0"[..]), ("cut.png", b"\x89PNG\r\n\x1A\n")] {
        w.file(name, bytes);
        assert!(w.fails("Write", write(name, "x")).await.contains("Read it first"));
        w.fails("Read", json!({"file_path": name})).await;
        assert!(w.ok("Write", write(name, "x\n")).await.starts_with("Overwrote"));
        assert_eq!(w.bytes(name), b"x\n");
    }
}
