//! Write.

use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn new_files_need_no_reading_and_old_ones_do() {
    let w = World::new();
    assert_eq!(
        w.ok("Write", json!({"file_path": "d/a.txt", "content": "1\n"})).await,
        "Created d/a.txt (1 line)."
    );
    assert_eq!(
        w.ok("Write", json!({"file_path": "d/a.txt", "content": "2\n"})).await,
        "Overwrote d/a.txt (1 line)."
    );
    assert_eq!(w.bytes("d/a.txt"), b"2\n");
    w.file("old.txt", "x");
    let error = w.fails("Write", json!({"file_path": "old.txt", "content": "y"})).await;
    assert!(error.contains("Read it first"), "{error}");
}
