//! `--verbose`: what the program does, on stderr. Only our own records: those of the HTTP library may hold headers.

use std::io;

use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

/// Shows records up to debug.
pub(crate) fn start() {
    let ours = filter_fn(|record| record.target().starts_with("open_agent"));
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(io::stderr).with_filter(ours);
    // Fails only if there is a subscriber already, and then its owner wanted that one.
    let _ = tracing_subscriber::registry().with(LevelFilter::DEBUG).with(lines).try_init();
}
