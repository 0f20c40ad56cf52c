//! `test`: everything that a checkout alone can show. Later steps run although an earlier one failed, so that one
//! run names all that is wrong.

use std::path::Path;

use anyhow::Result;

use crate::{shell, tidy};

pub(crate) fn run(root: &Path) -> Result<bool> {
    let tests = shell::show(&mut shell::nextest(root)?)?;
    // nextest runs no doc tests.
    let docs = shell::show(shell::cargo(root).args(["test", "--workspace", "--doc", "--locked", "--quiet"]))?;
    println!("+ tidy");
    let tidy = tidy::run(root)?;
    Ok(tests && docs && tidy)
}
