//! Grep.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::world::{World, details, text};

/// Lines of matching content.
async fn content(w: &World, mut input: Value) -> String {
    input["output_mode"] = json!("content");
    w.ok("Grep", input).await
}

#[tokio::test]
async fn all_output_modes() {
    let w = World::new();
    w.file("b.txt", "x\nneedle 1\ny\nneedle 2\n");
    w.file("a/a.txt", "needle\n");
    let output = w.call("Grep", json!({"pattern": "needle"})).await.unwrap();
    assert_eq!(text(&output), "2 files:\na/a.txt\nb.txt");
    let shown = details(&output);
    assert_eq!((&shown["numFiles"], &shown["mode"]), (&json!(2), &json!("files_with_matches")));
    assert_eq!(shown["filenames"], json!(["a/a.txt", "b.txt"]));
    assert_eq!(
        content(&w, json!({"pattern": "needle"})).await,
        "a/a.txt:1:needle\nb.txt:2:needle 1\nb.txt:4:needle 2"
    );
    assert_eq!(
        w.ok("Grep", json!({"pattern": "needle", "output_mode": "count"})).await,
        "2 files, 3 matching lines:\na/a.txt:1\nb.txt:2"
    );
    assert_eq!(w.ok("Grep", json!({"pattern": "absent"})).await, "No match.");
}

#[tokio::test]
async fn each_option_changes_the_answer() {
    let w = World::new();
    w.file("a.txt", "one\nTwo two\nthree\nfour\nfive\nsix Two\n");
    w.file("b.rs", "fn two() {\n}\n");
    let with = |more: Value| {
        let mut input = json!({"pattern": "Two", "path": "a.txt"});
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        content(&w, input)
    };
    assert_eq!(with(json!({})).await, "a.txt:2:Two two\na.txt:6:six Two");
    assert_eq!(with(json!({"-n": false})).await, "a.txt:Two two\na.txt:six Two");
    assert_eq!(with(json!({"-o": true, "-i": true})).await, "a.txt:2:Two\na.txt:2:two\na.txt:6:Two");
    assert_eq!(with(json!({"-A": 1})).await, "a.txt:2:Two two\na.txt-3-three\n--\na.txt:6:six Two");
    assert_eq!(
        with(json!({"-B": 1})).await,
        "a.txt-1-one\na.txt:2:Two two\n--\na.txt-5-five\na.txt:6:six Two"
    );
    assert_eq!(
        with(json!({"-C": 1, "-A": 0, "head_limit": 2})).await.lines().nth(1),
        Some("a.txt:2:Two two")
    );
    assert_eq!(
        with(json!({"head_limit": 1})).await,
        "a.txt:2:Two two\n\n[cut after 1 lines; more follow with offset 1.]"
    );
    assert_eq!(with(json!({"offset": 1})).await, "a.txt:6:six Two");
    assert_eq!(with(json!({"offset": 9})).await, "\n\n[there is nothing behind offset 9.]".trim_start());
    assert_eq!(
        content(&w, json!({"pattern": "three.four", "multiline": true})).await,
        "a.txt:3:three\na.txt:4:four"
    );
    assert_eq!(w.ok("Grep", json!({"pattern": "(?i)two", "glob": "*.rs"})).await, "1 file:\nb.rs");
    assert_eq!(w.ok("Grep", json!({"pattern": "(?i)two", "glob": "!*.rs"})).await, "1 file:\na.txt");
    assert_eq!(w.ok("Grep", json!({"pattern": "(?i)two", "glob": "*.{rs,py},*.md"})).await, "1 file:\nb.rs");
    assert_eq!(w.ok("Grep", json!({"pattern": "(?i)two", "type": "rust"})).await, "1 file:\nb.rs");
}

