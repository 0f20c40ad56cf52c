//! Logs of this version before an older program: the same crates, built with one kind of entry and one deciding value less.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use open_agent_model::{AgentId, PermissionMode, QueueId, RunId, Seq, SessionId, Timestamp};
use open_agent_session::{
    JsonlStore, ModelSettings, RunLimits, RunStarted, SessionEntry, SessionStarted, Stored, encode,
};
use open_agent_testkit::cases;

/// What the older program does not know yet: a piece of a file, and what stands in its place there.
const NOT_YET: [(&str, &str, &str); 6] = [
    (
        "session/src/entry.rs",
        "    Unqueued {\n        /// Which message.\n        id: QueueId,\n    },\n    /// A run begins.\n",
        "",
    ),
    ("session/src/outline.rs", "                | SessionEntry::Unqueued { .. }\n", ""),
    (
        "model/src/call.rs",
        "    /// Nothing runs that changes anything; the model makes a plan.\n    Plan,\n",
        "",
    ),
    ("model/src/call.rs", "[Self; 6]", "[Self; 5]"),
    ("model/src/call.rs", "Self::Plan, ", ""),
    ("model/src/call.rs", "            Self::Plan => \"plan\",\n", ""),
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn fixtures() -> PathBuf {
    crates().join("session/tests/fixtures")
}

fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_all(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Builds the older program and returns its path.
fn older_program() -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("older_reader");
    let _ = fs::remove_dir_all(place.join("crates"));
    for name in ["model", "session"] {
        let (from, to) = (crates().join(name), place.join("crates").join(name));
        copy_all(&from.join("src"), &to.join("src"));
        let manifest = fs::read_to_string(from.join("Cargo.toml")).unwrap();
        // What only tests need is not copied.
        let manifest = manifest.split("[dev-dependencies]").next().unwrap();
        fs::write(to.join("Cargo.toml"), manifest).unwrap();
    }
    for (file, known, older) in NOT_YET {
        let path = place.join("crates").join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.matches(known).count(), 1, "{file} holds this once: {known:?}");
        fs::write(&path, text.replace(known, older)).unwrap();
    }
    let program = place.join("crates/reader");
    fs::create_dir_all(program.join("src")).unwrap();
    fs::copy(fixtures().join("older_reader.rs"), program.join("src/main.rs")).unwrap();
    let manifest = "[package]\nname = \"older-reader\"\nversion.workspace = true\nedition.workspace = true\n\n[dependencies]\n\
                    open-agent-model.workspace = true\nopen-agent-session.workspace = true\n\
                    tokio = { workspace = true, features = [\"macros\", \"rt\"] }\n";
    fs::write(program.join("Cargo.toml"), manifest).unwrap();
    let root = crates().parent().unwrap().to_owned();
    let workspace = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let members = "members = [\"crates/*\", \"xtask\"]";
    assert!(workspace.contains(members), "the workspace lists its members like this");
    fs::write(place.join("Cargo.toml"), workspace.replace(members, "members = [\"crates/*\"]")).unwrap();
    fs::copy(root.join("Cargo.lock"), place.join("Cargo.lock")).unwrap();
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--offline", "--bin", "older-reader", "--target-dir"])
        .arg(place.join("target"))
        .current_dir(&place)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    place.join("target/debug/older-reader")
}

/// What the older program says of a log, and the copy that it makes.
fn try_log(program: &Path, log: &[u8]) -> (String, Vec<u8>, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let store = JsonlStore::new(folder.path());
    let [path, copy] = ["log", "copy"].map(|name| store.path(&SessionId::new(name).unwrap()));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, log).unwrap();
    let output = Command::new(program).arg(folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    (said.replace(path.to_str().unwrap(), "LOG"), fs::read(path).unwrap(), fs::read(copy).unwrap())
}

fn log_of(entries: Vec<SessionEntry>) -> Vec<u8> {
    let started = SessionStarted {
        root: "/project".into(),
        agent: AgentId::main(),
        parent: None,
        forked_from: None,
        product: "test".into(),
    };
    let entries = [SessionEntry::SessionStarted(started)].into_iter().chain(entries);
    let lines = entries.zip(1..).flat_map(|(entry, seq)| {
        let record = encode(&Stored::new(Seq(seq), Timestamp(1), entry)).unwrap();
        [record.bytes(), b"\n"].concat()
    });
    lines.collect()
}

fn run_in(mode: PermissionMode) -> SessionEntry {
    SessionEntry::RunStarted(RunStarted {
        run: RunId::from_number(1),
        settings: ModelSettings { model: "m".into(), thinking: None, effort: None },
        mode,
        limits: RunLimits::default(),
    })
}

/// In deep runs only: it builds two crates.
#[test]
fn an_older_program_reads_and_copies_a_newer_log_byte_for_byte_and_never_writes_it() {
    if !cases(false, true) {
        return;
    }
    let program = older_program();
    let known = log_of(vec![run_in(PermissionMode::Auto), SessionEntry::Interrupted {}]);
    let (said, now, copy) = try_log(&program, &known);
    assert_eq!(said, "opened\nread 4 records, damage in 0 places\n");
    assert!(
        now.starts_with(&known) && now.len() > known.len() && copy == now,
        "it goes on with what it knows"
    );

    let unqueued = SessionEntry::Unqueued { id: QueueId::from_number(1) };
    let refused = "Session log was written by a later version of this program: continue it with that one; this version \
                   can only read it";
    for (entry, what) in [(unqueued, "unqueued"), (run_in(PermissionMode::Plan), "plan")] {
        let log = log_of(vec![run_in(PermissionMode::Auto), entry, SessionEntry::Interrupted {}]);
        let (said, now, copy) = try_log(&program, &log);
        let (first, rest) = said.split_once('\n').unwrap();
        assert!(first.starts_with("refused: LOG, line 3: ") && first.contains(what), "{said}");
        assert!(first.ends_with(refused), "{said}");
        assert_eq!(rest, "read 3 records, damage in 0 places\n");
        assert!(now == log && copy == log, "{what}");
    }

    // Every kind of record, as it is stored.
    let fixture = fs::read(fixtures().join("v1.jsonl")).unwrap();
    let (said, now, copy) = try_log(&program, &fixture);
    assert!(said.starts_with("refused: LOG, line 6: ") && said.contains("damage in 0 places"), "{said}");
    assert!(now == fixture && copy == fixture);
}
