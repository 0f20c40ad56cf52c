//! The process's one ordered way into a session's log.

use std::sync::Arc;

use open_agent_model::{Seq, SessionId, Timestamp};
use tokio::sync::Mutex;

use crate::{Claim, Durability, Lease, Opened, Owner, SessionEntry, SessionStore, StoreError, Stored};

/// Numbers entries and appends them. Clones write to the same log, one after the other.
#[derive(Clone)]
pub struct SessionWriter(Arc<Inner>);

struct Inner {
    store: Arc<dyn SessionStore>,
    id: SessionId,
    lease: Lease,
    head: Mutex<Seq>,
}

impl SessionWriter {
    /// Claims a session and says so in its log. Gives the writer and all records, the new one included.
    pub async fn open(
        store: Arc<dyn SessionStore>,
        id: SessionId,
        owner: Owner,
        at: Timestamp,
    ) -> Result<(Self, Vec<Stored>), StoreError> {
        let (lease, head) = store.acquire(&id, &owner).await?;
        let mut records =
            if head == Seq(0) { Vec::new() } else { store.read(&id, Seq(0), usize::MAX).await? };
        let known = records.last().map_or(Seq(0), |r| r.seq);
        if known != head {
            // Appending after records that cannot be read would bury them.
            return Err(StoreError::Unreadable { id, known, head });
        }
        let epoch = lease.epoch;
        let writer = Self(Arc::new(Inner { store, id, lease, head: Mutex::new(head) }));
        let opened = SessionEntry::Opened(Opened { epoch, owner });
        records.extend(writer.append(vec![opened], at, Durability::Written).await?);
        Ok((writer, records))
    }

    /// The session.
    #[must_use]
    pub fn id(&self) -> &SessionId {
        &self.0.id
    }

    /// Appends all entries or none and gives them back as stored.
    pub async fn append(
        &self,
        entries: Vec<SessionEntry>,
        at: Timestamp,
        durability: Durability,
    ) -> Result<Vec<Stored>, StoreError> {
        let mut head = self.0.head.lock().await;
        let mut seq = *head;
        let number = |entry| {
            seq = seq.next();
            Stored { seq, at, entry }
        };
        let records: Vec<Stored> = entries.into_iter().map(number).collect();
        let claim = Claim { epoch: self.0.lease.epoch, expected: *head };
        *head = self.0.store.append(&self.0.id, claim, &records, durability).await?;
        Ok(records)
    }
}
