//! Arrows between our crates: what the manifests declare, compared with the table. Dev-dependencies count like all
//! others, for an unruly one makes a cycle as surely; what only tests may use has its own column.

use super::Report;
use super::metadata::{Dependency, Metadata, Package};
use super::table::{CRATES, Row, TESTKIT, TESTKIT_SERVER};

/// Returns how many arrows there are.
pub(super) fn check(metadata: &Metadata, report: &mut Report) -> usize {
    let mut arrows = 0;
    for row in CRATES {
        if !metadata.members().any(|package| package.name == row.package()) {
            report.error(format!("the table names the crate {}, the workspace has none", row.package()));
        }
    }
    for package in metadata.members() {
        let Some(row) = CRATES.iter().find(|row| row.package() == package.name) else {
            report.error(format!(
                "the workspace has the crate {}, the table (xtask/src/tidy/table.rs) does not",
                package.name
            ));
            continue;
        };
        for dependency in package.dependencies.iter().filter(|dependency| dependency.path.is_some()) {
            arrows += 1;
            check_arrow(row, package, dependency, report);
        }
    }
    arrows
}

fn check_arrow(from: &Row, package: &Package, to: &Dependency, report: &mut Report) {
    let kind = to.kind.as_deref().unwrap_or("normal");
    let arrow = format!("{} -> {} ({kind} dependency)", package.name, to.name);
    let Some(target) = CRATES.iter().find(|row| row.package() == to.name) else {
        report.error(format!("unknown arrow {arrow}: the table has no crate {}", to.name));
        return;
    };
    if target.name == TESTKIT {
        if kind != "dev" {
            report.error(format!("wrong arrow {arrow}: testkit is for dev-dependencies only"));
        }
        if to.features.iter().any(|feature| feature == "server") && !TESTKIT_SERVER.contains(&from.name) {
            report.error(format!("wrong arrow {arrow}: only {TESTKIT_SERVER:?} may use testkit's server"));
        }
    } else if kind == "dev" && from.test_deps.contains(&target.name) {
        // for its tests only
    } else if !from.deps.contains(&target.name) {
        let up = if target.layer >= from.layer { ", and it leads up" } else { "" };
        report.error(format!("wrong arrow {arrow}: allowed are {:?}{up}", from.deps));
    }
}
