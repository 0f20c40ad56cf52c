//! Read.

use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn lines_come_with_their_numbers() {
    let w = World::new();
    w.file("a.txt", "one\ntwo\r\nthree");
    assert_eq!(
        w.ok("Read", json!({"file_path": "a.txt"})).await,
        "     1\tone\n     2\ttwo\n     3\tthree\n"
    );
}
