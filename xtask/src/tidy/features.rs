//! That tests switch on no features which the product's build lacks. Where they do, `cargo run` and `cargo test` build the
//! crate and all that depends on it once each, which costs a newcomer most of the time that the first command took.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;

use super::Report;
use crate::shell;

/// Each crate with the features it is built with. The key is the name and the version.
type Features = BTreeMap<String, BTreeSet<String>>;

pub(super) fn check(root: &Path, report: &mut Report) -> Result<()> {
    let product = features(root, "normal,build")?;
    for (name, with_tests) in features(root, "normal,build,dev")? {
        // What only tests use is built once anyway.
        let Some(without) = product.get(&name) else { continue };
        let more: Vec<&str> = with_tests.difference(without).map(String::as_str).collect();
        if !more.is_empty() {
            report.error(format!(
                "{name} is built twice: only tests switch on {}; switch it on in crates/testkit/Cargo.toml as well",
                more.join(", ")
            ));
        }
    }
    Ok(())
}

fn features(root: &Path, edges: &str) -> Result<Features> {
    let mut command = shell::cargo(root);
    command.args(["tree", "--workspace", "--locked", "--offline", "--edges", edges]);
    command.args(["--prefix", "none", "--no-dedupe", "--format", "{p}\t{f}"]);
    let out = shell::quiet(&mut command)?;
    let mut all = Features::new();
    for line in String::from_utf8_lossy(&out).lines() {
        let Some((package, features)) = line.split_once('\t') else { continue };
        // Behind the version stands where a crate of ours lies.
        let package = package.split(' ').take(2).collect::<Vec<_>>().join(" ");
        let features = features
            .trim_end_matches(" (*)")
            .split(',')
            .filter(|feature| !feature.is_empty())
            .map(str::to_owned);
        all.entry(package).or_default().extend(features);
    }
    Ok(all)
}
