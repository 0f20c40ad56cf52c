//! A Python environment of our own, to fetch packages and to run build tools with; never the user's own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::shell;

pub(super) struct Python {
    bin: PathBuf,
}

/// One pinned file of a package: what pip must find, and the hash of what it downloads.
pub(super) struct Pinned {
    pub(super) requirement: &'static str,
    pub(super) sha256: &'static str,
}

impl Python {
    pub(super) fn new(folder: &Path) -> Result<Python> {
        let make = || shell::quiet(Command::new("python3").args(["-m", "venv"]).arg(folder));
        if let Err(error) = make() {
            // Debian keeps the module in a package of its own.
            system_package("python3-venv").context(error)?;
            make()?;
        }
        Ok(Python { bin: folder.join("bin") })
    }

    pub(super) fn install(&self, requirements: &[&str]) -> Result<()> {
        shell::quiet(self.pip("install").args(requirements)).map(drop)
    }

    /// Installs these packages, each with its version, and nothing that they ask for beyond.
    pub(super) fn install_exactly(&self, requirements: &[&str]) -> Result<()> {
        shell::quiet(self.pip("install").arg("--no-deps").args(requirements)).map(drop)
    }

    /// Fetches exactly these files, without what they depend on.
    pub(super) fn download(&self, pinned: &[Pinned], into: &Path) -> Result<()> {
        let lines: Vec<String> =
            pinned.iter().map(|pin| format!("{} --hash=sha256:{}\n", pin.requirement, pin.sha256)).collect();
        fs::create_dir_all(into)?;
        let list = into.join("requirements.txt");
        fs::write(&list, lines.concat())?;
        let mut pip = self.pip("download");
        pip.args(["--no-deps", "--require-hashes", "--requirement"]).arg(&list).arg("--dest").arg(into);
        shell::quiet(&mut pip).map(drop)
    }

    /// Unpacks a wheel (a zip file) or a source archive.
    pub(super) fn unpack(&self, archive: &Path, into: &Path) -> Result<()> {
        let code = "import shutil, sys; shutil.unpack_archive(sys.argv[1], sys.argv[2], sys.argv[3])";
        let format = if archive.extension().is_some_and(|ext| ext == "whl") { "zip" } else { "gztar" };
        let mut python = Command::new(self.bin.join("python"));
        shell::quiet(python.args(["-c", code]).arg(archive).arg(into).arg(format)).map(drop)
    }

    pub(super) fn program(&self, name: &str) -> Command {
        Command::new(self.bin.join(name))
    }

    fn pip(&self, task: &str) -> Command {
        let mut pip = self.program("pip");
        pip.args([task, "--quiet", "--disable-pip-version-check", "--no-input"]);
        pip
    }
}

/// What no package registry of a language has. Only root may, and only Debian's own tool is tried.
pub(super) fn system_package(name: &str) -> Result<()> {
    let root = shell::quiet(Command::new("id").arg("-u")).is_ok_and(|out| out.trim_ascii() == b"0");
    if !root {
        bail!("please install the system package {name}");
    }
    let apt = |args: &[&str]| {
        shell::quiet(Command::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").args(args))
    };
    apt(&["update"])?;
    apt(&["install", "--yes", "--no-install-recommends", name]).map(drop)
}
