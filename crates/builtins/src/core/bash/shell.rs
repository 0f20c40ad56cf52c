//! How a command is given to a shell, and how the shell tells in which folder it ends.
//!
//! Each `cd` of the outermost shell reports the folder, and so does its end. Either alone would be lost: an `exec`, a
//! `kill` or the command's own trap keeps the end from being told, and `builtin cd` the change. A report goes to a copy
//! of standard error, which the command's own redirections do not reach, between two bytes that text does not have.

use std::collections::BTreeMap;
use std::path::Path;

use open_agent_tool::CommandSpec;

/// Starts and ends a report.
pub(super) const EDGE: u8 = 0x1E;
/// What a report starts with.
pub(super) const REPORT: &[u8] = b"\x1Eopen-agent folder ";

const BASH: &str = r#"exec 199>&2
__open_agent_folder() { { [ "${BASH_SUBSHELL:-0}" = 0 ] && builtin printf '\036open-agent folder %s\036' "$PWD" >&199; } 2>/dev/null; return 0; }
cd() { builtin cd "$@" || return; __open_agent_folder; }
pushd() { builtin pushd "$@" || return; __open_agent_folder; }
popd() { builtin popd "$@" || return; __open_agent_folder; }
trap __open_agent_folder EXIT
__open_agent_command=$1
shift
eval "$__open_agent_command""#;

const SH: &str = r#"exec 9>&2
trap 'printf "\036open-agent folder %s\036" "$PWD" >&9' EXIT
eval "$1""#;

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
        program: program.into(),
        args: vec!["-c".into(), script.into(), program.into(), command.into()],
        cwd: folder.to_owned(),
        env: env.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect::<BTreeMap<_, _>>(),
    }
}