#[tokio::test]
async fn limits_hold_and_zero_lifts_them() {
    let w = World::new();
    for n in 0..30 {
        w.file(&format!("f{n:02}.txt"), "hit\n".repeat(20));
    }
    let shown = content(&w, json!({"pattern": "hit"})).await;
    assert_eq!(shown.lines().count(), 252);
    assert!(
        shown.ends_with("[cut after 250 lines; more follow with offset 250.]"),
        "{}",
        &shown[shown.len() - 80..]
    );
    let rest = content(&w, json!({"pattern": "hit", "offset": 250, "head_limit": 350})).await;
    assert_eq!(rest.lines().count(), 350);
    assert!(rest.starts_with("f12.txt:11:hit\n"));
    assert_eq!(content(&w, json!({"pattern": "hit", "head_limit": 0})).await.lines().count(), 600);
    let files = w.ok("Grep", json!({"pattern": "hit", "head_limit": 2})).await;
    assert_eq!(files, "30 files:\nf00.txt\nf01.txt\n\n[cut after 2 files; more follow with offset 2.]");
    // Nothing reaches a model that is longer than the bound.
    w.file("wide.txt", format!("{}\n", "x".repeat(900)).repeat(300));
    let shown = content(&w, json!({"pattern": "x", "head_limit": 0})).await;
    assert!(shown.chars().count() <= 100_000);
    w.file("one.txt", format!("y{}\n", "z".repeat(50_000)));
    let shown = content(&w, json!({"pattern": "y"})).await;
    assert!(shown.len() < 1_100 && shown.contains("characters cut]"), "{shown}");
}

#[tokio::test]
async fn h_grp_01_hidden_and_ignored_files_are_said_out_loud() {
    let w = World::new();
    std::fs::create_dir(w.path(".git")).unwrap();
    w.file(".gitignore", "/target\n*.log\n");
    w.file("src/a.rs", "needle\n");
    w.file("target/debug/a.d", "needle\n");
    w.file("x.log", "needle\n");
    w.file(".github/workflows/ci.yml", "needle\n");
    let output = w.call("Grep", json!({"pattern": "needle"})).await.unwrap();
    let shown = text(&output);
    assert!(shown.starts_with("1 file:\nsrc/a.rs\n\n["), "{shown}");
    assert!(shown.contains("2 files and folders were skipped because ignore files"), "{shown}");
    assert!(shown.contains("2 files and folders were skipped as hidden"), "{shown}");
    let seen = details(&output);
    assert_eq!((&seen["skippedIgnored"], &seen["skippedHidden"]), (&json!(2), &json!(2)));
    // Named outright, they are searched.
    for (path, file) in [
        (".github", ".github/workflows/ci.yml"),
        (".github/workflows", ".github/workflows/ci.yml"),
        ("target", "target/debug/a.d"),
        ("x.log", "x.log"),
    ] {
        let shown = w.ok("Grep", json!({"pattern": "needle", "path": path})).await;
        assert_eq!(shown, format!("1 file:\n{file}"));
    }
    // Even where the folder's own rules leave nothing of it.
    w.file("venv/.gitignore", "*\n");
    w.file("venv/lib/m.py", "needle\n");
    assert_eq!(w.ok("Grep", json!({"pattern": "needle", "path": "venv"})).await, "1 file:\nvenv/lib/m.py");
}

#[tokio::test]
async fn binary_files_links_and_odd_encodings() {
    let w = World::new();
    w.file("bin", b"needle\0\x01\x02");
    w.file("latin.txt", b"caf\xE9 needle\n");
    w.file(
        "wide.txt",
        "needle ü\n".encode_utf16().fold(vec![0xFF, 0xFE], |mut v, u| {
            v.extend(u.to_le_bytes());
            v
        }),
    );
    symlink("..", w.path("loop")).unwrap();
    symlink("latin.txt", w.path("link.txt")).unwrap();
    let shown = content(&w, json!({"pattern": "needle"})).await;
    assert_eq!(shown, "latin.txt:1:café needle\nwide.txt:1:needle ü");
    let shown = content(&w, json!({"pattern": "needle", "path": "bin"})).await;
    assert!(shown.contains("is a binary file that matches"), "{shown}");
    assert!(w.ok("Grep", json!({"pattern": "needle", "path": "link.txt"})).await.ends_with("latin.txt"));
    assert!(w.fails("Grep", json!({"pattern": "x", "path": "/dev/zero"})).await.contains("is a device"));
    assert!(w.fails("Grep", json!({"pattern": "x", "path": "none"})).await.contains("does not exist"));
}

