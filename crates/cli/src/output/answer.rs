//! The answer alone, for a pipe or a file. A run that failed prints nothing here: what is piped on must not take half an
//! answer for a whole one. What there is of it goes to stderr, where a person finds it.

use std::io::{self, IsTerminal as _, Write as _};

use open_agent::{Envelope, QueryResult};

use super::{Needs, Output, Stdout};
use crate::words::harmless;

#[derive(Default)]
pub(super) struct Answer {
    stdout: Stdout,
    whole: String,
    partial: String,
}

impl Output for Answer {
    fn needs(&self) -> Needs {
        Needs::Nothing
    }

    fn tells_notices(&self) -> bool {
        false
    }

    fn event(&mut self, _: &Envelope) {}

    fn end(&mut self, result: &QueryResult) {
        let text = if result.is_success() { &mut self.whole } else { &mut self.partial };
        text.clone_from(&result.text);
        if result.is_success() && !text.ends_with('\n') {
            text.push('\n');
        }
    }

    fn afterword(&mut self) {
        let partial = std::mem::take(&mut self.partial);
        if !partial.trim().is_empty() {
            let mut stderr = io::stderr().lock();
            let shown = if stderr.is_terminal() { harmless(&partial) } else { partial };
            // A stderr that is gone takes no part in the run.
            let _ = writeln!(stderr, "the model's last words: {}", shown.trim_end());
        }
    }

    fn lost(&mut self, _: &str) {}

    fn flush(&mut self) -> io::Result<()> {
        self.stdout.write(std::mem::take(&mut self.whole).as_bytes())
    }

    fn attach(&mut self, stdout: Stdout) {
        self.stdout = stdout;
    }
}
