//! The peers `llmock` and `aimock`: mock model servers that fail as they are told, written by others than us and by no
//! vendor. `cargo xtask peers` installs them; nothing is skipped if one is missing.

use std::io;
use std::path::Path;
use std::process::Command;

use crate::process::{Server, peer};

/// llmock: told over HTTP what goes wrong next, it judges in the end how its client took that.
#[derive(Debug)]
pub struct Llmock(Server);

impl Llmock {
    /// Starts it with further arguments of its `serve`.
    pub fn start(arguments: &[&str]) -> io::Result<Self> {
        let peer = peer("llmock")?;
        let command = |port: u16| {
            // Its own script names the folder that it was installed in at first.
            let mut command = Command::new(peer.join("venv/bin/python"));
            command.args(["-c", "from llmock.cli import app; app()", "serve", "--host", "127.0.0.1"]);
            command.args(["--port", &port.to_string()]).args(arguments);
            command
        };
        Server::start(command).map(Self)
    }

    /// The base address of one of its APIs.
    #[must_use]
    pub fn url(&self, api: &str) -> String {
        format!("{}/{api}", self.0.url())
    }

    /// Forgets what was, and behaves so from now on: a JSON list in its own words, or nothing.
    pub fn behave(&self, behaviors: &str) -> io::Result<()> {
        self.ask("POST", "/_llmock/reset", "{}")?;
        if behaviors.is_empty() {
            return Ok(());
        }
        self.ask("POST", "/_llmock/scenario", &format!("{{\"behaviors\":{behaviors}}}")).map(drop)
    }

    /// What it thinks of its client since [`Llmock::behave`], as JSON.
    pub fn verdict(&self) -> io::Result<String> {
        self.ask("GET", "/_llmock/verdict", "")
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> io::Result<String> {
        let answer = self.0.ask(method, path, body)?;
        match answer.split_once("\r\n\r\n") {
            Some((head, body)) if head.starts_with("HTTP/1.1 2") => Ok(body.to_owned()),
            _ => Err(io::Error::other(format!("{method} {path}: {answer}"))),
        }
    }
}

/// aimock: answers as a file of fixtures says, each chosen by the last user message.
#[derive(Debug)]
pub struct Aimock(Server);

impl Aimock {
    /// Starts it with a file of fixtures. What none of them is for is an error.
    pub fn start(fixtures: &Path) -> io::Result<Self> {
        let peer = peer("aimock")?;
        let command = |port: u16| {
            let mut command = Command::new("node");
            command.arg(peer.join("node_modules/@copilotkit/aimock/dist/cli.js"));
            command.args(["--host", "127.0.0.1", "--port", &port.to_string(), "--log-level", "silent"]);
            command.args(["--validate-on-load", "--strict", "--fixtures"]).arg(fixtures);
            command
        };
        Server::start(command).map(Self)
    }

    /// Its address, without a path.
    #[must_use]
    pub fn url(&self) -> String {
        self.0.url()
    }
}
