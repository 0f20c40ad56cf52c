//! `test`: everything that a checkout alone can show. Later steps run although an earlier one failed, so that one
//! run names all that is wrong.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::shell::{self, TestRunner};
use crate::tidy;

/// Makes tests try their large numbers of cases; `open_agent_testkit::cases` reads it.
const DEEP: &str = "OPEN_AGENT_DEEP_TESTS";

/// How many cases the tests try.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// As many as the environment says; few if it says nothing.
    Everyday,
    /// As many as have to pass before a change is accepted.
    Deep,
}

pub(crate) fn run(root: &Path, depth: Depth) -> Result<bool> {
    let runner = TestRunner::find(root);
    let tests = shell::show(at(depth, &mut runner.all(root)))?;
    let docs = match runner {
        TestRunner::Cargo => true, // they were among the tests
        TestRunner::Nextest => {
            shell::show(shell::cargo(root).args(["test", "--workspace", "--doc", "--locked", "--quiet"]))?
        }
    };
    println!("+ tidy");
    let tidy = tidy::run(root)?;
    Ok(tests && docs && tidy)
}

fn at(depth: Depth, command: &mut Command) -> &mut Command {
    match depth {
        Depth::Everyday => command,
        Depth::Deep => command.env(DEEP, "1"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_is_what_the_tests_listen_to() {
        assert_eq!(DEEP, open_agent_testkit::DEEP);
        let value = |depth| {
            let mut command = Command::new("x");
            let envs =
                at(depth, &mut command).get_envs().map(|(k, v)| (k.to_owned(), v.map(ToOwned::to_owned)));
            envs.collect::<Vec<_>>()
        };
        assert_eq!(value(Depth::Everyday), []);
        assert_eq!(value(Depth::Deep), [(DEEP.into(), Some("1".into()))]);
    }
}
