//! What is kept of a command's output. Memory is bounded: of each stream its head and its tail stay, and from a size on
//! all of it goes to a file.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use open_agent_tool::ToolCx;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::clean::clean;
use super::shell::{EDGE, REPORT};
use crate::bounds::{HALF, MAX_CHARS, cut_line};

/// A character has at most four bytes.
const MAX_HEAD: usize = HALF * 4;
const MAX_TAIL: usize = HALF * 4;
/// Written to the file at once.
const BLOCK: usize = 512 * 1024;
/// A file is not made larger.
const MAX_SPILL: u64 = 1024 * 1024 * 1024;
/// A report is not longer: paths are not.
const MAX_REPORT: usize = 8 * 1024;

/// An end of a pipe that a command writes to.
pub(super) type Pipe = Box<dyn AsyncRead + Send + Unpin>;

/// Which stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Out,
    Err,
}

/// A command's output so far.
pub(super) struct Output {
    cx: ToolCx,
    stdout: Kept,
    stderr: Kept,
    reports: Reports,
    bytes: u64,
    /// In the order of arrival; not yet in the file.
    block: Vec<u8>,
    spill: Spill,
    max_spill: u64,
    /// The newest bytes, for progress.
    newest: Vec<u8>,
}

/// What a command wrote.
pub(super) struct Finished {
    pub(super) stdout: String,
    pub(super) stderr: String,
    pub(super) bytes: u64,
    /// Where it is, if it was too much, and how much of it.
    pub(super) spill: Option<(PathBuf, u64)>,
    /// The folder that the shell reported last.
    pub(super) folder: Option<String>,
}

enum Spill {
    NotNeeded,
    To { path: PathBuf, file: Option<File>, written: u64 },
    Failed,
}

impl Output {
    pub(super) fn new(cx: ToolCx) -> Self {
        Self {
            cx,
            stdout: Kept::default(),
            stderr: Kept::default(),
            reports: Reports::default(),
            bytes: 0,
            block: Vec::new(),
            spill: Spill::NotNeeded,
            max_spill: MAX_SPILL,
            newest: Vec::new(),
        }
    }

    pub(super) async fn push(&mut self, side: Side, bytes: &[u8]) {
        match side {
            Side::Out => self.keep(side, bytes),
            Side::Err => {
                let text = self.reports.take_out(bytes);
                self.keep(side, &text);
            }
        }
        if self.block.len() > BLOCK
            || (matches!(self.spill, Spill::NotNeeded) && self.block.len() > MAX_CHARS)
        {
            self.write_block().await;
        }
    }

    fn keep(&mut self, side: Side, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let kept = if side == Side::Out { &mut self.stdout } else { &mut self.stderr };
        kept.push(bytes);
        self.bytes += bytes.len() as u64;
        self.newest.clear();
        self.newest.extend_from_slice(&bytes[bytes.len().saturating_sub(1_000)..]);
        if !matches!(self.spill, Spill::Failed) {
            self.block.extend_from_slice(bytes);
        }
    }

    /// Shows the newest line.
    pub(super) fn tell_progress(&mut self) {
        if self.newest.is_empty() {
            return;
        }
        let text = clean(&std::mem::take(&mut self.newest));
        if let Some(line) = text.lines().rev().map(str::trim).find(|line| !line.is_empty()) {
            self.cx.progress(&cut_line(line, 200));
        }
    }

    async fn write_block(&mut self) {
        if matches!(self.spill, Spill::NotNeeded) {
            let call = self.cx.call();
            let name = format!("bash-{}-{}.txt", call.turn, call.index);
            self.spill = match self.cx.files().scratch(&name).await {
                Ok((path, file)) => Spill::To { path, file: Some(file), written: 0 },
                Err(_) => Spill::Failed,
            };
        }
        let block = std::mem::take(&mut self.block);
        let Spill::To { file, written, .. } = &mut self.spill else { return };
        if *written >= self.max_spill {
            return;
        }
        let Some(mut to) = file.take() else { return };
        let len = block.len() as u64;
        let write = move || {
            let done = to.write_all(&block);
            (to, block, done)
        };
        let Ok((back, mut block, done)) = tokio::task::spawn_blocking(write).await else { return };
        block.clear();
        self.block = block;
        // A full disk: what is there stays, no more is tried.
        if done.is_ok() {
            *written += len;
            *file = Some(back);
        }
    }

