//! Logs as files, one JSON line a record: `<root>/<session>/transcript.jsonl`, with a lock file beside it. Append-only: a
//! line that a crash cut short is left where it is and skipped.

use std::collections::HashMap;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use open_agent_model::{BoxFuture, Seq, SessionId};
use serde::{Deserialize, Serialize};

use super::{Claim, Durability, Lease, SessionStore, StoreError};
use crate::{Owner, Stored};

/// Keeps each session in a folder of its own, readable by its owner only.
#[derive(Clone, Debug)]
pub struct JsonlStore {
    root: PathBuf,
    open: Arc<Mutex<HashMap<SessionId, Arc<Mutex<Log>>>>>,
}

/// An open log. One file, opened once: opening anew for each append costs ten times as much.
#[derive(Debug)]
struct Log {
    path: PathBuf,
    file: File,
    epoch: u64,
    head: Seq,
    /// Bytes that are acknowledged.
    len: u64,
    /// The file ends within a line.
    torn: bool,
}

/// What stands in the lock file.
#[derive(Serialize, Deserialize)]
struct LockText {
    epoch: u64,
    owner: String,
}

/// Forgets the open file when the lease is dropped; the lock goes with the lock file's handle.
struct Hold {
    store: JsonlStore,
    id: SessionId,
    _lock: File,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.store.logs().remove(&self.id);
    }
}

impl JsonlStore {
    /// A store in `root`, which is made when first needed.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), open: Arc::default() }
    }

    /// The file that holds a session.
    #[must_use]
    pub fn path(&self, id: &SessionId) -> PathBuf {
        self.root.join(id.as_str()).join("transcript.jsonl")
    }

    fn logs(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, Arc<Mutex<Log>>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn acquire_blocking(&self, id: &SessionId, owner: &Owner) -> Result<(Lease, Seq), StoreError> {
        let folder = self.root.join(id.as_str());
        private_folder(&folder)?;
        let lock_path = folder.join("lock");
        let mut lock = private_file(&lock_path, OpenOptions::new().read(true).write(true))?;
        let before = lock_text(&lock);
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let owner = before.map_or_else(|| "another process".into(), |text| text.owner);
                return Err(StoreError::Busy { id: id.clone(), owner });
            }
            Err(TryLockError::Error(source)) => return Err(io_error("lock", &lock_path)(source)),
        }
        // Read again: whoever held the lock a moment ago may have raised the epoch.
        lock.rewind().map_err(io_error("read", &lock_path))?;
        let before = lock_text(&lock);
        let epoch = before.map_or(1, |text| text.epoch.saturating_add(1));
        let text = serde_json::to_vec(&LockText { epoch, owner: owner.0.clone() })?;
        let write = |lock: &mut File| {
            // Written over, then cut: at no moment is there no epoch.
            lock.rewind()?;
            lock.write_all(&text)?;
            lock.set_len(text.len() as u64)
        };
        write(&mut lock).map_err(io_error("write", &lock_path))?;

        let path = self.path(id);
        let file = private_file(&path, OpenOptions::new().read(true).append(true))?;
        let end = find_end(&file).map_err(io_error("read", &path))?;
        if end.head == Seq(0) && end.lines > 0 {
            let reason = "no line of the file is a record".to_owned();
            return Err(StoreError::Corrupt { path, line: 1, reason });
        }
        let log = Log { path, file, epoch, head: end.head, len: end.len, torn: end.torn };
        self.logs().insert(id.clone(), Arc::new(Mutex::new(log)));
        Ok((Lease::new(epoch, Hold { store: self.clone(), id: id.clone(), _lock: lock }), end.head))
    }
}

impl SessionStore for JsonlStore {
    fn acquire<'a>(
        &'a self,
        id: &'a SessionId,
        owner: &'a Owner,
    ) -> BoxFuture<'a, Result<(Lease, Seq), StoreError>> {
        let (store, id, owner) = (self.clone(), id.clone(), owner.clone());
        Box::pin(blocking(move || store.acquire_blocking(&id, &owner)))
    }

    fn append<'a>(
        &'a self,
        id: &'a SessionId,
        claim: Claim,
        records: &'a [Stored],
        durability: Durability,
    ) -> BoxFuture<'a, Result<Seq, StoreError>> {
        Box::pin(async move {
            let log = self.logs().get(id).cloned();
            let log = log.ok_or_else(|| StoreError::Fenced { id: id.clone() })?;
            let mut bytes = Vec::with_capacity(512);
            for record in records {
                serde_json::to_writer(&mut bytes, record)?;
                bytes.push(b'\n');
            }
            let (id, count) = (id.clone(), records.len() as u64);
            blocking(move || {
                let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
                log.check(&id, claim)?;
                log.write(&bytes, durability)?;
                log.head = Seq(log.head.0 + count);
                Ok(log.head)
            })
            .await
        })
    }

    fn read<'a>(
        &'a self,
        id: &'a SessionId,
        after: Seq,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Stored>, StoreError>> {
        let path = self.path(id);
        Box::pin(blocking(move || read_file(&path, after, limit)))
    }
}

