//! The answer alone, for a pipe or a file. A run that failed prints nothing here: what is piped on must not take half an
//! answer for a whole one.

use std::io::{self, Write as _};

use open_agent::{Envelope, QueryResult};

use super::{Needs, Output};

#[derive(Default)]
pub(super) struct Answer(String);

impl Output for Answer {
    fn needs(&self) -> Needs {
        Needs::Nothing
    }

    fn event(&mut self, _: &Envelope) {}

    fn end(&mut self, result: &QueryResult) {
        if result.is_success() {
            self.0.clone_from(&result.text);
            if !self.0.ends_with('\n') {
                self.0.push('\n');
            }
        }
    }

    fn lost(&mut self, _: &str) {}

    fn flush(&mut self) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(self.0.as_bytes())?;
        self.0.clear();
        stdout.flush()
    }
}
