//! The port through which processes are started. Owns what a process is started with and what its end tells.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use open_agent_model::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::PortError;
use crate::ports::Absent;

/// The only way anything starts a process.
pub trait CommandRunner: Send + Sync {
    /// Starts a process, in a process group of its own.
    fn spawn(&self, spec: CommandSpec) -> BoxFuture<'_, Result<Box<dyn Running>, PortError>>;

    /// The names of variables that are kept from all processes.
    fn removed(&self) -> &[String];
}

/// A process to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandSpec {
    /// The program, looked up in `PATH` if it has no `/`.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Its working folder.
    pub cwd: PathBuf,
    /// Variables set in addition to those that the runner passes on, byte for byte.
    pub env: BTreeMap<OsString, OsString>,
    /// What it reads from its standard input.
    pub stdin: Stdin,
    /// What it may use.
    pub limits: Limits,
    /// On whose behalf it runs.
    pub purpose: Purpose,
}

impl CommandSpec {
    /// A command without arguments, input, limits or variables of its own.
    pub fn new(program: impl Into<OsString>, cwd: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            cwd: cwd.into(),
            env: BTreeMap::new(),
            stdin: Stdin::Closed,
            limits: Limits::default(),
            purpose: Purpose::Command,
        }
    }
}

/// The standard input of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Stdin {
    /// Reading ends at once.
    #[default]
    Closed,
    /// These bytes, then the end.
    Bytes(Vec<u8>),
    /// Whatever is written to [`Running::stdin`].
    Pipe,
}

/// What a process may use. What is `None` is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// How long the process may run. When the time is up, it and all its descendants are ended, and [`Exit::limit`] says
    /// so. What it left running when it ended by itself is not affected.
    pub time: Option<Duration>,
    /// How many bytes of private memory each process of the tree may have. The system refuses to give more, which most
    /// programs answer by ending with an error of their own.
    pub memory: Option<u64>,
    /// How many bytes of standard output and standard error together can be read. Both end there, the process and all
    /// its descendants are ended, and [`Exit::limit`] says so.
    pub output: Option<u64>,
}

/// On whose behalf a process runs.
///
/// It decides what becomes of processes that it leaves running, and it stands in the log of each start. The keys of model
/// providers are kept from all three; a hook or server that needs one is given it by name, in [`CommandSpec::env`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// A command that the model asked for. What it leaves running goes on until the agent ends.
    #[default]
    Command,
    /// A program of the user's that the agent runs at an event. It must leave nothing running: when it has ended, its
    /// descendants are ended too.
    Hook,
    /// A program that serves the agent for long, for example an MCP server. It must leave nothing running either.
    Server,
}

impl Purpose {
    /// The word for it in logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Hook => "hook",
            Self::Server => "server",
        }
    }
}

/// A process that was started. Dropping it kills its whole tree.
pub trait Running: Send {
    /// Its standard input, if that is a [`Stdin::Pipe`]; `None` the second time. Dropping it ends the input.
    fn stdin(&mut self) -> Option<Box<dyn AsyncWrite + Send + Unpin>>;

    /// Its standard output; `None` the second time.
    fn stdout(&mut self) -> Option<Box<dyn AsyncRead + Send + Unpin>>;

    /// Its standard error; `None` the second time.
    fn stderr(&mut self) -> Option<Box<dyn AsyncRead + Send + Unpin>>;

    /// Waits for it; its descendants may live on.
    fn wait(&mut self) -> BoxFuture<'_, Result<Exit, PortError>>;

    /// Ends the process and all its descendants: asks, waits a moment, kills.
    fn kill(&mut self) -> BoxFuture<'_, ()>;

    /// Lets go of a process that has ended: its descendants live on until the runner goes. Returns those that still run.
    /// Descendants of hooks and servers are ended instead.
    fn leave(self: Box<Self>) -> BoxFuture<'static, Vec<Descendant>>;
}

/// A process that a command left running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descendant {
    /// Its number.
    pub pid: u32,
    /// Its command line.
    pub command: String,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exit {
    /// Its exit code, unless a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// The limit for which it was ended.
    pub limit: Option<LimitHit>,
}

/// A limit that a process ran into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitHit {
    /// [`Limits::time`].
    Time,
    /// [`Limits::output`].
    Output,
}

impl CommandRunner for Absent {
    fn spawn(&self, _: CommandSpec) -> BoxFuture<'_, Result<Box<dyn Running>, PortError>> {
        Box::pin(async { Err(PortError::Absent("way to start processes")) })
    }
    fn removed(&self) -> &[String] {
        &[]
    }
}
