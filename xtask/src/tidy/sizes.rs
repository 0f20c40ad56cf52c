//! Sizes: a file over the limit fails unless it is listed with a reason; a long function is worth a look.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

use super::Report;
use super::files::{RustSource, Tracked};

const FILE_LIMIT: usize = 700;
const FUNCTION_LIMIT: usize = 100;

/// One file a line: `path: reason`. Tables and generated code, nothing that could be split.
const LISTED: &str = "xtask/long-files.txt";

/// Returns how many lines of Rust there are.
pub(super) fn check(files: &Tracked, sources: &[RustSource], report: &mut Report) -> Result<usize> {
    let listed = listed(files)?;
    let mut total = 0;
    for source in sources {
        let lines = source.text.lines().count();
        total += lines;
        let excused = listed.contains_key(&source.path);
        if lines > FILE_LIMIT && !excused {
            report.error(format!(
                "{}: {lines} lines, more than {FILE_LIMIT}: split it, or list it in {LISTED} with a reason",
                source.path
            ));
        }
        if lines <= FILE_LIMIT && excused {
            report.error(format!("{}: {lines} lines, needs no line in {LISTED} any more", source.path));
        }
        long_functions(source, report);
    }
    for path in listed.keys().filter(|path| !sources.iter().any(|source| source.path == **path)) {
        report.error(format!("{LISTED} names {path}, which does not exist"));
    }
    Ok(total)
}

fn listed(files: &Tracked) -> Result<BTreeMap<String, String>> {
    let mut listed = BTreeMap::new();
    let text = files.text(LISTED).unwrap_or_default();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.split_once(": ") {
            Some((path, reason)) if !reason.trim().is_empty() => {
                listed.insert(path.to_string(), reason.to_string());
            }
            _ => bail!("{LISTED}: `{line}` is not `path: reason`"),
        }
    }
    Ok(listed)
}

fn long_functions(source: &RustSource, report: &mut Report) {
    for function in source.code.functions() {
        let first = source.code.line(function.start);
        let lines = source.code.line(function.end - 1) - first + 1;
        if lines > FUNCTION_LIMIT && !source.code.is_test(function.start) {
            report.warn(format!("{}:{first}: a function of {lines} lines", source.path));
        }
    }
}
