//! Edit.

use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn one_text_for_another() {
    let w = World::new();
    let path = w.file("a.txt", "one\ntwo\nthree\n");
    let edit = json!({"file_path": "a.txt", "old_string": "two", "new_string": "2"});
    let error = w.fails("Edit", edit.clone()).await;
    assert!(error.contains("Read it first"), "{error}");
    w.read(&path).await;
    assert_eq!(w.ok("Edit", edit).await, "Edited a.txt: 1 replacement at line 2.");
    assert_eq!(w.bytes("a.txt"), b"one\n2\nthree\n");
    // The edit itself counts as having seen the file.
    w.ok("Edit", json!({"file_path": "a.txt", "old_string": "three", "new_string": "3"})).await;
    assert_eq!(w.bytes("a.txt"), b"one\n2\n3\n");
}
