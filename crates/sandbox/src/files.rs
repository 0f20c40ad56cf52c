//! `Files` on the plain file system. Owns how a file is replaced as a whole and what counts as a file.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use open_agent_model::{BoxFuture, FileStamp};
use open_agent_tool::{Files, PortError, file_stamp};
use rustix::fs::{Access, OFlags, XattrFlags};
use rustix::io::Errno;

use crate::resolve::{absolute, real};

/// The name of a file that is being written: this, random letters, and the end.
const TEMP_START: &str = ".open-agent-";
const TEMP_END: &str = ".tmp";
const TEMP_RANDOM: usize = 6;
/// A file that is still being written is younger.
const TEMP_AGE: Duration = Duration::from_secs(3_600);
/// So many entries of a folder are looked at for left-over files: a write is not to get slow in a large one.
const MAX_SWEPT: usize = 10_000;
/// A lock is held for a few system calls; whoever holds it longer is no agent.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
/// Who may do what with a file, beyond its mode.
const ACCESS_LIST: &str = "system.posix_acl_access";

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
        blocking(path.to_owned(), move |path| replace(&path, &bytes, Expected::Anything))
    }

    fn replace_if<'a>(
        &'a self,
        path: &'a Path,
        bytes: &'a [u8],
        expected: Option<FileStamp>,
    ) -> BoxFuture<'a, Result<FileStamp, PortError>> {
        let bytes = bytes.to_vec();
        blocking(path.to_owned(), move |path| replace(&path, &bytes, Expected::Exactly(expected)))
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
    let file = OpenOptions::new().read(true).custom_flags(nonblock).open(path).or_else(|error| {
        // A socket cannot be opened at all; what it is says more than that.
        if let Ok(metadata) = std::fs::metadata(path) {
            check_kind(path, &metadata)?;
        }
        Err(io_error("open", path)(error))
    })?;
    let metadata = file.metadata().map_err(io_error("look at", path))?;
    check_kind(path, &metadata)?;
    Ok(file)
}

/// What has to be there for a file to be replaced.
#[derive(Clone, Copy)]
enum Expected {
    Anything,
    /// A file of this stamp, or none.
    Exactly(Option<FileStamp>),
}

/// The file is written beside its target and renamed over it, so that whoever reads sees the old content or the new.
/// Whether it is still the expected one is asked last of all, when the slow part is done, and under a lock.
fn replace(path: &Path, bytes: &[u8], expected: Expected) -> Result<FileStamp, PortError> {
    let path = &*real(path).map_err(io_error("resolve", path))?;
    let failed = |error| io_error("write", path)(error);
    let old = present(path)?;
    check_expected(path, old.as_ref(), expected)?;
    let parent = path.parent().unwrap_or(Path::new("/"));
    if old.is_some() {
        // Renaming asks the folder only; a file that is marked as read-only is to stay.
        rustix::fs::access(path, Access::WRITE_OK).map_err(|e| failed(e.into()))?;
    } else {
        std::fs::create_dir_all(parent).map_err(io_error("make the folder", parent))?;
    }
    sweep(parent, SystemTime::now());
    let mode = if old.is_some() { 0o600 } else { 0o666 };
    let mut temp = tempfile::Builder::new()
        .prefix(TEMP_START)
        .suffix(TEMP_END)
        .rand_bytes(TEMP_RANDOM)
        .permissions(std::fs::Permissions::from_mode(mode))
        .tempfile_in(parent)
        .map_err(failed)?;
    temp.write_all(bytes).map_err(failed)?;
    if let Some(old) = &old {
        keep_owner(temp.as_file(), old);
        let mode = std::fs::Permissions::from_mode(old.mode() & 0o7777);
        temp.as_file().set_permissions(mode).map_err(failed)?;
        keep_attributes(temp.as_file(), path);
    }
    temp.as_file().sync_all().map_err(failed)?;

    let _lock = lock(parent, LOCK_PATIENCE)?;
    let now = present(path)?;
    check_expected(path, now.as_ref(), expected)?;
    let file = match (now, expected) {
        (Some(now), _) if now.nlink() > 1 => match write_in_place(path, bytes, expected) {
            Ok(file) => file,
            Err(InPlace::Untouched(error)) => return Err(error),
            Err(InPlace::Torn(error)) => {
                // Neither text is whole under its name, so the new one must not go.
                let kept = temp.keep().map(|(_, kept)| kept.display().to_string());
                let kept =
                    kept.map_or_else(|e| e.to_string(), |kept| format!("the whole new text is in {kept}"));
                return Err(failed(io::Error::new(
                    error.kind(),
                    format!("{error}; the file is torn, {kept}"),
                )));
            }
        },
        (None, Expected::Exactly(_)) => match temp.persist_noclobber(path) {
            Ok(file) => file,
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(PortError::Changed { path: path.to_owned() });
            }
            Err(error) => return Err(failed(error.error)),
        },
        _ => temp.persist(path).map_err(|e| failed(e.error))?,
    };
    file.metadata().map(|m| file_stamp(&m)).map_err(failed)
}

/// What is at `path`, if that is a file.
fn present(path: &Path) -> Result<Option<Metadata>, PortError> {
    match std::fs::metadata(path) {
        Ok(metadata) => check_kind(path, &metadata).map(|()| Some(metadata)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error("write", path)(error)),
    }
}

fn check_expected(path: &Path, now: Option<&Metadata>, expected: Expected) -> Result<(), PortError> {
    match expected {
        Expected::Exactly(stamp) if now.map(file_stamp) != stamp => {
            Err(PortError::Changed { path: path.to_owned() })
        }
        _ => Ok(()),
    }
}

