//! Frames for programs: the Claude dialect, as one object or as lines.

use std::io;

use open_agent::wire::claude::{ClaudeFrames, ClaudeSetup, Detail};
use open_agent::{Agent, Envelope, QueryResult, RunStatus};

use super::{Needs, Output, Stdout};

pub(super) struct Frames {
    frames: ClaudeFrames,
    detail: Detail,
    waiting: Vec<u8>,
    stdout: Stdout,
}

impl Frames {
    pub(super) fn result(agent: &Agent) -> Self {
        Self::new(agent, Detail::Result)
    }

    pub(super) fn stream(agent: &Agent, pieces: bool) -> Self {
        Self::new(agent, if pieces { Detail::Partial } else { Detail::Messages })
    }

    fn new(agent: &Agent, detail: Detail) -> Self {
        let setup = ClaudeSetup {
            detail,
            api_key_source: agent.key_source().to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            session_folder: agent.session_folder(),
        };
        let frames = ClaudeFrames::new(agent.session_id().clone(), setup);
        Self { frames, detail, waiting: Vec::new(), stdout: Stdout::default() }
    }
}

impl Output for Frames {
    fn needs(&self) -> Needs {
        if self.detail == Detail::Partial { Needs::Pieces } else { Needs::Messages }
    }

    fn tells_notices(&self) -> bool {
        self.detail != Detail::Result
    }

    fn event(&mut self, event: &Envelope) {
        self.frames.push(event, &mut self.waiting);
    }

    fn end(&mut self, result: &QueryResult) {
        self.frames.close(result.status, result.errors.clone(), &mut self.waiting);
    }

    fn lost(&mut self, error: &str) {
        self.frames.close(RunStatus::ErrorDuringExecution, vec![error.to_owned()], &mut self.waiting);
    }

    fn flush(&mut self) -> io::Result<()> {
        let written = self.stdout.write(&self.waiting);
        self.waiting.clear();
        // A large result must not be kept for the rest of the run.
        self.waiting.shrink_to(64 * 1024);
        written
    }

    fn attach(&mut self, stdout: Stdout) {
        self.stdout = stdout;
    }
}
