//! The demo's output: every line is caused by an event of the run, the verdict by the last test's result.

use std::fmt::Write as _;
use std::io;

use open_agent::engine::ToolFinished;
use open_agent::model::ResultBlock;
use open_agent::{AgentEvent, Envelope, QueryResult};

use crate::output::{Needs, Output, Stdout};
use crate::words::call;

/// How many lines of a result are shown.
const SHOWN: usize = 8;

#[derive(Default)]
pub(super) struct Story {
    text: String,
    stdout: Stdout,
    failed_before: bool,
    changed: bool,
    passed_after: bool,
}

impl Story {
    /// The test failed, a file was changed, and the last test after that passed.
    pub(super) fn is_fixed(&self) -> bool {
        self.failed_before && self.changed && self.passed_after
    }

    fn line(&mut self, text: &str) {
        self.text.push_str(text);
        self.text.push('\n');
    }

    fn finished(&mut self, done: &ToolFinished) {
        match done.tool.as_str() {
            "Bash" if self.changed => self.passed_after = !done.is_error,
            "Bash" => self.failed_before |= done.is_error,
            "Edit" | "Write" if !done.is_error => (self.changed, self.passed_after) = (true, false),
            _ => {}
        }
        let text: String = done
            .content
            .iter()
            .filter_map(|block| if let ResultBlock::Text { text } = block { Some(text.as_str()) } else { None })
            .collect();
        for line in text.lines().take(SHOWN) {
            self.line(&format!("    {line}"));
        }
        let more = text.lines().count().saturating_sub(SHOWN);
        if more > 0 {
            self.line(&format!("    … {more} more lines"));
        }
        self.line(&format!("    ({}, {} ms)", if done.is_error { "failed" } else { "ok" }, done.ms));
    }
}

impl Output for Story {
    fn needs(&self) -> Needs {
        Needs::Messages
    }

    fn event(&mut self, event: &Envelope) {
        match &event.event {
            AgentEvent::RunStarted(started) => {
                self.line(&format!("model    {} (a script that is built in; no real model is asked)", started.model));
                self.line(&format!("folder   {}", started.root.display()));
                self.line(&format!("session  {}", event.session));
                self.line(&format!("tools    {}", started.tools.join(", ")));
            }
            AgentEvent::UserMessage(user) => self.line(&format!("prompt   {}", user.message.text())),
            AgentEvent::AssistantMessage(answer) => {
                let text = answer.message.text();
                if !text.is_empty() {
                    self.line(&format!("\n{text}"));
                }
            }
            AgentEvent::ToolRuled(ruled) => self.line(&format!("  {}", call(&ruled.tool, ruled.input.get()))),
            AgentEvent::ToolFinished(done) => self.finished(done),
            AgentEvent::Interrupted => self.line("interrupted"),
            _ => {}
        }
    }

    fn end(&mut self, result: &QueryResult) {
        let verdict = match (result.is_success(), self.is_fixed()) {
            (true, true) => "fixed: the test failed before and passes now".to_owned(),
            (true, false) => "failed: no test passed after a change".to_owned(),
            (false, _) => format!("failed: {}", result.status.as_str()),
        };
        let _ = writeln!(self.text, "\n{verdict} ({} turns, {} ms)", result.turns, result.duration_ms);
    }

    fn lost(&mut self, error: &str) {
        self.line(&format!("failed: {error}"));
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stdout.write(std::mem::take(&mut self.text).as_bytes())
    }

    fn attach(&mut self, stdout: Stdout) {
        self.stdout = stdout;
    }
}
