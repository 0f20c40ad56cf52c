//! Bash: a shell command. Owns the time it may take, what is kept of its output, and the folder that it leaves behind.

mod attend;
mod background;
mod clean;
mod output;
mod process;
mod shell;

use std::path::{Path, PathBuf};
use std::time::Duration;

use open_agent_model::{Access, Change};
use open_agent_tool::{Descendant, Exit, PathKind, Tool, ToolCx, ToolError, ToolErrorKind, ToolOutput};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use self::attend::{End, Sink, attend};
use self::output::{Output, Side};
use self::process::{Pipes, Place, left_note, start};
use crate::bounds::head_and_tail;

const DEFAULT_MS: u64 = 120_000;
const MAX_MS: u64 = 600_000;
/// A line of progress at most this often.
const PROGRESS: Duration = Duration::from_millis(500);
/// As much of an output is kept for user interfaces.
const MAX_DETAILS: usize = 20_000;

pub(super) struct Bash;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    /// The command.
    command: String,
    /// Milliseconds until it is killed: 120000 by default, at most 600000; in the background 1800000 and 7200000.
    timeout: Option<u64>,
    /// Start it and go on: for servers, watchers and whatever takes long.
    #[serde(default)]
    run_in_background: bool,
    /// What it does, in five to ten words, for people who watch.
    #[serde(default)]
    #[expect(dead_code, reason = "front ends read it from the input")]
    description: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    stdout: String,
    stderr: String,
    interrupted: bool,
    timed_out: bool,
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    persisted_output_path: Option<PathBuf>,
    output_bytes: u64,
    left_running: Vec<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    left_output_path: Option<PathBuf>,
}

impl Tool for Bash {
    const NAME: &'static str = "Bash";
    type Input = Input;

    fn description(&self) -> String {
        "Runs a command in bash, without a terminal and with its input closed: nothing can be asked. The working folder \
         lasts from call to call (inside the project); variables and functions do not. Output over 100,000 characters is \
         cut in the middle; the whole is kept in a file. For files use Read, Edit, Write, Glob and Grep rather than cat, \
         sed, find or grep. With run_in_background the call returns at once with a task id and the file that the output \
         goes to; you are told when the command has ended, so do not wait for it with sleep. A cd in it moves nothing. \
         Processes in the background, also those started with &, end with the session."
            .into()
    }

    fn access(&self, input: &Input, _: &ToolCx) -> Vec<Access> {
        vec![Access::Exec(input.command.clone())]
    }

    async fn call(&self, input: Input, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        if input.command.trim().is_empty() {
            return Err(ToolError::bad_input("the command is empty"));
        }
        if input.timeout == Some(0) {
            return Err(ToolError::bad_input("timeout is in milliseconds, from 1 on"));
        }
        let place = Place::find(cx)?;
        if input.run_in_background {
            return background::start(cx, place, input.command, input.timeout).await;
        }
        let limit = Duration::from_millis(input.timeout.unwrap_or(DEFAULT_MS).min(MAX_MS));
        let mut running = start(cx, &place.folder, &input.command, limit).await?;
        let mut told = Told { output: Output::new(cx.clone()), next: Instant::now() + PROGRESS };
        let mut pipes = Pipes::of(&mut *running);
        let end = attend(&mut *running, &mut pipes, &mut told, cx.cancel()).await;
        let left = if end.was_killed() { Vec::new() } else { running.leave().await };
        let is_lowered = input.timeout.is_some_and(|asked| asked > MAX_MS);
        let mut report = Report { limit, is_lowered, end, left, left_output: None };
        if !report.left.is_empty() {
            report.left_output = pipes.hand_over(cx.files(), cx.call()).await;
        }
        Ok(report.finish(cx, place, told.output.finish().await))
    }
}

/// The output of a command that a call waits for, told of while it runs.
struct Told {
    output: Output,
    /// When progress is told next.
    next: Instant,
}

impl Sink for Told {
    async fn push(&mut self, side: Side, bytes: &[u8]) {
        self.output.push(side, bytes).await;
    }

    fn due(&self, is_running: bool) -> Option<Instant> {
        is_running.then_some(self.next)
    }

    async fn show(&mut self) {
        self.output.tell_progress();
        self.next = Instant::now() + PROGRESS;
    }
}

/// What there is to tell.
struct Report {
    limit: Duration,
    /// More was asked for.
    is_lowered: bool,
    end: End,
    left: Vec<Descendant>,
    left_output: Option<PathBuf>,
}

