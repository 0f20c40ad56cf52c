//! Glob.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use open_agent_testkit::{FolderOpens, cases};
use serde_json::json;

use crate::world::{World, details, text};

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[tokio::test]
async fn names_match_at_any_depth_without_a_slash() {
    let w = World::new();
    for name in ["a.rs", "src/b.rs", "src/deep/c.rs", "src/d.txt"] {
        w.file(name, "");
    }
    for (pattern, found) in [
        ("*.rs", &["a.rs", "src/b.rs", "src/deep/c.rs"][..]),
        ("**/*.rs", &["a.rs", "src/b.rs", "src/deep/c.rs"]),
        ("src/*.rs", &["src/b.rs"]),
        ("src/**/*.rs", &["src/b.rs", "src/deep/c.rs"]),
        ("src/**/*.{rs,txt}", &["src/b.rs", "src/d.txt", "src/deep/c.rs"]),
        ("./*.rs", &["a.rs"]),
        ("src/b.rs", &["src/b.rs"]),
        ("[ab].rs", &["a.rs", "src/b.rs"]),
        ("src/deep/../*.txt", &["src/d.txt"]),
    ] {
        assert_eq!(sorted(&w.ok("Glob", json!({"pattern": pattern})).await), found, "{pattern}");
    }
    assert_eq!(w.ok("Glob", json!({"pattern": "*.txt", "path": "src"})).await, "src/d.txt");
    let absolute = w.root.join("src/*.txt");
    assert_eq!(w.ok("Glob", json!({"pattern": absolute})).await, "src/d.txt");
    assert_eq!(w.ok("Glob", json!({"pattern": "*.py"})).await, "No file matches.");
}

#[tokio::test]
async fn the_newest_come_first_and_a_hundred_at_most() {
    let w = World::new();
    for n in 0..150_u64 {
        let path = w.file(&format!("f{n:03}.txt"), "");
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + n / 2);
        std::fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }
    let output = w.call("Glob", json!({"pattern": "*.txt"})).await.unwrap();
    let shown = text(&output);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(&lines[..3], ["f148.txt", "f149.txt", "f146.txt"]);
    assert_eq!(lines[99], "f051.txt");
    assert_eq!(lines[101], "[100 of 150 files, the newest; narrow the pattern for others.]");
    let seen = details(&output);
    assert_eq!(
        (&seen["numFiles"], &seen["truncated"], &seen["total"]),
        (&json!(100), &json!(true), &json!(150))
    );
}

#[tokio::test]
async fn h_grp_01_hidden_and_ignored_files_need_to_be_named() {
    let w = World::new();
    std::fs::create_dir(w.path(".git")).unwrap();
    w.file(".git/x.yml", "");
    w.file(".gitignore", "/target\n");
    w.file("a.yml", "");
    w.file("target/t.yml", "");
    w.file(".github/ci.yml", "");
    w.file("sub/.env", "");
    let shown = w.ok("Glob", json!({"pattern": "**/*.yml"})).await;
    assert!(shown.starts_with("a.yml\n\n[1 file or folder was skipped because ignore files"), "{shown}");
    assert!(shown.contains("3 files and folders were skipped as hidden"), "{shown}");
    for (pattern, found) in [
        (".github/*.yml", ".github/ci.yml"),
        ("target/**/*.yml", "target/t.yml"),
        ("**/.env", "sub/.env"),
        (".git/*.yml", ".git/x.yml"),
        ("**/.github/*.yml", ".github/ci.yml"),
    ] {
        let shown = w.ok("Glob", json!({"pattern": pattern})).await;
        assert_eq!(shown.lines().next(), Some(found), "{pattern}: {shown}");
    }
}

