//! A transcript that is claimed: its lock, its fence, its one open handle. Owns the appends to it.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use open_agent_model::{Seq, SessionId};

use super::owner::OwnerNote;
use super::{Claim, Durability, StoreError, io_error, not_a_file, private_file};
use crate::log::Tail;
use crate::{EncodedRecord, Owner};

/// The longest wait for a lock whose owner has ended. A process that is killed while it starts another one leaves its lock
/// with that one until it has executed its program.
const DEAD_OWNER_WAIT: Duration = Duration::from_secs(1);
const DEAD_OWNER_POLL: Duration = Duration::from_millis(10);

/// The number of bytes at a parked log's end that are compared when the claim is taken up again.
const PARKED_TAIL: u64 = 4096;

#[derive(Debug)]
pub(super) struct ClaimedLog {
    id: SessionId,
    path: PathBuf,
    owner: Owner,
    epoch: u64,
    head: Seq,
    /// `None` while the claim is parked.
    file: Option<File>,
    /// The file's device and number.
    identity: (u64, u64),
    /// The file's length as the last append left it.
    len: u64,
    /// What has to be written before the next record so that it begins a line.
    prefix: &'static [u8],
    /// The checksum of a parked log's last bytes.
    parked_tail: Option<u32>,
    /// What a failed append wrote could not be taken off again. It may look like records, so nothing may follow it here.
    is_broken: bool,
}

impl ClaimedLog {
    /// Opens and locks the transcript, which is made if it is missing, and finds its end.
    pub(super) fn claim(path: &Path, id: &SessionId, owner: &Owner) -> Result<Self, StoreError> {
        let note_path = note_path(path);
        let file = loop {
            // Opened for reading and writing, a named pipe does not block.
            let file = private_file(path, OpenOptions::new().read(true).append(true))?;
            if !metadata(&file, path)?.is_file() {
                return Err(not_a_file(path));
            }
            lock(&file, path, id)?;
            // Between opening and locking, the file may have been removed or replaced.
            match fs::metadata(path) {
                Ok(there) if identity(&there) == identity(&metadata(&file, path)?) => break file,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(io_error("read", path)(error)),
            }
        };
        let metadata = metadata(&file, path)?;
        let tail = read_tail(&file, metadata.len()).map_err(io_error("read", path))?;
        let noted = OwnerNote::read(&note_path).map_or(0, |note| note.epoch);
        let log = Self {
            id: id.clone(),
            path: path.to_owned(),
            owner: owner.clone(),
            // Without the note it still grows with each claim that wrote something.
            epoch: noted.max(tail.head.0).saturating_add(1),
            head: tail.head,
            file: Some(file),
            identity: identity(&metadata),
            len: metadata.len(),
            prefix: tail.prefix,
            parked_tail: None,
            is_broken: false,
        };
        log.write_note()?;
        Ok(log)
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(super) fn head(&self) -> Seq {
        self.head
    }

    /// Appends records, or only checks the claim if there are none.
    pub(super) fn append(
        &mut self,
        claim: Claim,
        records: &[EncodedRecord],
        durability: Durability,
    ) -> Result<Seq, StoreError> {
        claim.check(&self.id, (self.epoch, self.head), records)?;
        if self.is_broken {
            let what = "an append failed and could not be undone".to_owned();
            return Err(StoreError::Changed { path: self.path.clone(), what });
        }
        let file = match self.file.take() {
            Some(file) => file,
            None => self.unpark()?,
        };
        let appended = self.append_to(&file, records, durability);
        self.file = Some(file);
        appended
    }

    /// Closes the file. The claim is remembered, and another process may claim the session.
    pub(super) fn park(&mut self, claim: Claim) {
        if claim.epoch != self.epoch {
            return;
        }
        if let Some(file) = self.file.take() {
            self.parked_tail = self.tail_checksum(&file).ok();
            release(&file);
        }
    }

    /// Opens the file again, if nothing has changed since it was closed.
    fn unpark(&mut self) -> Result<File, StoreError> {
        let fenced = || StoreError::Fenced { id: self.id.clone() };
        let file = match OpenOptions::new().read(true).append(true).open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(self.changed("it was removed"));
            }
            Err(error) => return Err(io_error("open", &self.path)(error)),
        };
        match lock(&file, &self.path, &self.id) {
            Err(StoreError::Busy { .. }) => return Err(fenced()),
            locked => locked?,
        }
        self.check_fence(&file)?;
        if self.tail_checksum(&file).ok() != self.parked_tail {
            return Err(fenced());
        }
        // Another claim may have been made and given up without writing anything.
        self.write_note()?;
        Ok(file)
    }

    fn append_to(
        &mut self,
        file: &File,
        records: &[EncodedRecord],
        durability: Durability,
    ) -> Result<Seq, StoreError> {
        self.check_fence(file)?;
        let Some(last) = records.last() else { return Ok(self.head) };
        let mut bytes = self.prefix.to_vec();
        for record in records {
            bytes.extend_from_slice(record.bytes());
            bytes.push(b'\n');
        }
        let mut handle = file;
        let mut written = handle.write_all(&bytes);
        if written.is_ok() && durability == Durability::Synced {
            written = file.sync_data();
        }
        if let Err(source) = written {
            // It was never acknowledged, so what was written of it is taken off again.
            self.is_broken = file.set_len(self.len).is_err();
            return Err(io_error("write", &self.path)(source));
        }
        self.len += bytes.len() as u64;
        // The file may have been removed or written to since the check before.
        let metadata = metadata(file, &self.path)?;
        if metadata.nlink() == 0 {
            return Err(self.changed("it was removed while the session was open"));
        }
        if metadata.len() != self.len {
            return Err(StoreError::Fenced { id: self.id.clone() });
        }
        self.prefix = b"";
        self.head = last.seq();
        Ok(self.head)
    }

    /// Checks that the path leads to the open file, and that nobody else wrote to it.
    fn check_fence(&self, file: &File) -> Result<(), StoreError> {
        match fs::metadata(&self.path) {
            Ok(there) if identity(&there) == self.identity => {}
            Ok(_) => return Err(self.changed("it was replaced by something else while the session was open")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(self.changed("it was removed or moved while the session was open"));
            }
            Err(error) => return Err(io_error("read", &self.path)(error)),
        }
        let ours = metadata(file, &self.path)?;
        if identity(&ours) != self.identity {
            return Err(self.changed("it was replaced by something else while the session was open"));
        }
        match ours.len() {
            len if len < self.len => {
                let what =
                    format!("it was truncated from {} to {len} bytes while the session was open", self.len);
                Err(StoreError::Changed { path: self.path.clone(), what })
            }
            len if len > self.len => Err(StoreError::Fenced { id: self.id.clone() }),
            _ => Ok(()),
        }
    }

    fn changed(&self, what: &str) -> StoreError {
        StoreError::Changed { path: self.path.clone(), what: what.to_owned() }
    }

    fn tail_checksum(&self, file: &File) -> io::Result<u32> {
        let start = self.len.saturating_sub(PARKED_TAIL);
        let mut bytes = vec![0; usize::try_from(self.len - start).unwrap_or_default()];
        file.read_exact_at(&mut bytes, start)?;
        Ok(crc32fast::hash(&bytes))
    }

    fn write_note(&self) -> Result<(), StoreError> {
        let note = OwnerNote { epoch: self.epoch, owner: self.owner.0.clone(), pid: std::process::id() };
        note.write(&note_path(&self.path))
    }
}

