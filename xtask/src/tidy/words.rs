//! Words that no tracked file may hold: addresses of one workplace mean nothing to a reader of the project.

use super::Report;
use super::files::Tracked;

/// Written in two halves, so that this file does not find itself.
const WORDS: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("../sha", "red/"),
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("registry.npm", "js.org"),
    concat!("deb.debian", ".org"),
];

pub(super) fn check(files: &Tracked, report: &mut Report) {
    // A lock file names the registry of each package.
    for path in files.all.iter().filter(|path| !path.ends_with("Cargo.lock")) {
        let Some(text) = files.text(path) else { continue };
        for word in WORDS {
            for (at, _) in text.match_indices(word) {
                // `/home/me/wo…` is somebody's folder, not the root of a machine.
                let inside = text[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_');
                if word.starts_with('/') && inside {
                    continue;
                }
                let line = text[..at].matches('\n').count() + 1;
                report.error(format!("{path}:{line}: `{word}` does not belong into the project's files"));
            }
        }
    }
}
