//! What is printed of a run. One implementation for each kind of reader: [`answer`] for a pipe that wants the answer,
//! [`screen`] for a person, [`frames`] for a program.

mod answer;
mod diff;
mod frames;
mod screen;
mod stdout;

use std::io::{self, IsTerminal as _};

use open_agent::{Agent, Envelope, QueryResult};

pub(crate) use stdout::Stdout;

use crate::args::{OutputFormat, RunArgs};

/// Which events an output looks at. What it does not need is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    Messages,
    Pieces,
}

/// Takes what happens and prints it at `flush`.
pub(crate) trait Output {
    fn needs(&self) -> Needs;

    fn event(&mut self, event: &Envelope);

    fn wants_ticks(&self) -> bool {
        false
    }

    /// Time passed.
    fn tick(&mut self) {}

    /// Whether notices are shown as they come.
    fn tells_notices(&self) -> bool {
        true
    }

    /// Whether its reader learns of refused calls in full from what it prints. If not, they are told once, at the end.
    fn tells_refusals(&self) -> bool {
        self.tells_notices()
    }

    /// The run is over.
    fn end(&mut self, result: &QueryResult);

    /// There is no result, for this reason.
    fn lost(&mut self, error: &str);

    /// After what went wrong was said.
    fn afterword(&mut self) {}

    fn flush(&mut self) -> io::Result<()>;

    /// Where to print, before anything is.
    fn attach(&mut self, stdout: Stdout);
}

/// The fitting output. A terminal has a person before it.
pub(crate) fn for_args(args: &RunArgs, agent: &Agent) -> Box<dyn Output> {
    match args.output_format {
        OutputFormat::Json => Box::new(frames::Frames::result(agent)),
        OutputFormat::StreamJson => Box::new(frames::Frames::stream(agent, args.include_partial_messages)),
        OutputFormat::Text if io::stdout().is_terminal() => Box::new(screen::Screen::new()),
        OutputFormat::Text => Box::new(answer::Answer::default()),
    }
}