#[tokio::test]
async fn what_cannot_be_searched_for_says_why() {
    let w = World::new();
    for (input, says) in [
        (json!({"pattern": "interface{"}), "need a \\ in front"),
        (json!({"pattern": "a(b"}), "unclosed group"),
        (json!({"pattern": "a\\nb"}), "set multiline"),
        (json!({"pattern": "(?=x)"}), "grep -P"),
        (json!({"pattern": "x", "type": "nonsense"}), "unrecognized file type"),
        (json!({"pattern": "x", "glob": "{a"}), "glob: "),
        (json!({"pattern": "x", "colour": true}), "unknown field `colour`"),
    ] {
        let error = w.fails("Grep", input.clone()).await;
        assert!(error.contains(says), "{input}: {error}");
    }
}

#[tokio::test]
async fn the_order_is_the_same_each_time() {
    let w = World::new();
    for n in 0..200 {
        w.file(&format!("d{}/f{n}.txt", n % 7), "hit\n");
    }
    let first = content(&w, json!({"pattern": "hit", "head_limit": 50})).await;
    for _ in 0..10 {
        assert_eq!(content(&w, json!({"pattern": "hit", "head_limit": 50})).await, first);
    }
    let mut sorted: Vec<&str> = first.lines().take(50).collect();
    sorted.sort_by_key(|line| std::path::PathBuf::from(line.split(':').next().unwrap()));
    assert_eq!(sorted, first.lines().take(50).collect::<Vec<_>>());
}

#[tokio::test]
async fn h_sub_05_one_miss_does_not_disturb_its_siblings() {
    let w = World::new();
    for n in 0..26 {
        w.file(&format!("f{n}.txt"), format!("word{n}\n"));
    }
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..27 {
        let cx = w.cx();
        let tool = std::sync::Arc::clone(w.tools.get("Grep").unwrap());
        let pattern =
            if n == 13 { "(".to_owned() } else { format!("^word{}$", if n > 13 { n - 1 } else { n }) };
        let input = open_agent_model::RawJson::of(&json!({"pattern": pattern})).unwrap();
        calls.spawn(async move { (n, tool.prepare(&input, &cx).unwrap().run(cx).await) });
    }
    let (mut good, mut bad) = (0, 0);
    while let Some(done) = calls.join_next().await {
        match done.unwrap() {
            (13, result) => {
                assert!(result.is_err());
                bad += 1;
            }
            (n, result) => {
                let file = if n > 13 { n - 1 } else { n };
                assert_eq!(text(&result.unwrap()), format!("1 file:\nf{file}.txt"));
                good += 1;
            }
        }
    }
    assert_eq!((good, bad), (26, 1));
}

#[tokio::test]
async fn h_grp_01_a_folder_that_is_named_is_searched_whatever_kind_of_ignore_file_names_it() {
    for name in ["sub/.ignore", "sub/.rgignore", ".rgignore"] {
        let w = World::new();
        w.file(name, "*.txt\n");
        w.file("sub/a.txt", "needle\n");
        assert!(w.ok("Grep", json!({"pattern": "needle"})).await.starts_with("No match."), "{name}");
        let shown = w.ok("Grep", json!({"pattern": "needle", "path": "sub"})).await;
        assert_eq!(shown, "1 file:\nsub/a.txt", "{name}");
        assert_eq!(w.ok("Glob", json!({"pattern": "sub/*.txt"})).await, "sub/a.txt", "{name}");
    }
}

