//! Where logs are kept. Owns the `SessionStore` port and the rules that all stores keep: appends are all or nothing, in
//! order, by the holder of the lease only. What is too large for a log is kept beside it: [`BlobStore`].

use std::any::Any;
use std::fmt;
use std::io;
use std::path::PathBuf;

use open_agent_model::{BoxFuture, Seq, SessionId};

use crate::{EncodedRecord, Log, Owner, RawLog, Stored};

pub(crate) mod blobs;
mod jsonl;
mod memory;

pub use blobs::{BlobStore, blob_id};
pub use jsonl::JsonlStore;
pub use memory::MemoryStore;

/// A place where session logs are kept.
///
/// A store keeps records as the bytes in which it gets them and returns them so. It knows a record's place in its log and
/// interprets nothing else, so that it also keeps what a later version of this library wrote. [`SessionWriter`] is the
/// usual way to write to one. `open_agent_session::conformance` (feature `conformance`) tests an implementation.
///
/// [`SessionWriter`]: crate::SessionWriter
pub trait SessionStore: Send + Sync {
    /// Claims a session for writing; one that does not exist begins here. Returns the lease and a place before which no
    /// record may be appended any more: the highest one that the store has found in the log, or 0.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Busy`] while another claim is in use. Damage in the log is no error.
    fn acquire<'a>(
        &'a self,
        id: &'a SessionId,
        owner: &'a Owner,
    ) -> BoxFuture<'a, Result<(Lease, Seq), StoreError>>;

    /// Appends all records or none. Their places ascend and are above `claim.expected`; they may leave gaps. Returns the
    /// place of the last one.
    ///
    /// Without records, nothing is written, and only the claim is checked. If the process or the machine ends during the
    /// append, a prefix of the records may be left: whole records, in order.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Fenced`] if the claim is not the newest one or if anything else has been appended since,
    /// [`StoreError::Conflict`] if the log has a record after `claim.expected`, [`StoreError::Changed`] if the log's file
    /// was truncated, replaced or removed. After an error nothing of the append counts.
    fn append<'a>(
        &'a self,
        id: &'a SessionId,
        claim: Claim,
        records: &'a [EncodedRecord],
        durability: Durability,
    ) -> BoxFuture<'a, Result<Seq, StoreError>>;

    /// Releases what a claim holds (file handles, locks, connections) while it is not needed. The claim is only remembered.
    ///
    /// The next append claims the session again under the same epoch. It is refused with [`StoreError::Fenced`] if another
    /// process has claimed the session in the meantime, which it may. Parking a claim that is gone does nothing.
    fn park<'a>(&'a self, id: &'a SessionId, claim: Claim) -> BoxFuture<'a, ()>;

    /// Returns the lines of a log in storage order, just as they are stored. A session that does not exist has none.
    ///
    /// `after` is a hint: lines of records up to that place may be left out. Damaged lines are returned too.
    fn lines<'a>(&'a self, id: &'a SessionId, after: Seq) -> BoxFuture<'a, Result<RawLog, StoreError>>;

    /// Returns where the sessions' blobs are: what is too large for a record.
    fn blobs(&self) -> &dyn BlobStore;

    /// Decodes up to `limit` records after `after`, in order. What cannot be read is left out: [`Log::read`] tells it.
    fn read<'a>(
        &'a self,
        id: &'a SessionId,
        after: Seq,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Stored>, StoreError>> {
        Box::pin(async move {
            let log = Log::read(self.lines(id, after).await?);
            Ok(log.records.into_iter().filter(|record| record.seq > after).take(limit).collect())
        })
    }
}

/// The right to write to a session. It ends when it is dropped.
pub struct Lease {
    /// Tells claims of the session apart. It grows from claim to claim.
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

impl Claim {
    /// The checks of an append that every store makes. `epoch` is that of the newest claim, `head` the log's last place.
    fn check(
        self,
        id: &SessionId,
        (epoch, head): (u64, Seq),
        records: &[EncodedRecord],
    ) -> Result<(), StoreError> {
        if self.epoch != epoch {
            return Err(StoreError::Fenced { id: id.clone() });
        }
        let mut last = self.expected;
        let ascends = records.iter().all(|record| {
            let is_after = record.seq() > last;
            last = record.seq();
            is_after
        });
        if head > self.expected || !ascends {
            let (found, expected) = (head.max(last), self.expected);
            return Err(StoreError::Conflict { id: id.clone(), found, expected });
        }
        Ok(())
    }
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
        /// The session.
        id: SessionId,
        /// Who uses it.
        owner: String,
    },
    /// The writer lost its claim to another one.
    #[error(
        "session {id} was taken over by another process, or something else wrote to its log: open it again to go on"
    )]
    Fenced {
        /// The session.
        id: SessionId,
    },
    /// The writer does not know the end of the log.
    #[error(
        "session {id} has a record {found}, the writer knew of records up to {expected}: open the session again to go on",
        found = .found.0, expected = .expected.0
    )]
    Conflict {
        /// The session.
        id: SessionId,
        /// The log's last place.
        found: Seq,
        /// The last place that the writer knew.
        expected: Seq,
    },
    /// The log holds a record that this version cannot read. The session can be read and copied, not continued.
    #[error(
        "{file}, line {line}: {what}. Session {id} was written by a later version of this program: continue it with that \
         one; this version can only read it"
    )]
    Newer {
        /// The session.
        id: SessionId,
        /// The file or table in which the log is.
        file: String,
        /// The line or row, from 1.
        line: u64,
        /// What is not known.
        what: String,
    },
    /// A log's file is not the one any more that the writer has open. Nothing was appended that counts.
    #[error(
        "{path}: {what}, so this session cannot be continued as it was: put the file back, or begin another session",
        path = .path.display()
    )]
    Changed {
        /// The file.
        path: PathBuf,
        /// What happened to it.
        what: String,
    },
    /// The operating system refused.
    #[error("{action} {path}: {source}{advice}", path = .path.display(), advice = advice(.source))]
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

/// What to do about an error that does not say it itself.
fn advice(error: &io::Error) -> &'static str {
    // EMFILE and ENFILE: the numbers are the same on all Unix systems.
    match error.raw_os_error() {
        Some(24) => {
            ": this process has as many files open as it may: raise the limit (`ulimit -n`), or run fewer agents at once"
        }
        Some(23) => ": this machine has as many files open as it can: end other programs, or raise its limit",
        _ => "",
    }
}