/// A file of several names would lose all but one by a rename, so it is written where it is. A reader may see a mixture;
/// until it is done, the new content lies beside it as well, complete, for whoever has to repair it after a crash.
fn write_in_place(path: &Path, bytes: &[u8], expected: Expected) -> Result<File, InPlace> {
    let failed = |error| InPlace::Untouched(io_error("write", path)(error));
    let mut file = OpenOptions::new().write(true).open(path).map_err(failed)?;
    // Its other names may lie in folders that are not locked.
    wait_for_lock(&file, path, LOCK_PATIENCE).map_err(InPlace::Untouched)?;
    let now = file.metadata().map_err(failed)?;
    check_expected(path, Some(&now), expected).map_err(InPlace::Untouched)?;
    reserve(&file, bytes.len() as u64).map_err(failed)?;
    let len = bytes.len() as u64;
    let written = file.write_all(bytes).and_then(|()| file.set_len(len)).and_then(|()| file.sync_all());
    written.map(|()| file).map_err(InPlace::Torn)
}

/// How far writing in place came before it failed.
enum InPlace {
    /// The file is as it was.
    Untouched(PortError),
    /// A part of the new content stands in it.
    Torn(io::Error),
}

/// Sees to it that there is room before anything is overwritten.
#[cfg(target_os = "linux")]
fn reserve(file: &File, len: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::KEEP_SIZE, 0, len) {
        // Not all file systems can.
        Err(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) if len > 0 => Err(Errno::NOSPC.into()),
        _ => Ok(()),
    }
}

#[cfg(not(target_os = "linux"))]
fn reserve(_: &File, _: u64) -> io::Result<()> {
    Ok(())
}

/// Keeps other agents, of this process or another, from replacing anything in `folder` until the file is dropped. `None`:
/// this folder cannot be locked.
fn lock(folder: &Path, patience: Duration) -> Result<Option<File>, PortError> {
    // Whoever may write into a folder need not be allowed to list it.
    let Ok(file) = File::open(folder) else { return Ok(None) };
    wait_for_lock(&file, folder, patience)?;
    Ok(Some(file))
}

/// Where locks do not exist (some network file systems), it goes on without.
fn wait_for_lock(file: &File, path: &Path, patience: Duration) -> Result<(), PortError> {
    let start = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if start.elapsed() < patience => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(TryLockError::WouldBlock) => {
                let busy = io::Error::new(io::ErrorKind::TimedOut, "another program holds a lock on it");
                return Err(io_error("lock", path)(busy));
            }
            Err(TryLockError::Error(error)) => {
                return unless_unsupported(error).map_err(io_error("lock", path));
            }
        }
    }
}

fn unless_unsupported(error: io::Error) -> io::Result<()> {
    let code = error.raw_os_error();
    let missing = [Errno::NOSYS, Errno::NOTSUP, Errno::NOLCK, Errno::INVAL, Errno::BADF];
    if missing.iter().any(|e| Some(e.raw_os_error()) == code) { Ok(()) } else { Err(error) }
}

/// Removes what writers that were killed have left in `folder`.
fn sweep(folder: &Path, now: SystemTime) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.take(MAX_SWEPT).flatten().filter(|e| is_temp_name(e.file_name().as_bytes())) {
        let Ok(metadata) = entry.metadata() else { continue };
        let age = metadata.modified().ok().and_then(|then| now.duration_since(then).ok());
        if metadata.is_file() && age.is_some_and(|age| age > TEMP_AGE) {
            // Somebody else's stays, by the folder's rules.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn is_temp_name(name: &[u8]) -> bool {
    name.strip_prefix(TEMP_START.as_bytes())
        .and_then(|rest| rest.strip_suffix(TEMP_END.as_bytes()))
        .is_some_and(|rest| rest.len() == TEMP_RANDOM && rest.iter().all(u8::is_ascii_alphanumeric))
}

/// Gives the new file the attributes of the old one. Not all file systems have any.
fn keep_attributes(new: &File, old: &Path) {
    let Ok(old) = open(old) else { return };
    let names = attribute_names(&old).unwrap_or_default();
    if !names.iter().any(|name| name == ACCESS_LIST) {
        // The folder may have given the new file a list of its own.
        let _ = rustix::fs::fremovexattr(new, ACCESS_LIST);
    }
    for name in names.iter().filter(|name| name.starts_with("user.") || *name == ACCESS_LIST) {
        let Ok(len) = rustix::fs::fgetxattr_query(&old, name.as_str()) else { continue };
        let mut value = vec![0; len];
        let Ok(len) = rustix::fs::fgetxattr(&old, name.as_str(), &mut value[..]) else { continue };
        let _ = rustix::fs::fsetxattr(new, name.as_str(), &value[..len], XattrFlags::empty());
    }
}

fn attribute_names(file: &File) -> rustix::io::Result<Vec<String>> {
    let mut list = vec![0_u8; rustix::fs::flistxattr_query(file)?];
    let len = rustix::fs::flistxattr(file, &mut list[..])?;
    let names = list[..len].split(|b| *b == 0).filter_map(|name| std::str::from_utf8(name).ok());
    Ok(names.filter(|name| !name.is_empty()).map(str::to_owned).collect())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn no_room_is_known_before_anything_is_overwritten() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "old").unwrap();
        reserve(file.as_file(), 10).unwrap();
        assert!(reserve(file.as_file(), 1 << 60).is_err());
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "old");
    }

    #[test]
    fn a_lock_that_somebody_keeps_is_an_error_and_not_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let held = lock(dir.path(), Duration::ZERO).unwrap().unwrap();
        let error = lock(dir.path(), Duration::ZERO).unwrap_err();
        assert!(error.to_string().contains("another program holds a lock"), "{error}");
        drop(held);
        assert!(lock(dir.path(), Duration::ZERO).unwrap().is_some());
    }
}
