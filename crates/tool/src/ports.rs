//! What tools need from outside, as ports. Owns the traits and the null objects that stand where nothing is wired;
//! carries nothing out itself.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use open_agent_model::{BoxFuture, FileStamp, InodeStamp, Timestamp};
use tokio::io::AsyncRead;

use crate::Tasks;

/// The only way tools touch files.
pub trait Files: Send + Sync {
    /// The real, absolute path behind `path` as seen from `cwd`: `~` expanded, `.`, `..` and links resolved as far as
    /// the path exists.
    fn resolve(&self, cwd: &Path, path: &Path) -> Result<PathBuf, PortError>;

    /// Opens a file for reading.
    fn open<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<File, PortError>>;

    /// The file's stamp; `None` if there is no file. Folders and other things that are no files are an error.
    fn stamp<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<Option<FileStamp>, PortError>>;

    /// Replaces a file's whole content, or makes the file and its folders. A reader sees the old content or the new,
    /// never a mixture; only a file of several names (hard links) is written in place. Permissions are kept, links are
    /// followed.
    fn replace<'a>(&'a self, path: &'a Path, bytes: &'a [u8]) -> BoxFuture<'a, Result<FileStamp, PortError>>;

    /// As `replace`, if the file still has this stamp, or, for `None`, if there still is no file; else
    /// [`PortError::Changed`]. Of several that replace what they read, one wins and the others hear of it.
    fn replace_if<'a>(
        &'a self,
        path: &'a Path,
        bytes: &'a [u8],
        expected: Option<FileStamp>,
    ) -> BoxFuture<'a, Result<FileStamp, PortError>>;

    /// The real path of a folder that may be walked.
    fn walk_root(&self, path: &Path) -> Result<PathBuf, PortError>;

    /// A new, empty file for what is too long to be shown, in a folder that outlives the call.
    fn scratch<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(PathBuf, File), PortError>>;
}

/// The stamp of a file whose metadata is at hand.
#[must_use]
pub fn file_stamp(metadata: &std::fs::Metadata) -> FileStamp {
    let modified = metadata.modified().ok().and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok());
    let modified_ns = modified.and_then(|d| i64::try_from(d.as_nanos()).ok()).unwrap_or_default();
    let changed_ns = metadata.ctime().saturating_mul(1_000_000_000).saturating_add(metadata.ctime_nsec());
    let inode =
        InodeStamp { number: metadata.ino(), changed_ns, mode: metadata.mode(), links: metadata.nlink() };
    FileStamp { modified_ns, len: metadata.len(), inode: Some(inode) }
}

/// The only way anything starts a process.
pub trait CommandRunner: Send + Sync {
    /// Starts it, in a process group of its own, with its input closed.
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
    /// Its folder.
    pub cwd: PathBuf,
    /// Variables set in addition to those that the runner passes on.
    pub env: BTreeMap<String, String>,
}

/// A process that was started. Dropping it kills its whole tree.
pub trait Running: Send {
    /// Its standard output; `None` the second time.
    fn stdout(&mut self) -> Option<Box<dyn AsyncRead + Send + Unpin>>;

    /// Its standard error; `None` the second time.
    fn stderr(&mut self) -> Option<Box<dyn AsyncRead + Send + Unpin>>;

    /// Waits for it; its descendants may live on.
    fn wait(&mut self) -> BoxFuture<'_, Result<Exit, PortError>>;

    /// Ends the process and all its descendants: asks, waits a moment, kills.
    fn kill(&mut self) -> BoxFuture<'_, ()>;

    /// Lets go of a process that has ended: its descendants live on until the runner goes. Returns those that still run.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Its exit code, unless a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
}

/// Time and chance, so that tests can fix both.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Timestamp;

    /// A number that was never given before and will not be again.
    fn new_id(&self) -> u128;
}

/// Why a port did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// The operating system refused.
    #[error("{action} {path}: {source}", path = .path.display())]
    Io {
        /// What was tried, such as `read`.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The path is something other than what is needed.
    #[error("{path} is {what}", path = .path.display())]
    WrongKind {
        /// Which path.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// The file is no longer what the caller knows.
    #[error("{path} was changed by someone else", path = .path.display())]
    Changed {
        /// Which file.
        path: PathBuf,
    },
    /// Nothing is wired here.
    #[error("this agent has no {0}")]
    Absent(&'static str),
    /// The agent is about to end, so nothing is started any more.
    #[error("the agent is being closed")]
    Closed,
}

/// The ports of one run.
#[derive(Clone)]
pub struct Ports {
    /// Files.
    pub files: Arc<dyn Files>,
    /// Processes.
    pub runner: Arc<dyn CommandRunner>,
    /// Background work.
    pub tasks: Arc<dyn Tasks>,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

/// Stands where no port is wired: answers every call with [`PortError::Absent`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Absent;

const NO_FILES: PortError = PortError::Absent("access to files");

impl Files for Absent {
    fn resolve(&self, _: &Path, _: &Path) -> Result<PathBuf, PortError> {
        Err(NO_FILES)
    }
    fn open<'a>(&'a self, _: &'a Path) -> BoxFuture<'a, Result<File, PortError>> {
        Box::pin(async { Err(NO_FILES) })
    }
    fn stamp<'a>(&'a self, _: &'a Path) -> BoxFuture<'a, Result<Option<FileStamp>, PortError>> {
        Box::pin(async { Err(NO_FILES) })
    }
    fn replace<'a>(&'a self, _: &'a Path, _: &'a [u8]) -> BoxFuture<'a, Result<FileStamp, PortError>> {
        Box::pin(async { Err(NO_FILES) })
    }
    fn replace_if<'a>(
        &'a self,
        _: &'a Path,
        _: &'a [u8],
        _: Option<FileStamp>,
    ) -> BoxFuture<'a, Result<FileStamp, PortError>> {
        Box::pin(async { Err(NO_FILES) })
    }
    fn walk_root(&self, _: &Path) -> Result<PathBuf, PortError> {
        Err(NO_FILES)
    }
    fn scratch<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(PathBuf, File), PortError>> {
        Box::pin(async { Err(NO_FILES) })
    }
}

impl CommandRunner for Absent {
    fn spawn(&self, _: CommandSpec) -> BoxFuture<'_, Result<Box<dyn Running>, PortError>> {
        Box::pin(async { Err(PortError::Absent("way to start processes")) })
    }
    fn removed(&self) -> &[String] {
        &[]
    }
}
