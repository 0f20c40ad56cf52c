//! The `open-agent` program. Everything lies in the library beside it, where tests can look at it.

use std::process::ExitCode;

fn main() -> ExitCode {
    open_agent_cli::main()
}
