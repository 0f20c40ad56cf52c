//! Paths between model and files. Owns how they are located, shown and, when nothing is there, guessed.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use open_agent_model::{Access, FileStamp};
use open_agent_tool::{Located, PortError, ToolCx, ToolError};

/// As many names of a folder are compared with one that is not there.
const MAX_COMPARED: usize = 2_000;

/// Where a path that the model wrote leads, or why that cannot be known. It is looked up once, while the call is planned,
/// and the call keeps it.
pub(crate) type Lookup = Result<Located, ToolError>;

/// Looks up the path that the model means.
pub(crate) fn locate(cx: &ToolCx, path: &str) -> Lookup {
    if path.is_empty() {
        return Err(ToolError::bad_input("the path is empty"));
    }
    Ok(cx.files().locate(cx.cwd(), Path::new(path))?)
}

/// What a call that reads `path` touches. A path that cannot be looked up is named as written; the call will fail on it.
pub(crate) fn read_access(cx: &ToolCx, path: &str, found: &Lookup) -> Access {
    Access::Read(match found {
        Ok(at) => at.path().to_owned(),
        Err(_) => cx.cwd().join(path),
    })
}

/// What a call that changes the file at `path` touches. What cannot be looked up is not written.
pub(crate) fn write_access(cx: &ToolCx, path: &str, found: &Lookup) -> Vec<Access> {
    let read = read_access(cx, path, found);
    match found {
        Ok(at) => vec![Access::Write(at.path().to_owned()), read],
        Err(_) => vec![read],
    }
}

/// Rejects the path of a new file that ends as a folder's does.
pub(crate) fn check_names_a_file(path: &str) -> Result<(), ToolError> {
    if path.ends_with('/') || path.ends_with("/.") || path.ends_with("/..") {
        return Err(ToolError::bad_input(format!("{path} names a folder; give the path of a file")));
    }
    Ok(())
}

/// Checks that a file is as the session last saw it, for only then it may be changed.
pub(crate) fn check_seen(cx: &ToolCx, path: &Path, now: FileStamp) -> Result<(), ToolError> {
    match cx.seen(path) {
        Some(seen) if now.agrees_with(&seen) => Ok(()),
        Some(_) => Err(ToolError::new(changed(cx, path))),
        None => Err(ToolError::new(format!(
            "{} exists and has not been read in this session. Read it first.",
            shown(cx, path)
        ))),
    }
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
        let Ok(at) = cx.files().locate(cx.cwd(), folder) else { continue };
        for other in first_names(cx, &at) {
            let likeness =
                similar::TextDiff::from_chars(name.as_str(), other.to_string_lossy().to_lowercase().as_str())
                    .ratio();
            if likeness >= 0.7 {
                let other = at.path().join(other).display().to_string();
                found.push((1_000 - (likeness * 1_000.0) as u32, other));
            }
        }
    }
    found.sort();
    found.dedup();
    found.into_iter().take(3).map(|(_, path)| path).collect()
}

/// The first names of a folder; none of what is no folder.
fn first_names(cx: &ToolCx, folder: &Located) -> Vec<OsString> {
    let Ok(folder) = cx.files().read_dir(folder, Path::new("")) else { return Vec::new() };
    let mut entries = Vec::new();
    while entries.len() < MAX_COMPARED && folder.next_batch(&mut entries).is_ok_and(|more| more) {}
    entries.into_iter().take(MAX_COMPARED).map(|entry| entry.name).collect()
}
