//! `PlainFiles`.

use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use open_agent_sandbox::PlainFiles;
use open_agent_tool::{Files, PortError};

fn folder() -> (tempfile::TempDir, PathBuf, PlainFiles) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let files = PlainFiles::new(Some(root.join("home")), root.join("scratch"));
    (dir, root, files)
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().mode() & 0o7777
}

#[tokio::test]
async fn replacing_keeps_mode_and_follows_links() {
    let (_dir, root, files) = folder();
    let path = root.join("run.sh");
    std::fs::write(&path, "old").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o754)).unwrap();
    symlink("run.sh", root.join("link")).unwrap();
    let stamp = files.replace(&root.join("link"), b"new").await.unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"new");
    assert_eq!(mode(&path), 0o754);
    assert!(std::fs::symlink_metadata(root.join("link")).unwrap().is_symlink());
    assert_eq!(files.stamp(&path).await.unwrap(), Some(stamp));
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 2, "nothing is left beside them");
}

#[tokio::test]
async fn new_files_get_their_folders_and_usual_permissions() {
    let (_dir, root, files) = folder();
    let path = root.join("a/b/c.txt");
    files.replace(&path, b"x").await.unwrap();
    std::fs::write(root.join("usual"), "x").unwrap();
    assert_eq!(mode(&path), mode(&root.join("usual")));
    assert_eq!(files.stamp(&root.join("none")).await.unwrap(), None);
}

#[tokio::test]
async fn what_is_no_file_is_refused() {
    let (_dir, root, files) = folder();
    let pipe = root.join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    for (path, kind) in [(&*root, "a folder"), (&pipe, "a named pipe"), (Path::new("/dev/zero"), "a device")]
    {
        for error in [
            files.open(path).await.unwrap_err(),
            files.replace(path, b"x").await.unwrap_err(),
            files.stamp(path).await.unwrap_err(),
        ] {
            assert!(matches!(error, PortError::WrongKind { what, .. } if what == kind), "{error}");
        }
    }
}

#[tokio::test]
async fn a_reader_sees_the_old_content_or_the_new() {
    let (_dir, root, files) = folder();
    let path = root.join("a");
    files.replace(&path, &[b'0'; 100_000]).await.unwrap();
    let reader = {
        let path = path.clone();
        std::thread::spawn(move || {
            loop {
                let content = std::fs::read(&path).unwrap();
                assert_eq!(content.len(), 100_000);
                assert!(content.iter().all(|b| *b == content[0]));
                if content[0] == b'9' {
                    return;
                }
            }
        })
    };
    for digit in b'1'..=b'9' {
        files.replace(&path, &[digit; 100_000]).await.unwrap();
    }
    reader.join().unwrap();
}

#[tokio::test]
async fn scratch_files_are_new_and_private() {
    let (_dir, root, files) = folder();
    let (first, mut file) = files.scratch("bash 1/x.txt").await.unwrap();
    file.write_all(b"kept").unwrap();
    let (second, _) = files.scratch("bash 1/x.txt").await.unwrap();
    assert_eq!(first, root.join("scratch/bash-1-x.txt"));
    assert_eq!(second, root.join("scratch/bash-1-x-2.txt"));
    assert_eq!((mode(&first), mode(&root.join("scratch"))), (0o600, 0o700));
    let mut text = String::new();
    files.open(&first).await.unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "kept");
}

#[test]
fn folders_to_walk_are_real() {
    let (_dir, root, files) = folder();
    std::fs::create_dir(root.join("d")).unwrap();
    std::fs::write(root.join("f"), "").unwrap();
    symlink("d", root.join("l")).unwrap();
    assert_eq!(files.walk_root(&root.join("l")).unwrap(), root.join("d"));
    assert!(matches!(files.walk_root(&root.join("f")), Err(PortError::WrongKind { .. })));
    assert_eq!(files.resolve(&root, Path::new("~/x")).unwrap(), root.join("home/x"));
}
