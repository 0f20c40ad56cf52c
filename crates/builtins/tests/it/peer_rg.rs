//! Grep and Glob beside ripgrep itself: the same questions over one tree have the same answers.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value, json};

use crate::world::World;

fn rg() -> PathBuf {
    let folder = std::env::var_os("OPEN_AGENT_PEER_RG").expect("run this with `cargo xtask peers rg`");
    Path::new(&folder).join("bin/rg")
}

/// A tree with all that a search has to be careful about.
fn tree() -> World {
    let w = World::new();
    for folder in [".git/objects", "links", "empty"] {
        std::fs::create_dir_all(w.path(folder)).unwrap();
    }
    w.file(".git/config", "needle in git\n");
    w.file(".git/info/exclude", "excluded.txt\n");
    w.file(".gitignore", "/target\n*.log\n!keep.log\nbuild/\n# comment\n\\#odd\n");
    w.file(".ignore", "vendored/**\n");
    w.file(".rgignore", "rgskip.txt\n");
    w.file("sub/.gitignore", "local.txt\n/deep/*.tmp\n!deep/keep.tmp\n");
    for name in [
        "target/t.rs",
        "x.log",
        "keep.log",
        "build/b.rs",
        "sub/build/c.rs",
        "vendored/v.rs",
        "rgskip.txt",
        "excluded.txt",
        "sub/local.txt",
        "sub/deep/a.tmp",
        "sub/deep/keep.tmp",
        ".hidden.rs",
        ".config/app.toml",
        "#odd",
    ] {
        w.file(name, format!("needle in {name}\nother line\n"));
    }
    for n in 0..40 {
        let ext = ["rs", "py", "js", "md", "txt"][n % 5];
        let mut body = String::new();
        for i in 0..60 {
            match (i * 7 + n * 3) % 11 {
                0 => body.push_str(&format!("fn handle_{n}_{i}(x: u32) -> Needle {{\n")),
                1 => body.push_str("    let needle = config;\n"),
                2 => body.push('\n'),
                3 => body.push_str(&format!("\tAlpha beta GAMMA {i}\n")),
                4 => body.push_str("größe überall naïve café\n"),
                5 => body.push_str("}\n"),
                _ => body.push_str(&format!("// line {i} of file {n}, nothing here\n")),
            }
        }
        w.file(&format!("src/m{}/f{n}.{ext}", n % 4), body);
    }
    w.file("crlf.txt", "needle one\r\nneedle two\r\nend\r\n");
    w.file("no-end.txt", "first\nneedle without end");
    w.file("empty.txt", "");
    w.file("binary.bin", b"needle\0needle\n");
    w.file("late.bin", [&b"needle\n".repeat(20_000)[..], b"\0\n"].concat());
    w.file("latin.txt", b"caf\xE9 needle\n");
    w.file(
        "wide.txt",
        "needle wide\n".encode_utf16().fold(vec![0xFF, 0xFE], |mut v, u| {
            v.extend(u.to_le_bytes());
            v
        }),
    );
    w.file("mark.txt", "\u{feff}needle mark\n");
    for name in [
        "with space.txt",
        "-dash.txt",
        "a:b.txt",
        "quote\".txt",
        "ünï.txt",
        "UPPER.TXT",
        "[x].txt",
        "{y}.txt",
    ] {
        w.file(name, format!("needle {name}\n"));
    }
    std::fs::write(w.root.join(OsStr::from_bytes(b"bad\xFFname.txt")), "needle\n").unwrap();
    w.file(&format!("{}/deep.txt", ["d"; 30].join("/")), "needle deep\n");
    symlink("../src/m0", w.path("links/folder")).unwrap();
    symlink("..", w.path("links/cycle")).unwrap();
    symlink("../crlf.txt", w.path("links/file.txt")).unwrap();
    symlink("nowhere", w.path("links/dangling")).unwrap();
    w
}

