//! Rules about what code may stand where. Searched in the code alone: a comment or a string may say anything.

use super::Report;
use super::files::RustSource;

/// Words that may stand only in some places.
struct Rule {
    words: &'static [&'static str],
    /// Prefixes of paths where they may stand.
    allowed: &'static [&'static str],
    /// Whether tests may use them anywhere.
    in_tests: bool,
    why: &'static str,
}

const PRINTING: &[&str] = &["print!", "println!", "eprint!", "eprintln!", "dbg!"];
const ENVIRONMENT: &[&str] =
    &["env::var", "env::var_os", "env::vars", "env::vars_os", "env::set_var", "env::remove_var"];

const RULES: &[Rule] = &[
    Rule {
        words: PRINTING,
        allowed: &["crates/cli/", "examples/", "xtask/", "bench/"],
        in_tests: true,
        why: "only cli, examples, xtask and bench print; a library reports through events and errors",
    },
    Rule {
        words: &["unsafe"],
        allowed: &["crates/sandbox/"],
        in_tests: false,
        why: "only crates/sandbox is unsafe",
    },
    Rule {
        words: ENVIRONMENT,
        allowed: &[
            "crates/model/src/secret.rs",
            "crates/cli/",
            "crates/testkit/",
            "xtask/",
            "bench/",
            "examples/",
        ],
        in_tests: true,
        why: "the environment is read once, by the model crate's `Env`, and passed on as a value",
    },
];

/// Words that may not stand in some places.
struct Ban {
    paths: &'static [&'static str],
    words: &'static [&'static str],
    in_tests: bool,
    why: &'static str,
}

const BANS: &[Ban] = &[
    Ban {
        paths: &["crates/engine/src/machine.rs", "crates/engine/src/machine/"],
        words: &[
            "async",
            ".await",
            "tokio",
            "std::fs",
            "std::net",
            "std::process",
            "std::thread",
            "std::env",
            "SystemTime",
            "Instant",
            "rand",
            "serde",
            "serde_json",
            "now_v7",
            "new_v4",
        ],
        in_tests: true,
        why: "the machine is a pure fold of the log: no IO, no clock, no randomness, no awaiting, no serde",
    },
    Ban {
        paths: &["crates/model/src/"],
        words: &[
            "std::fs",
            "std::net",
            "std::process",
            "std::thread",
            "SystemTime::now",
            "Instant::now",
            "tokio",
        ],
        in_tests: true,
        why: "the model crate is data: it does no IO, spawns nothing and reads no clock",
    },
    Ban {
        // testkit depends on these, so their unit tests would link two copies of themselves.
        paths: &["crates/model/src/", "crates/tool/src/", "crates/session/src/"],
        words: &["open_agent_testkit"],
        in_tests: false,
        why: "use testkit from tests/it only: a unit test would link two copies of this crate",
    },
];

pub(super) fn check(sources: &[RustSource], report: &mut Report) {
    for source in sources {
        if !source.text.starts_with("//!") {
            report.error(format!(
                "{}:1: begin with a `//!` comment: what the module owns, what it must not do",
                source.path
            ));
        }
        rules(source, report);
        bans(source, report);
        allow_attributes(source, report);
    }
}

fn rules(source: &RustSource, report: &mut Report) {
    // A build script talks to cargo by printing and by environment variables.
    let build_script = source.path.ends_with("/build.rs");
    for rule in RULES.iter().filter(|_| !build_script) {
        if rule.allowed.iter().any(|prefix| source.path.starts_with(prefix)) {
            continue;
        }
        let wrong = |at: &usize| !(rule.in_tests && source.code.is_test(*at));
        complain(source, rule.words, wrong, rule.why, report);
    }
}

fn bans(source: &RustSource, report: &mut Report) {
    for ban in BANS.iter().filter(|ban| ban.paths.iter().any(|path| source.path.starts_with(path))) {
        let wrong = |at: &usize| !(ban.in_tests && source.code.is_test(*at));
        complain(source, ban.words, wrong, ban.why, report);
    }
}

fn complain(
    source: &RustSource,
    words: &[&str],
    wrong: impl Fn(&usize) -> bool,
    why: &str,
    report: &mut Report,
) {
    for word in words {
        for at in source.code.find(word).into_iter().filter(&wrong) {
            report.error(format!("{}:{}: `{word}`: {why}", source.path, source.code.line(at)));
        }
    }
}

/// `allow` hides a lint for ever; `expect` says when it is no longer needed.
fn allow_attributes(source: &RustSource, report: &mut Report) {
    let text = &source.code.text;
    for at in source.code.find("allow(") {
        let before = text[..at].trim_end();
        let plain = before.ends_with("#[") || before.ends_with("#![");
        let line_start = text[..at].rfind('\n').map_or(0, |i| i + 1);
        if plain || text[line_start..at].contains("cfg_attr(") {
            report.error(format!(
                "{}:{}: `#[allow(…)]`: write `#[expect(…, reason = \"…\")]`",
                source.path,
                source.code.line(at)
            ));
        }
    }
}
