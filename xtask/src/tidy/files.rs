//! The files of the project, and the Rust sources among them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use ignore::WalkBuilder;

use super::code::Code;

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
    /// Lists every file below `root` that no `.gitignore` of the project excludes. A new file counts before it is added
    /// to git, so that tidy says the same before and after a commit. Git itself is not asked: a machine on which the
    /// project is only built and tested need not have it. For the same reason neither the user's own ignore rules
    /// nor those of folders above the project count.
    pub(super) fn load(root: &Path) -> Result<Tracked> {
        let mut walk = WalkBuilder::new(root);
        walk.standard_filters(false).git_ignore(true).require_git(false);
        walk.filter_entry(|entry| entry.file_name() != ".git");
        let mut all = Vec::new();
        for entry in walk.build() {
            let entry = entry?;
            // A link to a folder is no file, and neither is a link that leads nowhere.
            if entry.path().is_file() {
                let path = entry.path().strip_prefix(root)?;
                all.push(path.to_string_lossy().replace('\\', "/"));
            }
        }
        all.sort_unstable();
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
