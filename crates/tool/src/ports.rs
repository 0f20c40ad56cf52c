//! What tools need from outside, as ports. Owns their set, their error, and the null object that stands where nothing is
//! wired; carries nothing out itself. The larger ports have files of their own.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use open_agent_model::{BlobId, BoxFuture, Timestamp};

use crate::{Background, CommandRunner, Files};

/// Time and chance, so that tests can fix both.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Timestamp;

    /// A number that was never given before and will not be again.
    fn new_id(&self) -> u128;
}

/// Contents that one session keeps beside its log.
pub trait Blobs: Send + Sync {
    /// Returns the bytes of a blob; `None` if the session has none of that name, or if its bytes are damaged.
    ///
    /// # Errors
    ///
    /// Returns [`PortError::Io`] if the store cannot be read.
    fn read<'a>(&'a self, id: &'a BlobId) -> BoxFuture<'a, Result<Option<Vec<u8>>, PortError>>;
}

impl Blobs for Absent {
    fn read<'a>(&'a self, _id: &'a BlobId) -> BoxFuture<'a, Result<Option<Vec<u8>>, PortError>> {
        Box::pin(async { Err(PortError::Absent("blobs")) })
    }
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
    /// A link has appeared in a path that had none when it was looked up. It was not followed.
    #[error("{path} leads through a link that was not there when the call was checked", path = .path.display())]
    Redirected {
        /// The path as it was looked up.
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
    pub background: Arc<dyn Background>,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

/// Stands where no port is wired: answers every call with [`PortError::Absent`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Absent;
