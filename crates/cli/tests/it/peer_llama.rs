//! The program against a real server with a small real model, through both APIs.

use std::process::{Command, Stdio};

use open_agent_testkit::llama::{Llama, Template};

#[test]
#[ignore = "needs the peer: cargo xtask peers llama"]
fn peer_llama_answers_the_command_line_through_both_apis() {
    let llama = Llama::start(Template::Own, 4096).unwrap();
    for provider in ["anthropic", "llama.cpp"] {
        let home = tempfile::tempdir().unwrap();
        let out = Command::new(env!("CARGO_BIN_EXE_open-agent"))
            .args(["-p", "Say hello.", "--model", "smol", "--provider", provider, "--base-url", &llama.url()])
            .args(["--tools", "", "--system-prompt", "You are a helpful assistant.", "--max-turns", "4"])
            .args(["--output-format", "stream-json", "--include-partial-messages", "--verbose"])
            .env("HOME", home.path())
            .env_remove("ANTHROPIC_API_KEY")
            .current_dir(home.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        for part in [r#""subtype":"init""#, "text_delta", r#""type":"assistant""#, r#""type":"result""#] {
            assert!(text.contains(part), "{provider}: no {part} in {text}");
        }
    }
}
