//! `CommandRunner` without confinement. Owns how a process is started, waited for and ended with all that came out of
//! it, and which descendants were left running.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use open_agent_model::{BoxFuture, Env};
use open_agent_tool::{
    CommandRunner, CommandSpec, Descendant, Exit, LimitHit, PortError, Purpose, Running, Stdin,
};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::watch;
use uuid::Uuid;

use crate::environment::split;
use crate::limits::{Counted, OutputLimit, limit_memory, new_session};
use crate::orphans::OrphanReaper;
use crate::tree::{MARK, Tree, started_at};
use crate::trees::{TreeNumber, Trees};

/// How long a process may take to end itself.
const GRACE: Duration = Duration::from_millis(500);
/// Waiting needs next to no stack.
const SMALL_STACK: usize = 128 * 1024;

/// Starts processes as the user. All of them, and what they left running, end with it: dropping it asks them to end and
/// kills those that have not half a second later. That blocks; [`PlainRunner::end_all`] does the same without blocking.
/// Should this process die without that, an [`OrphanReaper`] kills them.
pub struct PlainRunner {
    env: Arc<BTreeMap<OsString, OsString>>,
    removed: Vec<String>,
    mark: String,
    count: AtomicU64,
    trees: Arc<Trees>,
}

impl PlainRunner {
    /// Processes see `env` without the variables that match one of `removed`
    /// (see [`REMOVED_VARIABLES`](crate::REMOVED_VARIABLES)).
    #[must_use]
    pub fn new(env: &Env, removed: &[&str]) -> Self {
        Self::with_reaper(env, removed, &OrphanReaper::new(env))
    }

    /// As [`PlainRunner::new`], with a reaper that other runners use as well.
    #[must_use]
    pub fn with_reaper(env: &Env, removed: &[&str], reaper: &OrphanReaper) -> Self {
        let (kept, removed) = split(env, removed);
        let mark = Uuid::new_v4().simple().to_string();
        let trees = Arc::new(Trees::new(mark.clone(), reaper.clone()));
        Self { env: Arc::new(kept), removed, mark, count: AtomicU64::new(0), trees }
    }

    /// Ends everything that it started and that still runs: asks, waits half a second, kills. Nothing can be started
    /// from then on.
    pub async fn end_all(&self) {
        if self.trees.close() {
            let trees = Arc::clone(&self.trees);
            let _ = tokio::task::spawn_blocking(move || trees.end(GRACE)).await;
        }
    }

    /// Kills everything that it started and that still runs, before it returns. Nothing can be started from then on.
    /// For a program that is about to end and cannot wait.
    pub fn kill_all(&self) {
        self.trees.kill();
    }

    fn start(&self, spec: CommandSpec) -> impl FnOnce() -> Result<Started, PortError> + use<> {
        let n = self.count.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{}.{n}", self.mark);
        let env = Arc::clone(&self.env);
        let trees = Arc::clone(&self.trees);
        move || {
            let failed =
                |source| PortError::Io { action: "start", path: spec.program.clone().into(), source };
            let mut command = command(&spec, &env, &mark).map_err(failed)?;
            let started = trees.start(|| {
                let mut child = command.spawn()?;
                let main = Pid::from_child(&child);
                let stdin = child.stdin.take().map(OwnedFd::from);
                let stdout = child.stdout.take().map(OwnedFd::from);
                let stderr = child.stderr.take().map(OwnedFd::from);
                let pipes = stdout.iter().chain(&stderr).filter_map(pipe_name).collect();
                let tree =
                    Tree { main, mark, since: started_at(main), pipes, reaped: false, left: Vec::new() };
                Ok(((child, tree.clone(), [stdin, stdout, stderr]), tree))
            });
            let ((child, tree, streams), number) = started.ok_or(PortError::Closed)?.map_err(failed)?;
            tracing::debug!(purpose = spec.purpose.as_str(), program = ?spec.program, pid = child.id(), "process started");
            Ok(Started { child, tree, streams, number, trees, spec })
        }
    }
}

