//! A folder to work in, a home to keep sessions in, a model server, and the program between them. Whatever a test does, the
//! key is nowhere to be seen afterwards.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Once};
use std::time::Duration;

use open_agent_testkit::server::{ModelServer, Recorded, Reply, Script};
use serde_json::Value;
use tempfile::TempDir;

/// H-LOG-01: must never be printed or stored.
pub(crate) const CANARY: &str = "sk-canary-5f1e9a";

pub(crate) struct Rig {
    pub server: ModelServer,
    pub home: TempDir,
    pub project: TempDir,
}

static HANGUP: Once = Once::new();

/// Makes the programs that are started from here hear SIGHUP. Tests that run under nohup are started with that signal
/// ignored, and so is what they start; a signal that has a handler is reset to its default there.
fn hear_hangups() {
    signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::default()).unwrap();
}

pub(crate) struct Outcome {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Rig {
    pub(crate) fn new(script: Script) -> Self {
        let folder = || tempfile::tempdir().unwrap();
        Self { server: ModelServer::start(script).unwrap(), home: folder(), project: folder() }
    }

    pub(crate) fn answering(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self::new(Script::new(replies))
    }

    /// The program in the project's folder, with an environment of its own: the server and a key.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = self.bare(args);
        command.env("ANTHROPIC_API_KEY", CANARY).env("OPENAI_API_KEY", CANARY);
        command
            .env("ANTHROPIC_BASE_URL", self.server.url())
            .env("OPENAI_BASE_URL", self.server.url() + "/v1");
        command
    }

    /// The program without server and key.
    pub(crate) fn bare<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        HANGUP.call_once(hear_hangups);
        let mut command = Command::new(env!("CARGO_BIN_EXE_open-agent"));
        command.args(args).current_dir(self.project.path()).env_clear();
        command.env("TEST_RIG", self.project.path());
        command.env("HOME", self.home.path()).env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Outcome {
        self.finish(self.command(args).spawn().unwrap())
    }

    pub(crate) fn run_with_stdin(&self, args: &[&str], stdin: &[u8]) -> Outcome {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        let stdin = stdin.to_vec();
        let writer = std::thread::spawn(move || {
            // A program that does not want it is free to leave.
            let _ = pipe.write_all(&stdin);
        });
        let outcome = self.finish(child);
        writer.join().unwrap();
        outcome
    }

    /// Waits for the end and reads what was printed.
    pub(crate) fn finish(&self, mut child: Child) -> Outcome {
        let stdout = reader(child.stdout.take());
        let stderr = reader(child.stderr.take());
        let status = child.wait().unwrap();
        let text =
            |handle: std::thread::JoinHandle<Vec<u8>>| String::from_utf8(handle.join().unwrap()).unwrap();
        let outcome = Outcome { status, stdout: text(stdout), stderr: text(stderr) };
        assert!(!outcome.stdout.contains(CANARY), "the key is in {}", outcome.stdout);
        assert!(!outcome.stderr.contains(CANARY), "the key is in {}", outcome.stderr);
        self.assert_no_key_in(self.home.path());
        assert_eq!(self.server.violations(), Vec::<String>::new());
        outcome
    }

    fn assert_no_key_in(&self, folder: &Path) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                self.assert_no_key_in(&path);
            } else {
                let bytes = std::fs::read(&path).unwrap();
                assert!(
                    !String::from_utf8_lossy(&bytes).contains(CANARY),
                    "the key is in {}",
                    path.display()
                );
            }
        }
    }

    pub(crate) fn requests(&self) -> Vec<Recorded> {
        self.server.requests()
    }

    /// A file in the project.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.project.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.canonicalize().unwrap()
    }

    /// Command lines of all processes that the program started and that still run; also of those that dropped their
    /// environment, if they sleep for `nap`.
    pub(crate) fn survivors(&self, nap: &str) -> Vec<String> {
        let mine = format!("TEST_RIG={}", self.project.path().display());
        let mut all = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let read = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
            let line = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
            let is_mine = read("environ").split(|b| *b == 0).any(|v| v == mine.as_bytes());
            let is_program = line.starts_with(env!("CARGO_BIN_EXE_open-agent"));
            if (is_mine && !is_program && !line.is_empty()) || line.trim_end() == format!("sleep {nap}") {
                all.push(line);
            }
        }
        all
    }

    /// Waits until so many processes sleep for `nap`.
    pub(crate) fn wait_for_naps(&self, nap: &str, count: usize) {
        let sleep = format!("sleep {nap}");
        wait_until(|| self.survivors(nap).iter().filter(|line| line.trim_end() == sleep).count() >= count);
    }

    /// Waits until the server was asked `count` times.
    pub(crate) fn wait_for_requests(&self, count: usize) {
        self.server.wait_for_requests(count);
    }
}

/// A time to sleep that nothing else sleeps for; `n` is the test's own.
pub(crate) fn nap(n: u8) -> String {
    format!("300.{}{n:03}", std::process::id())
}

impl Outcome {
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or(-1)
    }

    pub(crate) fn frames(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn result(&self) -> Value {
        let frames = self.frames();
        let results: Vec<&Value> = frames.iter().filter(|f| f["type"] == "result").collect();
        assert_eq!(results.len(), 1, "{}", self.stdout);
        frames.last().unwrap().clone()
    }
}

fn reader(pipe: Option<impl std::io::Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

/// Waits for something that only asking can tell. If it never happens, the test hangs.
pub(crate) fn wait_until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        // Leaves the processors to the processes that are waited for.
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The next line of a program that goes on.
pub(crate) fn read_line(pipe: &mut impl std::io::Read) -> String {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while pipe.by_ref().read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap()
}
