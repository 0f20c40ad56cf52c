//! The session's blobs: their contents are read when a request needs them, and what cannot be read any more is written
//! down as lost, so that no request depends on it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use open_agent_model::{BlobId, BlobUse, BoxFuture, Messages, SessionId};
use open_agent_session::{Notice, NoticeKind, SessionEntry, SessionStore, StoreError};
use open_agent_tool::{Blobs, PortError};

use super::Driver;
use crate::EngineError;

impl Driver {
    /// Reads the contents that the conversation refers to and that this process has not read yet. Returns the entries that
    /// say what is lost, if anything is.
    pub(super) async fn read_blobs(&mut self) -> Result<Vec<SessionEntry>, EngineError> {
        if !self.has_unread_blobs {
            return Ok(Vec::new());
        }
        let messages = self.machine.transcript().messages();
        let lost = unreadable(&*self.host.store, self.writer.id(), messages).await?;
        self.has_unread_blobs = false;
        if lost.is_empty() {
            return Ok(Vec::new());
        }
        let text = format!(
            "{} of this session are missing or damaged, so the model does not see any more what was in them: {}",
            if lost.len() == 1 { "a blob".to_owned() } else { format!("{} blobs", lost.len()) },
            lost.iter().map(BlobId::as_str).collect::<Vec<_>>().join(", ")
        );
        let notice = SessionEntry::Noticed(Notice { kind: NoticeKind::BlobsLost.into(), text });
        Ok(vec![notice, SessionEntry::BlobsLost { ids: lost }])
    }

    pub(super) fn session_blobs(&self) -> SessionBlobs {
        SessionBlobs { store: Arc::clone(&self.host.store), session: self.writer.id().clone() }
    }
}

/// Fills the references in `messages` and returns the blobs that the store does not have, or not whole.
pub(super) async fn unreadable(
    store: &dyn SessionStore,
    session: &SessionId,
    messages: &Messages,
) -> Result<Vec<BlobId>, StoreError> {
    let mut lost = Vec::new();
    // What is referred to several times is read once, and is in memory once.
    let mut known: HashMap<(&BlobId, bool), Option<Arc<str>>> = HashMap::new();
    let is_unread = |used: &BlobUse<'_>| used.blob().content().is_none();
    for used in messages.iter().flat_map(|message| message.blobs()).filter(is_unread) {
        let id = used.blob().id();
        let key = (id, matches!(used, BlobUse::Text(_)));
        let content = match known.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let bytes = store.blobs().get(session, id).await?;
                unknown.insert(bytes.and_then(|bytes| content(used, bytes)))
            }
        };
        match content {
            Some(content) => used.blob().fill(Arc::clone(content)),
            None if lost.contains(id) => {}
            None => lost.push(id.clone()),
        }
    }
    Ok(lost)
}

fn content(used: BlobUse<'_>, bytes: Vec<u8>) -> Option<Arc<str>> {
    match used {
        BlobUse::Base64(_) => Some(STANDARD.encode(bytes).into()),
        BlobUse::Text(_) => String::from_utf8(bytes).ok().map(Arc::from),
    }
}

/// What the calls of one session can read.
pub(super) struct SessionBlobs {
    store: Arc<dyn SessionStore>,
    session: SessionId,
}

impl Blobs for SessionBlobs {
    fn read<'a>(&'a self, id: &'a BlobId) -> BoxFuture<'a, Result<Option<Vec<u8>>, PortError>> {
        Box::pin(async move {
            self.store.blobs().get(&self.session, id).await.map_err(|error| match error {
                StoreError::Io { action, path, source } => PortError::Io { action, path, source },
                other => PortError::Io {
                    action: "read",
                    path: PathBuf::from(id.path()),
                    source: io::Error::other(other),
                },
            })
        })
    }
}
