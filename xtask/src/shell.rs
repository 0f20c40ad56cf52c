//! Starting other programs and finding the user's cache: the little that all tasks share.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// The cargo that started us, so that a chosen toolchain stays chosen.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.current_dir(root).stdin(Stdio::null());
    command
}

/// The programs that can run the tests. Both run the same tests; nextest gives each a process of its own, and is faster.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TestRunner {
    Nextest,
    /// `cargo test`, which every machine has.
    Cargo,
}

impl TestRunner {
    /// Chooses nextest where it is installed. It is never built here: a newcomer would wait for it longer than for
    /// everything else together.
    pub(crate) fn find(root: &Path) -> TestRunner {
        match quiet(cargo(root).args(["nextest", "--version"])) {
            Ok(_) => TestRunner::Nextest,
            Err(_) => TestRunner::Cargo,
        }
    }

    /// All tests; nextest runs no doc tests.
    pub(crate) fn all(self, root: &Path) -> Command {
        let mut command = cargo(root);
        match self {
            TestRunner::Nextest => {
                command.args(["nextest", "run", "--workspace", "--locked", "--no-fail-fast"])
            }
            // Without a choice of targets, so that examples are built as the programs that tests start.
            TestRunner::Cargo => command.args(["test", "--workspace", "--locked", "--no-fail-fast"]),
        };
        command
    }
}

/// Runs to the end with our own output; says the command line first, since its output follows.
pub(crate) fn show(command: &mut Command) -> Result<bool> {
    println!("+ {}", line(command));
    let status = command.status().with_context(|| format!("cannot start {}", line(command)))?;
    Ok(status.success())
}

/// Runs to the end without showing output; a failure is an error that carries the end of it.
pub(crate) fn quiet(command: &mut Command) -> Result<Vec<u8>> {
    let out =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {}", line(command)))?;
    if !out.status.success() {
        let both = [out.stdout.as_slice(), out.stderr.as_slice()].concat();
        let text = String::from_utf8_lossy(&both);
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(20)..].join("\n  ");
        bail!("{} ended with {}:\n  {tail}", line(command), out.status);
    }
    Ok(out.stdout)
}

/// `~/.cache/open-agent`, or what the platform's variable says.
pub(crate) fn cache() -> Result<PathBuf> {
    let base = match env::var_os("XDG_CACHE_HOME").filter(|dir| Path::new(dir).is_absolute()) {
        Some(dir) => PathBuf::from(dir),
        None => PathBuf::from(env::var_os("HOME").context("HOME is not set")?).join(".cache"),
    };
    Ok(base.join("open-agent"))
}

fn line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let mut text = program.to_string_lossy().into_owned();
    for arg in command.get_args() {
        text.push(' ');
        text.push_str(&arg.to_string_lossy());
    }
    text
}
