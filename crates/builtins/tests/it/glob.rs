//! Glob.

use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn names_match_at_any_depth_without_a_slash() {
    let w = World::new();
    for name in ["a.rs", "src/b.rs", "src/deep/c.rs", "src/d.txt"] {
        w.file(name, "");
    }
    let all = w.ok("Glob", json!({"pattern": "*.rs"})).await;
    let mut all: Vec<&str> = all.lines().collect();
    all.sort_unstable();
    assert_eq!(all, ["a.rs", "src/b.rs", "src/deep/c.rs"]);
    assert_eq!(w.ok("Glob", json!({"pattern": "src/*.rs"})).await, "src/b.rs");
    assert_eq!(w.ok("Glob", json!({"pattern": "*.py"})).await, "No file matches.");
}
