//! `wire`: the named scenarios that every provider profile has to pass, with what is skipped and why. For whoever adds a
//! profile: a row of data, and this green.

use std::path::Path;

use anyhow::Result;

use crate::shell::{self, TestRunner};

pub(crate) fn run(root: &Path, profile: Option<&str>) -> Result<bool> {
    // Test names hold no dots or dashes.
    let profile = profile.map(|name| name.replace(['.', '-'], "_"));
    let runner = TestRunner::find(root);
    let mut tests = runner.all(root);
    match runner {
        TestRunner::Nextest => {
            let name = profile.map(|name| format!("{name}$")).unwrap_or_default();
            tests.args(["--success-output", "immediate", "--filterset"]);
            tests.arg(format!("package(open-agent-providers) and test(/conformance::{name}/)"));
        }
        TestRunner::Cargo => match profile {
            Some(name) => {
                tests.args(["--", "--show-output", "--exact", &format!("conformance::{name}")]);
            }
            None => {
                tests.args(["--", "--show-output", "conformance::"]);
            }
        },
    }
    shell::show(&mut tests)
}
