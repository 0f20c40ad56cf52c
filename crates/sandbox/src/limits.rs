//! The session and the limits of a started process. Owns how much of its output can be read and what it is told about memory.

use std::io;
use std::os::unix::process::CommandExt;
use std::pin::Pin;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe;
use tokio::sync::Notify;

/// Private memory that can be written. Address space as such is reserved in large amounts by many runtimes and never
/// used, so a limit on that would break them.
#[cfg(target_os = "linux")]
const MEMORY: Resource = Resource::Data;
#[cfg(not(target_os = "linux"))]
const MEMORY: Resource = Resource::As;

/// The process leads a session and a group of its own: it has no terminal, so nothing can wait for a password there,
/// and Ctrl-C reaches us alone.
#[expect(unsafe_code, reason = "the standard library has no safe way to start a process in a new session")]
pub(crate) fn new_session(command: &mut Command) {
    // SAFETY: between fork and exec only `setsid` is called, which is async-signal-safe and allocates nothing.
    unsafe {
        command.pre_exec(|| rustix::process::setsid().map(drop).map_err(Into::into));
    }
}

/// Limits the memory of the process that is started, and of each that it starts.
#[expect(unsafe_code, reason = "the standard library has no safe way to set limits of a process")]
pub(crate) fn limit_memory(command: &mut Command, bytes: u64) {
    // An unprivileged process cannot raise its own.
    let most = getrlimit(MEMORY).maximum.map_or(bytes, |most| most.min(bytes));
    let limit = Rlimit { current: Some(most), maximum: Some(most) };
    // SAFETY: between fork and exec only `setrlimit` is called, which is async-signal-safe and allocates nothing.
    unsafe {
        command.pre_exec(move || setrlimit(MEMORY, limit).map_err(Into::into));
    }
}

/// How many bytes of output are left to be read.
pub(crate) struct OutputLimit {
    left: Mutex<u64>,
    exceeded: Notify,
}

impl OutputLimit {
    pub(crate) fn new(bytes: u64) -> Self {
        Self { left: Mutex::new(bytes), exceeded: Notify::new() }
    }

    /// Waits until there is more than may be read.
    pub(crate) async fn exceeded(&self) {
        self.exceeded.notified().await;
    }
}

/// An output whose end comes early if there is too much of it.
pub(crate) struct Counted {
    pub(crate) from: pipe::Receiver,
    pub(crate) limit: Arc<OutputLimit>,
}

impl AsyncRead for Counted {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // Both outputs count, maybe on two threads. Nothing under this lock waits.
        let mut left = this.limit.left.lock().unwrap_or_else(PoisonError::into_inner);
        let from = Pin::new(&mut this.from);
        if *left == 0 {
            // Only what comes now tells whether it is too much.
            let mut byte = [0];
            let mut probe = ReadBuf::new(&mut byte);
            ready!(from.poll_read(cx, &mut probe))?;
            if !probe.filled().is_empty() {
                this.limit.exceeded.notify_one();
            }
            return Poll::Ready(Ok(()));
        }
        let room = usize::try_from(*left).unwrap_or(usize::MAX).min(out.remaining());
        let mut part = ReadBuf::new(out.initialize_unfilled_to(room));
        ready!(from.poll_read(cx, &mut part))?;
        let read = part.filled().len();
        out.advance(read);
        *left -= read as u64;
        Poll::Ready(Ok(()))
    }
}