    pub(super) async fn finish(mut self) -> Finished {
        let rest = self.reports.finish();
        self.keep(Side::Err, &rest);
        let spill = if matches!(self.spill, Spill::NotNeeded) {
            None
        } else {
            self.write_block().await;
            if let Spill::To { path, written, .. } = self.spill { Some((path, written)) } else { None }
        };
        Finished {
            stdout: self.stdout.text(),
            stderr: self.stderr.text(),
            bytes: self.bytes,
            spill,
            folder: self.reports.last,
        }
    }
}

/// Says where an output is that is not shown as a whole.
pub(super) fn whole(path: &Path, (kept, all): (u64, u64)) -> String {
    let which = if kept == all { "all".to_owned() } else { format!("{kept} of") };
    format!("; {which} {all} bytes are in {}", path.display())
}

/// Head and tail of a stream.
#[derive(Default)]
struct Kept {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    left_out: u64,
}

impl Kept {
    fn push(&mut self, bytes: &[u8]) {
        let (head, rest) = bytes.split_at(bytes.len().min(MAX_HEAD - self.head.len()));
        self.head.extend_from_slice(head);
        // Only the end of a large piece can stay.
        let dropped = rest.len().saturating_sub(MAX_TAIL);
        let rest = &rest[dropped..];
        let over = (self.tail.len() + rest.len()).saturating_sub(MAX_TAIL);
        self.tail.drain(..over);
        self.tail.extend(rest);
        self.left_out += (dropped + over) as u64;
    }

    fn text(self) -> String {
        let tail = Vec::from(self.tail);
        if self.left_out == 0 {
            let mut all = self.head;
            all.extend_from_slice(&tail);
            return clean(&all);
        }
        // A character that is cut is left out.
        let start = tail.iter().take(3).take_while(|b| **b & 0xC0 == 0x80).count();
        let end = self.head.len() - incomplete(&self.head);
        format!(
            "{}\n[… {} bytes left out …]\n{}",
            clean(&self.head[..end]),
            self.left_out,
            clean(&tail[start..])
        )
    }
}

/// Bytes at the end that start a character without finishing it.
pub(super) fn incomplete(bytes: &[u8]) -> usize {
    match bytes.utf8_chunks().last() {
        Some(chunk) if chunk.invalid().len() < 4 && bytes.ends_with(chunk.invalid()) => chunk.invalid().len(),
        _ => 0,
    }
}

/// Takes the shell's reports out of its standard error, where they may arrive in pieces.
#[derive(Default)]
pub(super) struct Reports {
    last: Option<String>,
    held: Vec<u8>,
}

impl Reports {
    pub(super) fn take_out(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(bytes);
        let mut out = Vec::with_capacity(all.len());
        let mut rest = &all[..];
        while let Some(at) = memchr::memchr(EDGE, rest) {
            out.extend_from_slice(&rest[..at]);
            let from = &rest[at..];
            let Some(path) = from.strip_prefix(REPORT) else {
                if REPORT.starts_with(from) {
                    self.held = from.to_vec();
                    return out;
                }
                out.push(EDGE);
                rest = &from[1..];
                continue;
            };
            match memchr::memchr(EDGE, path) {
                Some(end) => {
                    self.last = Some(String::from_utf8_lossy(&path[..end]).into_owned());
                    rest = &path[end + 1..];
                }
                None if path.len() < MAX_REPORT => {
                    self.held = from.to_vec();
                    return out;
                }
                None => {
                    out.push(EDGE);
                    rest = &from[1..];
                }
            }
        }
        out.extend_from_slice(rest);
        out
    }

    pub(super) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}

/// Writes what still comes to a file.
pub(super) async fn copy_rest(stdout: Option<Pipe>, stderr: Option<Pipe>, file: File) {
    let other = file.try_clone();
    let one = copy(stdout, Some(file));
    let two = copy(stderr, other.ok());
    tokio::join!(one, two);
}

