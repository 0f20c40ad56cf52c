//! `peers`: programs of others that ours must get on with. Each is pinned, installed once into the user's cache, and
//! then given to the tests named `peer_<name>_…` through an environment variable. A peer that cannot be had is a
//! failure: a check that skips itself is none.

mod aimock;
mod llama;
mod llmock;
mod python;
mod rg;

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::shell::{self, TestRunner};

struct Peer {
    name: &'static str,
    /// All that decides what the installation holds; another text means install again.
    stamp: fn() -> String,
    /// Fills an empty folder, which is then moved into its place.
    install: fn(&Path) -> Result<()>,
    /// Shows that the installation works on this machine, before any test blames ours for it.
    check: fn(&Path) -> Result<()>,
}

const PEERS: &[Peer] = &[
    Peer { name: "aimock", stamp: aimock::stamp, install: aimock::install, check: aimock::check },
    Peer { name: "llama", stamp: llama::stamp, install: llama::install, check: llama::check },
    Peer { name: "llmock", stamp: llmock::stamp, install: llmock::install, check: llmock::check },
    Peer { name: "rg", stamp: rg::stamp, install: rg::install, check: rg::check },
];

pub(crate) fn run(root: &Path, args: &[&str]) -> Result<bool> {
    let only_install = args.contains(&"--no-run");
    let names: Vec<&str> = args.iter().copied().filter(|arg| *arg != "--no-run").collect();
    let known: Vec<&str> = PEERS.iter().map(|peer| peer.name).collect();
    if let Some(name) = names.iter().find(|name| !known.contains(name)) {
        bail!("no peer `{name}`; there are: {}", known.join(", "));
    }
    let chosen: Vec<&Peer> =
        PEERS.iter().filter(|peer| names.is_empty() || names.contains(&peer.name)).collect();

    let base = folder()?;
    fs::create_dir_all(&base).with_context(|| format!("cannot make {}", base.display()))?;
    let lock = File::create(base.join(".lock")).context("cannot make the lock file of the peers")?;
    lock.lock().context("cannot lock the folder of the peers")?;
    for peer in &chosen {
        provide(peer, &base).with_context(|| format!("the peer {} cannot be had", peer.name))?;
    }
    lock.unlock()?;
    if only_install {
        return Ok(true);
    }

    let runner = TestRunner::find(root);
    let mut tests = runner.all(root);
    match runner {
        TestRunner::Nextest => {
            tests.args(["--run-ignored", "only", "--filterset"]).arg(filter(&chosen));
        }
        TestRunner::Cargo => {
            // Each peer is a server that wants the machine for itself.
            tests.args(["--", "--ignored", "--test-threads", "1"]);
            tests.args(chosen.iter().map(|peer| format!("peer_{}_", peer.name)));
        }
    }
    for peer in &chosen {
        tests.env(variable(peer), base.join(peer.name));
    }
    shell::show(&mut tests)
}

fn folder() -> Result<PathBuf> {
    match env::var_os("OPEN_AGENT_PEERS").filter(|dir| !dir.is_empty()) {
        Some(dir) => std::path::absolute(dir).context("OPEN_AGENT_PEERS is no path"),
        None => Ok(shell::cache()?.join("peers")),
    }
}

fn variable(peer: &Peer) -> String {
    format!("OPEN_AGENT_PEER_{}", peer.name.to_uppercase())
}

fn filter(peers: &[&Peer]) -> String {
    peers.iter().map(|peer| format!("test(peer_{}_)", peer.name)).collect::<Vec<_>>().join(" + ")
}

/// Leaves the peer at `base/name`, installing it if it is not there in the wanted version. The folder is built beside
/// its place and renamed, so that an interrupted run leaves nothing that looks complete.
fn provide(peer: &Peer, base: &Path) -> Result<()> {
    let place = base.join(peer.name);
    let stamp = (peer.stamp)();
    if fs::read_to_string(place.join("stamp")).is_ok_and(|found| found == stamp) {
        println!("peer {}: in {}", peer.name, place.display());
        return Ok(());
    }
    let started = Instant::now();
    println!("peer {}: installing into {}", peer.name, place.display());
    let new = base.join(format!(".{}.new", peer.name));
    let old = base.join(format!(".{}.old", peer.name));
    for rest in [&new, &old] {
        if rest.exists() {
            fs::remove_dir_all(rest)?;
        }
    }
    fs::create_dir_all(&new)?;
    (peer.install)(&new)?;
    (peer.check)(&new)?;
    fs::write(new.join("stamp"), &stamp)?;
    if place.exists() {
        fs::rename(&place, &old)?;
    }
    fs::rename(&new, &place)?;
    if old.exists() {
        fs::remove_dir_all(&old)?;
    }
    println!("peer {}: installed in {} s", peer.name, started.elapsed().as_secs());
    Ok(())
}
