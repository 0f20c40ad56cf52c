//! The peer `llama`: a real server with a small real model. `cargo xtask peers` installs it and says where it is; nothing
//! is skipped if it is missing.

use std::io;
use std::process::Command;

use crate::process::{Server, peer};

/// A running server. It ends when this is dropped.
#[derive(Debug)]
pub struct Llama(Server);

/// Which chat template the server uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Template {
    /// The model's own: it answers in text.
    Own,
    /// One that makes forced tool calls work, and nothing else.
    Functionary,
}

impl Llama {
    /// Starts a server with a context of `context` tokens and waits until it is ready.
    pub fn start(template: Template, context: u32) -> io::Result<Self> {
        let peer = peer("llama")?;
        let command = |port: u16| {
            let mut command = Command::new(peer.join("bin/llama-server"));
            command.args(["--host", "127.0.0.1", "--port", &port.to_string(), "--jinja", "--no-webui"]);
            command.args(["-c", &context.to_string(), "-np", "1", "-t", "2", "-m"]);
            command.arg(peer.join("model.gguf"));
            if template == Template::Functionary {
                command.arg("--chat-template-file").arg(peer.join("functionary.jinja"));
            }
            command
        };
        Server::start(command).map(Self)
    }

    /// Its address, without a path.
    #[must_use]
    pub fn url(&self) -> String {
        self.0.url()
    }

    /// One plain HTTP request; gives the whole answer.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> io::Result<String> {
        self.0.ask(method, path, body)
    }
}
