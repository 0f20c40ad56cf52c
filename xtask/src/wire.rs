//! `wire`: the named scenarios that every provider profile has to pass, with what is skipped and why. For whoever adds a
//! profile: a row of data, and this green.

use std::path::Path;

use anyhow::Result;

use crate::shell;

pub(crate) fn run(root: &Path, profile: Option<&str>) -> Result<bool> {
    let which = match profile {
        // Test names hold no dots or dashes.
        Some(name) => format!("test(/conformance::{}$/)", name.replace(['.', '-'], "_")),
        None => "test(/conformance::/)".to_owned(),
    };
    let filter = format!("package(open-agent-providers) and {which}");
    let mut tests = shell::nextest(root)?;
    tests.args(["--success-output", "immediate", "--filterset"]);
    shell::show(tests.arg(filter))
}
