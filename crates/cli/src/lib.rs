//! The open-agent command line: arguments in, answers and frames out. Owns what is printed, where, and with which exit
//! code the program ends; everything else is the library's.

mod args;
mod cli;
mod commands;
mod exit;
mod hint;
mod log;
mod output;
mod prompt;
mod run;
mod signals;
mod words;

use std::process::ExitCode;

/// The program: reads the arguments and does what they say.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match cli::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(stop) => return stop.code(),
    };
    let done = match cli.command {
        Some(command) => command.run(),
        None if cli.run.version => exit::print_line(&format!("{} (Open Agent)", env!("CARGO_PKG_VERSION"))),
        None => run::run(cli.run),
    };
    match done {
        Ok(exit) => exit.code(),
        Err(error) => exit::of_error(&error).code(),
    }
}

/// The arguments as they are defined: for tests that go through all of them.
#[must_use]
pub fn command() -> clap::Command {
    <cli::Cli as clap::CommandFactory>::command()
}
