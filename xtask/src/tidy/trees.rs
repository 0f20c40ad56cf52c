//! Third-party weight: what may not be in the resolved tree of a crate. Asked of `cargo tree` for each crate alone,
//! because in `cargo metadata` the features of all crates run together, and a light crate would seem to carry what
//! only a heavy one switches on.

use std::path::Path;

use anyhow::Result;

use super::Report;
use super::metadata::{Metadata, Package};
use super::table::{BANNED, CRATES, ONE_VERSION, Row};
use crate::shell;

/// Returns how many trees were looked at.
pub(super) fn check(root: &Path, metadata: &Metadata, report: &mut Report) -> Result<usize> {
    check_lock(metadata, report);
    let mut trees = 0;
    for row in CRATES {
        let Some(package) = metadata.members().find(|package| package.name == row.package()) else {
            continue; // the arrows say so
        };
        if package.dependencies.is_empty() {
            continue;
        }
        if row.forbidden().next().is_some() {
            trees += 1;
            let tree = tree(root, row, package, "normal,build,dev")?;
            complain(package, &tree, row.forbidden(), "its tests included", report);
        }
        if !row.product_without.is_empty() {
            trees += 1;
            let tree = tree(root, row, package, "normal,build")?;
            complain(package, &tree, row.product_without.iter().copied(), "its tests left out", report);
        }
    }
    Ok(trees)
}

/// What holds for the whole workspace, whoever brings it.
fn check_lock(metadata: &Metadata, report: &mut Report) {
    for package in metadata.foreign().filter(|package| BANNED.contains(&package.name.as_str())) {
        report.error(format!(
            "banned crate {} {}: see who brings it with `cargo tree --workspace --target all -i {}`",
            package.name, package.version, package.name
        ));
    }
    for name in ONE_VERSION {
        let versions: Vec<&str> = metadata
            .foreign()
            .filter(|package| package.name == *name)
            .map(|package| package.version.as_str())
            .collect();
        if versions.len() > 1 {
            report.error(format!("{name} is there in more than one version: {}", versions.join(", ")));
        }
    }
}

fn complain(
    package: &Package,
    tree: &[String],
    forbidden: impl Iterator<Item = &'static str>,
    scope: &str,
    report: &mut Report,
) {
    for name in forbidden.filter(|name| tree.iter().any(|found| found == name)) {
        report.error(format!(
            "{} may not depend on {name} ({scope}): see `cargo tree -p {} -i {name}`",
            package.name, package.name
        ));
    }
}

/// The names of all packages in the tree of one crate, with all its features but the heavy ones.
fn tree(root: &Path, row: &Row, package: &Package, edges: &str) -> Result<Vec<String>> {
    let features: Vec<&str> = package
        .features
        .keys()
        .map(String::as_str)
        .filter(|feature| !row.heavy_features.contains(feature))
        .collect();
    let mut command = shell::cargo(root);
    command.args(["tree", "--locked", "--offline", "--prefix", "none", "--format", "{p}"]);
    command.args(["--package", &package.name, "--edges", edges, "--features", &features.join(",")]);
    let out = shell::quiet(&mut command)?;
    let mut names: Vec<String> = String::from_utf8_lossy(&out)
        .lines()
        .filter_map(|line| line.split_whitespace().next().map(String::from))
        .collect();
    names.sort_unstable();
    names.dedup();
    Ok(names)
}