#[tokio::test]
async fn a_line_that_is_too_long_does_not_hide_the_rest_of_its_file() {
    let w = World::new();
    let mut bytes = b"first needle\n".to_vec();
    bytes.resize(66 << 20, b'a');
    bytes.extend_from_slice(b"needle at its end\nlast needle\n");
    w.file("long.txt", bytes);
    w.file("short.txt", "needle\n");
    let note = "1 file searched in part: of a line, no more than the first 32 MB";
    for path in [".", "long.txt"] {
        let shown = content(&w, json!({"pattern": "needle", "path": path})).await;
        let lines = "long.txt:1:first needle\nlong.txt:3:last needle\n";
        assert!(shown.starts_with(lines) && shown.contains(note), "{shown}");
        assert_eq!(shown.contains("short.txt"), path == ".", "{shown}");
    }
    // Its matches are as many as can be shown.
    let input = json!({"pattern": "a", "path": "long.txt", "-o": true, "head_limit": 2});
    let shown = content(&w, input).await;
    assert!(shown.contains("long.txt:2:a\nlong.txt:2:a\n\n[cut after 2 lines"), "{shown}");
    let shown = w.ok("Grep", json!({"pattern": "end\\nlast", "path": "long.txt", "multiline": true})).await;
    assert!(shown.contains("1 file left out: with multiline, a file of more than 64 MB"), "{shown}");
}

#[tokio::test]
async fn what_is_no_plain_file_holds_nothing_up() {
    let w = World::new();
    w.file("a.txt", "needle\n");
    let made = std::process::Command::new("mkfifo").arg(w.path("pipe")).status().unwrap();
    assert!(made.success());
    assert!(w.ok("Grep", json!({"pattern": "needle"})).await.starts_with("1 file:\na.txt"));
    assert!(w.fails("Grep", json!({"pattern": "needle", "path": "pipe"})).await.contains("named pipe"));
    if cfg!(target_os = "linux") {
        // Such files have content and no size.
        let input = json!({"pattern": "^processor", "path": "/proc/cpuinfo", "output_mode": "count"});
        assert!(w.ok("Grep", input).await.contains("/proc/cpuinfo:"));
    }
}

