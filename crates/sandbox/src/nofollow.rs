//! Opening real paths without following links. Owns the guarantee that what is opened is what the path named when it was
//! looked up: a link that appeared in any of its parts since then is an error.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, mkdirat, openat, statat};
use rustix::io::Errno;

/// Opens a folder to reach what is in it. Linux does not ask for the right to list it then.
#[cfg(target_os = "linux")]
const REACH: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
#[cfg(not(target_os = "linux"))]
const REACH: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Opens an absolute path. [`Errno::LOOP`]: there is a link in it.
pub(crate) fn open(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC;
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{ResolveFlags, openat2};
        match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
            // Kernels before 5.6, and filters of system calls that do not know it yet.
            Err(Errno::NOSYS | Errno::PERM | Errno::TOOBIG) => {}
            done => return done,
        }
    }
    by_parts(path, flags)
}

/// Opens the folder to work in it by names.
pub(crate) fn open_folder(path: &Path) -> Result<OwnedFd, Errno> {
    open(path, REACH)
}

/// Opens the folder and creates it, with those above it, where they are missing.
pub(crate) fn make_folder(path: &Path) -> Result<OwnedFd, Errno> {
    let mut folder = openat(CWD, "/", REACH, Mode::empty())?;
    for name in names(path) {
        folder = match open_in(&folder, &name, REACH) {
            Err(Errno::NOENT) => {
                match mkdirat(&folder, &*name, Mode::from_raw_mode(0o777)) {
                    // Somebody else was faster.
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error),
                }
                open_in(&folder, &name, REACH)?
            }
            opened => opened?,
        };
    }
    Ok(folder)
}

/// Opens a name in a folder. [`Errno::LOOP`]: it is a link.
pub(crate) fn open_in(folder: &OwnedFd, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(folder, name, flags, Mode::empty()) {
        // A link is no folder either.
        Err(Errno::NOTDIR) if is_link(folder, name) => Err(Errno::LOOP),
        done => done,
    }
}

fn is_link(folder: &OwnedFd, name: &OsStr) -> bool {
    statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}

/// One part after the other, where the system cannot do it at once.
fn by_parts(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut folder = openat(CWD, "/", REACH, Mode::empty())?;
    let mut names = names(path);
    let Some(last) = names.pop() else { return openat(folder, ".", flags, Mode::empty()) };
    for name in names {
        folder = open_in(&folder, &name, REACH)?;
    }
    open_in(&folder, &last, flags)
}

fn names(path: &Path) -> Vec<OsString> {
    path.components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_owned()),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_link_is_followed_wherever_it_is_and_however_it_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("real/deep")).unwrap();
        std::fs::write(root.join("real/deep/file"), "text").unwrap();
        symlink("real", root.join("link")).unwrap();
        symlink("file", root.join("real/deep/last")).unwrap();
        symlink("nowhere", root.join("real/dangling")).unwrap();
        for open in [open, by_parts] {
            let of = |path: &str, flags| open(&root.join(path), flags).map(File::from);
            let mut text = String::new();
            of("real/deep/file", OFlags::RDONLY).unwrap().read_to_string(&mut text).unwrap();
            assert_eq!(text, "text");
            of("real/deep", OFlags::RDONLY | OFlags::DIRECTORY).unwrap();
            for (path, flags) in [
                ("link/deep/file", OFlags::RDONLY),
                ("link", OFlags::RDONLY | OFlags::DIRECTORY),
                ("link", REACH),
                ("real/deep/last", OFlags::RDONLY),
                ("real/dangling", OFlags::WRONLY),
            ] {
                assert_eq!(of(path, flags).unwrap_err().raw_os_error(), Errno::LOOP.raw_os_error(), "{path}");
            }
            assert_eq!(of("none", OFlags::RDONLY).unwrap_err(), Errno::NOENT);
            assert_eq!(of("real/deep/file/x", OFlags::RDONLY).unwrap_err(), Errno::NOTDIR);
            assert!(open(Path::new("/"), OFlags::RDONLY | OFlags::DIRECTORY).is_ok());
        }
    }

    #[test]
    fn folders_are_made_but_not_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("other")).unwrap();
        symlink("other", root.join("link")).unwrap();
        make_folder(&root.join("a/b/c")).unwrap();
        assert!(root.join("a/b/c").is_dir());
        assert_eq!(make_folder(&root.join("link/x")).unwrap_err(), Errno::LOOP);
        assert!(!root.join("other/x").exists());
    }
}