impl Log {
    fn check(&self, id: &SessionId, claim: Claim) -> Result<(), StoreError> {
        if self.epoch != claim.epoch {
            return Err(StoreError::Fenced { id: id.clone() });
        }
        if self.head != claim.expected {
            return Err(StoreError::Conflict { id: id.clone(), found: self.head, expected: claim.expected });
        }
        Ok(())
    }

    /// One write. If it fails half way, what it wrote is taken off again, for it was never acknowledged.
    fn write(&mut self, bytes: &[u8], durability: Durability) -> Result<(), StoreError> {
        let whole;
        let bytes = if self.torn {
            whole = [b"\n", bytes].concat();
            &whole
        } else {
            bytes
        };
        let mut written = self.file.write_all(bytes);
        if written.is_ok() && durability == Durability::Synced {
            written = self.file.sync_data();
        }
        if let Err(source) = written {
            if self.file.set_len(self.len).is_err() {
                self.torn = true;
            }
            return Err(io_error("write", &self.path)(source));
        }
        self.torn = false;
        self.len += bytes.len() as u64;
        // Writing to it succeeds for ever, and nobody will ever read it.
        if is_deleted(&self.file) {
            let gone = io::Error::other("it was deleted while the session goes on");
            return Err(io_error("write", &self.path)(gone));
        }
        Ok(())
    }
}

fn is_deleted(file: &File) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    file.metadata().is_ok_and(|metadata| metadata.nlink() == 0)
}

/// The text at the file's beginning; what may stand behind it is left of a longer one.
fn lock_text(lock: &File) -> Option<LockText> {
    serde_json::Deserializer::from_reader(lock).into_iter().next()?.ok()
}

struct End {
    head: Seq,
    len: u64,
    /// Whole lines in the part that was looked at.
    lines: usize,
    torn: bool,
}

/// The place of the last whole record, read from the file's end.
fn find_end(mut file: &File) -> io::Result<End> {
    #[derive(Deserialize)]
    struct Place {
        seq: Seq,
    }
    let len = file.metadata()?.len();
    let mut window = 64 * 1024;
    loop {
        let start = len.saturating_sub(window);
        file.seek(SeekFrom::Start(start))?;
        let mut tail = Vec::new();
        file.take(window).read_to_end(&mut tail)?;
        let lines = tail.iter().filter(|b| **b == b'\n').count();
        let torn = tail.last().is_some_and(|b| *b != b'\n');
        // Unless the window begins the file, its first line may be cut; then it does not parse and is no candidate.
        let place =
            tail.split(|b| *b == b'\n').rev().find_map(|line| serde_json::from_slice::<Place>(line).ok());
        match place {
            Some(place) => return Ok(End { head: place.seq, len, lines, torn }),
            None if start == 0 => return Ok(End { head: Seq(0), len, lines, torn }),
            None => window *= 4,
        }
    }
}

/// A line that is no record was cut by a crash if the next record takes its place; else a record is missing.
fn read_file(path: &Path, after: Seq, limit: usize) -> Result<Vec<Stored>, StoreError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io_error("read", path)(error)),
    };
    let mut reader = BufReader::with_capacity(256 * 1024, file);
    let (mut records, mut line) = (Vec::new(), Vec::new());
    let (mut last, mut number, mut torn) = (Seq(0), 0, None);
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line).map_err(io_error("read", path))? == 0 {
            break;
        }
        number += 1;
        match serde_json::from_slice::<Stored>(&line) {
            Ok(record) if record.seq == last.next() => {
                last = record.seq;
                if record.seq > after {
                    records.push(record);
                }
            }
            Ok(record) => {
                let reason = format!("record {} follows record {}", record.seq.0, last.0);
                return Err(StoreError::Corrupt { path: path.to_owned(), line: number, reason });
            }
            Err(_) if line.trim_ascii().is_empty() => {}
            Err(error) => torn = Some((number, error.to_string())),
        }
        if records.len() >= limit {
            break;
        }
    }
    if let Some((line, reason)) = torn {
        tracing::warn!(path = %path.display(), line, reason, "skipped a record that was cut short");
    }
    Ok(records)
}

fn private_folder(path: &Path) -> Result<(), StoreError> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(io_error("create", path))
}

fn private_file(path: &Path, options: &mut OpenOptions) -> Result<File, StoreError> {
    #[cfg(unix)]
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
