//! The peer `llama`: a real server with a small real model. `cargo xtask peers` installs it and says where it is; nothing
//! is skipped if it is missing.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A running server. It ends when this is dropped.
#[derive(Debug)]
pub struct Llama {
    child: Child,
    port: u16,
}

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
        let missing =
            || io::Error::other("OPEN_AGENT_PEER_LLAMA is not set: run me with `cargo xtask peers llama`");
        let peer = PathBuf::from(std::env::var_os("OPEN_AGENT_PEER_LLAMA").ok_or_else(missing)?);
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new(peer.join("bin/llama-server"));
        command.args(["--host", "127.0.0.1", "--port", &port.to_string(), "--jinja", "--no-webui"]);
        command.args(["-c", &context.to_string(), "-np", "1", "-t", "2", "-m"]).arg(peer.join("model.gguf"));
        if template == Template::Functionary {
            command.arg("--chat-template-file").arg(peer.join("functionary.jinja"));
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Self { child: command.spawn()?, port };
        let end = Instant::now() + Duration::from_secs(60);
        while Instant::now() < end {
            if server.ask("GET", "/health", "").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")) {
                return Ok(server);
            }
            sleep(Duration::from_millis(50));
        }
        Err(io::Error::other("the server is not ready after 60 s"))
    }

    /// Its address, without a path.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// One plain HTTP request; gives the whole answer.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

impl Drop for Llama {
    fn drop(&mut self) {
        // It may be gone already; then there is nothing to end.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
