//! Real paths. Owns how `~`, `.`, `..` and links are resolved when the path's end may not exist yet.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

/// As many as Linux follows.
const MAX_LINKS: usize = 40;

/// `path` as seen from `cwd`, with `~` expanded; nothing is looked up.
pub(crate) fn absolute(home: Option<&Path>, cwd: &Path, path: &Path) -> PathBuf {
    if let (Some(home), Ok(rest)) = (home, path.strip_prefix("~")) {
        return if rest.as_os_str().is_empty() { home.to_owned() } else { home.join(rest) };
    }
    cwd.join(path)
}

/// The real path behind an absolute path. From the first part that does not exist on, the rest is taken as written.
pub(crate) fn real(path: &Path) -> io::Result<PathBuf> {
    match std::fs::canonicalize(path) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            by_parts(path)
        }
        done => done,
    }
}

fn by_parts(path: &Path) -> io::Result<PathBuf> {
    let mut todo: VecDeque<OsString> = parts(path).collect();
    let mut done = PathBuf::from("/");
    let mut links = 0;
    while let Some(part) = todo.pop_front() {
        if part == ".." {
            done.pop();
            continue;
        }
        done.push(&part);
        match std::fs::read_link(&done) {
            Ok(target) => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(io::Error::other("too many links"));
                }
                done.pop();
                if target.is_absolute() {
                    done = PathBuf::from("/");
                }
                for part in parts(&target).collect::<Vec<_>>().into_iter().rev() {
                    todo.push_front(part);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
            // No link, or nothing there at all.
            Err(_) => {}
        }
    }
    Ok(done)
}

fn parts(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|c| match c {
        Component::Normal(part) => Some(part.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_resolved_as_far_as_the_path_exists() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::os::unix::fs::symlink("a/b", root.join("l")).unwrap();
        std::os::unix::fs::symlink("nowhere/x", root.join("dangling")).unwrap();
        std::os::unix::fs::symlink("loop", root.join("loop")).unwrap();
        let of = |p: &str| real(&absolute(Some(Path::new("/home/me")), &root, Path::new(p)));
        assert_eq!(of("l/../c/d").unwrap(), root.join("a/c/d"));
        assert_eq!(of("l/new/file").unwrap(), root.join("a/b/new/file"));
        assert_eq!(of("dangling").unwrap(), root.join("nowhere/x"));
        assert_eq!(of("./a/./b").unwrap(), root.join("a/b"));
        assert_eq!(of("~/x").unwrap(), Path::new("/home/me/x"));
        assert_eq!(of("~x").unwrap(), root.join("~x"));
        assert!(of("loop").is_err());
    }
}
