//! How the program ends. Owns the exit codes and the one line that says why: no backtrace, no line without a reader.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Result;
use open_agent::{AgentError, ConfigError, RunStatus};
use signal_hook::consts::SIGINT;

use crate::hint;
use crate::words::harmless;

/// An exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The run did what it was asked.
    Success,
    /// The run failed or reached a limit.
    Failed,
    /// Wrong usage or configuration: nothing was run.
    Usage,
    /// Interrupted by this signal.
    Interrupted(i32),
}

impl Exit {
    pub(crate) fn code(self) -> ExitCode {
        ExitCode::from(match self {
            Self::Success => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            // As shells say it: 130 for Ctrl-C, 143 for a request to terminate, 129 for a terminal that hung up.
            Self::Interrupted(signal) => u8::try_from(128 + signal).unwrap_or(130),
        })
    }

    /// `signal` is the one that came, if one did.
    pub(crate) fn of(status: RunStatus, signal: Option<i32>) -> Self {
        match status {
            RunStatus::Success => Self::Success,
            RunStatus::Cancelled => Self::Interrupted(signal.unwrap_or(SIGINT)),
            _ => Self::Failed,
        }
    }
}

/// The command line asks for something that makes no sense.
#[derive(Debug)]
pub(crate) struct WrongUsage(pub String);

impl std::fmt::Display for WrongUsage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongUsage {}

pub(crate) fn wrong<T>(text: impl Into<String>) -> Result<T> {
    Err(WrongUsage(text.into()).into())
}

/// Says what went wrong and gives the fitting code.
pub(crate) fn of_error(error: &anyhow::Error) -> Exit {
    if is_broken_pipe(error) {
        return Exit::Failed;
    }
    say(&explained(error));
    let is_usage = error.is::<WrongUsage>()
        || error.is::<ConfigError>()
        || matches!(error.downcast_ref(), Some(AgentError::Config(_)));
    if is_usage { Exit::Usage } else { Exit::Failed }
}

/// The error and its causes in one line, and what could be changed in terms of this program's options.
pub(crate) fn explained(error: &anyhow::Error) -> String {
    let config = error.downcast_ref::<ConfigError>();
    match (config, error.downcast_ref::<AgentError>()) {
        (Some(error), _) | (_, Some(AgentError::Config(error))) => {
            hint::config_explained(error).replace('\n', " ")
        }
        (_, Some(AgentError::Provider(error))) => hint::explained(&error.message, error.hint.as_deref()),
        _ => chain(error),
    }
}

/// Nobody reads what we print: an end, but nothing to talk about.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

/// `error: …` on stderr. A stderr that is gone is no reason to fail once more.
pub(crate) fn say(text: &str) {
    // With a word of the server's in it, which is nobody's to obey.
    let _ = writeln!(io::stderr(), "error: {}", harmless(text));
}

/// `warning: …` on stderr.
pub(crate) fn warn(text: &str) {
    let _ = writeln!(io::stderr(), "warning: {}", harmless(text));
}

/// `hint: …` on stderr: what to do about a warning.
pub(crate) fn advise(text: &str) {
    let _ = writeln!(io::stderr(), "hint: {}", harmless(text));
}

/// A line on stdout.
pub(crate) fn print_line(text: &str) -> Result<Exit> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}")?;
    stdout.flush()?;
    Ok(Exit::Success)
}

/// An error and its causes in one line; a cause that the text names already is not repeated.
pub(crate) fn chain(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text.replace('\n', " ")
}
