//! Paths between model and files. Owns how they are resolved, shown and, when nothing is there, guessed.

use std::io;
use std::path::{Path, PathBuf};

use open_agent_model::Access;
use open_agent_tool::{PortError, ToolCx, ToolError};

/// The real path that the model means.
pub(crate) fn resolve(cx: &ToolCx, path: &str) -> Result<PathBuf, ToolError> {
    if path.is_empty() {
        return Err(ToolError::bad_input("the path is empty"));
    }
    Ok(cx.files().resolve(cx.cwd(), Path::new(path))?)
}

/// What a call that reads `path` touches. A path that cannot be resolved is named as written; the call will fail on it.
pub(crate) fn read_access(cx: &ToolCx, path: &str) -> Access {
    Access::Read(resolve(cx, path).unwrap_or_else(|_| cx.cwd().join(path)))
}

/// The path as people write it: relative below the working folder.
pub(crate) fn shown<'a>(cx: &ToolCx, path: &'a Path) -> std::borrow::Cow<'a, str> {
    match path.strip_prefix(cx.cwd()) {
        Ok(rest) if !rest.as_os_str().is_empty() => rest.to_string_lossy(),
        _ => path.to_string_lossy(),
    }
}

/// Whether the error says that nothing is there.
pub(crate) fn is_missing(error: &PortError) -> bool {
    matches!(error, PortError::Io { source, .. }
        if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory))
}

/// Why a file cannot be read, with what to do instead.
pub(crate) fn explain(cx: &ToolCx, path: &Path, error: PortError) -> ToolError {
    let text = match &error {
        PortError::WrongKind { what: "a folder", .. } => format!(
            "{} is a folder. List it with Glob (pattern \"*\", path {:?}) or with ls in Bash.",
            path.display(),
            path
        ),
        PortError::WrongKind { what, .. } => {
            format!("{} is {what}; only files can be read or written.", path.display())
        }
        PortError::Changed { .. } => changed(cx, path),
        error if is_missing(error) => missing(cx, path),
        error => error.to_string(),
    };
    ToolError::new(text).with_source(error)
}

/// That a file is not what the session knows.
pub(crate) fn changed(cx: &ToolCx, path: &Path) -> String {
    format!(
        "{} was changed by someone else since it was last read. Nothing was written. Read it again first.",
        shown(cx, path)
    )
}

fn missing(cx: &ToolCx, path: &Path) -> String {
    let mut text =
        format!("{} does not exist (the working folder is {}).", path.display(), cx.cwd().display());
    let names = similar_names(cx, path);
    if !names.is_empty() {
        text.push_str(" Did you mean ");
        text.push_str(&names.join(" or "));
        text.push('?');
    }
    text
}

/// Up to three files that are named much like `path`: in its folder, or of the same name below the working folder's top.
fn similar_names(cx: &ToolCx, path: &Path) -> Vec<String> {
    let Some(name) = path.file_name().map(|n| n.to_string_lossy().to_lowercase()) else { return Vec::new() };
    let mut found: Vec<(u32, String)> = Vec::new();
    for folder in [path.parent().unwrap_or(path), cx.cwd(), cx.root()] {
        let Ok(folder) = cx.files().walk_root(folder) else { continue };
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten().take(2_000) {
            let other = entry.file_name().to_string_lossy().to_lowercase();
            let likeness = similar::TextDiff::from_chars(name.as_str(), other.as_str()).ratio();
            if likeness >= 0.7 {
                found.push((1_000 - (likeness * 1_000.0) as u32, entry.path().display().to_string()));
            }
        }
    }
    found.sort();
    found.dedup();
    found.into_iter().take(3).map(|(_, path)| path).collect()
}
