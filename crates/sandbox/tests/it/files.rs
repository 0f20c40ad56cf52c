//! `PlainFiles`.

use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use open_agent_sandbox::PlainFiles;
use open_agent_tool::{Files, Located, PathKind, PortError};

fn folder() -> (tempfile::TempDir, PathBuf, PlainFiles) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let files = PlainFiles::new(Some(root.join("home")), root.join("scratch"));
    (dir, root, files)
}

/// The handle of a path.
fn at(files: &PlainFiles, path: &Path) -> Located {
    files.locate(Path::new("/"), path).unwrap()
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
    let stamp = files.replace(&at(&files, &root.join("link")), b"new").await.unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"new");
    assert_eq!(mode(&path), 0o754);
    assert!(std::fs::symlink_metadata(root.join("link")).unwrap().is_symlink());
    assert_eq!(files.stamp(&at(&files, &path)).await.unwrap(), Some(stamp));
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 2, "nothing is left beside them");
}

#[tokio::test]
async fn new_files_get_their_folders_and_usual_permissions() {
    let (_dir, root, files) = folder();
    let path = root.join("a/b/c.txt");
    files.replace(&at(&files, &path), b"x").await.unwrap();
    std::fs::write(root.join("usual"), "x").unwrap();
    assert_eq!(mode(&path), mode(&root.join("usual")));
    assert_eq!(files.stamp(&at(&files, &root.join("none"))).await.unwrap(), None);
}

#[tokio::test]
async fn what_is_no_file_is_refused() {
    let (_dir, root, files) = folder();
    let pipe = root.join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let socket = root.join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for (path, kind) in [
        (&*root, "a folder"),
        (&pipe, "a named pipe"),
        (&socket, "a socket"),
        (Path::new("/dev/zero"), "a device"),
    ] {
        for error in [
            files.open(&at(&files, path)).await.unwrap_err(),
            files.replace(&at(&files, path), b"x").await.unwrap_err(),
            files.stamp(&at(&files, path)).await.unwrap_err(),
        ] {
            assert!(matches!(error, PortError::WrongKind { what, .. } if what == kind), "{error}");
        }
    }
}

#[tokio::test]
async fn a_reader_sees_the_old_content_or_the_new() {
    let (_dir, root, files) = folder();
    let path = root.join("a");
    files.replace(&at(&files, &path), &[b'0'; 100_000]).await.unwrap();
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
        files.replace(&at(&files, &path), &[digit; 100_000]).await.unwrap();
    }
    reader.join().unwrap();
}

#[tokio::test]
async fn only_what_is_still_as_expected_is_replaced() {
    let (_dir, root, files) = folder();
    let path = root.join("a");
    let first = files.replace_if(&at(&files, &path), b"1", None).await.unwrap();
    let error = files.replace_if(&at(&files, &path), b"x", None).await.unwrap_err();
    assert!(matches!(error, PortError::Changed { .. }), "{error}");
    files.replace_if(&at(&files, &path), b"2", Some(first)).await.unwrap();
    let error = files.replace_if(&at(&files, &path), b"x", Some(first)).await.unwrap_err();
    assert!(matches!(error, PortError::Changed { .. }), "{error}");
    std::fs::remove_file(&path).unwrap();
    assert!(files.replace_if(&at(&files, &path), b"x", Some(first)).await.is_err());
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0, "nothing was made");
}

