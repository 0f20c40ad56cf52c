//! The project's own tasks: `cargo xtask help` lists them. One module a task; a task prints what it does and ends
//! with an exit code that a script can trust. Nothing of the product depends on this program.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

mod deny;
mod peers;
mod shell;
mod test;
mod tidy;
mod wire;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

use self::test::Depth;

const HELP: &str = "\
Usage: cargo xtask TASK [OPTION]...

Tasks:
  test [--deep]            all tests that need nothing but this checkout: unit and integration tests,
                           doc tests, then tidy; uses cargo-nextest if it is installed, otherwise cargo test;
                           --deep tries many more cases of everything that is tried repeatedly
  tidy [--root DIR]        the rules that no compiler checks: arrows between crates, features, file sizes,
                           source rules, licences (seconds; part of `test`)
  peers [--no-run] [NAME]...
                           installs pinned third-party peers into the user's cache and runs the tests against
                           them (`peer_NAME_...`); without NAME all of them; --no-run only installs
  wire [PROFILE]           runs the wire-conformance scenarios that every provider profile has to pass, or those of one
                           profile, and lists what is skipped and why
  deny                     licences, bans and sources as cargo-deny sees them (builds cargo-deny on first use)
  help                     this text

Environment:
  OPEN_AGENT_PEERS         folder of the peers, instead of ~/.cache/open-agent/peers
  OPEN_AGENT_DEEP_TESTS    1 makes any test run a deep one, also one that xtask does not start
  CARGO_TARGET_DIR         as for cargo

What CI runs is .ci/run.
";

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// `Ok(false)` is a task that ran and found something wrong, and has said what.
fn run(args: &[String]) -> Result<bool> {
    let Some((task, rest)) = args.split_first() else {
        print!("{HELP}");
        return Ok(false);
    };
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    match (task.as_str(), rest.as_slice()) {
        ("help" | "-h" | "--help", _) | (_, ["-h" | "--help"]) => {
            print!("{HELP}");
            Ok(true)
        }
        ("tidy", []) => tidy::run(&workspace_root()?),
        ("tidy", ["--root", dir]) => {
            tidy::run(&PathBuf::from(dir).canonicalize().with_context(|| format!("no folder {dir}"))?)
        }
        ("test", []) => test::run(&workspace_root()?, Depth::Everyday),
        ("test", ["--deep"]) => test::run(&workspace_root()?, Depth::Deep),
        ("deny", []) => deny::run(&workspace_root()?),
        ("wire", []) => wire::run(&workspace_root()?, None),
        ("wire", [profile]) => wire::run(&workspace_root()?, Some(profile)),
        ("peers", names) => peers::run(&workspace_root()?, names),
        ("tidy" | "test" | "deny" | "wire", _) => {
            bail!("{task} does not take {rest:?}; see `cargo xtask help`")
        }
        _ => bail!("no task `{task}`; see `cargo xtask help`"),
    }
}

/// The workspace this program was built from. A copied binary would look at the wrong tree, so it is asked of cargo's
/// environment first.
fn workspace_root() -> Result<PathBuf> {
    let manifest = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let manifest = PathBuf::from(manifest);
    manifest.parent().map(PathBuf::from).context("xtask lies in no workspace")
}
