//! A command in the background: its call returns at once, its output goes to a file as it comes. Owns that file and how
//! long the command may run. Keeps nothing of the call but the port for files.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use open_agent_model::{BackgroundEnd, BackgroundKind, BackgroundOutcome, CallId, Change};
use open_agent_tool::{
    BackgroundSpec, Descendant, Exit, Files, Running, ToolCx, ToolError, ToolErrorKind, ToolOutput,
};
use serde::Serialize;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::attend::{End, Sink, attend};
use super::clean::clean;
use super::output::{Reports, Side, incomplete};
use super::process::{self, Pipes, Place, left_note};

const DEFAULT_MS: u64 = 1_800_000;
const MAX_MS: u64 = 7_200_000;
/// The file is not made larger, but for the line that says how the command ended.
const MAX_FILE: u64 = 1024 * 1024 * 1024;
/// What has no line end yet is shown after this time: a prompt, dots that tell of progress.
const PATIENCE: Duration = Duration::from_millis(100);
/// As much of a line is held back at most.
const MAX_HELD: usize = 64 * 1024;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Details<'a> {
    stdout: &'static str,
    stderr: &'static str,
    interrupted: bool,
    background_task_id: &'a str,
    background_output_path: &'a PathBuf,
}

/// Starts it.
pub(super) async fn start(
    cx: &ToolCx,
    place: Place,
    command: String,
    timeout: Option<u64>,
) -> Result<ToolOutput, ToolError> {
    let call = cx.call();
    let name = format!("bash-{}-{}-background.txt", call.turn, call.index);
    let (path, file) = cx.files().scratch(&name).await?;
    // An interrupt does not reach what runs in the background, so it has to be looked for here.
    if cx.cancel().is_cancelled() {
        return Err(interrupted());
    }
    let limit = Duration::from_millis(timeout.unwrap_or(DEFAULT_MS).min(MAX_MS));
    let mut running = process::start(cx, &place.folder, &command, limit).await?;
    if cx.cancel().is_cancelled() {
        running.kill().await;
        return Err(interrupted());
    }
    let work = Work {
        pipes: Pipes::of(&mut *running),
        running,
        log: Log::new(file, MAX_FILE),
        files: Arc::clone(&cx.ports().files),
        call,
    };
    let spec = BackgroundSpec {
        owner: cx.owner(),
        kind: BackgroundKind::Bash,
        description: command,
        call,
        output: Some(path.clone()),
    };
    let started = cx.background().start(spec, Box::new(move |stop| Box::pin(work.run(stop))))?;
    let mut text = format!(
        "Started in the background as {}. Its output goes to {} as it comes; Read it when you need it. The last line \
         says how the command ended.",
        started.id,
        path.display()
    );
    let change = (place.folder != cx.cwd()).then_some(Change::Cwd(place.folder));
    if timeout.is_some_and(|asked| asked > MAX_MS) {
        text.push_str(&format!(" It is ended after {MAX_MS} ms: timeout cannot be larger."));
    }
    if let Some(note) = place.note {
        text = format!("{text}\n{note}");
    }
    let details = Details {
        stdout: "",
        stderr: "",
        interrupted: false,
        background_task_id: started.id.as_str(),
        background_output_path: &path,
    };
    let mut output = ToolOutput::text(text).with_details(&details);
    output.changes.extend(change);
    Ok(output)
}

fn interrupted() -> ToolError {
    ToolError::new("Interrupted: the command does not run.").with_kind(ToolErrorKind::Cancelled)
}

struct Work {
    running: Box<dyn Running>,
    pipes: Pipes,
    log: Log,
    files: Arc<dyn Files>,
    call: CallId,
}

impl Work {
    async fn run(mut self, stop: CancellationToken) -> BackgroundEnd {
        let end = attend(&mut *self.running, &mut self.pipes, &mut self.log, &stop).await;
        let mut left: Vec<Descendant> = Vec::new();
        let mut left_output = None;
        if !end.was_killed() {
            left = self.running.leave().await;
        }
        if !left.is_empty() {
            left_output = self.pipes.hand_over(&*self.files, self.call).await;
        }
        let end = match end {
            End::Exited(Exit { code, signal, .. }) => end_of(code, signal),
            End::TimedOut => BackgroundEnd::of(BackgroundOutcome::TimedOut),
            End::Cancelled => BackgroundEnd::of(BackgroundOutcome::Stopped),
        };
        self.log.finish(end.clone(), left_note(&left, left_output.as_deref())).await;
        end
    }
}

