//! A workspace that keeps all rules, small enough to be checked in a blink, to plant faults in.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

/// Folder, package, and the packages it depends on.
const CRATES: &[(&str, &str, &[&str])] = &[
    ("crates/model", "open-agent-model", &[]),
    ("crates/tool", "open-agent-tool", &["model"]),
    ("crates/session", "open-agent-session", &["model"]),
    ("crates/http", "open-agent-http", &["model"]),
    ("crates/policy", "open-agent-policy", &["model", "tool"]),
    ("crates/providers", "open-agent-providers", &["model", "http"]),
    ("crates/builtins", "open-agent-builtins", &["tool"]),
    ("crates/sandbox", "open-agent-sandbox", &["policy"]),
    ("crates/engine", "open-agent-engine", &["session", "policy"]),
    ("crates/testkit", "open-agent-testkit", &["session"]),
    ("crates/open-agent", "open-agent", &["engine", "providers", "builtins", "sandbox"]),
    ("crates/cli", "open-agent-cli", &[]),
    ("xtask", "xtask", &[]),
];

pub(crate) struct Workspace {
    root: PathBuf,
}

impl Workspace {
    /// `name` keeps the tests of one run apart.
    pub(crate) fn new(name: &str) -> Result<Workspace> {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tidy-{name}-{}", std::process::id()));
        if root.exists() {
            fs::remove_dir_all(&root)?;
        }
        let workspace = Workspace { root };
        workspace
            .write("Cargo.toml", "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\", \"xtask\"]\n")?;
        workspace.write(".gitignore", "target/\n")?;
        for (folder, package, deps) in CRATES {
            let mut manifest = format!(
                "[package]\nname = \"{package}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[features]\ndefault = [\"server\"]\nserver = []\n"
            );
            manifest.push_str("[dependencies]\n");
            for dep in *deps {
                manifest.push_str(&format!("open-agent-{dep} = {{ path = \"../{dep}\" }}\n"));
            }
            workspace.write(&format!("{folder}/Cargo.toml"), &manifest)?;
            workspace.write(&format!("{folder}/src/lib.rs"), "//! A crate.\n")?;
        }
        Ok(workspace)
    }

    pub(crate) fn write(&self, path: &str, text: &str) -> Result<()> {
        let path = self.root.join(path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        Ok(fs::write(path, text)?)
    }

    pub(crate) fn append(&self, path: &str, text: &str) -> Result<()> {
        let before = fs::read_to_string(self.root.join(path))?;
        self.write(path, &(before + text))
    }

    /// Whether tidy passes, and what it printed.
    pub(crate) fn tidy(&self) -> Result<(bool, String)> {
        self.run(Command::new(env!("CARGO")).args(["generate-lockfile", "--offline", "--quiet"]))?;
        let out =
            Command::new(env!("CARGO_BIN_EXE_xtask")).args(["tidy", "--root"]).arg(&self.root).output()?;
        let text = String::from_utf8(out.stdout)? + &String::from_utf8(out.stderr)?;
        Ok((out.status.success(), text))
    }

    fn run(&self, command: &mut Command) -> Result<()> {
        let out = command.current_dir(&self.root).output()?;
        ensure!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
        Ok(())
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.root).ok();
    }
}
