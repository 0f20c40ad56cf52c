//! `Files` on the plain file system. Owns how a file is replaced as a whole.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use open_agent_model::{BoxFuture, FileStamp, InodeStamp};
use open_agent_tool::{Entry, Files, Folder, Located, PathKind, PortError, file_stamp};
use rustix::fs::{Access, AtFlags, Mode, OFlags, Stat, XattrFlags, openat, statat, unlinkat};
use rustix::io::Errno;
use uuid::Uuid;

use crate::folder::{PlainFolder, check_kind, checked, kind_of, open_file, port_error};
use crate::nofollow;
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
    fn locate(&self, cwd: &Path, path: &Path) -> Result<Located, PortError> {
        let path = absolute(self.home.as_deref(), cwd, path);
        let real = real(&path).map_err(io_error("resolve", &path))?;
        let kind = match statat(rustix::fs::CWD, &real, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => kind_of(&stat),
            Err(Errno::NOENT | Errno::NOTDIR) => PathKind::Missing,
            Err(error) => return Err(port_error("look at", &real, error)),
        };
        Ok(Located::new(real, kind))
    }

    fn open<'a>(&'a self, at: &'a Located) -> BoxFuture<'a, Result<File, PortError>> {
        blocking(at, open)
    }

    fn stamp<'a>(&'a self, at: &'a Located) -> BoxFuture<'a, Result<Option<FileStamp>, PortError>> {
        blocking(at, |path| match Target::of(path) {
            Ok(target) => Ok(target.present("look at")?.as_ref().map(stamp_of)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(port_error("look at", path, error)),
        })
    }

    fn replace<'a>(
        &'a self,
        at: &'a Located,
        bytes: &'a [u8],
    ) -> BoxFuture<'a, Result<FileStamp, PortError>> {
        let bytes = bytes.to_vec();
        blocking(at, move |path| replace(path, &bytes, Expected::Anything))
    }

    fn replace_if<'a>(
        &'a self,
        at: &'a Located,
        bytes: &'a [u8],
        expected: Option<FileStamp>,
    ) -> BoxFuture<'a, Result<FileStamp, PortError>> {
        let bytes = bytes.to_vec();
        blocking(at, move |path| replace(path, &bytes, Expected::Exactly(expected)))
    }

    fn read_dir(&self, at: &Located, below: &Path) -> Result<Arc<dyn Folder>, PortError> {
        let path = if below.as_os_str().is_empty() { at.path().to_owned() } else { at.path().join(below) };
        Ok(Arc::new(PlainFolder::open(path)?))
    }

    fn scratch<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(PathBuf, File), PortError>> {
        let name: String = name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' })
            .collect();
        let folder = Located::new(self.scratch.as_path(), PathKind::Folder);
        blocking(&folder, move |folder| scratch(folder, &name))
    }
}

fn open(path: &Path) -> Result<File, PortError> {
    // Without NONBLOCK, opening a pipe waits for whoever writes to it.
    match nofollow::open(path, OFlags::RDONLY | OFlags::NONBLOCK) {
        Ok(file) => checked(file, || path.to_owned()),
        Err(error) => {
            // A socket cannot be opened at all; what it is says more than that.
            if let Ok(target) = Target::of(path) {
                target.present("open")?;
            }
            Err(port_error("open", path, error))
        }
    }
}

/// A file by its open folder and its name there: whatever becomes of the path meanwhile, all that is done is done in
/// this folder.
struct Target<'a> {
    path: &'a Path,
    folder: OwnedFd,
    name: OsString,
}

impl<'a> Target<'a> {
    fn of(path: &'a Path) -> Result<Self, Errno> {
        let folder = nofollow::open_folder(folder_of(path))?;
        Ok(Self { path, folder, name: name_of(path) })
    }

    /// Creates the folders that are missing.
    fn make(path: &'a Path) -> Result<Self, PortError> {
        let parent = folder_of(path);
        let folder = nofollow::make_folder(parent);
        let folder = folder.map_err(|error| port_error("make the folder", parent, error))?;
        Ok(Self { path, folder, name: name_of(path) })
    }

