//! Servers of others, as processes of their own. Owns their start, the wait until they are ready, and their end.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Where `cargo xtask peers` put the program; an error that says how to get it if it did not.
pub(crate) fn peer(name: &str) -> io::Result<PathBuf> {
    let variable = format!("OPEN_AGENT_PEER_{}", name.to_uppercase());
    let missing =
        || io::Error::other(format!("{variable} is not set: run me with `cargo xtask peers {name}`"));
    std::env::var_os(&variable).map(PathBuf::from).ok_or_else(missing)
}

/// A running server. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    port: u16,
}

impl Server {
    /// Starts what `command` makes of a free port, and waits until the server says that it is healthy.
    pub(crate) fn start(command: impl FnOnce(u16) -> Command) -> io::Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = command(port);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = Self { child: command.spawn()?, port };
        let end = Instant::now() + Duration::from_secs(60);
        while Instant::now() < end {
            if let Some(status) = server.child.try_wait()? {
                return Err(io::Error::other(format!("the server ended with {status}")));
            }
            if server.ask("GET", "/health", "").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")) {
                return Ok(server);
            }
            sleep(Duration::from_millis(50));
        }
        Err(io::Error::other("the server is not ready after 60 s"))
    }

    /// Its address, without a path.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// One plain HTTP request; gives the whole answer.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> io::Result<String> {
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

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone already; then there is nothing to end.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
