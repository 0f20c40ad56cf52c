//! Where logs are kept. Owns the `SessionStore` port and the rules that all stores keep: appends are all or nothing, in
//! order, by the holder of the lease only.

use std::any::Any;
use std::fmt;
use std::io;
use std::path::PathBuf;

use open_agent_model::{BoxFuture, Seq, SessionId};

use crate::{Owner, Stored};

mod jsonl;
mod memory;

pub use jsonl::JsonlStore;
pub use memory::MemoryStore;

/// A place where session logs are kept. No store interprets entries.
pub trait SessionStore: Send + Sync {
    /// Claims a session for writing; one that does not exist begins here. Gives the lease and the log's last place.
    fn acquire<'a>(
        &'a self,
        id: &'a SessionId,
        owner: &'a Owner,
    ) -> BoxFuture<'a, Result<(Lease, Seq), StoreError>>;

    /// Appends all records or none, right after `claim.expected`. Gives the new last place. Should the process or the machine
    /// end in the middle, a prefix of them may be left: whole records, in order.
    fn append<'a>(
        &'a self,
        id: &'a SessionId,
        claim: Claim,
        records: &'a [Stored],
        durability: Durability,
    ) -> BoxFuture<'a, Result<Seq, StoreError>>;

    /// Up to `limit` records after `after`. A session that does not exist has none.
    fn read<'a>(
        &'a self,
        id: &'a SessionId,
        after: Seq,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Stored>, StoreError>>;
}

/// The right to write to a session. It ends when it is dropped.
pub struct Lease {
    /// Grows with every claim of the session.
    pub epoch: u64,
    /// What the store has to hold on to, such as a lock.
    _guard: Box<dyn Any + Send + Sync>,
}

impl Lease {
    /// A lease that holds `guard`.
    pub fn new(epoch: u64, guard: impl Any + Send + Sync) -> Self {
        Self { epoch, _guard: Box::new(guard) }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

/// Who appends, and after what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The lease's epoch.
    pub epoch: u64,
    /// The log's last place, as the writer knows it.
    pub expected: Seq,
}

/// What an append has to survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The end of this process.
    Written,
    /// The end of this machine.
    Synced,
}

/// A store's failure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process works on the session.
    #[error("session {id} is in use by {owner}: wait until it is done, or begin another session")]
    Busy {
        /// Which.
        id: SessionId,
        /// By whom.
        owner: String,
    },
    /// The writer lost its lease to another one.
    #[error("session {id} was taken over by another process; this one may no longer write to it")]
    Fenced {
        /// Which.
        id: SessionId,
    },
    /// The writer does not know the end of the log.
    #[error("session {id} has {found} records, the writer expected {expected}", found = .found.0, expected = .expected.0)]
    Conflict {
        /// Which.
        id: SessionId,
        /// The log's last place.
        found: Seq,
        /// What the writer thought.
        expected: Seq,
    },
    /// The log's end cannot be read.
    #[error(
        "session {id} ends with record {head}, of which this version can read {known} only: it may have been written by a \
         later version", head = .head.0, known = .known.0
    )]
    Unreadable {
        /// Which.
        id: SessionId,
        /// The last record that can be read.
        known: Seq,
        /// The last record there is.
        head: Seq,
    },
    /// A record cannot be read and is not the last one.
    #[error("{path}, line {line}: {reason}", path = .path.display())]
    Corrupt {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// The operating system refused.
    #[error("{action} {path}: {source}", path = .path.display())]
    Io {
        /// What was tried, such as `write`.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A record could not be written as JSON.
    #[error("a record could not be written as JSON")]
    Encode(#[from] serde_json::Error),
}