#[tokio::test]
async fn h_grp_02_the_walk_starts_where_the_pattern_does() {
    let w = World::new();
    for n in 0..3_000 {
        w.file(&format!("huge/d{}/f{n}.json", n % 100), "");
    }
    w.file("apps/a/deep/x.json", "");
    symlink("..", w.path("apps/a/loop")).unwrap();
    let beside = FolderOpens::watch([w.root.clone(), w.path("huge"), w.path("huge/d7")]).unwrap();
    let inside = FolderOpens::watch([w.path("apps/a")]).unwrap();
    assert_eq!(w.ok("Glob", json!({"pattern": "apps/**/x.json"})).await, "apps/a/deep/x.json");
    assert_eq!((beside.count(), inside.count()), (0, 1), "a link to a folder is not followed either");
    w.ok("Glob", json!({"pattern": "**/x.json"})).await;
    assert_eq!((beside.count(), inside.count()), (3, 1));
    // A tool's access is where it walks, and no more.
    let cx = w.cx();
    let tool = std::sync::Arc::clone(w.tools.get("Glob").unwrap());
    let input = open_agent_model::RawJson::of(&json!({"pattern": "apps/**/x.json"})).unwrap();
    let prepared = tool.prepare(&input, &cx).unwrap();
    assert_eq!(prepared.access(), [open_agent_model::Access::Read(w.path("apps"))]);
}

/// Makes folders below `folder` with a thousand empty files each.
fn fill(w: &World, folder: &str, files: usize) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for n in 0..files / 1_000 {
        let folder = w.path(&format!("{folder}/d{n}"));
        std::fs::create_dir_all(&folder).unwrap();
        for file in 0..1_000 {
            std::fs::File::create(folder.join(format!("f{file}.json"))).unwrap();
        }
        folders.push(folder);
    }
    folders
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h_grp_02_two_hundred_thousand_files_and_a_cycle() {
    let w = World::in_memory();
    // The tenth part in everyday runs.
    let thousands = cases(1, 10);
    std::fs::create_dir(w.path(".git")).unwrap();
    w.file(".gitignore", "node_modules/\n");
    let modules = fill(&w, "apps/node_modules", thousands * 15_000);
    let web = fill(&w, "apps/web", thousands * 1_000);
    let other = fill(&w, "other", thousands * 4_000);
    w.file("apps/web/deep/er/x.json", "");
    w.file("other/x.json", "");
    symlink("..", w.path("apps/web/up")).unwrap();
    symlink(".", w.path("apps/web/deep/self")).unwrap();

    let ignored = FolderOpens::watch(modules.iter().chain([&w.path("apps/node_modules")])).unwrap();
    let beside = FolderOpens::watch(other.iter().chain([&w.path("other"), &w.root])).unwrap();
    let walked = FolderOpens::watch(
        web.iter().chain(&["apps", "apps/web", "apps/web/deep", "apps/web/deep/er"].map(|name| w.path(name))),
    )
    .unwrap();
    let output = w.call("Glob", json!({"pattern": "apps/**/x.json"})).await.unwrap();
    assert_eq!(text(&output).lines().next(), Some("apps/web/deep/er/x.json"));
    let seen = details(&output);
    assert_eq!((&seen["total"], &seen["timedOut"]), (&json!(1), &json!(false)));
    // Only the ignored folder itself was met, and nothing of what lies beside `apps`.
    assert_eq!(seen["skippedIgnored"], 1);
    assert_eq!((ignored.count(), beside.count()), (0, 0));
    assert_eq!(walked.count(), web.len() + 4, "each folder is read once");

    let all = details(&w.call("Glob", json!({"pattern": "**/*.json"})).await.unwrap());
    assert_eq!((&all["total"], &all["timedOut"]), (&json!(thousands * 5_000 + 2), &json!(false)));
    assert_eq!((ignored.count(), beside.count()), (0, other.len() + 2));
    // A folder that is ignored, and named.
    let named = details(&w.call("Glob", json!({"pattern": "apps/node_modules/**/f7.json"})).await.unwrap());
    assert_eq!(named["total"], thousands * 15);
    assert_eq!(ignored.count(), modules.len() + 1);
}

/// A walk that is cancelled while it goes on opens hardly any folder after that.
#[test]
fn a_walk_that_is_cancelled_on_its_way_ends_soon() {
    for (tool, input) in [("Glob", json!({"pattern": "**/*"})), ("Grep", json!({"pattern": "a"}))] {
        let w = World::in_memory();
        let folders = fill(&w, "many", 50_000);
        let watched = FolderOpens::watch(&folders).unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (output, before) = runtime.block_on(async {
            tokio::join!(w.call(tool, input), async {
                let mut before = 0;
                while before == 0 {
                    tokio::task::yield_now().await;
                    before = watched.count();
                }
                w.cancel.cancel();
                before + watched.count()
            })
        });
        assert!(text(&output.unwrap()).contains("STOPPED EARLY"), "{tool}");
        // The call does not wait for the threads that walk; the runtime does.
        drop(runtime);
        let after = watched.count();
        // Each thread is in one folder, and may be on its way into the next.
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        assert!(after <= 2 * threads, "{tool} opened {before} of {} folders, then {after}", folders.len());
    }
}

