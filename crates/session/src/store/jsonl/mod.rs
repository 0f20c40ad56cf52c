//! Logs as files, one JSON line a record: `<root>/<session>/transcript.jsonl`. Append-only: a line that a crash cut short is
//! left where it is and skipped.
//!
//! The claim of a session is a lock on the transcript itself (`flock`), held through the one handle that is open while a
//! session is active. So no lock file can be deleted under a writer, and an idle session, whose claim is parked, needs no
//! handle at all. What fences a writer is the log's end: before each append the file at the path has to be the one that was
//! locked, with the length that the last append left.
//!
//! Beside the transcript, `blobs/` holds what is too large for it. `owner` names the holder of the newest claim, for
//! messages, and keeps its epoch; nothing depends on that file: a missing one is made again.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use open_agent_model::{BoxFuture, Seq, SessionId};

use super::{BlobStore, Claim, Durability, Lease, SessionStore, StoreError};
use crate::{EncodedRecord, Owner, RawLine, RawLog};

mod blobs;
mod claimed;
mod owner;

use claimed::ClaimedLog;

/// Keeps each session in a folder of its own, readable by its owner only.
#[derive(Clone, Debug)]
pub struct JsonlStore {
    root: PathBuf,
    claimed: Arc<Mutex<HashMap<SessionId, Arc<Mutex<ClaimedLog>>>>>,
}

/// Forgets the claimed log when the lease is dropped. The log's lock is released with its last user, which may be an append
/// that still goes on.
struct Hold {
    store: JsonlStore,
    id: SessionId,
    log: Arc<Mutex<ClaimedLog>>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut claimed = self.store.claimed();
        // While this claim was parked, another one may have been made in this process.
        if claimed.get(&self.id).is_some_and(|log| Arc::ptr_eq(log, &self.log)) {
            claimed.remove(&self.id);
        }
    }
}

impl JsonlStore {
    /// A store in `root`, which is made when first needed.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), claimed: Arc::default() }
    }

    /// The file that holds a session.
    #[must_use]
    pub fn path(&self, id: &SessionId) -> PathBuf {
        self.root.join(id.as_str()).join("transcript.jsonl")
    }

    fn claimed(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, Arc<Mutex<ClaimedLog>>>> {
        self.claimed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The log of a claim that this store gave out.
    fn claimed_log(&self, id: &SessionId) -> Result<Arc<Mutex<ClaimedLog>>, StoreError> {
        self.claimed().get(id).cloned().ok_or_else(|| StoreError::Fenced { id: id.clone() })
    }
}

impl SessionStore for JsonlStore {
    fn acquire<'a>(
        &'a self,
        id: &'a SessionId,
        owner: &'a Owner,
    ) -> BoxFuture<'a, Result<(Lease, Seq), StoreError>> {
        let (store, id, owner) = (self.clone(), id.clone(), owner.clone());
        Box::pin(blocking(move || {
            private_folder(&store.root.join(id.as_str()))?;
            let log = ClaimedLog::claim(&store.path(&id), &id, &owner)?;
            let (epoch, head) = (log.epoch(), log.head());
            let log = Arc::new(Mutex::new(log));
            store.claimed().insert(id.clone(), Arc::clone(&log));
            Ok((Lease::new(epoch, Hold { store: store.clone(), id, log }), head))
        }))
    }

    fn append<'a>(
        &'a self,
        id: &'a SessionId,
        claim: Claim,
        records: &'a [EncodedRecord],
        durability: Durability,
    ) -> BoxFuture<'a, Result<Seq, StoreError>> {
        Box::pin(async move {
            let log = self.claimed_log(id)?;
            let records = records.to_vec();
            blocking(move || {
                log.lock().unwrap_or_else(PoisonError::into_inner).append(claim, &records, durability)
            })
            .await
        })
    }

    fn park<'a>(&'a self, id: &'a SessionId, claim: Claim) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Ok(log) = self.claimed_log(id) else { return };
            let parked = blocking(move || {
                log.lock().unwrap_or_else(PoisonError::into_inner).park(claim);
                Ok(())
            });
            if let Err(error) = parked.await {
                tracing::debug!(%error, "a session could not be parked");
            }
        })
    }

    fn lines<'a>(&'a self, id: &'a SessionId, _after: Seq) -> BoxFuture<'a, Result<RawLog, StoreError>> {
        let path = self.path(id);
        Box::pin(blocking(move || read_lines(&path)))
    }

    fn blobs(&self) -> &dyn BlobStore {
        self
    }
}

fn read_lines(path: &Path) -> Result<RawLog, StoreError> {
    let mut raw = RawLog { source: path.display().to_string().into(), lines: Vec::new() };
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => {}
        // A named pipe would block, and a device has no end.
        Ok(_) => return Err(not_a_file(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(raw),
        Err(error) => return Err(io_error("read", path)(error)),
    }
    let file = File::open(path).map_err(io_error("open", path))?;
    let mut reader = BufReader::with_capacity(256 * 1024, file);
    for number in 1.. {
        let mut line = Vec::new();
        if reader.read_until(b'\n', &mut line).map_err(io_error("read", path))? == 0 {
            break;
        }
        raw.lines.push(RawLine::new(number, line));
    }
    Ok(raw)
}

fn not_a_file(path: &Path) -> StoreError {
    StoreError::Changed { path: path.to_owned(), what: "this is not a regular file".to_owned() }
}

fn private_folder(path: &Path) -> Result<(), StoreError> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(io_error("create", path))
}

fn private_file(path: &Path, options: &mut OpenOptions) -> Result<File, StoreError> {
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options.create(true).open(path).map_err(io_error("open", path))
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io { action, path, source }
}

async fn blocking<T: Send + 'static>(
    f: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    match tokio::task::spawn_blocking(f).await {
        Ok(result) => result,
        Err(error) => Err(StoreError::Io {
            action: "work on",
            path: PathBuf::from("the session store"),
            source: io::Error::other(error),
        }),
    }
}
