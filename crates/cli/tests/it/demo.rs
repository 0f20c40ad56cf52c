//! The demo as a stranger runs it: the job's test fails before and passes after, with one file changed; without the tool
//! that runs the test it fails.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn demo(home: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_open-agent"))
        .arg("demo")
        .args(args)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", home)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn test_passes(folder: &Path) -> bool {
    Command::new("sh").arg("test.sh").current_dir(folder).output().unwrap().status.success()
}

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let read = |name: &&str| ((*name).to_owned(), std::fs::read(folder.join(name)).unwrap());
    ["README.md", "test.sh", "src/numbers.sh", "src/text.sh"].iter().map(read).collect()
}

#[test]
fn the_demo_fixes_a_bug_for_three_seeds_and_leaves_a_session() {
    for seed in ["1", "4", "6"] {
        let home = tempfile::tempdir().unwrap();
        let (before, after) = (home.path().join("before"), home.path().join("after"));
        let untouched = demo(
            home.path(),
            &["--seed", seed, "--keep", before.to_str().unwrap(), "--disallowed-tools", "Edit"],
        );
        assert_eq!(untouched.status.code(), Some(1), "without Edit the demo fails");
        assert!(!test_passes(&before), "seed {seed}: the test fails before");

        let done = demo(home.path(), &["--seed", seed, "--keep", after.to_str().unwrap()]);
        let text = String::from_utf8(done.stdout).unwrap();
        assert_eq!(done.status.code(), Some(0), "{text}");
        assert!(test_passes(&after), "seed {seed}: the test passes after");
        assert!(text.contains("no real model is asked") && text.contains("fixed: "), "{text}");
        let (was, is) = (files(&before), files(&after));
        let changed: Vec<&String> = is.keys().filter(|name| was[*name] != is[*name]).collect();
        assert_eq!(changed.len(), 1, "one file is changed: {changed:?}");
        assert!(changed[0].starts_with("src/"));

        let session = text.lines().find_map(|l| l.strip_prefix("session  ")).unwrap();
        let log = home.path().join(".open-agent-sdk/sessions").join(session).join("transcript.jsonl");
        assert!(std::fs::read_to_string(log).unwrap().contains("run_ended"));
    }
}

#[test]
fn without_bash_the_demo_ends_as_failed() {
    let home = tempfile::tempdir().unwrap();
    let out = demo(home.path(), &["--disallowed-tools", "Bash"]);
    assert_eq!(out.status.code(), Some(1));
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(text.contains("There is no tool \"Bash\"") && text.contains("failed: "), "{text}");
}

#[test]
fn a_folder_with_something_in_it_is_refused() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("mine"), "x").unwrap();
    let out = demo(home.path(), &["--keep", home.path().to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8(out.stderr).unwrap().contains("is not empty"));
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1);
}

#[test]
fn without_a_home_the_demo_runs_and_leaves_no_session() {
    let out = Command::new(env!("CARGO_BIN_EXE_open-agent"))
        .arg("demo")
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
}
