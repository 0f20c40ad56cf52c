//! A model server on loopback. Owns its thread, the record of what was asked, and the verdict about it. Speaks
//! Anthropic's Messages API and OpenAI's chat completions, under any path prefix, and plays a [`Script`].
//!
//! It runs on a thread with a runtime of its own: it works for programs under test as for tests with a paused clock.

mod chaos;
mod check;
mod play;
mod render;
mod reply;
mod script;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use serde_json::Value;
use tokio::sync::oneshot;

pub use chaos::{Chaos, ChaosTool, Fault};
pub use reply::{Pace, Reply};
pub use script::Script;

/// Which API a request was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `…/messages`
    Anthropic,
    /// `…/chat/completions`
    OpenAi,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The other end of the connection.
    pub peer: SocketAddr,
    /// Such as `POST`.
    pub method: String,
    /// The path with its prefix.
    pub path: String,
    /// What stood after `?`.
    pub query: String,
    /// Headers, names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body as it came.
    pub text: String,
    /// The body as JSON; `null` if it was none.
    pub body: Value,
    /// Which API it was for; `None` for paths that are no model's.
    pub format: Option<Format>,
}

impl Recorded {
    /// The header's value; empty if it was not sent.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// A running server. Dropping it ends it.
pub struct ModelServer {
    address: SocketAddr,
    state: Arc<State>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct State {
    script: Script,
    log: Mutex<Log>,
    /// Notified when a request comes and when a client goes away.
    changed: Condvar,
}

#[derive(Default)]
struct Log {
    requests: Vec<Recorded>,
    violations: Vec<String>,
    /// Requests for an answer so far.
    turns: usize,
    /// Answers that clients did not wait for.
    abandoned: usize,
}

impl State {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ModelServer {
    /// Starts on a free port of 127.0.0.1.
    pub fn start(script: Script) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let state = Arc::new(State { script, log: Mutex::default(), changed: Condvar::new() });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let shared = Arc::clone(&state);
        let thread = std::thread::Builder::new().name("model-server".into()).spawn(move || {
            runtime.block_on(play::serve(listener, shared, stopped));
            // Connections that stall on purpose must not hold the thread.
            runtime.shutdown_background();
        })?;
        Ok(Self { address, state, stop: Some(stop), thread: Some(thread) })
    }

    /// `http://127.0.0.1:PORT`
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// All requests so far.
    #[must_use]
    pub fn requests(&self) -> Vec<Recorded> {
        self.state.log().requests.clone()
    }

    /// Waits until so many requests have come. Blocks its thread.
    pub fn wait_for_requests(&self, count: usize) {
        self.wait(|log| log.requests.len() >= count);
    }

    /// Waits until clients have closed the connection on so many unfinished answers. Blocks its thread.
    pub fn wait_for_abandoned(&self, count: usize) {
        self.wait(|log| log.abandoned >= count);
    }

    fn wait(&self, is_so: impl Fn(&Log) -> bool) {
        let log = self.state.log();
        drop(self.state.changed.wait_while(log, |log| !is_so(log)));
    }

    /// What was wrong with them; each was answered with 400.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.state.log().violations.clone()
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
