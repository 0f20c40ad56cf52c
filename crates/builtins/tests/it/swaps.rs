//! Links that are swapped in between the preparing of a call and its run: whoever can write into the project must not be
//! able to lead a call that was allowed to a place that was not.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};

use crate::world::{World, text};

/// Calls of each tool while links are swapped as fast as it goes.
const TRIES: usize = 150;
/// The same in deep runs.
const DEEP_TRIES: usize = 10_000;

fn tries() -> usize {
    open_agent_testkit::cases(TRIES, DEEP_TRIES)
}

const SECRET: &str = "the secret text";

/// A project with the file `d/f`, beside it a secret folder with a file of the same name.
struct Scene {
    w: World,
    secret: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let w = World::new();
        w.file("d/f", "own text 0\n");
        let secret = tempfile::tempdir().unwrap();
        std::fs::write(secret.path().join("f"), SECRET).unwrap();
        Self { w, secret }
    }

    /// Puts a link to the secret where `what` is, a file or a folder; the original is `aside` then.
    fn link_beside(&self, what: &str) -> (PathBuf, PathBuf) {
        let target = if what == "d" { self.secret.path().to_owned() } else { self.secret.path().join("f") };
        let aside = self.w.path("aside");
        symlink(target, &aside).unwrap();
        (self.w.path(what), aside)
    }

    fn assert_secret_is_untouched(&self, when: &str) {
        let names: Vec<_> =
            std::fs::read_dir(self.secret.path()).unwrap().flatten().map(|e| e.file_name()).collect();
        assert_eq!(names, ["f"], "{when}");
        assert_eq!(std::fs::read_to_string(self.secret.path().join("f")).unwrap(), SECRET, "{when}");
    }
}

fn exchange(one: &Path, other: &Path) {
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
}

fn input(tool: &str, file: &str, n: usize) -> Value {
    match tool {
        "Read" => json!({"file_path": file}),
        "Write" => json!({"file_path": file, "content": format!("own text {n}\n")}),
        "Edit" => json!({"file_path": file, "old_string": "own text", "new_string": "own text"}),
        "Grep" => json!({"path": file, "pattern": "text", "output_mode": "content"}),
        _ => json!({"path": "d", "pattern": "*"}),
    }
}

#[tokio::test]
async fn a_link_that_is_swapped_in_after_preparing_is_not_followed() {
    for tool in ["Read", "Write", "Edit", "Grep", "Glob"] {
        for (what, file) in [("d/f", "d/f"), ("d", "d/f"), ("d", "d/new")] {
            let when = format!("{tool} {file}, {what} swapped");
            if file == "d/new" && tool != "Write" {
                continue;
            }
            let scene = Scene::new();
            if file == "d/f" {
                scene.w.read(Path::new("d/f")).await;
            }
            let (path, aside) = scene.link_beside(what);
            let mut input = input(tool, file, 1);
            if tool == "Edit" {
                input["new_string"] = "other text".into();
            }
            let done = scene.w.within_project(tool, &input, || exchange(&path, &aside)).await.unwrap();
            let shown = match &done {
                Ok(output) => text(output),
                Err(error) => error.text().to_owned(),
            };
            assert!(!shown.contains(SECRET), "{when}: {shown}");
            if tool == "Glob" {
                // Names only, of links too; but none out of the secret folder.
                assert!(what == "d/f" || !shown.contains("d/f\n"), "{when}: {shown}");
            } else {
                let is_refused = done.is_err() || shown.starts_with("No match");
                assert!(is_refused, "{when}: {shown}");
            }
            if matches!(tool, "Read" | "Write" | "Edit") {
                assert!(shown.contains("leads through a link that was not there"), "{when}: {shown}");
            }
            scene.assert_secret_is_untouched(&when);
            exchange(&path, &aside);
            assert_eq!(scene.w.bytes("d/f"), b"own text 0\n", "{when}");
        }
    }
}

/// Swaps for as long as it lives.
struct Swapper {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Swapper {
    fn start(one: PathBuf, other: PathBuf) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                exchange(&one, &other);
                exchange(&one, &other);
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn however_fast_links_are_swapped_none_is_followed() {
    for tool in ["Read", "Write", "Edit"] {
        for what in ["d/f", "d"] {
            let scene = Scene::new();
            scene.w.read(Path::new("d/f")).await;
            let (path, aside) = scene.link_beside(what);
            let _swapper = Swapper::start(path, aside);
            for n in 0..tries() {
                let mut input = input(tool, "d/f", n);
                if tool == "Edit" {
                    // Back and forth, whether or not the last one was done.
                    input["old_string"] = "own".into();
                    input["new_string"] = "own own".into();
                    input["replace_all"] = true.into();
                }
                let Some(Ok(output)) = scene.w.within_project(tool, &input, || {}).await else { continue };
                assert!(!text(&output).contains(SECRET), "{tool}, {what} swapped: {}", text(&output));
                if tool == "Edit" {
                    let reset = json!({"file_path": "d/f", "content": "own text\n"});
                    let _ = scene.w.within_project("Write", &reset, || {}).await;
                }
            }
            scene.assert_secret_is_untouched(&format!("{tool}, {what} swapped"));
        }
    }
}
