//! ripgrep, whose answers Grep and Glob have to give.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::shell;

const VERSION: &str = "15.1.0";

pub(super) fn stamp() -> String {
    format!("ripgrep {VERSION}\n")
}

pub(super) fn install(place: &Path) -> Result<()> {
    println!("  building ripgrep");
    let mut cargo = shell::cargo(place);
    cargo.args(["install", "--quiet", "--locked", "--no-track", "--version", VERSION, "ripgrep", "--root"]);
    shell::quiet(cargo.arg(place)).map(drop)
}

pub(super) fn check(place: &Path) -> Result<()> {
    let out = shell::quiet(Command::new(place.join("bin/rg")).arg("--version"))?;
    if !String::from_utf8_lossy(&out).starts_with(&format!("ripgrep {VERSION}")) {
        bail!("another version than {VERSION}");
    }
    Ok(())
}