    /// What is there, if that is a file.
    fn present(&self, action: &'static str) -> Result<Option<Stat>, PortError> {
        match statat(&self.folder, &*self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => check_kind(self.path, &stat).map(|()| Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(port_error(action, self.path, error)),
        }
    }

    fn check_expected(&self, now: Option<&Stat>, expected: Expected) -> Result<(), PortError> {
        match expected {
            Expected::Exactly(stamp) if now.map(stamp_of) != stamp => {
                Err(PortError::Changed { path: self.path.to_owned() })
            }
            _ => Ok(()),
        }
    }

    fn failed(&self, error: impl Into<io::Error>) -> PortError {
        io_error("write", self.path)(error.into())
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

fn name_of(path: &Path) -> OsString {
    // The root has none, and is a folder.
    path.file_name().unwrap_or(OsStr::new(".")).to_owned()
}

/// As [`file_stamp`], of what the system gives.
fn stamp_of(stat: &Stat) -> FileStamp {
    let nanos = |seconds: i64, nanos: i64| seconds.saturating_mul(1_000_000_000).saturating_add(nanos);
    let (modified_nsec, changed_nsec) = (stat.st_mtime_nsec as i64, stat.st_ctime_nsec as i64);
    let inode = InodeStamp {
        number: stat.st_ino,
        changed_ns: nanos(stat.st_ctime, changed_nsec),
        mode: stat.st_mode,
        links: stat.st_nlink,
    };
    let modified_ns = nanos(stat.st_mtime, modified_nsec).max(0);
    FileStamp { modified_ns, len: u64::try_from(stat.st_size).unwrap_or_default(), inode: Some(inode) }
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
    let target = match Target::of(path) {
        Ok(target) => target,
        Err(Errno::NOENT) if !matches!(expected, Expected::Exactly(Some(_))) => Target::make(path)?,
        Err(Errno::NOENT) => return Err(PortError::Changed { path: path.to_owned() }),
        Err(error) => return Err(port_error("write", path, error)),
    };
    let old = target.present("write")?;
    target.check_expected(old.as_ref(), expected)?;
    if old.is_some() {
        // Renaming asks the folder only; a file that is marked as read-only is to stay.
        rustix::fs::accessat(&target.folder, &*target.name, Access::WRITE_OK, AtFlags::empty())
            .map_err(|error| target.failed(error))?;
    }
    sweep(&target.folder, SystemTime::now());
    let mut temp = Temp::new(&target, if old.is_some() { 0o600 } else { 0o666 })?;
    temp.fill(bytes, old.as_ref()).map_err(|error| target.failed(error))?;

    let _lock = lock(&target, LOCK_PATIENCE)?;
    let now = target.present("write")?;
    target.check_expected(now.as_ref(), expected)?;
    let file = match (now, expected) {
        (Some(now), _) if now.st_nlink > 1 => match write_in_place(&target, bytes, expected) {
            Ok(file) => file,
            Err(InPlace::Untouched(error)) => return Err(error),
            Err(InPlace::Torn(error)) => {
                // Neither text is whole under its name, so the new one must not go.
                let kept = temp.keep();
                return Err(target.failed(io::Error::new(
                    error.kind(),
                    format!("{error}; the file is torn, the whole new text is in {}", kept.display()),
                )));
            }
        },
        (None, Expected::Exactly(_)) => temp.persist_new()?,
        _ => temp.persist()?,
    };
    file.metadata().map(|m| file_stamp(&m)).map_err(|error| target.failed(error))
}

/// A file that is being written beside its target. It goes when this is dropped.
struct Temp<'a> {
    target: &'a Target<'a>,
    name: String,
    file: Option<File>,
}

impl<'a> Temp<'a> {
    fn new(target: &'a Target<'a>, mode: u32) -> Result<Self, PortError> {
        loop {
            let random = Uuid::new_v4().simple().to_string();
            let name = format!("{TEMP_START}{}{TEMP_END}", &random[..TEMP_RANDOM]);
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match openat(&target.folder, &*name, flags, Mode::from_raw_mode(mode)) {
                Ok(file) => return Ok(Self { target, name, file: Some(file.into()) }),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(target.failed(error)),
            }
        }
    }

    /// Writes the content, with the owner, mode and attributes of the old file.
    fn fill(&mut self, bytes: &[u8], old: Option<&Stat>) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write_all(bytes)?;
        if let Some(old) = old {
            keep_owner(file, old);
            file.set_permissions(std::fs::Permissions::from_mode(old.st_mode & 0o7777))?;
            keep_attributes(file, self.target);
        }
        file.sync_all()
    }

    /// Puts it in place of the target.
    fn persist(mut self) -> Result<File, PortError> {
        let Target { folder, name, .. } = self.target;
        rustix::fs::renameat(folder, &*self.name, folder, &**name)
            .map_err(|error| self.target.failed(error))?;
        self.file.take().ok_or_else(|| self.target.failed(Errno::BADF))
    }

    /// Puts it where nothing is.
    fn persist_new(mut self) -> Result<File, PortError> {
        match self.rename_new() {
            Ok(()) => self.file.take().ok_or_else(|| self.target.failed(Errno::BADF)),
            Err(Errno::EXIST) => Err(PortError::Changed { path: self.target.path.to_owned() }),
            Err(error) => Err(self.target.failed(error)),
        }
    }

    fn rename_new(&self) -> Result<(), Errno> {
        let Target { folder, name, .. } = self.target;
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::{RenameFlags, renameat_with};
            match renameat_with(folder, &*self.name, folder, &**name, RenameFlags::NOREPLACE) {
                // Not all file systems can.
                Err(Errno::INVAL | Errno::NOSYS | Errno::PERM) => {}
                done => return done,
            }
        }
        rustix::fs::linkat(folder, &*self.name, folder, &**name, AtFlags::empty())?;
        unlinkat(folder, &*self.name, AtFlags::empty())
    }

