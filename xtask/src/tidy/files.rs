//! The files that git tracks or would track, and the Rust sources among them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::code::Code;
use crate::shell;

pub(super) struct Tracked {
    root: PathBuf,
    /// Relative to the root, with `/`.
    pub(super) all: Vec<String>,
}

/// One Rust file, read and split into what is code and what is not.
pub(super) struct RustSource {
    pub(super) path: String,
    pub(super) text: String,
    pub(super) code: Code,
}

impl Tracked {
    /// New files count before they are added, so that tidy says the same before and after a commit.
    pub(super) fn load(root: &Path) -> Result<Tracked> {
        let mut git = Command::new("git");
        git.current_dir(root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let out = shell::quiet(&mut git).context("tidy needs a git checkout to know which files are ours")?;
        let mut all: Vec<String> = String::from_utf8_lossy(&out)
            .split_terminator('\0')
            .filter(|path| root.join(path).is_file()) // neither deleted nor a link to a folder
            .map(String::from)
            .collect();
        all.sort_unstable();
        all.dedup();
        Ok(Tracked { root: root.to_path_buf(), all })
    }

    pub(super) fn rust_sources(&self) -> Vec<RustSource> {
        let rust = self.all.iter().filter(|path| path.ends_with(".rs"));
        rust.filter_map(|path| {
            let text = self.text(path)?;
            let code = Code::read(&text, is_test_path(path));
            Some(RustSource { path: path.clone(), text, code })
        })
        .collect()
    }

    /// `None` for a file that is no text.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        let bytes = fs::read(self.root.join(path)).ok()?;
        if bytes.contains(&0) { None } else { String::from_utf8(bytes).ok() }
    }
}

/// Files that are no part of what users link: here tests' habits are allowed.
fn is_test_path(path: &str) -> bool {
    ["/tests/", "/benches/", "/examples/"].iter().any(|folder| path.contains(folder))
        || path.starts_with("examples/")
        || path.ends_with("/tests.rs")
}