async fn copy(pipe: Option<impl AsyncRead + Unpin>, mut file: Option<File>) {
    let Some(mut pipe) = pipe else { return };
    let mut written = 0_u64;
    let mut buffer = vec![0; 16 * 1024];
    let mut reports = Reports::default();
    while let Ok(n) = pipe.read(&mut buffer).await {
        if n == 0 {
            return;
        }
        let Some(mut to) = file.take() else { continue };
        let text = reports.take_out(&buffer[..n]);
        written += text.len() as u64;
        if written > MAX_SPILL {
            continue;
        }
        let write = move || to.write_all(&text).map(|()| to);
        file = tokio::task::spawn_blocking(write).await.ok().and_then(Result::ok);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use open_agent_model::{CallId, Timestamp};
    use open_agent_sandbox::PlainFiles;
    use open_agent_tool::{Absent, Clock, CxParts, Ports};
    use proptest::prelude::*;

    use super::*;

    struct NoTime;

    impl Clock for NoTime {
        fn now(&self) -> Timestamp {
            Timestamp(0)
        }
        fn new_id(&self) -> u128 {
            0
        }
    }

    #[tokio::test]
    async fn a_file_that_lacks_the_end_is_not_called_whole() {
        let dir = tempfile::tempdir().unwrap();
        let files = Arc::new(PlainFiles::new(None, dir.path()));
        let absent = Arc::new(Absent);
        let ports = Ports { files, runner: absent.clone(), background: absent, clock: Arc::new(NoTime) };
        let cx = ToolCx::new(CxParts {
            call: CallId { turn: 0, index: 0 },
            session: open_agent_model::SessionId::from_number(1),
            run: None,
            agent: open_agent_model::AgentId::main(),
            parent: None,
            root: dir.path().to_owned(),
            state: Arc::default(),
            answers: Vec::new(),
            cancel: tokio_util::sync::CancellationToken::new(),
            progress: Arc::new(|_, _| {}),
            blobs: Arc::new(open_agent_tool::Absent),
            ports,
        });
        let mut output = Output::new(cx);
        output.max_spill = 600_000;
        for _ in 0..20 {
            output.push(Side::Out, &[b'x'; 100_000]).await;
        }
        let finished = output.finish().await;
        let (path, kept) = finished.spill.unwrap();
        assert_eq!(finished.bytes, 2_000_000);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), kept);
        assert!((600_000..1_300_000).contains(&kept), "{kept}");
        assert_eq!(whole(&path, (1, 2)), format!("; 1 of 2 bytes are in {}", path.display()));
        assert_eq!(whole(&path, (2, 2)), format!("; all 2 bytes are in {}", path.display()));
    }

    #[test]
    fn reports_are_taken_out_wherever_they_are_cut() {
        let whole = b"one\x1Eopen-agent folder /a b\x1Etwo\x1Ex\x1Eopen-agent folder /c\x1E";
        for at in 0..whole.len() {
            let mut reports = Reports::default();
            let mut out = reports.take_out(&whole[..at]);
            out.extend(reports.take_out(&whole[at..]));
            out.extend(reports.finish());
            assert_eq!(out, b"onetwo\x1Ex", "{at}");
            assert_eq!(reports.last.as_deref(), Some("/c"));
        }
    }

    #[test]
    fn head_and_tail_stay() {
        let mut kept = Kept::default();
        for i in 0..100_000 {
            kept.push(format!("line {i} é\n").as_bytes());
        }
        assert!(kept.head.len() + kept.tail.len() <= MAX_HEAD + MAX_TAIL);
        let text = kept.text();
        assert!(text.starts_with("line 0 é\n") && text.ends_with("line 99999 é\n"));
        assert!(!text.contains('\u{fffd}'));
    }

    proptest! {
        #[test]
        fn small_outputs_stay_whole(pieces in proptest::collection::vec("[a-zé\n]{0,20}", 0..20)) {
            let mut kept = Kept::default();
            pieces.iter().for_each(|p| kept.push(p.as_bytes()));
            prop_assert_eq!(kept.text(), pieces.concat());
        }
    }
}