    /// Lets it stay, and says where.
    fn keep(&mut self) -> PathBuf {
        self.file = None;
        folder_of(self.target.path).join(&self.name)
    }
}

impl Drop for Temp<'_> {
    fn drop(&mut self) {
        if self.file.is_some() {
            let _ = unlinkat(&self.target.folder, &*self.name, AtFlags::empty());
        }
    }
}

/// A file of several names would lose all but one by a rename, so it is written where it is. A reader may see a mixture;
/// until it is done, the new content lies beside it as well, complete, for whoever has to repair it after a crash.
fn write_in_place(target: &Target<'_>, bytes: &[u8], expected: Expected) -> Result<File, InPlace> {
    let failed = |error| InPlace::Untouched(target.failed(error));
    let file = nofollow::open_in(&target.folder, &target.name, OFlags::WRONLY);
    let file = file.map_err(|error| InPlace::Untouched(port_error("write", target.path, error)))?;
    let mut file = File::from(file);
    // Its other names may lie in folders that are not locked.
    wait_for_lock(&file, target.path, LOCK_PATIENCE).map_err(InPlace::Untouched)?;
    let now = rustix::fs::fstat(&file).map_err(|error| failed(error.into()))?;
    target.check_expected(Some(&now), expected).map_err(InPlace::Untouched)?;
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

/// Keeps other agents, of this process or another, from replacing anything in the target's folder until the file is dropped. `None`:
/// this folder cannot be locked.
fn lock(target: &Target<'_>, patience: Duration) -> Result<Option<File>, PortError> {
    // Whoever may write into a folder need not be allowed to list it.
    let Ok(file) = nofollow::open_in(&target.folder, OsStr::new("."), OFlags::RDONLY | OFlags::DIRECTORY)
    else {
        return Ok(None);
    };
    let file = File::from(file);
    wait_for_lock(&file, folder_of(target.path), patience)?;
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
fn sweep(folder: &OwnedFd, now: SystemTime) {
    let Ok(listed) = nofollow::open_in(folder, OsStr::new("."), OFlags::RDONLY | OFlags::DIRECTORY) else {
        return;
    };
    let Ok(listed) = PlainFolder::of(listed, PathBuf::from(".")) else { return };
    let (mut batch, mut seen): (Vec<Entry>, usize) = (Vec::new(), 0);
    let mut has_more = true;
    while has_more && seen < MAX_SWEPT {
        let Ok(more) = listed.next_batch(&mut batch) else { return };
        has_more = more;
        seen += batch.len();
        for name in batch.drain(..).map(|entry| entry.name).filter(|name| is_temp_name(name.as_bytes())) {
            let Ok(info) = listed.entry(&name) else { continue };
            let age = now.duration_since(info.modified).ok();
            if info.kind == PathKind::File && age.is_some_and(|age| age > TEMP_AGE) {
                // Somebody else's stays, by the folder's rules.
                let _ = unlinkat(folder, &*name, AtFlags::empty());
            }
        }
    }
}

fn is_temp_name(name: &[u8]) -> bool {
    name.strip_prefix(TEMP_START.as_bytes())
        .and_then(|rest| rest.strip_suffix(TEMP_END.as_bytes()))
        .is_some_and(|rest| rest.len() == TEMP_RANDOM && rest.iter().all(u8::is_ascii_alphanumeric))
}

/// Gives the new file the attributes of the old one. Not all file systems have any.
fn keep_attributes(new: &File, old: &Target<'_>) {
    let Ok(old) = open_file(&old.folder, &old.name, || old.path.to_owned()) else { return };
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
fn keep_owner(file: &File, old: &Stat) {
    if file.metadata().is_ok_and(|new| new.uid() == old.st_uid && new.gid() == old.st_gid) {
        return;
    }
    if std::os::unix::fs::fchown(file, Some(old.st_uid), Some(old.st_gid)).is_err() {
        let _ = std::os::unix::fs::fchown(file, None, Some(old.st_gid));
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

fn io_error(action: &'static str, path: &Path) -> impl Fn(io::Error) -> PortError {
    move |source| PortError::Io { action, path: path.to_owned(), source }
}

fn blocking<T: Send + 'static>(
    at: &Located,
    work: impl FnOnce(&Path) -> Result<T, PortError> + Send + 'static,
) -> BoxFuture<'static, Result<T, PortError>> {
    let at = at.clone();
    Box::pin(async move {
        let about = at.clone();
        match tokio::task::spawn_blocking(move || work(at.path())).await {
            Ok(done) => done,
            Err(error) => Err(io_error("work on", about.path())(io::Error::other(error))),
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
        let path = dir.path().canonicalize().unwrap().join("file");
        let target = Target::of(&path).unwrap();
        let held = lock(&target, Duration::ZERO).unwrap().unwrap();
        let error = lock(&target, Duration::ZERO).unwrap_err();
        assert!(error.to_string().contains("another program holds a lock"), "{error}");
        drop(held);
        assert!(lock(&target, Duration::ZERO).unwrap().is_some());
    }
}