/// Adds a line to the file, `n` times, each time to what is there; gives the lines.
async fn add_lines(files: &PlainFiles, path: &Path, name: &str, n: usize) -> Vec<String> {
    let mut added = Vec::new();
    while added.len() < n {
        let mut file = files.open(&at(files, path)).await.unwrap();
        let stamp = open_agent_tool::file_stamp(&file.metadata().unwrap());
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        let line = format!("{name} {}\n", added.len());
        text.push_str(&line);
        match files.replace_if(&at(files, path), text.as_bytes(), Some(stamp)).await {
            Ok(_) => added.push(line),
            Err(PortError::Changed { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    added
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_that_replace_a_file_none_loses_what_it_was_told_is_written() {
    let (_dir, root, files) = folder();
    for names in [["a", "a"], ["linked", "d/other-name"]] {
        let paths = names.map(|name| root.join(name));
        std::fs::write(&paths[0], "").unwrap();
        if names[0] != names[1] {
            std::fs::create_dir(root.join("d")).unwrap();
            std::fs::hard_link(&paths[0], &paths[1]).unwrap();
        }
        let tasks: Vec<_> = (0..4)
            .map(|n| {
                let (files, path) = (files.clone(), paths[n % 2].clone());
                tokio::spawn(async move { add_lines(&files, &path, &format!("task {n}"), 25).await })
            })
            .collect();
        let mut added = Vec::new();
        for task in tasks {
            added.extend(task.await.unwrap());
        }
        let text = std::fs::read_to_string(&paths[0]).unwrap();
        let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
        added.sort();
        lines.sort();
        assert_eq!(lines, added);
    }
}

#[tokio::test]
async fn hard_links_and_attributes_stay() {
    let (_dir, root, files) = folder();
    let (path, other) = (root.join("a"), root.join("b"));
    std::fs::write(&path, "long content").unwrap();
    std::fs::hard_link(&path, &other).unwrap();
    let stamp = files.replace(&at(&files, &path), b"short").await.unwrap();
    assert_eq!(std::fs::read(&other).unwrap(), b"short");
    assert_eq!(files.stamp(&at(&files, &other)).await.unwrap(), Some(stamp));

    let path = root.join("c");
    std::fs::write(&path, "x").unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(&path, "user.origin", b"here", flags).is_ok() {
        files.replace(&at(&files, &path), b"y").await.unwrap();
        let mut value = [0_u8; 16];
        let len = rustix::fs::getxattr(&path, "user.origin", &mut value[..]).unwrap();
        assert_eq!(&value[..len], b"here");
    }
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 3, "nothing is left beside them");
}

#[tokio::test]
async fn what_killed_writers_left_is_removed_once_it_is_old() {
    let (_dir, root, files) = folder();
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(7_200);
    for (name, is_old) in
        [(".open-agent-aB3dE6.tmp", true), (".open-agent-Young1.tmp", false), (".open-agent-notes.tmp", true)]
    {
        let file = std::fs::File::create(root.join(name)).unwrap();
        if is_old {
            file.set_modified(old).unwrap();
        }
    }
    files.replace(&at(&files, &root.join("a")), b"x").await.unwrap();
    let mut left: Vec<String> = std::fs::read_dir(&root)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, [".open-agent-Young1.tmp", ".open-agent-notes.tmp", "a"]);
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
    files.open(&at(&files, &first)).await.unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "kept");
}

#[test]
fn a_path_is_located_once_as_what_it_really_is() {
    let (_dir, root, files) = folder();
    std::fs::create_dir(root.join("d")).unwrap();
    std::fs::write(root.join("f"), "").unwrap();
    symlink("d", root.join("l")).unwrap();
    let of = |path: &str| files.locate(&root, Path::new(path)).unwrap();
    for (path, real, kind) in [
        ("l", "d", PathKind::Folder),
        ("l/../f", "f", PathKind::File),
        ("l/none/x", "d/none/x", PathKind::Missing),
        ("~/x", "home/x", PathKind::Missing),
        (".", "", PathKind::Folder),
    ] {
        let located = of(path);
        assert_eq!((located.path(), located.kind()), (&*root.join(real), kind), "{path}");
    }
    assert_eq!(of("/dev/null").kind(), PathKind::Other);
    of("l").require_folder().unwrap();
    assert!(matches!(of("f").require_folder(), Err(PortError::WrongKind { .. })));
    assert!(of("none").require_folder().unwrap_err().to_string().contains("No such file"));
}

/// A folder as it is listed: names and kinds, in order.
fn listed(files: &PlainFiles, at: &Located, below: &str) -> Vec<(String, PathKind)> {
    let folder = files.read_dir(at, Path::new(below)).unwrap();
    let mut batch = Vec::new();
    while folder.next_batch(&mut batch).unwrap() {}
    let mut names: Vec<_> = batch.into_iter().map(|e| (e.name.into_string().unwrap(), e.kind)).collect();
    names.sort_by(|a, b| a.0.cmp(&b.0));
    names
}

#[test]
fn folders_are_listed_and_their_files_opened_without_following_links() {
    let (_dir, root, files) = folder();
    std::fs::create_dir_all(root.join("d/sub")).unwrap();
    std::fs::write(root.join("d/file"), "text").unwrap();
    symlink("file", root.join("d/link")).unwrap();
    symlink("d", root.join("l")).unwrap();
    let here = at(&files, &root);
    let all = [("file", PathKind::File), ("link", PathKind::Link), ("sub", PathKind::Folder)];
    assert_eq!(listed(&files, &here, "d"), all.map(|(name, kind)| (name.to_owned(), kind)));
    assert_eq!(
        listed(&files, &at(&files, &root.join("l")), "").len(),
        3,
        "a link is followed where it is located"
    );
    assert!(matches!(files.read_dir(&here, Path::new("l")), Err(PortError::Redirected { .. })));

    let folder = files.read_dir(&here, Path::new("d")).unwrap();
    let mut text = String::new();
    folder.open("file".as_ref()).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "text");
    assert!(matches!(folder.open("link".as_ref()), Err(PortError::Redirected { .. })));
    assert!(matches!(folder.open("sub".as_ref()), Err(PortError::WrongKind { what: "a folder", .. })));
    assert_eq!(folder.entry("link".as_ref()).unwrap().kind, PathKind::Link);
    assert_eq!(folder.target("link".as_ref()).unwrap().kind, PathKind::File);
    let modified = std::fs::metadata(root.join("d/file")).unwrap().modified().unwrap();
    assert_eq!(folder.entry("file".as_ref()).unwrap().modified, modified);
    // The folder stays the one that was opened.
    std::fs::rename(root.join("d"), root.join("moved")).unwrap();
    symlink("/etc", root.join("d")).unwrap();
    assert!(folder.open("file".as_ref()).is_ok());
}

#[test]
fn large_folders_are_listed_whole() {
    let (_dir, root, files) = folder();
    for n in 0..5_000 {
        std::fs::write(root.join(format!("a-name-of-some-length-{n}")), "").unwrap();
    }
    assert_eq!(listed(&files, &at(&files, &root), "").len(), 5_000);
}

/// What was located, then swapped for a link: neither the link's target nor anything else is touched.
#[tokio::test]
async fn a_link_that_appears_afterwards_is_not_followed() {
    let (_dir, root, files) = folder();
    for (swapped, name) in
        [("d/file", "d/file"), ("d", "d/file"), ("d", "d/new"), ("d/new", "d/new"), ("d", "d/sub/new")]
    {
        let _ = std::fs::remove_dir_all(root.join("d"));
        let _ = std::fs::remove_file(root.join("d"));
        let _ = std::fs::remove_dir_all(root.join("secret"));
        std::fs::create_dir_all(root.join("d")).unwrap();
        std::fs::create_dir_all(root.join("secret/sub")).unwrap();
        std::fs::write(root.join("d/file"), "own").unwrap();
        std::fs::write(root.join("secret/file"), "secret").unwrap();
        let located = at(&files, &root.join(name));
        let stamp = files.stamp(&located).await.unwrap();

        let target = if swapped == "d" { "secret" } else { "../secret/file" };
        let _ = std::fs::rename(root.join(swapped), root.join("aside"));
        symlink(target, root.join(swapped)).unwrap();
        for error in [
            files.open(&located).await.unwrap_err(),
            files.stamp(&located).await.unwrap_err(),
            files.replace(&located, b"x").await.unwrap_err(),
            files.replace_if(&located, b"x", stamp).await.unwrap_err(),
        ] {
            assert!(matches!(error, PortError::Redirected { .. }), "{swapped}, {name}: {error}");
        }
        assert_eq!(std::fs::read(root.join("secret/file")).unwrap(), b"secret");
        assert!(!root.join("secret/new").exists() && !root.join("secret/sub/new").exists());
        let _ = std::fs::remove_dir_all(root.join("aside"));
        let _ = std::fs::remove_file(root.join("aside"));
    }
}
