//! Bash.

use serde_json::json;

use crate::world::{World, details, text};

#[tokio::test]
async fn output_exit_code_and_folder() {
    let w = World::new();
    assert_eq!(w.ok("Bash", json!({"command": "echo hi"})).await, "hi\n");
    assert_eq!(w.ok("Bash", json!({"command": "mkdir d && cd d"})).await, "(No output.)");
    assert_eq!(w.ok("Bash", json!({"command": "pwd"})).await, format!("{}\n", w.path("d").display()));
    let output = w.call("Bash", json!({"command": "echo out; echo err >&2; exit 3"})).await.unwrap();
    assert!(output.is_error);
    assert_eq!(text(&output), "out\nerr\nExit code 3");
    let details = details(&output);
    assert_eq!((&details["stdout"], &details["exitCode"]), (&json!("out\n"), &json!(3)));
}