fn lines(w: &World, args: &[&str]) -> Vec<String> {
    let mut command = Command::new(rg());
    command.current_dir(&w.root).env_clear().args(["--no-config", "--color=never", "--sort=path"]).args(args);
    let output = command.output().unwrap();
    assert!(
        output.status.code().is_some_and(|c| c < 2),
        "{args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout.split(|b| *b == b'\n').map(shown).filter(|line| !line.is_empty()).collect()
}

/// As Read shows it, without the line end's CR.
fn shown(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let line = line.strip_prefix(b"./").unwrap_or(line);
    String::from_utf8_lossy(line).replace("caf\u{fffd}", "café")
}

fn without_notes(text: &str) -> Vec<String> {
    let text = match text.rfind("\n\n[") {
        Some(at) if text.ends_with(']') => &text[..at],
        _ => text,
    };
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// Options that each question is put with: ours, and ripgrep's.
fn options() -> Vec<(Value, Vec<&'static str>)> {
    vec![
        (json!({"output_mode": "content"}), vec!["-n"]),
        (json!({"output_mode": "content", "-n": false, "-i": true}), vec!["-N", "-i"]),
        (json!({"output_mode": "content", "-C": 2}), vec!["-n", "-C2"]),
        (
            json!({"output_mode": "content", "-A": 1, "-B": 3, "glob": "*.rs"}),
            vec!["-n", "-A1", "-B3", "-g", "*.rs"],
        ),
        (json!({"output_mode": "content", "-o": true}), vec!["-n", "-o"]),
        (
            json!({"output_mode": "content", "-o": true, "-i": true, "type": "py"}),
            vec!["-n", "-o", "-i", "-tpy"],
        ),
        (json!({"output_mode": "content", "multiline": true}), vec!["-n", "-U", "--multiline-dotall"]),
        (
            json!({"output_mode": "content", "multiline": true, "-o": true}),
            vec!["-n", "-U", "--multiline-dotall", "-o"],
        ),
        (json!({"output_mode": "count"}), vec!["-c"]),
        (json!({"output_mode": "count", "multiline": true}), vec!["-c", "-U", "--multiline-dotall"]),
        (json!({}), vec!["-l"]),
        (json!({"glob": "!*.rs"}), vec!["-l", "-g", "!*.rs"]),
        (json!({"glob": "src/**/*.{py,js}"}), vec!["-l", "-g", "src/**/*.{py,js}"]),
        (json!({"glob": "*.log"}), vec!["-l", "-g", "*.log"]),
        (json!({"type": "md", "-i": true}), vec!["-l", "-tmd", "-i"]),
        (json!({"path": "sub"}), vec!["-l", "--", "sub"]),
        (json!({"path": ".config"}), vec!["-l", "--", ".config"]),
        (json!({"path": "src/m1", "output_mode": "count"}), vec!["-c", "--", "src/m1"]),
        (json!({"path": "x.log", "output_mode": "content"}), vec!["-n", "-H", "--", "x.log"]),
    ]
}

const PATTERNS: &[&str] = &[
    "needle",
    r"\bneedle\b",
    r"fn handle_\w+\(",
    r"^\s*$",
    "^needle",
    "end$",
    "größe|café",
    r"[A-Z]{5}",
    r"config;\n\}",
    "x*",
    r"line 1\d of",
    "absent_everywhere",
    r"(?i)NEEDLE",
    r"\w+ überall",
];

#[tokio::test]
#[ignore = "needs ripgrep: `cargo xtask peers rg`"]
async fn peer_rg_finds_the_same_lines() {
    let w = tree();
    let (mut compared, mut wrong) = (0, Vec::new());
    for pattern in PATTERNS {
        for (ours, theirs) in options() {
            let is_listing_nothing = *pattern == "x*" && theirs.contains(&"-o");
            if is_listing_nothing || (pattern.contains("\\n") && ours["multiline"] != true) {
                continue;
            }
            let mut input: Map<String, Value> = ours.as_object().unwrap().clone();
            input.insert("pattern".into(), json!(pattern));
            input.insert("head_limit".into(), json!(0));
            // In ours `$` fits before CR LF without being asked for it.
            let mut args = vec!["--crlf", "-e", *pattern];
            args.extend(&theirs);
            // Where ours has a heading of its own.
            let heading = usize::from(input.get("output_mode") != Some(&json!("content")));
            let text = w.ok("Grep", Value::Object(input.clone())).await;
            if text.chars().count() > 99_000 {
                continue;
            }
            let mut got = without_notes(&text);
            if got.first().is_some_and(|l| l == "No match.") {
                got.clear();
            } else {
                got.drain(..heading.min(got.len()));
            }
            let mut want = lines(&w, &args);
            // Sorted, for a path's parts and its letters sort differently; and ripgrep tells of binary files in its lines.
            want.retain(|line| !line.contains("binary file matches") && !line.contains("WARNING: stopped"));
            // Ours does not list matches of nothing.
            if theirs.contains(&"-o") {
                want.retain(|line| !line.ends_with(':'));
            }
            got.sort();
            want.sort();
            compared += 1;
            if got != want {
                let extra: Vec<_> = got.iter().filter(|l| !want.contains(l)).take(4).collect();
                let missing: Vec<_> = want.iter().filter(|l| !got.contains(l)).take(4).collect();
                wrong.push(format!("{pattern:?} {args:?}\n  {} and {} lines, only ours: {extra:?}\n  only theirs: {missing:?}", got.len(), want.len()));
            }
        }
    }
    assert!(compared > 200, "{compared}");
    assert!(wrong.is_empty(), "{} of {compared} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test]
#[ignore = "needs ripgrep: `cargo xtask peers rg`"]
async fn peer_rg_finds_the_same_files() {
    let w = tree();
    let all: BTreeSet<String> = lines(&w, &["--files"]).into_iter().collect();
    for (pattern, anchored) in [
        ("*.rs", "*.rs"),
        ("**/*.py", "**/*.py"),
        ("src/**/*.md", "/src/**/*.md"),
        ("src/m0/*", "/src/m0/*"),
        ("src/*/f1*.{js,txt}", "/src/*/f1*.{js,txt}"),
        ("*.txt", "*.txt"),
        ("*.TXT", "*.TXT"),
        ("?.txt", "?.txt"),
        ("[a-d]*.txt", "[a-d]*.txt"),
        ("\\[x\\].txt", "\\[x\\].txt"),
        ("d/**/deep.txt", "/d/**/deep.txt"),
        ("sub/**", "/sub/**"),
        ("*", "*"),
        ("links/*", "/links/*"),
        ("f?.{rs,py}", "f?.{rs,py}"),
    ] {
        let named: BTreeSet<String> = lines(&w, &["--files", "-g", anchored]).into_iter().collect();
        let want: BTreeSet<String> = named.intersection(&all).cloned().collect();
        let text = w.ok("Glob", json!({"pattern": pattern})).await;
        // Ours lists links to files; ripgrep does so with --follow only, which enters folders by them as well.
        let is_theirs = |name: &String| name != "No file matches." && !w.path(name).is_symlink();
        let got: BTreeSet<String> = without_notes(&text).into_iter().filter(is_theirs).collect();
        assert_eq!(got, want, "{pattern}");
    }
}
