//! How a command is given to a shell, and how the shell tells in which folder it ends.
//!
//! Each `cd` of the outermost shell reports the folder, and so does its end. Either alone would be lost: an `exec`, a
//! `kill` or the command's own trap keeps the end from being told, and `builtin cd` the change. A report goes to a copy
//! of standard error, which the command's own redirections do not reach, between two bytes that text does not have.

use std::path::Path;

use open_agent_tool::CommandSpec;

/// Starts and ends a report.
pub(super) const EDGE: u8 = 0x1E;
/// What a report starts with.
pub(super) const REPORT: &[u8] = b"\x1Eopen-agent folder ";

/// Reports the folder, from the outermost shell only: in shells that it starts the variable is not set.
macro_rules! report {
    () => {
        r#"{ [ "${__open_agent_command+${BASH_SUBSHELL:-0}}" = 0 ] && builtin printf "\036open-agent folder %s\036" "$PWD" >&87 || :; } 2>/dev/null"#
    };
}

/// A folder's command that reports. All is in the function itself, so that it goes on working where it is exported, and
/// out of what `set -x` shows.
macro_rules! reporting {
    ($name:literal) => {
        concat!(
            $name,
            "() { { local - && set +x; } 2>/dev/null; builtin ",
            $name,
            r#" "$@" || return; "#,
            report!(),
            "; return 0; }; "
        )
    };
}

/// All of it is in one line, so that bash counts the lines of the command from one on. The number of the descriptor is
/// one that nobody uses, below a hundred so that it is there whatever `ulimit -n` says.
const BASH: &str = concat!(
    "exec 87>&2; ",
    reporting!("cd"),
    reporting!("pushd"),
    reporting!("popd"),
    "trap '",
    report!(),
    "' EXIT; ",
    r#"__open_agent_command=$1; shift; eval "$__open_agent_command""#
);

const SH: &str = r#"exec 9>&2; trap 'printf "\036open-agent folder %s\036" "$PWD" >&9' EXIT; eval "$1""#;

/// Runs `command` in bash.
pub(super) fn bash(folder: &Path, command: &str) -> CommandSpec {
    spec("bash", BASH, folder, command)
}

/// Runs `command` where there is no bash.
pub(super) fn sh(folder: &Path, command: &str) -> CommandSpec {
    spec("sh", SH, folder, command)
}

fn spec(program: &str, script: &str, folder: &Path, command: &str) -> CommandSpec {
    // Nobody is there to turn pages or to type a password.
    let env = [
        ("PAGER", "cat"),
        ("GIT_PAGER", "cat"),
        ("MANPAGER", "cat"),
        ("SYSTEMD_PAGER", "cat"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_EDITOR", "true"),
        ("TERM", "dumb"),
    ];
    CommandSpec {
        args: vec!["-c".into(), script.into(), program.into(), command.into()],
        env: env.into_iter().map(|(k, v)| (k.into(), v.into())).collect(),
        ..CommandSpec::new(program, folder)
    }
}
