//! Grep.

use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn all_output_modes() {
    let w = World::new();
    w.file("b.txt", "x\nneedle 1\ny\nneedle 2\n");
    w.file("a/a.txt", "needle\n");
    assert_eq!(w.ok("Grep", json!({"pattern": "needle"})).await, "2 files:\na/a.txt\nb.txt");
    assert_eq!(
        w.ok("Grep", json!({"pattern": "needle", "output_mode": "content"})).await,
        "a/a.txt:1:needle\nb.txt:2:needle 1\nb.txt:4:needle 2"
    );
    assert_eq!(
        w.ok("Grep", json!({"pattern": "needle", "output_mode": "count"})).await,
        "2 files, 3 matching lines:\na/a.txt:1\nb.txt:2"
    );
    assert_eq!(
        w.ok("Grep", json!({"pattern": "le 1", "output_mode": "content", "context": 1})).await,
        "b.txt-1-x\nb.txt:2:needle 1\nb.txt-3-y"
    );
    assert_eq!(w.ok("Grep", json!({"pattern": "absent"})).await, "No match.");
}
