//! aimock, a model server that answers as a file of fixtures says. It needs nothing but node.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::python::system_package;
use crate::shell;

const PACKAGE: &str = "@copilotkit/aimock";
const VERSION: &str = "1.43.0";
const INTEGRITY: &str =
    "sha512-V8D8cjSMtAR4rHaD2ulp3DR/ZguXQjDNOqwKDNvjb/OJL/KR1I0SDf5xpRCd+TYKjhmf9fM8Xpg3QBKPmV9Kmw==";

pub(super) fn stamp() -> String {
    format!("{PACKAGE} {VERSION} {INTEGRITY}\n")
}

pub(super) fn install(place: &Path) -> Result<()> {
    for (program, package) in [("node", "nodejs"), ("npm", "npm")] {
        if shell::quiet(Command::new(program).arg("--version")).is_err() {
            system_package(package)?;
        }
    }
    let asked = format!(r#"{{"dependencies":{{"{PACKAGE}":"{VERSION}"}}}}"#);
    let locked = format!(
        r#"{{"lockfileVersion":3,"packages":{{"":{asked},"node_modules/{PACKAGE}":{{"version":"{VERSION}","integrity":"{INTEGRITY}"}}}}}}"#
    );
    fs::write(place.join("package.json"), asked)?;
    fs::write(place.join("package-lock.json"), locked)?;
    let mut npm = Command::new("npm");
    npm.args(["ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(place);
    shell::quiet(&mut npm).map(drop)
}

/// It starts, and so node is new enough for it.
pub(super) fn check(place: &Path) -> Result<()> {
    let program = place.join("node_modules").join(PACKAGE).join("dist/cli.js");
    let out =
        shell::quiet(Command::new("node").arg(program).arg("--help")).context("aimock does not start")?;
    if !String::from_utf8_lossy(&out).contains("--chaos-malformed") {
        bail!("its help is not what was expected");
    }
    Ok(())
}
