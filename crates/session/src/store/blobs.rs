//! The port for contents that are too large for a record: kept beside the log, under the hash of their bytes.

use open_agent_model::{BlobId, BoxFuture, SessionId};
use sha2::{Digest as _, Sha256};

use super::{Durability, StoreError};

/// Keeps the blobs of each session. Sessions share none, so a session can be removed or moved as a whole, and whoever
/// knows a hash cannot read what another session holds.
pub trait BlobStore: Send + Sync {
    /// Stores `bytes` under their hash, `id`. Does nothing if the session has them already.
    ///
    /// A claim of the session is not needed: a blob that no record names is harmless.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Io`] if the bytes could not be written; then `get` does not find them.
    fn put<'a>(
        &'a self,
        session: &'a SessionId,
        id: &'a BlobId,
        bytes: &'a [u8],
        durability: Durability,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Returns a blob's bytes; `None` if the session has none of that name, or if its bytes are damaged.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Io`] if the operating system refuses to read what is there.
    fn get<'a>(
        &'a self,
        session: &'a SessionId,
        id: &'a BlobId,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, StoreError>>;

    /// Gives the session `to` all blobs that `from` has, as a fork needs them. What it has already it keeps.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Io`] if a blob could not be copied; some of them may be.
    fn copy_all<'a>(
        &'a self,
        from: &'a SessionId,
        to: &'a SessionId,
    ) -> BoxFuture<'a, Result<(), StoreError>>;
}

/// Returns the name under which a store keeps `bytes`.
#[must_use]
pub fn blob_id(bytes: &[u8]) -> BlobId {
    BlobId::from_sha256(Sha256::digest(bytes).into())
}

/// Returns `bytes` if they are those that `id` names.
pub(crate) fn verified(id: &BlobId, bytes: Vec<u8>) -> Option<Vec<u8>> {
    let is_whole = blob_id(&bytes) == *id;
    if !is_whole {
        tracing::warn!(%id, "a blob is damaged");
    }
    is_whole.then_some(bytes)
}
