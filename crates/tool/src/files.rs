//! The port through which tools reach files. Owns `Located`, the handle of a path that was looked up once.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use open_agent_model::{BoxFuture, FileStamp, InodeStamp};

use crate::PortError;
use crate::ports::Absent;

/// The only way tools touch files.
///
/// A path is looked up once, by [`locate`](Files::locate), while a call is prepared. The [`Located`] that comes back is
/// what the call is ruled on, and every later operation takes it. No operation follows a symbolic link that appeared in
/// the path afterwards: it fails with [`PortError::Redirected`] instead, so what was ruled and what is touched cannot
/// differ.
///
/// [`locate`](Files::locate) and [`read_dir`](Files::read_dir) block for a few system calls; the other operations do not
/// block.
pub trait Files: Send + Sync {
    /// Finds the real, absolute path behind `path` as seen from `cwd`: `~` is expanded, and `.`, `..` and links are
    /// resolved as far as the path exists. The path need not exist.
    ///
    /// # Errors
    ///
    /// Returns [`PortError::Io`] if the path cannot be looked up, for example because a folder may not be searched.
    fn locate(&self, cwd: &Path, path: &Path) -> Result<Located, PortError>;

    /// Opens a file for reading.
    ///
    /// # Errors
    ///
    /// Returns [`PortError::WrongKind`] for folders, devices and whatever else is not a file.
    fn open<'a>(&'a self, at: &'a Located) -> BoxFuture<'a, Result<File, PortError>>;

    /// Returns the file's stamp, or `None` if there is no file. This looks at the file anew.
    ///
    /// # Errors
    ///
    /// Returns [`PortError::WrongKind`] for whatever is not a file.
    fn stamp<'a>(&'a self, at: &'a Located) -> BoxFuture<'a, Result<Option<FileStamp>, PortError>>;

    /// Replaces a file's whole content, or creates the file and its folders. A reader sees the old content or the new,
    /// never a mixture; only a file of several names (hard links) is written in place. Permissions are kept.
    fn replace<'a>(&'a self, at: &'a Located, bytes: &'a [u8])
    -> BoxFuture<'a, Result<FileStamp, PortError>>;

    /// Does what [`replace`](Files::replace) does if the file still has the stamp `expected`, or, for `None`, if there
    /// still is no file. The comparison is made at the last moment, so of several writers that replace what they read,
    /// one wins and the others are told.
    ///
    /// # Errors
    ///
    /// Returns [`PortError::Changed`] if the file is not as expected; nothing was written then.
    fn replace_if<'a>(
        &'a self,
        at: &'a Located,
        bytes: &'a [u8],
        expected: Option<FileStamp>,
    ) -> BoxFuture<'a, Result<FileStamp, PortError>>;

    /// Opens a folder to list it and to open the files in it: the folder `below` under `at`, or `at` itself if `below`
    /// is empty. No link on the way is followed.
    ///
    /// # Errors
    ///
    /// Returns [`PortError::Io`] if there is no folder or it may not be listed.
    fn read_dir(&self, at: &Located, below: &Path) -> Result<Arc<dyn Folder>, PortError>;

    /// Creates a new, empty file for what is too long to be shown, in a folder that outlives the call.
    fn scratch<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(PathBuf, File), PortError>>;
}

/// An open folder. It holds one file descriptor; the entries that come out of it hold none.
///
/// All its operations block, and all are relative to the folder that was opened, wherever its path leads by now.
pub trait Folder: Send + Sync {
    /// Adds the next entries to `batch`: as many as the system gives at once, without `.` and `..`. Returns false once
    /// there are no more.
    fn next_batch(&self, batch: &mut Vec<Entry>) -> Result<bool, PortError>;

    /// Opens the file of this name for reading; a link is not followed.
    fn open(&self, name: &OsStr) -> Result<File, PortError>;

    /// Looks at the entry itself; a link is not followed.
    fn entry(&self, name: &OsStr) -> Result<EntryInfo, PortError>;

