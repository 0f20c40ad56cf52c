//! What `cargo metadata` says, as far as the checks need it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::shell;

#[derive(Deserialize)]
pub(super) struct Metadata {
    pub(super) packages: Vec<Package>,
    workspace_members: Vec<String>,
}

#[derive(Deserialize)]
pub(super) struct Package {
    id: String,
    pub(super) name: String,
    pub(super) version: String,
    pub(super) license: Option<String>,
    /// `None` for a package that lies in a folder of ours.
    pub(super) source: Option<String>,
    pub(super) dependencies: Vec<Dependency>,
    pub(super) features: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
pub(super) struct Dependency {
    pub(super) name: String,
    /// `None` is a normal dependency, else `dev` or `build`.
    pub(super) kind: Option<String>,
    /// Set for a dependency on a folder.
    pub(super) path: Option<String>,
    pub(super) features: Vec<String>,
}

impl Metadata {
    /// With every feature and for every platform, since a ban must hold for all of them.
    pub(super) fn load(root: &Path) -> Result<Metadata> {
        let mut command = shell::cargo(root);
        command.args(["metadata", "--format-version", "1", "--locked", "--all-features"]);
        let json = shell::quiet(&mut command)?;
        serde_json::from_slice(&json).context("cargo metadata wrote something unexpected")
    }

    pub(super) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }

    pub(super) fn foreign(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| package.source.is_some())
    }
}
