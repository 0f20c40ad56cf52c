//! A shell command as a process: where it runs, how it is started, what it writes to and what it leaves running. Used for
//! commands that a call waits for and for those in the background.

use std::path::{Path, PathBuf};
use std::time::Duration;

use open_agent_model::CallId;
use open_agent_tool::{CommandSpec, Descendant, Files, Limits, PortError, Running, ToolCx, ToolError};
use tokio::io::AsyncReadExt;

use super::output::{Pipe, copy_rest};
use super::shell;
use crate::bounds::cut_line;

/// Who holds the pipes once the command has ended gets this long to write what is already on its way.
pub(super) const DRAIN: Duration = Duration::from_millis(150);

/// Where a command runs.
pub(super) struct Place {
    pub(super) folder: PathBuf,
    pub(super) note: Option<String>,
}

impl Place {
    /// The working folder, or the project's root if that is gone.
    pub(super) fn find(cx: &ToolCx) -> Result<Self, ToolError> {
        let here = |folder: &Path| {
            let at = cx.files().locate(folder, Path::new("."))?;
            at.require_folder().map(|()| at)
        };
        let Err(error) = here(cx.cwd()) else { return Ok(Self { folder: cx.cwd().to_owned(), note: None }) };
        match here(cx.root()) {
            Ok(at) => {
                let note = format!(
                    "The working folder {} is gone, so the command ran in {}, which is the working folder now.",
                    cx.cwd().display(),
                    at.path().display()
                );
                Ok(Self { folder: at.path().to_owned(), note: Some(note) })
            }
            Err(_) => Err(error.into()),
        }
    }
}

/// Starts a command in bash, or in sh where there is no bash. After `limit` it is ended with all that came out of it.
pub(super) async fn start(
    cx: &ToolCx,
    folder: &Path,
    command: &str,
    limit: Duration,
) -> Result<Box<dyn Running>, ToolError> {
    let limited =
        |spec: CommandSpec| CommandSpec { limits: Limits { time: Some(limit), ..Limits::default() }, ..spec };
    match cx.runner().spawn(limited(shell::bash(folder, command))).await {
        Err(PortError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Ok(cx.runner().spawn(limited(shell::sh(folder, command))).await?)
        }
        Err(PortError::Io { source, .. }) if source.kind() == std::io::ErrorKind::ArgumentListTooLong => {
            Err(ToolError::bad_input("the command is too long for a shell: write it to a file and run that")
                .with_source(source))
        }
        started => Ok(started?),
    }
}

/// What a command writes to; `None` once it is closed.
pub(super) struct Pipes {
    pub(super) stdout: Option<Pipe>,
    pub(super) stderr: Option<Pipe>,
}

impl Pipes {
    pub(super) fn of(running: &mut dyn Running) -> Self {
        Self { stdout: running.stdout(), stderr: running.stderr() }
    }

    pub(super) fn are_closed(&self) -> bool {
        self.stdout.is_none() && self.stderr.is_none()
    }

    /// Goes on reading for those who were left running: without a reader their next line would kill them.
    pub(super) async fn hand_over(self, files: &dyn Files, call: CallId) -> Option<PathBuf> {
        if self.are_closed() {
            return None;
        }
        let name = format!("bash-{}-{}-left-running.txt", call.turn, call.index);
        let (path, file) = files.scratch(&name).await.ok()?;
        tokio::spawn(copy_rest(self.stdout, self.stderr, file));
        Some(path)
    }
}

pub(super) async fn read_some(pipe: &mut Option<Pipe>, buffer: &mut [u8]) -> usize {
    match pipe {
        Some(open) => {
            let n = open.read(buffer).await.unwrap_or(0);
            if n == 0 {
                *pipe = None;
            }
            n
        }
        None => std::future::pending().await,
    }
}

/// Says what a command left running.
pub(super) fn left_note(left: &[Descendant], output: Option<&Path>) -> Option<String> {
    if left.is_empty() {
        return None;
    }
    let list: Vec<String> =
        left.iter().take(10).map(|d| format!("{} ({})", d.pid, cut_line(&d.command, 100))).collect();
    let mut note = format!("Left running: {}. They end with the session.", list.join(", "));
    if let Some(path) = output {
        note.push_str(&format!(" What they write from now on goes to {}.", path.display()));
    }
    Some(note)
}
