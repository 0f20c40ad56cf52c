//! Ctrl-C and a request to terminate: the first one interrupts the run, the second one ends the process at once, whatever
//! it is doing.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Both signals, as they come.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Inside a tokio runtime.
    pub(crate) fn new() -> io::Result<Self> {
        let came = Arc::new(AtomicBool::new(false));
        for number in [SIGINT, SIGTERM] {
            // In this order: the second signal finds the flag that the first one set. It ends the process from within the
            // handler, so that a run that hangs, or a reader that does not read, cannot hold it.
            signal_hook::flag::register_conditional_shutdown(number, 130, Arc::clone(&came))?;
            signal_hook::flag::register(number, Arc::clone(&came))?;
        }
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
