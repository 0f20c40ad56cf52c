//! A terminal with a person before it: the answer streams to stdout; what the agent does, and how long it takes, goes to
//! stderr in dim lines. The last line is a passing one that says what is being waited for.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use open_agent::engine::{BlockKind, DeltaKind};
use open_agent::model::{CallId, Decision, ResultBlock};
use open_agent::{AgentEvent, Envelope, QueryResult};

use super::{Needs, Output, Stdout, diff};
use crate::words::{call, fit, harmless, one_line, seconds, thousands};

pub(super) struct Screen {
    began: Instant,
    running: Vec<Running>,
    /// What the passing line shows is gone on with since then.
    since: Instant,
    /// The answer's text stands in the last line.
    in_text: bool,
    /// The passing line is on the screen.
    passing: bool,
    progress: bool,
    colours: bool,
    /// The cursor may be moved.
    cursor: bool,
    stdout: String,
    out: Stdout,
    broken: Option<io::Error>,
}

struct Running {
    id: CallId,
    what: String,
    line: String,
    began: Instant,
}

impl Screen {
    pub(super) fn new() -> Self {
        let is_set = |name| std::env::var_os(name).is_some_and(|v| !v.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self {
            began: Instant::now(),
            running: Vec::new(),
            since: Instant::now(),
            in_text: false,
            passing: false,
            // Redirected, stderr is for what went wrong.
            progress: io::stderr().is_terminal(),
            colours: !is_set("NO_COLOR") && !dumb,
            cursor: !dumb,
            stdout: String::new(),
            out: Stdout::default(),
            broken: None,
        }
    }

    fn say(&mut self, text: &str) {
        self.stdout.push_str(&harmless(text));
        self.in_text = !self.stdout.ends_with('\n');
    }

    /// A line that stays.
    fn line(&mut self, mark: &str, text: &str) {
        if !self.progress {
            return;
        }
        self.end_text();
        self.write_out();
        let text = fit(&format!("{mark} {text}"), width());
        self.err(&if self.colours { format!("\u{1b}[2m{text}\u{1b}[0m\n") } else { format!("{text}\n") });
    }

    /// The line that is gone as soon as something else is said.
    fn show_passing(&mut self) {
        if !self.progress || !self.cursor || self.in_text {
            return;
        }
        let what = match self.running.last() {
            Some(call) if call.line.is_empty() => call.what.clone(),
            Some(call) => format!("{}: {}", call.what, call.line),
            None => "waiting for the model".to_owned(),
        };
        let since = self.running.last().map_or(self.since, |call| call.began);
        let others = self.running.len().saturating_sub(1);
        let others = if others > 0 { format!(" (+{others})") } else { String::new() };
        let time = format!(" {}{others}", seconds(since.elapsed()));
        let text = fit(&format!("… {what}"), width().saturating_sub(time.len() + 1)) + &time;
        let text = if self.colours { format!("\u{1b}[2m{text}\u{1b}[0m") } else { text };
        self.err(&format!("\r\u{1b}[K{text}"));
        self.passing = true;
    }

    fn clear_passing(&mut self) {
        if std::mem::take(&mut self.passing) {
            self.err("\r\u{1b}[K");
        }
    }

    fn end_text(&mut self) {
        if std::mem::take(&mut self.in_text) {
            self.stdout.push('\n');
        }
    }

    fn write_out(&mut self) {
        self.clear_passing();
        let written = self.out.write(std::mem::take(&mut self.stdout).as_bytes());
        if let Err(error) = written {
            self.broken.get_or_insert(error);
        }
    }

    fn diff(&mut self, details: &str) {
        if self.progress {
            for line in diff::lines(details, width(), self.colours) {
                self.err(&format!("{line}\n"));
            }
        }
    }

    #[expect(clippy::unused_self, reason = "one way to stderr")]
    fn err(&self, text: &str) {
        // A stderr that is gone takes no part in the run.
        let _ = io::stderr().write_all(text.as_bytes());
    }

    fn finished(&mut self, id: CallId, failed: Option<&[ResultBlock]>) {
        let Some(at) = self.running.iter().position(|call| call.id == id) else { return };
        let call = self.running.remove(at);
        let time = seconds(call.began.elapsed());
        match failed {
            None => self.line("✓", &format!("{} {time}", fit(&call.what, width().saturating_sub(10)))),
            Some(content) => {
                let why = content.iter().find_map(|block| match block {
                    ResultBlock::Text { text } => Some(one_line(text)),
                    _ => None,
                });
                let what = fit(&call.what, width() / 2);
                self.line("✗", &format!("{what} {time}: {}", why.unwrap_or_else(|| "failed".into())));
            }
        }
        self.since = Instant::now();
    }
}

impl Output for Screen {
    fn needs(&self) -> Needs {
        Needs::Pieces
    }

