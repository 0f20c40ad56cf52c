//! Logs in memory: for tests, and for programs that want no disk.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use open_agent_model::{BoxFuture, Seq, SessionId};

use super::{Claim, Durability, Lease, SessionStore, StoreError};
use crate::{Owner, Stored};

/// Keeps logs as long as it lives. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore(Arc<Mutex<HashMap<SessionId, Log>>>);

#[derive(Debug, Default)]
struct Log {
    epoch: u64,
    holder: Option<Owner>,
    records: Vec<Stored>,
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

    fn with<T>(&self, id: &SessionId, f: impl FnOnce(&mut Log) -> T) -> T {
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
            Some(holder) => Err(StoreError::Busy { id: id.clone(), owner: holder.0.clone() }),
            None => {
                log.epoch += 1;
                log.holder = Some(owner.clone());
                Ok((log.epoch, Seq(log.records.len() as u64)))
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
        records: &'a [Stored],
        _durability: Durability,
    ) -> BoxFuture<'a, Result<Seq, StoreError>> {
        let appended = self.with(id, |log| {
            let found = Seq(log.records.len() as u64);
            if log.epoch != claim.epoch {
                Err(StoreError::Fenced { id: id.clone() })
            } else if found != claim.expected {
                Err(StoreError::Conflict { id: id.clone(), found, expected: claim.expected })
            } else {
                log.records.extend_from_slice(records);
                Ok(Seq(log.records.len() as u64))
            }
        });
        Box::pin(std::future::ready(appended))
    }

    fn read<'a>(
        &'a self,
        id: &'a SessionId,
        after: Seq,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Stored>, StoreError>> {
        let skip = usize::try_from(after.0).unwrap_or(usize::MAX);
        let records = self.with(id, |log| log.records.iter().skip(skip).take(limit).cloned().collect());
        Box::pin(std::future::ready(Ok(records)))
    }
}