/// The command as it is started: in its folder, with its environment, streams and limits.
fn command(spec: &CommandSpec, env: &BTreeMap<OsString, OsString>, mark: &str) -> io::Result<Command> {
    let mut marks = env.get(OsStr::new(MARK)).cloned().unwrap_or_default();
    if !marks.is_empty() {
        marks.push(":");
    }
    marks.push(mark);
    let mut command = Command::new(look_up(&spec.program, spec, env)?);
    command
        .arg0(&spec.program)
        .args(&spec.args)
        .current_dir(&spec.cwd)
        .env_clear()
        .envs(env)
        .envs(&spec.env)
        .env("PWD", &spec.cwd)
        .env(MARK, marks)
        .stdin(if spec.stdin == Stdin::Closed { Stdio::null() } else { Stdio::piped() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(bytes) = spec.limits.memory {
        limit_memory(&mut command, bytes);
    }
    new_session(&mut command);
    Ok(command)
}

impl CommandRunner for PlainRunner {
    fn spawn(&self, spec: CommandSpec) -> BoxFuture<'_, Result<Box<dyn Running>, PortError>> {
        let start = self.start(spec);
        Box::pin(async move {
            // If this future is dropped meanwhile, the pool drops the process, which kills it.
            let start = move || Process::new(start()?).map_err(start_error);
            match tokio::task::spawn_blocking(start).await {
                Ok(process) => process.map(|p| Box::new(p) as Box<dyn Running>),
                Err(error) => Err(start_error(io::Error::other(error))),
            }
        })
    }

    fn removed(&self) -> &[String] {
        &self.removed
    }
}

impl Drop for PlainRunner {
    fn drop(&mut self) {
        self.trees.end(GRACE);
    }
}

fn start_error(source: io::Error) -> PortError {
    PortError::Io { action: "start", path: PathBuf::from("a process"), source }
}

struct Started {
    child: Child,
    tree: Tree,
    /// Input, output, error output.
    streams: [Option<OwnedFd>; 3],
    number: TreeNumber,
    trees: Arc<Trees>,
    spec: CommandSpec,
}

struct Process {
    /// `None` once it was handed to whoever reaps it.
    child: Option<Child>,
    tree: Tree,
    purpose: Purpose,
    stdin: Option<pipe::Sender>,
    stdout: Option<Output>,
    stderr: Option<Output>,
    exit: watch::Receiver<Option<Exit>>,
    number: TreeNumber,
    trees: Arc<Trees>,
}

type Output = Box<dyn AsyncRead + Send + Unpin>;

impl Process {
    fn new(started: Started) -> io::Result<Self> {
        let Started { child, tree, streams: [stdin, stdout, stderr], number, trees, spec } = started;
        let (tell, exit) = watch::channel(None);
        let (main, limits, tell) = (tree.main, spec.limits, Arc::new(tell));
        let mut process = Self {
            child: Some(child),
            tree,
            purpose: spec.purpose,
            stdin: None,
            stdout: None,
            stderr: None,
            exit,
            number,
            trees,
        };
        let output = limits.output.map(|bytes| Arc::new(OutputLimit::new(bytes)));
        // Our own pipes, made a moment ago: no need to check what they are.
        let reader = |fd: Option<OwnedFd>| {
            let from = fd.map(pipe::Receiver::from_owned_fd).transpose()?;
            Ok::<_, io::Error>(from.map(|from| match &output {
                Some(limit) => Box::new(Counted { from, limit: Arc::clone(limit) }) as Output,
                None => Box::new(from),
            }))
        };
        process.stdout = reader(stdout)?;
        process.stderr = reader(stderr)?;
        let stdin = stdin.map(pipe::Sender::from_owned_fd).transpose()?;
        match (spec.stdin, stdin) {
            // It may not read all, or any, of it.
            (Stdin::Bytes(bytes), Some(mut stdin)) => {
                drop(tokio::spawn(async move { stdin.write_all(&bytes).await }));
            }
            (_, stdin) => process.stdin = stdin,
        }
        let hit = Arc::new(OnceLock::new());
        if limits.time.is_some() || output.is_some() {
            let end = (Arc::clone(&process.trees), number, main);
            let (tell, hit) = (Arc::clone(&tell), Arc::clone(&hit));
            tokio::spawn(guard((limits.time, output), end, tell, hit));
        }
        std::thread::Builder::new().name("wait".into()).stack_size(SMALL_STACK).spawn(move || {
            let exit = wait_without_reaping(main);
            // Of a process that is being ended, the end is told once all of its tree has gone.
            if hit.get().is_none() {
                tell_once(&tell, exit);
            }
        })?;
        Ok(process)
    }

    fn reap(&mut self) {
        if let Some(mut child) = self.child.take() {
            self.trees.reap(self.number, || drop(child.wait()));
            self.tree.reaped = true;
        }
    }
}

/// Ends the process and all that came out of it once it has run for too long or written too much.
async fn guard(
    (time, output): (Option<Duration>, Option<Arc<OutputLimit>>),
    (trees, number, main): (Arc<Trees>, TreeNumber, Pid),
    tell: Arc<watch::Sender<Option<Exit>>>,
    hit: Arc<OnceLock<LimitHit>>,
) {
    let is_over = async {
        match time {
            Some(time) => tokio::time::sleep(time).await,
            None => std::future::pending().await,
        }
    };
    let is_too_much = async {
        match output {
            Some(output) => output.exceeded().await,
            None => std::future::pending().await,
        }
    };
    let mut exit = tell.subscribe();
    let limit = tokio::select! {
        biased;
        _ = exit.wait_for(Option::is_some) => return,
        () = is_over => LimitHit::Time,
        () = is_too_much => LimitHit::Output,
    };
    let _ = hit.set(limit);
    let ended = tokio::task::spawn_blocking(move || {
        trees.end_one(number, GRACE);
        wait(main, WaitIdOptions::NOHANG).unwrap_or_default()
    });
    // Told in any case: a process that cannot even be killed must not be waited for.
    let exit = ended.await.unwrap_or_default();
    tell_once(&tell, Exit { limit: Some(limit), ..exit });
}

fn tell_once(tell: &watch::Sender<Option<Exit>>, exit: Exit) {
    tell.send_if_modified(|told| {
        let is_first = told.is_none();
        told.get_or_insert(exit);
        is_first
    });
}

impl Running for Process {
    fn stdin(&mut self) -> Option<Box<dyn AsyncWrite + Send + Unpin>> {
        self.stdin.take().map(|w| Box::new(w) as _)
    }

    fn stdout(&mut self) -> Option<Box<dyn AsyncRead + Send + Unpin>> {
        self.stdout.take()
    }

    fn stderr(&mut self) -> Option<Box<dyn AsyncRead + Send + Unpin>> {
        self.stderr.take()
    }

    fn wait(&mut self) -> BoxFuture<'_, Result<Exit, PortError>> {
        Box::pin(async {
            let exit = self.exit.wait_for(Option::is_some).await.ok().and_then(|e| *e);
            exit.ok_or_else(|| start_error(io::Error::other("nobody waits for it")))
        })
    }

    fn kill(&mut self) -> BoxFuture<'_, ()> {
        let tree = self.tree.clone();
        Box::pin(async move {
            let _ = tokio::task::spawn_blocking(move || tree.end(GRACE)).await;
        })
    }

    fn leave(mut self: Box<Self>) -> BoxFuture<'static, Vec<Descendant>> {
        Box::pin(async move {
            if self.exit.borrow().is_none() {
                return Vec::new();
            }
            let look = move || {
                if self.purpose != Purpose::Command {
                    self.tree.end(GRACE);
                }
                // As long as the main process is not reaped, its number and its group's are its own.
                let mut alive = self.tree.descendants();
                self.trees.remember(self.number, &alive);
                self.reap();
                // Only now: between the look and here one may have gone.
                alive.retain(|d| is_alive(d.pid));
                if alive.is_empty() {
                    self.trees.forget(self.number);
                }
                alive
            };
            tokio::task::spawn_blocking(look).await.unwrap_or_default()
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let tree = self.tree.clone();
        // At once, for the program may be about to end; what is made meanwhile is met by the thread.
        tree.strike();
        let (trees, number) = (Arc::clone(&self.trees), self.number);
        let finish = move || {
            tree.kill();
            // However long that takes, nobody else may have to wait for it.
            wait_without_reaping(tree.main);
            trees.reap(number, || drop(child.wait()));
            trees.forget(number);
        };
        let _ = std::thread::Builder::new().name("reap".into()).stack_size(SMALL_STACK).spawn(finish);
    }
}