impl Sink for Log {
    async fn push(&mut self, side: Side, bytes: &[u8]) {
        Log::push(self, side, bytes).await;
    }

    fn due(&self, _: bool) -> Option<Instant> {
        self.held_since.map(|since| since + PATIENCE)
    }

    async fn show(&mut self) {
        self.show_partial().await;
    }
}

/// How a process ended: completed if its exit code is 0.
fn end_of(code: Option<i32>, signal: Option<i32>) -> BackgroundEnd {
    let outcome = if code == Some(0) { BackgroundOutcome::Completed } else { BackgroundOutcome::Failed };
    let detail = match (code, signal) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended, how is not known".to_owned(),
    };
    BackgroundEnd::with_detail(outcome, detail)
}

/// The output file.
struct Log {
    /// `None` once it cannot be written: a full disk. What is there stays, no more is tried.
    file: Option<File>,
    room: u64,
    is_full: bool,
    at_line_start: bool,
    stdout: Lines,
    stderr: Lines,
    reports: Reports,
    /// Since when there is something that is held back.
    held_since: Option<Instant>,
}

impl Log {
    fn new(file: File, room: u64) -> Self {
        Self {
            file: Some(file),
            room,
            is_full: false,
            at_line_start: true,
            stdout: Lines::default(),
            stderr: Lines::default(),
            reports: Reports::default(),
            held_since: None,
        }
    }

    async fn push(&mut self, side: Side, bytes: &[u8]) {
        if self.is_full {
            return;
        }
        let text = match side {
            Side::Out => self.stdout.push(bytes),
            Side::Err => self.stderr.push(&self.reports.take_out(bytes)),
        };
        let holds = self.stdout.holds() || self.stderr.holds();
        self.held_since = holds.then(|| self.held_since.unwrap_or_else(Instant::now));
        self.write(text).await;
    }

    async fn show_partial(&mut self) {
        self.held_since = None;
        let text = self.stdout.partial() + &self.stderr.partial();
        self.write(text).await;
    }

    async fn finish(mut self, end: BackgroundEnd, left: Option<String>) {
        let rest = self.reports.finish();
        let mut text = self.stdout.finish();
        text.push_str(&self.stderr.push(&rest));
        text.push_str(&self.stderr.finish());
        self.write(text).await;
        let start = if self.at_line_start { "" } else { "\n" };
        let left = left.map_or(String::new(), |note| format!("{note}\n"));
        self.append(format!("{start}{left}[The command {end}.]\n")).await;
    }

    async fn write(&mut self, mut text: String) {
        if text.is_empty() || self.is_full {
            return;
        }
        if text.len() as u64 > self.room {
            let room = usize::try_from(self.room).unwrap_or(text.len());
            text.truncate(text.floor_char_boundary(room));
            text.push_str(
                "\n[This file is as long as it may be: what the command writes from here on is not kept.]\n",
            );
            self.is_full = true;
            self.held_since = None;
        }
        self.room = self.room.saturating_sub(text.len() as u64);
        self.append(text).await;
    }

    async fn append(&mut self, text: String) {
        let Some(mut to) = self.file.take() else { return };
        self.at_line_start = text.ends_with('\n');
        let write = move || to.write_all(text.as_bytes()).map(|()| to);
        self.file = tokio::task::spawn_blocking(write).await.ok().and_then(Result::ok);
    }
}

/// One stream, cleaned line by line.
#[derive(Default)]
struct Lines {
    held: Vec<u8>,
    /// The beginning of the line was shown already.
    is_shown: bool,
}

impl Lines {
    /// What can be shown now.
    fn push(&mut self, bytes: &[u8]) -> String {
        let mut text = String::new();
        let mut rest = bytes;
        if let Some(end) = memchr::memrchr(b'\n', bytes) {
            let (lines, after) = bytes.split_at(end + 1);
            self.held.extend_from_slice(lines);
            text = self.finish();
            self.is_shown = false;
            rest = after;
        }
        self.held.extend_from_slice(rest);
        if self.held.len() > MAX_HELD {
            text.push_str(&self.partial());
            if self.held.len() > MAX_HELD {
                text.push_str(&self.finish());
            }
        }
        text
    }

    fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// As much of an unfinished line as can be shown: no half character, no half escape sequence.
    fn partial(&mut self) -> String {
        let mut end = self.held.len() - incomplete(&self.held);
        // It may be the first half of a line end.
        end -= self.held[..end].iter().rev().take_while(|b| **b == b'\r').count();
        if let Some(escape) = memchr::memrchr(0x1b, &self.held[..end])
            && clean(&self.held[escape..end]).is_empty()
        {
            end = escape;
        }
        let rest = self.held.split_off(end);
        let part = std::mem::replace(&mut self.held, rest);
        let text = self.show(&part);
        self.is_shown |= !text.is_empty();
        text
    }

    /// The rest.
    fn finish(&mut self) -> String {
        let rest = std::mem::take(&mut self.held);
        let text = self.show(&rest);
        self.is_shown |= !text.is_empty();
        text
    }

    fn show(&self, bytes: &[u8]) -> String {
        let text = clean(bytes);
        let line = bytes.split(|b| *b == b'\n').next().unwrap_or_default();
        let overwrites = line.trim_ascii_end().contains(&b'\r');
        // What was shown cannot be taken back.
        if self.is_shown && overwrites { format!("\n{text}") } else { text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn unfinished_lines_are_shown_without_half_of_anything() {
        let mut lines = Lines::default();
        assert_eq!(lines.push("ready\nName".as_bytes()), "ready\n");
        assert_eq!(lines.partial(), "Name");
        assert_eq!(lines.push(b": \xC3"), "");
        assert_eq!(lines.partial(), ": ");
        assert_eq!(lines.push(b"\xA9 \x1b[3"), "");
        assert_eq!(lines.partial(), "é ");
        assert_eq!(lines.push(b"1mred\x1b[0m\r"), "");
        assert_eq!(lines.partial(), "red");
        assert_eq!(lines.push(b"\nnext"), "\n");
        assert_eq!(lines.finish(), "next");
    }

    #[test]
    fn a_line_that_overwrites_what_was_shown_begins_a_new_one() {
        let mut lines = Lines::default();
        lines.push(b"10%");
        assert_eq!(lines.partial(), "10%");
        assert_eq!(lines.push(b"\r50%\r100%\ndone\n"), "\n100%\ndone\n");
        assert_eq!(lines.push(b"10%\r20%\n"), "20%\n");
    }

    #[test]
    fn ends_of_processes_are_told() {
        assert!(end_of(Some(0), None).is_success());
        let failed = end_of(Some(3), None);
        assert_eq!((failed.is_success(), failed.to_string().as_str()), (false, "ended with exit code 3"));
        assert_eq!(end_of(None, Some(9)).to_string(), "was ended by signal 9");
        assert!(!end_of(None, None).is_success());
    }

    #[tokio::test]
    async fn the_file_is_bounded_and_its_end_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = Log::new(File::create(&path).unwrap(), 18);
        for _ in 0..10 {
            log.push(Side::Out, "aé2345\n".as_bytes()).await;
        }
        log.finish(end_of(Some(3), None), None).await;
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            text,
            "aé2345\naé2345\na\n[This file is as long as it may be: what the command writes from here on is not \
             kept.]\n[The command ended with exit code 3.]\n"
        );
    }

    proptest! {
        #[test]
        fn however_it_is_cut_it_is_the_same_text(text in "[a-zé ]{0,5}(\n[a-zé ]{0,5}){0,5}", cut in 1_usize..5, ask in 0_usize..5) {
            let mut lines = Lines::default();
            let mut shown = String::new();
            for (i, piece) in text.as_bytes().chunks(cut).enumerate() {
                shown.push_str(&lines.push(piece));
                if i % (ask + 1) == ask {
                    shown.push_str(&lines.partial());
                }
            }
            shown.push_str(&lines.finish());
            prop_assert_eq!(shown, text);
        }

    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20))]

        #[test]
        fn what_is_held_is_bounded(bytes in proptest::collection::vec(prop_oneof![Just(0x1b_u8), Just(b']'), Just(b'\r'), any::<u8>()], 1..50)) {
            let mut lines = Lines::default();
            let bytes = bytes.repeat(10_000 / bytes.len() + 1);
            for _ in 0..20 {
                lines.push(&bytes);
                prop_assert!(lines.held.len() <= MAX_HELD);
            }
        }
    }
}
