//! Circles between the modules of one crate: of two modules, one may know the other. Looked at are the modules that stand
//! directly in `src`, each with its submodules, and the paths that begin with `crate::` or, in such a file, with `super::`.
//! Names that the root re-exports count for nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::Report;
use super::files::RustSource;

/// Crates whose modules form no circle.
const CRATES: &[&str] = &[
    "crates/builtins",
    "crates/cli",
    "crates/engine",
    "crates/http",
    "crates/model",
    "crates/open-agent",
    "crates/policy",
    "crates/providers",
    "crates/sandbox",
    "crates/session",
    "crates/testkit",
    "crates/tool",
    "xtask",
];

/// Which modules each module names, and where first.
type Uses = BTreeMap<String, BTreeMap<String, String>>;

pub(super) fn check(sources: &[RustSource], report: &mut Report) {
    for folder in CRATES {
        let prefix = format!("{folder}/src/");
        let files: Vec<(&RustSource, Place)> = sources
            .iter()
            .filter_map(|source| Some((source, Place::of(source.path.strip_prefix(&prefix)?)?)))
            .collect();
        let uses = uses(&files);
        let mut done = BTreeSet::new();
        for module in uses.keys() {
            if let Some(circle) = circle(&uses, module, &mut Vec::new(), &mut done) {
                report.error(format!("{folder}: modules in a circle: {circle}"));
                break;
            }
        }
    }
}

/// A file's place in its crate.
struct Place {
    /// The module directly below the root that it belongs to.
    module: String,
    /// It is that module itself, so that `super` is the root.
    is_top: bool,
}

impl Place {
    /// `None` for the root.
    fn of(path: &str) -> Option<Place> {
        let path = path.strip_suffix(".rs")?;
        let (module, below) = path.split_once('/').unwrap_or((path, "mod"));
        let is_root = matches!(path, "lib" | "main");
        (!is_root && module != "bin").then(|| Place { module: module.to_owned(), is_top: below == "mod" })
    }
}

fn uses(files: &[(&RustSource, Place)]) -> Uses {
    let modules: BTreeSet<&str> = files.iter().map(|(_, place)| place.module.as_str()).collect();
    let mut uses = Uses::new();
    for (source, place) in files {
        let known = uses.entry(place.module.clone()).or_default();
        let roots: &[&str] = if place.is_top { &["crate::", "super::"] } else { &["crate::"] };
        for at in roots.iter().flat_map(|root| source.code.find(root).into_iter().map(|at| at + root.len())) {
            if source.code.is_test(at) {
                continue;
            }
            for name in first_names(&source.code.text[at..]) {
                if name != place.module && modules.contains(name) {
                    let line = source.code.line(at);
                    known.entry(name.to_owned()).or_insert_with(|| format!("{}:{line}", source.path));
                }
            }
        }
    }
    uses
}

/// The first name of a path, or of each path in a group: `a` and `c` of `{a::b, c::{d, e}}`.
fn first_names(rest: &str) -> Vec<&str> {
    let name = |text: &'_ str| -> usize { text.bytes().take_while(|b| super::code::is_name(*b)).count() };
    let Some(group) = rest.strip_prefix('{') else { return vec![&rest[..name(rest)]] };
    let (mut names, mut depth, mut is_first) = (Vec::new(), 0usize, true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => is_first = true,
            c if is_first && !c.is_whitespace() => {
                names.push(&group[at..at + name(&group[at..])]);
                is_first = false;
            }
            _ => {}
        }
    }
    names
}

/// A way from `module` back to one on the way, in words.
fn circle(uses: &Uses, module: &str, way: &mut Vec<String>, done: &mut BTreeSet<String>) -> Option<String> {
    if let Some(start) = way.iter().position(|passed| passed == module) {
        let ring: Vec<&str> = way[start..].iter().map(String::as_str).chain([module]).collect();
        let step = |pair: &[&str]| format!("{} -> {} ({})", pair[0], pair[1], uses[pair[0]][pair[1]]);
        return Some(ring.windows(2).map(step).collect::<Vec<_>>().join(", "));
    }
    if !done.insert(module.to_owned()) {
        return None;
    }
    way.push(module.to_owned());
    let found = uses.get(module)?.keys().find_map(|next| circle(uses, next, way, done));
    way.pop();
    found
}

#[cfg(test)]
mod tests {
    use super::first_names;

    #[test]
    fn groups_and_paths_are_read() {
        assert_eq!(first_names("a::b;"), ["a"]);
        assert_eq!(first_names("{a::{x, y}, b, c::d};"), ["a", "b", "c"]);
        assert_eq!(first_names("Name)"), ["Name"]);
    }
}