    fn tells_refusals(&self) -> bool {
        // Its lines are cut at the width of the terminal, and have no place for what to do.
        false
    }

    fn event(&mut self, event: &Envelope) {
        match &event.event {
            AgentEvent::BlockStarted(block) if block.kind == BlockKind::Text => self.end_text(),
            AgentEvent::BlockDelta(delta) if delta.kind == DeltaKind::Text => self.say(&delta.text),
            AgentEvent::AssistantMessage(_) => self.end_text(),
            AgentEvent::ToolRuled(ruled) => {
                let what = call(&ruled.tool, ruled.input.get());
                let began = Instant::now();
                // A call that is ruled again is the same one.
                self.running.retain(|call| call.id != ruled.call);
                self.running.push(Running { id: ruled.call, what, line: String::new(), began });
                if ruled.ruling.decision == Decision::Deny {
                    let why = [ResultBlock::text(ruled.ruling.reason.clone())];
                    self.finished(ruled.call, Some(&why));
                }
            }
            AgentEvent::ToolProgress(progress) => {
                if let Some(call) = self.running.iter_mut().find(|call| call.id == progress.call) {
                    call.line = one_line(&progress.line);
                }
            }
            AgentEvent::ToolFinished(done) => {
                self.finished(done.call, done.is_error.then_some(done.content.as_slice()));
                if let Some(details) = &done.details {
                    self.diff(details.get());
                }
            }
            AgentEvent::ModelFailed(failed) => {
                let Some(retry) = &failed.retry else { return };
                let why = failed.error.as_ref().map(|e| one_line(&e.message)).unwrap_or_default();
                let wait = seconds(Duration::from_millis(retry.delay_ms));
                // First what will happen: a long reason is cut.
                self.line("✗", &format!("asking {} again in {wait}: {why}", one_line(&retry.model)));
                self.since = Instant::now();
            }
            AgentEvent::Interrupted => self.line("✗", "interrupted"),
            AgentEvent::BackgroundEnded(ended) => {
                let what = one_line(&ended.work.description);
                self.line("—", &format!("{} {}: {what}", ended.work.id, ended.end));
            }
            AgentEvent::Notice(notice) => self.line("!", &one_line(&notice.text)),
            AgentEvent::Configured(c) => self.line("—", &format!("model {} → {}", c.from.model, c.to.model)),
            _ => {}
        }
    }

    fn wants_ticks(&self) -> bool {
        self.progress && self.cursor
    }

    fn tick(&mut self) {
        if self.stdout.is_empty() {
            self.show_passing();
        }
    }

    fn end(&mut self, result: &QueryResult) {
        self.end_text();
        self.running.clear();
        let count = |n: u32, what: &str| if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") };
        let cost = result.cost.map_or_else(|| "cost not known".to_owned(), |cost| cost.to_string());
        let summary = format!(
            "{} · {} · {} tokens in, {} out · {cost}",
            count(result.turns, "turn"),
            seconds(self.began.elapsed()),
            thousands(result.usage.all_input()),
            thousands(result.usage.output_tokens),
        );
        self.line("—", &summary);
    }

    fn lost(&mut self, _: &str) {
        self.end_text();
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.stdout.is_empty() || self.passing {
            self.write_out();
        }
        self.broken.take().map_or(Ok(()), Err)
    }

    fn attach(&mut self, stdout: Stdout) {
        self.out = stdout;
    }
}

/// Columns of the terminal; 80 where it does not say.
fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr());
    size.ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0).unwrap_or(80)
}
