//! `deny`: cargo-deny's view of licences, bans and sources (`deny.toml`). Not part of CI, since cargo-deny has to be
//! built first and `tidy` checks the same from `cargo metadata` in a second; run it when dependencies change.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::shell;

const VERSION: &str = "0.20.2";

pub(crate) fn run(root: &Path) -> Result<bool> {
    let tools = shell::cache()?.join("tools");
    let program = tools.join("bin/cargo-deny");
    let installed = shell::quiet(Command::new(&program).arg("--version"))
        .is_ok_and(|out| String::from_utf8_lossy(&out).trim().ends_with(VERSION));
    if !installed {
        println!("building cargo-deny {VERSION} once, for {}", tools.display());
        let mut install = shell::cargo(root);
        // Its own target folder: inside ours it would evict nothing, but stay for ever.
        install.env_remove("CARGO_TARGET_DIR");
        install.args(["install", "--locked", "--quiet", "--version", VERSION, "--root"]).arg(&tools);
        if !shell::show(install.arg("cargo-deny"))? {
            return Ok(false);
        }
    }
    // Advisories need a database from a host that CI may not reach.
    let mut check = Command::new(&program);
    check.current_dir(root).args(["--offline", "--workspace", "--all-features", "check"]);
    shell::show(check.args(["licenses", "bans", "sources"]))
}