impl Drop for ClaimedLog {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            release(&file);
        }
    }
}

/// Unlocks explicitly: a child process that has just been forked shares the open file, and closing it here would leave the
/// lock with the child until that has executed its program.
fn release(file: &File) {
    if let Err(error) = file.unlock() {
        tracing::debug!(%error, "a transcript could not be unlocked; closing it does that");
    }
}

/// Locks a transcript. If the process that locked it has ended, its lock is waited for.
fn lock(file: &File, path: &Path, id: &SessionId) -> Result<(), StoreError> {
    let begun = Instant::now();
    lock_with(file, path, id, || {
        let may_wait = begun.elapsed() < DEAD_OWNER_WAIT;
        if may_wait {
            std::thread::sleep(DEAD_OWNER_POLL);
        }
        may_wait
    })
}

/// As [`lock`]; `wait` returns false once the wait is over.
fn lock_with(
    file: &File,
    path: &Path,
    id: &SessionId,
    mut wait: impl FnMut() -> bool,
) -> Result<(), StoreError> {
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(source)) => return Err(io_error("lock", path)(source)),
            Err(TryLockError::WouldBlock) => {}
        }
        let note = OwnerNote::read(&note_path(path));
        let is_dead = note.as_ref().is_some_and(OwnerNote::is_dead);
        if !is_dead || !wait() {
            let owner = match note {
                Some(note) if is_dead => {
                    format!("a process that was started by {}, which has ended", note.owner)
                }
                Some(note) => note.owner,
                None => "another process".to_owned(),
            };
            return Err(StoreError::Busy { id: id.clone(), owner });
        }
    }
}