    /// Looks at what the entry leads to, which differs from [`entry`](Folder::entry) for links. Nothing is opened.
    fn target(&self, name: &OsStr) -> Result<EntryInfo, PortError>;
}

/// A name in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name alone.
    pub name: OsString,
    /// What it is. Links are not followed.
    pub kind: PathKind,
}

/// What is known of an entry without opening it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryInfo {
    /// What it is.
    pub kind: PathKind,
    /// When its content was changed last.
    pub modified: SystemTime,
}

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// A device, a pipe or a socket.
    Other,
    /// Nothing is there.
    Missing,
}

/// `ENOENT`, which is the same number on all systems.
const NO_SUCH_FILE: i32 = 2;

/// A path that was looked up once, by [`Files::locate`].
#[derive(Clone, PartialEq, Eq)]
pub struct Located {
    path: Arc<Path>,
    kind: PathKind,
}

impl Located {
    /// Puts a handle together; only an implementation of [`Files`] has reason to. `path` has to be real and absolute.
    #[must_use]
    pub fn new(path: impl Into<Arc<Path>>, kind: PathKind) -> Self {
        Self { path: path.into(), kind }
    }

    /// The real, absolute path: what rules judge and what people are shown.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was there when the path was looked up.
    #[must_use]
    pub fn kind(&self) -> PathKind {
        self.kind
    }

    /// Checks that the path led to a folder when it was looked up.
    ///
    /// # Errors
    ///
    /// Returns [`PortError::Io`] if nothing was there and [`PortError::WrongKind`] if it was something else.
    pub fn require_folder(&self) -> Result<(), PortError> {
        let path = || self.path.to_path_buf();
        match self.kind {
            PathKind::Folder => Ok(()),
            PathKind::Missing => {
                let source = io::Error::from_raw_os_error(NO_SUCH_FILE);
                Err(PortError::Io { action: "open", path: path(), source })
            }
            _ => Err(PortError::WrongKind { path: path(), what: "not a folder" }),
        }
    }
}

impl fmt::Debug for Located {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({:?})", self.path, self.kind)
    }
}

/// Returns the stamp of a file whose metadata is at hand.
#[must_use]
pub fn file_stamp(metadata: &std::fs::Metadata) -> FileStamp {
    let modified = metadata.modified().ok().and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok());
    let modified_ns = modified.and_then(|d| i64::try_from(d.as_nanos()).ok()).unwrap_or_default();
    let changed_ns = metadata.ctime().saturating_mul(1_000_000_000).saturating_add(metadata.ctime_nsec());
    let inode =
        InodeStamp { number: metadata.ino(), changed_ns, mode: metadata.mode(), links: metadata.nlink() };
    FileStamp { modified_ns, len: metadata.len(), inode: Some(inode) }
}

const NO_FILES: PortError = PortError::Absent("access to files");

impl Files for Absent {
    fn locate(&self, _: &Path, _: &Path) -> Result<Located, PortError> {
        Err(NO_FILES)
    }
    fn open<'a>(&'a self, _: &'a Located) -> BoxFuture<'a, Result<File, PortError>> {
        Box::pin(async { Err(NO_FILES) })
    }
    fn stamp<'a>(&'a self, _: &'a Located) -> BoxFuture<'a, Result<Option<FileStamp>, PortError>> {
        Box::pin(async { Err(NO_FILES) })
    }
    fn replace<'a>(&'a self, _: &'a Located, _: &'a [u8]) -> BoxFuture<'a, Result<FileStamp, PortError>> {
        Box::pin(async { Err(NO_FILES) })
    }
    fn replace_if<'a>(
        &'a self,
        _: &'a Located,
        _: &'a [u8],
        _: Option<FileStamp>,
    ) -> BoxFuture<'a, Result<FileStamp, PortError>> {
        Box::pin(async { Err(NO_FILES) })
    }
    fn read_dir(&self, _: &Located, _: &Path) -> Result<Arc<dyn Folder>, PortError> {
        Err(NO_FILES)
    }
    fn scratch<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(PathBuf, File), PortError>> {
        Box::pin(async { Err(NO_FILES) })
    }
}
