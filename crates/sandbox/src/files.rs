//! `Files` on the plain file system. Owns how a file is replaced as a whole and what counts as a file.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use open_agent_model::{BoxFuture, FileStamp};
use open_agent_tool::{Files, PortError, file_stamp};
use rustix::fs::{Access, OFlags};

use crate::resolve::{absolute, real};

/// Files as the user sees them.
#[derive(Clone, Debug)]
pub struct PlainFiles {
    home: Option<PathBuf>,
    scratch: PathBuf,
}

impl PlainFiles {
    /// `home` is what `~` stands for; `scratch` is made when it is first needed.
    pub fn new(home: Option<PathBuf>, scratch: impl Into<PathBuf>) -> Self {
        Self { home, scratch: scratch.into() }
    }
}

impl Files for PlainFiles {
    fn resolve(&self, cwd: &Path, path: &Path) -> Result<PathBuf, PortError> {
        let path = absolute(self.home.as_deref(), cwd, path);
        real(&path).map_err(io_error("resolve", &path))
    }

    fn open<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<File, PortError>> {
        blocking(path.to_owned(), |path| open(&path))
    }

    fn stamp<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<Option<FileStamp>, PortError>> {
        blocking(path.to_owned(), |path| match std::fs::metadata(&path) {
            Ok(metadata) => check_kind(&path, &metadata).map(|()| Some(file_stamp(&metadata))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io_error("look at", &path)(error)),
        })
    }

    fn replace<'a>(&'a self, path: &'a Path, bytes: &'a [u8]) -> BoxFuture<'a, Result<FileStamp, PortError>> {
        let bytes = bytes.to_vec();
        blocking(path.to_owned(), move |path| replace(&path, &bytes))
    }

    fn walk_root(&self, path: &Path) -> Result<PathBuf, PortError> {
        let root = path.canonicalize().map_err(io_error("open", path))?;
        if root.is_dir() { Ok(root) } else { Err(PortError::WrongKind { path: root, what: "not a folder" }) }
    }

    fn scratch<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(PathBuf, File), PortError>> {
        let name: String = name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' })
            .collect();
        blocking(self.scratch.clone(), move |folder| scratch(&folder, &name))
    }
}

fn open(path: &Path) -> Result<File, PortError> {
    // Without NONBLOCK, opening a pipe waits for whoever writes to it.
    let nonblock = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file =
        OpenOptions::new().read(true).custom_flags(nonblock).open(path).map_err(io_error("open", path))?;
    let metadata = file.metadata().map_err(io_error("look at", path))?;
    check_kind(path, &metadata)?;
    Ok(file)
}

/// The file is written beside its target and renamed over it, so that whoever reads sees the old content or the new.
fn replace(path: &Path, bytes: &[u8]) -> Result<FileStamp, PortError> {
    let path = &*real(path).map_err(io_error("resolve", path))?;
    let failed = |error| io_error("write", path)(error);
    let old = match std::fs::metadata(path) {
        Ok(metadata) => {
            check_kind(path, &metadata)?;
            // Renaming asks the folder only; a file that is marked as read-only is to stay.
            rustix::fs::access(path, Access::WRITE_OK).map_err(|e| failed(e.into()))?;
            Some(metadata)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
    };
    let parent = path.parent().unwrap_or(Path::new("/"));
    if old.is_none() {
        std::fs::create_dir_all(parent).map_err(io_error("make the folder", parent))?;
    }
    let mode = if old.is_some() { 0o600 } else { 0o666 };
    let mut temp = tempfile::Builder::new()
        .prefix(".open-agent-")
        .suffix(".tmp")
        .permissions(std::fs::Permissions::from_mode(mode))
        .tempfile_in(parent)
        .map_err(failed)?;
    temp.write_all(bytes).map_err(failed)?;
    if let Some(old) = old {
        keep_owner(temp.as_file(), &old);
        let mode = std::fs::Permissions::from_mode(old.mode() & 0o7777);
        temp.as_file().set_permissions(mode).map_err(failed)?;
    }
    temp.as_file().sync_all().map_err(failed)?;
    let file = temp.persist(path).map_err(|e| failed(e.error))?;
    file.metadata().map(|m| file_stamp(&m)).map_err(failed)
}

/// Only root can give files away; for others the new file is theirs.
fn keep_owner(file: &File, old: &Metadata) {
    if file.metadata().is_ok_and(|new| new.uid() == old.uid() && new.gid() == old.gid()) {
        return;
    }
    if std::os::unix::fs::fchown(file, Some(old.uid()), Some(old.gid())).is_err() {
        let _ = std::os::unix::fs::fchown(file, None, Some(old.gid()));
    }
}

fn scratch(folder: &Path, name: &str) -> Result<(PathBuf, File), PortError> {
    // What commands print may be secret.
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(io_error("make the folder", folder))?;
    let (stem, end) = name.rsplit_once('.').map_or((name, String::new()), |(s, e)| (s, format!(".{e}")));
    let mut n = 1_u32;
    loop {
        let path = if n == 1 { folder.join(name) } else { folder.join(format!("{stem}-{n}{end}")) };
        match OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => n += 1,
            Err(error) => return Err(io_error("write", &path)(error)),
        }
    }
}

fn check_kind(path: &Path, metadata: &Metadata) -> Result<(), PortError> {
    let kind = metadata.file_type();
    let what = if kind.is_file() {
        return Ok(());
    } else if kind.is_dir() {
        "a folder"
    } else if kind.is_fifo() {
        "a named pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    };
    Err(PortError::WrongKind { path: path.to_owned(), what })
}

fn io_error(action: &'static str, path: &Path) -> impl Fn(io::Error) -> PortError {
    move |source| PortError::Io { action, path: path.to_owned(), source }
}

fn blocking<T: Send + 'static>(
    path: PathBuf,
    work: impl FnOnce(PathBuf) -> Result<T, PortError> + Send + 'static,
) -> BoxFuture<'static, Result<T, PortError>> {
    Box::pin(async move {
        let about = path.clone();
        match tokio::task::spawn_blocking(move || work(path)).await {
            Ok(done) => done,
            Err(error) => Err(io_error("work on", &about)(io::Error::other(error))),
        }
    })
}
