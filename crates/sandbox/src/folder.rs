//! An open folder: what is listed and opened in it is reached through its descriptor, not through its path.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use open_agent_tool::{Entry, EntryInfo, Folder, PathKind, PortError};
use rustix::fs::{AtFlags, FileType, OFlags, Stat, statat};
use rustix::io::Errno;

use crate::nofollow;

/// A folder on the plain file system.
pub(crate) struct PlainFolder {
    fd: OwnedFd,
    path: PathBuf,
    listing: listing::Listing,
}

impl PlainFolder {
    /// Opens a real path to list it.
    pub(crate) fn open(path: PathBuf) -> Result<Self, PortError> {
        let fd = nofollow::open(&path, OFlags::RDONLY | OFlags::DIRECTORY);
        Self::of(fd.map_err(|error| port_error("open", &path, error))?, path)
    }

    /// Takes an open folder; `path` is for errors.
    pub(crate) fn of(fd: OwnedFd, path: PathBuf) -> Result<Self, PortError> {
        let listing = listing::Listing::new(&fd).map_err(|error| port_error("list", &path, error))?;
        Ok(Self { fd, path, listing })
    }

    fn look_at(&self, name: &OsStr, flags: AtFlags) -> Result<EntryInfo, PortError> {
        let stat = statat(&self.fd, name, flags);
        let stat = stat.map_err(|error| port_error("look at", &self.path.join(name), error))?;
        Ok(EntryInfo { kind: kind_of(&stat), modified: modified(&stat) })
    }
}

impl Folder for PlainFolder {
    fn next_batch(&self, batch: &mut Vec<Entry>) -> Result<bool, PortError> {
        let failed = |error| port_error("list", &self.path, error);
        self.listing.next(&self.fd, batch).map_err(failed)
    }

    fn open(&self, name: &OsStr) -> Result<File, PortError> {
        open_file(&self.fd, name, || self.path.join(name))
    }

    fn entry(&self, name: &OsStr) -> Result<EntryInfo, PortError> {
        self.look_at(name, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn target(&self, name: &OsStr) -> Result<EntryInfo, PortError> {
        self.look_at(name, AtFlags::empty())
    }
}

/// Opens the file of this name in a folder, or says what else it is. `path` is for errors.
pub(crate) fn open_file(
    folder: &OwnedFd,
    name: &OsStr,
    path: impl Fn() -> PathBuf,
) -> Result<File, PortError> {
    // Without NONBLOCK, opening a pipe waits for whoever writes to it.
    match nofollow::open_in(folder, name, OFlags::RDONLY | OFlags::NONBLOCK) {
        Ok(file) => checked(file, path),
        Err(error) => {
            // A socket cannot be opened at all; what it is says more than that.
            if let Ok(stat) = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                check_kind(&path(), &stat)?;
            }
            Err(port_error("open", &path(), error))
        }
    }
}

/// What was opened, if it is a file.
pub(crate) fn checked(opened: OwnedFd, path: impl Fn() -> PathBuf) -> Result<File, PortError> {
    let stat = rustix::fs::fstat(&opened).map_err(|error| port_error("look at", &path(), error))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        check_kind(&path(), &stat)?;
    }
    Ok(opened.into())
}

/// Refuses whatever is not a regular file.
pub(crate) fn check_kind(path: &Path, stat: &Stat) -> Result<(), PortError> {
    let what = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => return Ok(()),
        FileType::Symlink => return Err(PortError::Redirected { path: path.to_owned() }),
        FileType::Directory => "a folder",
        FileType::Fifo => "a named pipe",
        FileType::Socket => "a socket",
        _ => "a device",
    };
    Err(PortError::WrongKind { path: path.to_owned(), what })
}

pub(crate) fn port_error(action: &'static str, path: &Path, error: Errno) -> PortError {
    let path = path.to_owned();
    match error {
        Errno::LOOP => PortError::Redirected { path },
        error => PortError::Io { action, path, source: io::Error::from(error) },
    }
}

pub(crate) fn kind_of(stat: &Stat) -> PathKind {
    kind(FileType::from_raw_mode(stat.st_mode))
}

fn kind(kind: FileType) -> PathKind {
    match kind {
        FileType::RegularFile => PathKind::File,
        FileType::Directory => PathKind::Folder,
        FileType::Symlink => PathKind::Link,
        _ => PathKind::Other,
    }
}

fn modified(stat: &Stat) -> SystemTime {
    let nanos = Duration::from_nanos((stat.st_mtime_nsec as i64).unsigned_abs());
    let seconds = Duration::from_secs(stat.st_mtime.unsigned_abs());
    let epoch = SystemTime::UNIX_EPOCH;
    let start = if stat.st_mtime < 0 { epoch.checked_sub(seconds) } else { epoch.checked_add(seconds) };
    start.and_then(|start| start.checked_add(nanos)).unwrap_or(epoch)
}

/// An entry, unless it is `.` or `..`.
fn entry(fd: &OwnedFd, name: &OsStr, file_type: FileType) -> Option<Entry> {
    if name == "." || name == ".." {
        return None;
    }
    let kind = match file_type {
        // Some file systems do not tell in the listing.
        FileType::Unknown => kind_of(&statat(fd, name, AtFlags::SYMLINK_NOFOLLOW).ok()?),
        known => kind(known),
    };
    Some(Entry { name: OsString::from(name), kind })
}

#[cfg(target_os = "linux")]
mod listing {
    use std::mem::MaybeUninit;

    use rustix::fs::RawDir;

    use super::{Entry, Errno, OsStr, OsStrExt, OwnedFd, entry};

    /// As much as the C library asks for at once.
    const BUFFER: usize = 32 * 1024;

    /// Where the listing stands is the descriptor's to know.
    pub(super) struct Listing;

    impl Listing {
        pub(super) fn new(_: &OwnedFd) -> Result<Self, Errno> {
            Ok(Self)
        }

        /// One call of the system.
        pub(super) fn next(&self, fd: &OwnedFd, batch: &mut Vec<Entry>) -> Result<bool, Errno> {
            let mut buffer = [MaybeUninit::<u8>::uninit(); BUFFER];
            let mut raw = RawDir::new(fd, &mut buffer);
            while let Some(next) = raw.next() {
                let next = next?;
                batch.extend(entry(fd, OsStr::from_bytes(next.file_name().to_bytes()), next.file_type()));
                if raw.is_buffer_empty() {
                    return Ok(true);
                }
            }
            Ok(false)
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod listing {
    use std::sync::{Mutex, PoisonError};

    use rustix::fs::Dir;

    use super::{Entry, Errno, OsStr, OsStrExt, OwnedFd, entry};

    const BATCH: usize = 1_000;

    pub(super) struct Listing(Mutex<Dir>);

    impl Listing {
        pub(super) fn new(fd: &OwnedFd) -> Result<Self, Errno> {
            Dir::read_from(fd).map(|dir| Self(Mutex::new(dir)))
        }

        pub(super) fn next(&self, fd: &OwnedFd, batch: &mut Vec<Entry>) -> Result<bool, Errno> {
            let mut dir = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            for _ in 0..BATCH {
                let Some(next) = dir.next() else { return Ok(false) };
                let next = next?;
                batch.extend(entry(fd, OsStr::from_bytes(next.file_name().to_bytes()), next.file_type()));
            }
            Ok(true)
        }
    }
}
