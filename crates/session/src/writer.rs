//! The one way into a session's log.

use std::sync::Arc;

use open_agent_model::{BlobId, Seq, SessionId, Timestamp};

use crate::outline::Outlined;
use crate::record::{Decoded, encode_tracked};
use crate::{
    Claim, DamageKind, Durability, EncodedRecord, Lease, Log, Opened, Owner, RawLog, SessionEntry,
    SessionStarted, SessionStore, StoreError, Stored, blob_id,
};

/// Logs with more bytes than this are decoded on a thread of their own.
const DECODED_INLINE: usize = 1024 * 1024;

/// Numbers entries and appends them. A session that is claimed has one writer, which has one owner.
///
/// A future that is dropped before it is done may leave the writer behind its log. It then refuses to append, and the
/// session has to be opened again.
pub struct SessionWriter {
    store: Arc<dyn SessionStore>,
    id: SessionId,
    lease: Lease,
    /// The last place that the log has.
    head: Seq,
    /// The place of the next record; not always the one after `head`.
    next: Seq,
    outlined: Outlined,
}

impl SessionWriter {
    /// Claims a session, reads its log and appends that it was opened. Returns the writer and the log, the new record
    /// included.
    ///
    /// What is damaged in the log is in [`Log::damage`]; opening goes on after it. Each opening finds all the damage that
    /// there is, with the same texts, so whoever tells the user can know what was told before. Torn last records are the
    /// exception: only the first opening after the crash finds one.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Busy`] while another process works on the session, and [`StoreError::Newer`] if a later version
    /// wrote records that this one cannot read; then nothing was appended.
    pub async fn open(
        store: Arc<dyn SessionStore>,
        id: SessionId,
        owner: Owner,
        at: Timestamp,
    ) -> Result<(Self, Log), StoreError> {
        Self::claim_session(store, (id, owner), at, None).await
    }

    /// Does the same as [`SessionWriter::open`], and begins a log that has no records with `started`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`SessionWriter::open`].
    pub async fn open_or_start(
        store: Arc<dyn SessionStore>,
        id: SessionId,
        owner: Owner,
        at: Timestamp,
        started: SessionStarted,
    ) -> Result<(Self, Log), StoreError> {
        Self::claim_session(store, (id, owner), at, Some(started)).await
    }

    async fn claim_session(
        store: Arc<dyn SessionStore>,
        (id, owner): (SessionId, Owner),
        at: Timestamp,
        started: Option<SessionStarted>,
    ) -> Result<(Self, Log), StoreError> {
        let (lease, head) = store.acquire(&id, &owner).await?;
        let mut log = decode(store.lines(&id, Seq(0)).await?).await?;
        if let Some(newer) = log.newer {
            return Err(StoreError::Newer {
                id,
                file: newer.source.to_string(),
                line: newer.line,
                what: newer.what,
            });
        }
        for damage in &log.damage {
            match damage.kind {
                DamageKind::Torn => tracing::warn!("{damage}"),
                _ => tracing::warn!("{damage}; the session goes on without it"),
            }
        }
        let epoch = lease.epoch;
        let (head, next) = (head.max(log.head()), log.next().max(head.next()));
        let mut writer = Self { store, id, lease, head, next, outlined: Outlined::default() };
        let opened = SessionEntry::Opened(Opened { epoch, owner });
        let started = started.filter(|_| log.records.is_empty()).map(SessionEntry::SessionStarted);
        let entries = started.into_iter().chain([opened]).collect();
        log.records.extend(writer.append(entries, at, Durability::Written).await?);
        Ok((writer, log))
    }

    /// The session.
    #[must_use]
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// Appends all entries or none and returns them as stored: pictures, documents and long results are put into blobs
    /// first, and the records refer to those.
    ///
    /// # Errors
    ///
    /// Returns the store's error; see [`SessionStore::append`] and [`BlobStore::put`](crate::BlobStore::put).
    pub async fn append(
        &mut self,
        mut entries: Vec<SessionEntry>,
        at: Timestamp,
        durability: Durability,
    ) -> Result<Vec<Stored>, StoreError> {
        for (blob, bytes) in self.outlined.outline(&mut entries) {
            self.store.blobs().put(&self.id, &blob, &bytes, durability).await?;
            self.outlined.stored(blob);
        }
        let mut records = Vec::with_capacity(entries.len());
        let mut encoded = Vec::with_capacity(entries.len());
        let mut next = self.next;
        for entry in entries {
            let (record, line) = stored_form(Stored::new(next, at, entry))?;
            records.push(record);
            encoded.push(line);
            next = next.next();
        }
        self.head = self.store.append(&self.id, self.claim(), &encoded, durability).await?;
        self.next = next;
        Ok(records)
    }

    /// Keeps a text in the session without a record of it, and returns the blob's name.
    ///
    /// # Errors
    ///
    /// Returns the store's error; see [`BlobStore::put`](crate::BlobStore::put).
    pub async fn keep(&mut self, text: &str) -> Result<BlobId, StoreError> {
        let blob = blob_id(text.as_bytes());
        self.store.blobs().put(&self.id, &blob, text.as_bytes(), Durability::Written).await?;
        Ok(blob)
    }

    /// Releases file handles and locks while the session is idle. The next append takes them up again.
    ///
    /// While it is parked, another process may claim the session; then the next append or [`SessionWriter::unpark`] returns
    /// [`StoreError::Fenced`].
    pub async fn park(&mut self) {
        self.store.park(&self.id, self.claim()).await;
    }

    /// Takes up a parked claim again and checks that nothing was appended in the meantime. Does nothing to a writer that is
    /// not parked.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Fenced`] if the session was claimed by another process: open it again to go on.
    pub async fn unpark(&mut self) -> Result<(), StoreError> {
        self.store.append(&self.id, self.claim(), &[], Durability::Written).await.map(|_| ())
    }

    fn claim(&self) -> Claim {
        Claim { epoch: self.lease.epoch, expected: self.head }
    }
}

/// Encodes a record. Where its stored form differs, that is what counts from the beginning: a session that goes on and one
/// that is read again must send a model the same bytes.
fn stored_form(record: Stored) -> Result<(Stored, EncodedRecord), StoreError> {
    let (encoded, is_changed) = encode_tracked(&record)?;
    match is_changed.then(|| encoded.decode()) {
        Some(Decoded::Record(stored)) => {
            stored
                .entry
                .blobs()
                .zip(record.entry.blobs())
                .for_each(|(to, from)| to.blob().fill_from(from.blob()));
            Ok((stored, encoded))
        }
        _ => Ok((record, encoded)),
    }
}

async fn decode(raw: RawLog) -> Result<Log, StoreError> {
    if raw.lines.iter().map(|line| line.bytes.len()).sum::<usize>() <= DECODED_INLINE {
        return Ok(Log::read(raw));
    }
    let source = raw.source.to_string();
    tokio::task::spawn_blocking(move || Log::read(raw)).await.map_err(|error| StoreError::Io {
        action: "decode",
        path: source.into(),
        source: std::io::Error::other(error),
    })
}