#[tokio::test]
async fn h_grp_03_making_the_tools_walks_nothing() {
    // The folder in which a process works is the same for all its threads.
    open_agent_testkit::in_own_process!();
    let w = World::new();
    std::fs::create_dir(w.path("below")).unwrap();
    std::env::set_current_dir(&w.root).unwrap();
    let watched = FolderOpens::watch([w.root.clone(), w.path("below")]).unwrap();
    drop(open_agent_builtins::core_tools());
    assert_eq!(watched.count(), 0);
    w.ok("Glob", json!({"pattern": "*"})).await;
    assert_eq!(watched.count(), 2, "whoever walks is seen");
}

#[tokio::test]
async fn patterns_that_make_no_sense() {
    let w = World::new();
    w.file("f.txt", "");
    assert!(w.fails("Glob", json!({"pattern": "{a"})).await.contains("use Grep"));
    assert!(w.fails("Glob", json!({"pattern": "src/"})).await.contains("names no file"));
    assert!(w.fails("Glob", json!({"pattern": "*", "path": "none"})).await.contains("does not exist"));
    assert!(w.fails("Glob", json!({"pattern": "*", "path": "f.txt"})).await.contains("not a folder"));
}

#[tokio::test]
async fn a_cancelled_walk_gives_what_it_has_and_says_so() {
    let w = World::new();
    w.file("a.txt", "hit");
    w.cancel.cancel();
    for (tool, input) in [("Glob", json!({"pattern": "*"})), ("Grep", json!({"pattern": "hit"}))] {
        let output = w.call(tool, input).await.unwrap();
        assert!(text(&output).contains("STOPPED EARLY"), "{}", text(&output));
        assert_eq!(details(&output)["timedOut"], true);
    }
}

#[tokio::test]
async fn links_to_files_are_listed_and_those_to_folders_are_not_entered() {
    let w = World::new();
    w.file("AGENTS.md", "");
    w.file("docs/a.md", "");
    symlink("AGENTS.md", w.path("CLAUDE.md")).unwrap();
    symlink("docs", w.path("more.md")).unwrap();
    symlink("nowhere", w.path("dangling.md")).unwrap();
    let shown = w.ok("Glob", json!({"pattern": "*.md"})).await;
    assert_eq!(sorted(&shown), ["AGENTS.md", "CLAUDE.md", "docs/a.md"]);
    assert_eq!(w.ok("Glob", json!({"pattern": "CLAUDE.md"})).await, "CLAUDE.md");
}

#[tokio::test]
async fn a_hidden_folder_is_named_wherever_it_stands_in_braces() {
    let w = World::new();
    w.file("src/x/a.rs", "");
    w.file("src/.cache/b.rs", "");
    for pattern in ["src/{x,.cache}/*.rs", "src/{.cache,x}/*.rs"] {
        let shown = w.ok("Glob", json!({"pattern": pattern})).await;
        assert_eq!(sorted(&shown), ["src/.cache/b.rs", "src/x/a.rs"], "{pattern}");
    }
}

#[tokio::test]
async fn a_name_with_brackets_is_found_as_it_is_written() {
    let w = World::new();
    for name in ["app/[id]/page.tsx", "x{1}.rs", "[a].txt"] {
        w.file(name, "");
        assert_eq!(w.ok("Glob", json!({"pattern": name})).await, name);
    }
    // What the pattern itself matches counts first.
    w.file("a.txt", "");
    assert_eq!(w.ok("Glob", json!({"pattern": "[a].txt"})).await, "a.txt");
    // Not by way out of the folder.
    std::fs::write(w.root.join("../secret.txt"), "").unwrap();
    symlink("..", w.path("[up]")).unwrap();
    for pattern in ["[up]/secret.txt", "[x]/../../secret.txt", "{x}/../../secret.txt"] {
        assert_eq!(w.ok("Glob", json!({"pattern": pattern})).await, "No file matches.", "{pattern}");
    }
}