fn note_path(path: &Path) -> PathBuf {
    path.with_file_name("owner")
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

fn metadata(file: &File, path: &Path) -> Result<Metadata, StoreError> {
    file.metadata().map_err(io_error("read", path))
}

/// Finds the log's end, reading back from there until there is a record.
fn read_tail(mut file: &File, len: u64) -> io::Result<Tail> {
    let mut window = 64 * 1024;
    loop {
        let start = len.saturating_sub(window);
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(len - start).read_to_end(&mut bytes)?;
        let whole_lines = match bytes.iter().position(|byte| *byte == b'\n') {
            _ if start == 0 => Some(0),
            // The window may begin in the middle of a line, even where JSON in it looks like a record.
            position => position.map(|end| end + 1),
        };
        let tail = whole_lines.and_then(|from| bytes.get(from..)).map(Tail::of);
        match tail {
            Some(tail) if start == 0 || tail.head > Seq(0) => return Ok(tail),
            _ => window = window.saturating_mul(4),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn claim(path: &Path) -> Result<ClaimedLog, StoreError> {
        ClaimedLog::claim(path, &SessionId::new("s").unwrap(), &Owner("process 1".into()))
    }

    /// The number of a process that has ended.
    fn dead_process() -> u32 {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id()
    }

    #[test]
    fn a_lock_goes_at_once_though_a_child_that_was_just_forked_shares_it() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("transcript.jsonl");
        let mut log = claim(&path).unwrap();
        // As fork does: another handle of the same open file.
        let shared = log.file.as_ref().unwrap().try_clone().unwrap();
        log.park(Claim { epoch: log.epoch, expected: Seq(0) });
        let second = claim(&path).unwrap();
        let shared_too = second.file.as_ref().unwrap().try_clone().unwrap();
        drop(second);
        claim(&path).unwrap();
        drop((shared, shared_too));
    }

    #[test]
    fn the_lock_of_a_process_that_has_ended_is_waited_for() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("transcript.jsonl");
        let mut log = claim(&path).unwrap();
        let mut left_behind = Some(log.file.take().unwrap());
        let mut note = OwnerNote::read(&note_path(&path)).unwrap();
        note.pid = dead_process();
        note.write(&note_path(&path)).unwrap();
        let file = OpenOptions::new().read(true).append(true).open(&path).unwrap();
        let mut waits = 0;
        lock_with(&file, &path, &log.id, || {
            waits += 1;
            if waits == 3 {
                // The child that inherited it executes its program.
                left_behind.take();
            }
            true
        })
        .unwrap();
        assert_eq!(waits, 3);
        // If the child keeps it, the wait ends and the error says what holds it.
        let other = File::open(&path).unwrap();
        let text = lock_with(&other, &path, &log.id, || false).unwrap_err().to_string();
        assert!(text.contains("started by process 1, which has ended"), "{text}");
        // While the owner lives there is nothing to wait for.
        note.pid = std::process::id();
        note.write(&note_path(&path)).unwrap();
        let busy = lock_with(&other, &path, &log.id, || panic!("it waits for a living owner"));
        assert!(matches!(busy, Err(StoreError::Busy { .. })));
    }

    #[test]
    fn a_killed_process_is_dead_before_its_parent_has_asked_for_it() {
        let mut child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        let note = OwnerNote { epoch: 1, owner: String::new(), pid: child.id() };
        assert!(!note.is_dead());
        child.kill().unwrap();
        // It ends for sure, but not at once.
        while !note.is_dead() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
    }

    #[test]
    fn too_many_open_files_are_named_as_that() {
        let error = |code| {
            let source = io::Error::from_raw_os_error(code);
            io_error("open", Path::new("/t"))(source).to_string()
        };
        assert!(error(24).starts_with("open /t: ") && error(24).contains("raise the limit (`ulimit -n`)"));
        assert!(error(23).contains("this machine has as many files open"));
        assert!(!error(13).contains("limit"));
    }

    #[test]
    fn after_an_append_that_could_not_be_undone_nothing_is_appended() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("transcript.jsonl");
        let mut log = claim(&path).unwrap();
        // A handle for reading only: neither writing nor truncating works.
        log.file = Some(File::open(&path).unwrap());
        let entry = crate::SessionEntry::Interrupted {};
        let record =
            crate::encode(&crate::Stored::new(Seq(1), open_agent_model::Timestamp(1), entry)).unwrap();
        let claimed = Claim { epoch: log.epoch, expected: Seq(0) };
        let first = log.append(claimed, std::slice::from_ref(&record), Durability::Written);
        assert!(matches!(first, Err(StoreError::Io { action: "write", .. })), "{first:?}");
        log.file = Some(OpenOptions::new().append(true).open(&path).unwrap());
        let second = log.append(claimed, &[record], Durability::Written).unwrap_err().to_string();
        assert!(second.contains("an append failed and could not be undone"), "{second}");
        assert_eq!(fs::read(&path).unwrap(), b"");
    }
}