/// Waits, but leaves the process to be reaped: so long nobody else gets its number.
fn wait_without_reaping(pid: Pid) -> Exit {
    wait(pid, WaitIdOptions::empty()).unwrap_or_default()
}

/// How the process ended; `None` if it has not, or is not known.
fn wait(pid: Pid, how: WaitIdOptions) -> Option<Exit> {
    loop {
        match waitid(WaitId::Pid(pid), how | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Ok(Some(status)) => {
                let (code, signal) = (status.exit_status(), status.terminating_signal());
                return Some(Exit { code, signal, limit: None });
            }
            Ok(None) if how.contains(WaitIdOptions::NOHANG) => return None,
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
}

/// As it is written in `/proc/PID/fd`.
fn pipe_name(fd: &OwnedFd) -> Option<String> {
    rustix::fs::fstat(fd.as_fd()).ok().map(|stat| format!("pipe:[{}]", stat.st_ino))
}

/// Looked up here, for the folders of `PATH` may be relative to the new working folder.
fn look_up(program: &OsStr, spec: &CommandSpec, env: &BTreeMap<OsString, OsString>) -> io::Result<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return Ok(spec.cwd.join(program));
    }
    let path = spec.env.get(OsStr::new("PATH")).or_else(|| env.get(OsStr::new("PATH")));
    let folders = path.map_or(OsStr::new("/usr/local/bin:/usr/bin:/bin"), OsString::as_os_str);
    let is_program =
        |path: &Path| path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
    std::env::split_paths(folders)
        .map(|folder| spec.cwd.join(folder).join(program))
        .find(|path| is_program(path))
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "not found in PATH"))
}
