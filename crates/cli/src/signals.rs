//! Ctrl-C, the terminal's hanging up and a request to terminate: the first one interrupts the run, the second one kills what
//! the run had started and ends the process, whatever it is doing. A request to quit (Ctrl-\\) does that at once.

use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::{flag, low_level};
use tokio::sync::watch;

use crate::output::Stdout;

/// The thread only reads and, once, looks through the processes.
const STACK: usize = 256 * 1024;

/// The first signal, once it came.
pub(crate) struct Signals(watch::Receiver<Option<i32>>);

impl Signals {
    /// Listens. The second signal calls `kill` and ends the process. A thread of its own does that: a run that hangs, or a
    /// reader that does not read, cannot hold it. The third signal does not even wait for `kill`.
    pub(crate) fn listen(kill: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let newest = Arc::new(AtomicUsize::new(0));
        let no_more = Arc::new(AtomicBool::new(false));
        let (mut came, tell) = UnixStream::pair()?;
        for number in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
            if number == SIGHUP && is_ignored(number) {
                // Whoever started us with `nohup` wants us to outlive the terminal.
                continue;
            }
            flag::register_conditional_shutdown(number, 128 + number, Arc::clone(&no_more))?;
            flag::register_usize(number, Arc::clone(&newest), usize::try_from(number).unwrap_or_default())?;
            low_level::pipe::register(number, tell.try_clone()?)?;
        }
        let (first, receiver) = watch::channel(None);
        let listen = move || {
            let mut next = || {
                came.read_exact(&mut [0]).ok()?;
                i32::try_from(newest.load(Ordering::SeqCst)).ok()
            };
            let Some(number) = next() else { return };
            first.send_replace(Some(number));
            if number == SIGQUIT || next().is_some() {
                no_more.store(true, Ordering::SeqCst);
                kill();
                low_level::exit(128 + number);
            }
        };
        std::thread::Builder::new().name("signals".into()).stack_size(STACK).spawn(listen)?;
        Ok(Self(receiver))
    }

    /// Waits for the first signal. It comes once.
    pub(crate) async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// A stdout that gives up on a reader who sleeps once a signal came.
    pub(crate) fn stdout(&self) -> Stdout {
        Stdout::until(self.0.clone())
    }

    /// The first signal, if it came.
    pub(crate) fn first(&self) -> Option<i32> {
        *self.0.borrow()
    }
}

/// Whether the process was started so. Where that cannot be seen, it was not.
fn is_ignored(number: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| (mask >> (number - 1)) & 1 == 1)
}