#[tokio::test]
async fn a_pattern_that_grows_beyond_bounds_is_refused_with_advice() {
    let w = World::new();
    w.file("a.txt", "aaaa\n");
    let shown = w.fails("Grep", json!({"pattern": "(a{1,1000}){1,1000}"})).await;
    assert!(shown.contains("use smaller repetitions"), "{shown}");
    assert!(w.ok("Grep", json!({"pattern": "(a{1,50}){1,50}"})).await.contains("a.txt"));
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_search_in_a_file_of_a_hundred_gigabytes_can_be_cancelled() {
    // What is counted are the bytes that the process reads.
    open_agent_testkit::in_own_process!();
    let w = World::new();
    let path = w.file("sparse", "");
    std::fs::File::options().write(true).open(&path).unwrap().set_len(100 << 30).unwrap();
    let (output, before) = tokio::join!(w.call("Grep", json!({"pattern": "x", "path": "sparse"})), async {
        while !is_read(&path) {
            tokio::task::yield_now().await;
        }
        let before = bytes_read();
        w.cancel.cancel();
        before
    });
    let (after, output) = (bytes_read(), output.unwrap());
    assert!(text(&output).contains("STOPPED EARLY"), "{}", text(&output));
    assert_eq!(details(&output)["timedOut"], true);
    assert!(after - before < 10 << 30, "{} bytes were read after that", after - before);
}

/// The bytes that this process has read so far, from files and elsewhere.
#[cfg(target_os = "linux")]
fn bytes_read() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap();
    io.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

/// Whether this process has the file open and is past its start.
#[cfg(target_os = "linux")]
fn is_read(path: &std::path::Path) -> bool {
    std::fs::read_dir("/proc/self/fd").unwrap().flatten().any(|fd| {
        let info = format!("/proc/self/fdinfo/{}", fd.file_name().display());
        std::fs::read_link(fd.path()).is_ok_and(|target| target == path)
            && std::fs::read_to_string(info).is_ok_and(|info| !info.starts_with("pos:\t0\n"))
    })
}

#[tokio::test]
async fn what_one_file_brings_is_bounded_also_without_a_limit() {
    let w = World::new();
    w.file("long.txt", "x".repeat(2_000) + "\n");
    w.file("many.txt", ("y".repeat(1_500) + "\n").repeat(12_000));
    let long = w.ok("Grep", json!({"pattern": "x", "output_mode": "content", "path": "long.txt"})).await;
    assert!(long.contains(&format!("{}… [1000 characters cut]", "x".repeat(1_000))), "{long}");
    let input = json!({"pattern": "y", "output_mode": "content", "head_limit": 0, "path": "many.txt"});
    let seen = details(&w.call("Grep", input).await.unwrap());
    assert_eq!(seen["truncated"], true, "12 MB of lines, of which 8 are kept");
}

/// All lines, page by page, as the notes say; and how many pages that took.
async fn pages(w: &World, mut input: Value) -> (Vec<String>, usize) {
    let (mut lines, mut pages) = (Vec::new(), 0);
    loop {
        let shown = content(w, input.clone()).await;
        assert!(shown.chars().count() <= 100_000, "{}", shown.chars().count());
        pages += 1;
        let (page, note) = shown.rsplit_once("\n\n[").unwrap_or((&shown, ""));
        assert!(!page.contains("left out") && !note.contains("nothing behind"), "{note}");
        lines.extend(page.lines().map(str::to_owned));
        match note.split_once("more follow with offset ") {
            Some((_, offset)) => {
                let offset: usize = offset.split(['.', ';']).next().unwrap().parse().unwrap();
                assert_eq!(offset, lines.len(), "{note}");
                input["offset"] = json!(offset);
            }
            None => return (lines, pages),
        }
    }
}

#[tokio::test]
async fn each_line_is_seen_once_when_the_notes_are_followed() {
    let w = World::new();
    let mut want = Vec::new();
    for n in 0..300 {
        let name = format!("f{n:03}.txt");
        let lines: Vec<String> = (0..3).map(|i| format!("hit {n} {i} {}", "x".repeat(890))).collect();
        w.file(&name, lines.join("\n"));
        want.extend(lines.iter().enumerate().map(|(i, line)| format!("{name}:{}:{line}", i + 1)));
    }
    let (lines, count) = pages(&w, json!({"pattern": "hit"})).await;
    assert_eq!(lines, want);
    assert!((9..12).contains(&count), "{count}");
    assert_eq!(pages(&w, json!({"pattern": "hit", "head_limit": 0})).await.0, want);
    // In one file too, and with matches and their context apart.
    w.file("one/all.txt", "a\nhit\nb\n\n\n".repeat(300));
    let with = |more: Value| {
        let mut input = json!({"pattern": "hit", "path": "one/all.txt"});
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        input
    };
    assert_eq!(pages(&w, with(json!({"head_limit": 7}))).await.0.len(), 300);
    let whole = content(&w, with(json!({"-C": 1, "head_limit": 0}))).await;
    let shown = content(&w, with(json!({"-C": 1, "offset": 2, "head_limit": 4}))).await;
    let from: Vec<&str> = whole.lines().skip(2).take(5).collect();
    assert_eq!(shown.lines().take(5).collect::<Vec<_>>(), from, "with the line between two groups");
}

#[tokio::test]
async fn what_is_beyond_eight_megabytes_of_results_is_reached() {
    let w = World::new();
    for n in 0..12 {
        let line = |i| format!("hit {n} {i} {}\n", "x".repeat(900));
        w.file(&format!("f{n:02}.txt"), (0..1_500).map(line).collect::<String>());
    }
    let line = "hit ".to_owned() + &"y".repeat(900) + "\n";
    w.file("z.txt", line.repeat(20_000));
    for (path, offset, starts) in [
        (".", 16_499, "f10.txt:1500:hit 10 1499 xx"),
        (".", 18_000 + 15_000, "z.txt:15001:hit yy"),
        ("z.txt", 19_990, "z.txt:19991:hit yy"),
    ] {
        let shown = content(&w, json!({"pattern": "hit", "path": path, "offset": offset})).await;
        assert!(shown.starts_with(starts), "{offset}: {}", &shown[..60]);
        let more = shown.contains(&format!("more follow with offset {}", offset + 10));
        assert!(!more && !shown.contains("nothing behind"));
        assert_eq!(shown.contains("more follow with offset"), offset != 19_990, "{offset}");
    }
    let shown = content(&w, json!({"pattern": "hit", "offset": 38_000})).await;
    assert_eq!(shown, "[there is nothing behind offset 38000.]");
}

#[tokio::test]
async fn h_grp_01_a_folder_that_is_named_is_searched_though_one_file_in_it_is_not_ignored() {
    let w = World::new();
    std::fs::create_dir(w.path(".git")).unwrap();
    w.file(".gitignore", "dist/*\n!dist/index.html\n");
    w.file("dist/index.html", "plain\n");
    w.file("dist/a.js", "needle\n");
    for (tool, input, starts) in [
        (
            "Grep",
            json!({"pattern": "needle", "path": "dist"}),
            "1 file:\ndist/a.js\n\n[nothing matched among what",
        ),
        ("Glob", json!({"pattern": "dist/**/*.js"}), "dist/a.js\n\n[nothing matched among what"),
    ] {
        let shown = w.ok(tool, input).await;
        assert!(shown.starts_with(starts) && !shown.contains("skipped"), "{shown}");
    }
    // What the rules leave counts first, and nothing stays nothing.
    let shown = w.ok("Grep", json!({"pattern": "plain", "path": "dist"})).await;
    assert!(shown.starts_with("1 file:\ndist/index.html\n\n[1 file or folder was skipped"), "{shown}");
    let shown = w.ok("Grep", json!({"pattern": "absent", "path": "dist"})).await;
    assert!(shown.starts_with("No match.\n\n[1 file or folder was skipped"), "{shown}");
}

#[tokio::test]
async fn links_that_were_not_followed_are_told_when_nothing_matches() {
    let w = World::new();
    w.file("AGENTS.md", "plain\n");
    w.file("docs/a.md", "x\n");
    symlink("../AGENTS.md", w.path("docs/CLAUDE.md")).unwrap();
    symlink("..", w.path("docs/up")).unwrap();
    symlink("nowhere", w.path("docs/dangling")).unwrap();
    let shown = w.ok("Grep", json!({"pattern": "plain", "path": "docs"})).await;
    assert_eq!(shown, "No match.\n\n[1 link to files not followed: name one outright to search it.]");
    assert_eq!(w.ok("Grep", json!({"pattern": "plain"})).await, "1 file:\nAGENTS.md");
}

#[tokio::test]
async fn the_end_of_a_line_is_found_in_files_of_either_kind() {
    let w = World::new();
    w.file("crlf.txt", "the end\r\nno\r\n");
    w.file("lf.txt", "the end\nno\n");
    for (pattern, multiline) in [("end$", false), ("end$", true), ("^.*d$", false)] {
        let shown = content(&w, json!({"pattern": pattern, "multiline": multiline, "-o": true})).await;
        assert_eq!(shown.lines().count(), 2, "{shown}");
        assert!(!shown.contains('\r'));
    }
    // Who searches for CR finds it.
    assert_eq!(w.ok("Grep", json!({"pattern": r"end\r$"})).await, "1 file:\ncrlf.txt");
    assert_eq!(w.ok("Grep", json!({"pattern": r"end\r\nno", "multiline": true})).await, "1 file:\ncrlf.txt");
}

#[tokio::test]
async fn what_a_filter_leaves_of_a_named_folder_says_nothing_of_its_rules() {
    let w = World::new();
    std::fs::create_dir(w.path(".git")).unwrap();
    w.file("p/.gitignore", "node_modules\n");
    w.file("p/src/a.rs", "QQQ\n");
    w.file("p/node_modules/b.js", "QQQ\n");
    let found = w.ok("Grep", json!({"pattern": "QQQ", "path": "p", "type": "js"})).await;
    assert!(found.contains("node_modules/b.js"), "{found}");
    assert!(found.contains("ignored and hidden files too"), "and it is said where they come from: {found}");
}