impl Report {
    fn finish(self, cx: &ToolCx, place: Place, output: output::Finished) -> ToolOutput {
        let mut notes: Vec<String> = place.note.iter().cloned().collect();
        let mut change = (place.folder != cx.cwd()).then(|| place.folder.clone());
        if let Some(folder) = &output.folder {
            match new_folder(cx, &place.folder, folder) {
                Ok(Some(folder)) => change = Some(folder),
                Ok(None) => {}
                Err(note) => notes.push(note),
            }
        }
        let is_error = !matches!(self.end, End::Exited(Exit { code: Some(0), .. }));
        notes.extend(self.end_note());
        notes.extend(left_note(&self.left, self.left_output.as_deref()));
        let mut text = join(&output.stdout, &output.stderr);
        if text.is_empty() && notes.is_empty() {
            text.push_str("(No output.)");
        }
        let spill = output.spill.as_ref();
        let whole = spill.map_or(String::new(), |(path, kept)| output::whole(path, (*kept, output.bytes)));
        let cut = head_and_tail(text, &whole);
        // Also where no more than what overwrote itself is missing.
        if let Some((path, _)) = spill
            && !cut.contains(&*path.to_string_lossy())
        {
            let all = whole.trim_start_matches("; ");
            notes.insert(0, format!("[The output with what was left out or overwritten: {all}.]"));
        }
        let text = if notes.is_empty() { cut } else { join(&cut, &notes.join("\n")) };
        let exit = if let End::Exited(exit) = self.end { exit } else { Exit::default() };
        let details = Details {
            stdout: middle_out(&output.stdout),
            stderr: middle_out(&output.stderr),
            interrupted: self.end == End::Cancelled,
            timed_out: self.end == End::TimedOut,
            exit_code: exit.code,
            signal: exit.signal,
            persisted_output_path: output.spill.map(|(path, _)| path),
            output_bytes: output.bytes,
            left_running: self.left.iter().map(|d| d.pid).collect(),
            left_output_path: self.left_output,
        };
        let mut result = ToolOutput::text(head_and_tail(text, &whole)).with_details(&details);
        result.is_error = is_error;
        result.error_kind = match self.end {
            End::TimedOut => Some(ToolErrorKind::TimedOut),
            End::Cancelled => Some(ToolErrorKind::Cancelled),
            End::Exited(_) => None,
        };
        result.changes.extend(change.map(Change::Cwd));
        result
    }

    fn end_note(&self) -> Option<String> {
        match self.end {
            End::Exited(Exit { code: Some(0), .. }) => None,
            End::Exited(Exit { code: Some(code), .. }) => Some(format!("Exit code {code}")),
            End::Exited(Exit { signal: Some(signal), .. }) => Some(format!("Ended by signal {signal}")),
            End::Exited(_) => Some("How it ended is not known.".into()),
            End::TimedOut if self.is_lowered => Some(format!(
                "Timed out after {MAX_MS} ms, which is the most, though a larger timeout was given: the command and all \
                 its processes were killed. Above is what it had written. Run it in the background."
            )),
            End::TimedOut => Some(format!(
                "Timed out after {} ms: the command and all its processes were killed. Above is what it had written. \
                 Give a larger timeout (at most {MAX_MS}), or run it in the background.",
                self.limit.as_millis()
            )),
            End::Cancelled => Some("Interrupted: the command and all its processes were killed.".into()),
        }
    }
}

/// The folder that the shell ended in, if it is another one and may be kept.
fn new_folder(cx: &ToolCx, before: &Path, reported: &str) -> Result<Option<PathBuf>, String> {
    let reset =
        |why: &str| Err(format!("The shell's folder was reset to {}: {reported} {why}.", before.display()));
    let Ok(folder) = cx.files().locate(before, Path::new(reported)) else {
        return reset("cannot be resolved");
    };
    if folder.path() == before {
        return Ok(None);
    }
    let root = cx.files().locate(cx.root(), Path::new("."));
    let root = root.as_ref().map_or(cx.root(), |root| root.path());
    if !folder.path().starts_with(root) {
        return reset("is outside of the project");
    }
    match folder.kind() {
        PathKind::Folder => Ok(Some(folder.path().to_owned())),
        _ => reset("is gone"),
    }
}

fn join(first: &str, second: &str) -> String {
    match (first.is_empty(), second.is_empty()) {
        (_, true) => first.to_owned(),
        (true, false) => second.to_owned(),
        (false, false) => format!("{}\n{second}", first.trim_end_matches('\n')),
    }
}

fn middle_out(text: &str) -> String {
    if text.len() <= MAX_DETAILS {
        return text.to_owned();
    }
    let head = text.floor_char_boundary(MAX_DETAILS / 2);
    let tail = text.ceil_char_boundary(text.len() - MAX_DETAILS / 2);
    format!("{}\n[…]\n{}", &text[..head], &text[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_that_was_lowered_is_told_when_it_strikes() {
        let note = |is_lowered| {
            let limit = Duration::from_millis(MAX_MS);
            let report =
                Report { limit, is_lowered, end: End::TimedOut, left: Vec::new(), left_output: None };
            report.end_note().unwrap()
        };
        assert!(note(true).contains("after 600000 ms, which is the most, though a larger timeout was given"));
        assert!(note(false).contains("Give a larger timeout"));
    }
}
