//! Stdout, whose reader may be slow or asleep. Owns that a signal is not kept waiting by it: what cannot be written then is
//! given up.

use std::io::{self, Write as _};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::watch;

/// What a pipe takes without blocking once it says that it takes anything.
const PIECE: usize = 4096;
/// How long a reader is waited for between two looks at the signals.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Stdout, and the first signal, if there is one.
#[derive(Default)]
pub(crate) struct Stdout(Option<watch::Receiver<Option<i32>>>);

impl Stdout {
    /// Gives up writing once a signal came and nobody reads.
    pub(crate) fn until(signal: watch::Receiver<Option<i32>>) -> Self {
        Self(Some(signal))
    }

    /// Writes all of it, and leaves nothing in a buffer.
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        for piece in bytes.chunks(PIECE) {
            while !takes_something(&stdout)? {
                if self.0.as_ref().is_some_and(|signal| signal.borrow().is_some()) {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "nobody reads what is printed"));
                }
            }
            stdout.write_all(piece)?;
            stdout.flush()?;
        }
        Ok(())
    }
}

/// Waits a moment for it. What is gone takes something, too: an error.
fn takes_something(stdout: &io::StdoutLock<'_>) -> io::Result<bool> {
    let mut fds = [PollFd::new(stdout, PollFlags::OUT)];
    match poll(&mut fds, Some(&LOOK)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
