//! Logs in memory: for tests, and for programs that want no disk.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use open_agent_model::{BlobId, BoxFuture, Seq, SessionId};

use super::blobs::{BlobStore, verified};
use super::{Claim, Durability, Lease, SessionStore, StoreError};
use crate::log::Tail;
use crate::{EncodedRecord, Owner, RawLog};

/// Keeps logs as long as it lives. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore(Arc<Mutex<HashMap<SessionId, MemoryLog>>>);

#[derive(Debug, Default)]
struct MemoryLog {
    epoch: u64,
    holder: Option<Owner>,
    /// The newest claim is only remembered: another one may be made.
    is_parked: bool,
    tail: Tail,
    /// The same bytes that a file would have.
    bytes: Vec<u8>,
    blobs: HashMap<BlobId, Arc<[u8]>>,
}

/// Frees the session when the lease is dropped.
struct Hold {
    store: MemoryStore,
    id: SessionId,
    epoch: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.store.with(&self.id, |log| {
            if log.epoch == self.epoch {
                log.holder = None;
            }
        });
    }
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces a log's bytes, as damage to a file would; for tests. The session must not be claimed.
    #[cfg(feature = "conformance")]
    pub fn rewrite(&self, id: &SessionId, change: &dyn Fn(Vec<u8>) -> Vec<u8>) {
        self.with(id, |log| {
            log.bytes = change(std::mem::take(&mut log.bytes));
            log.tail = Tail::of(&log.bytes);
        });
    }

    fn with<T>(&self, id: &SessionId, f: impl FnOnce(&mut MemoryLog) -> T) -> T {
        // A panic between two statements cannot leave a log half changed, so a poisoned lock is as good as any.
        let mut logs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        f(logs.entry(id.clone()).or_default())
    }
}

impl SessionStore for MemoryStore {
    fn acquire<'a>(
        &'a self,
        id: &'a SessionId,
        owner: &'a Owner,
    ) -> BoxFuture<'a, Result<(Lease, Seq), StoreError>> {
        let claimed = self.with(id, |log| match &log.holder {
            Some(holder) if !log.is_parked => {
                Err(StoreError::Busy { id: id.clone(), owner: holder.0.clone() })
            }
            _ => {
                log.epoch += 1;
                log.holder = Some(owner.clone());
                log.is_parked = false;
                Ok((log.epoch, log.tail.head))
            }
        });
        let lease = claimed.map(|(epoch, head)| {
            (Lease::new(epoch, Hold { store: self.clone(), id: id.clone(), epoch }), head)
        });
        Box::pin(std::future::ready(lease))
    }

    fn append<'a>(
        &'a self,
        id: &'a SessionId,
        claim: Claim,
        records: &'a [EncodedRecord],
        _durability: Durability,
    ) -> BoxFuture<'a, Result<Seq, StoreError>> {
        let appended = self.with(id, |log| {
            claim.check(id, (log.epoch, log.tail.head), records)?;
            log.is_parked = false;
            for record in records {
                log.bytes.extend_from_slice(log.tail.prefix);
                log.bytes.extend_from_slice(record.bytes());
                log.bytes.push(b'\n');
                log.tail = Tail { head: record.seq(), prefix: b"" };
            }
            Ok(log.tail.head)
        });
        Box::pin(std::future::ready(appended))
    }

    fn park<'a>(&'a self, id: &'a SessionId, claim: Claim) -> BoxFuture<'a, ()> {
        self.with(id, |log| log.is_parked |= log.epoch == claim.epoch);
        Box::pin(std::future::ready(()))
    }

    fn lines<'a>(&'a self, id: &'a SessionId, _after: Seq) -> BoxFuture<'a, Result<RawLog, StoreError>> {
        let raw = self.with(id, |log| RawLog::from_bytes("memory", &log.bytes));
        Box::pin(std::future::ready(Ok(raw)))
    }

    fn blobs(&self) -> &dyn BlobStore {
        self
    }
}

impl BlobStore for MemoryStore {
    fn put<'a>(
        &'a self,
        session: &'a SessionId,
        id: &'a BlobId,
        bytes: &'a [u8],
        _durability: Durability,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.with(session, |log| {
            log.blobs.entry(id.clone()).or_insert_with(|| bytes.into());
        });
        Box::pin(std::future::ready(Ok(())))
    }

    fn get<'a>(
        &'a self,
        session: &'a SessionId,
        id: &'a BlobId,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, StoreError>> {
        let bytes = self.with(session, |log| log.blobs.get(id).cloned());
        Box::pin(std::future::ready(Ok(bytes.and_then(|bytes| verified(id, bytes.to_vec())))))
    }

    fn copy_all<'a>(
        &'a self,
        from: &'a SessionId,
        to: &'a SessionId,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let blobs = self.with(from, |log| log.blobs.clone());
        self.with(to, |log| {
            for (id, bytes) in blobs {
                log.blobs.entry(id).or_insert(bytes);
            }
        });
        Box::pin(std::future::ready(Ok(())))
    }
}
