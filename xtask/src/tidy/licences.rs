//! Licences of the third-party crates. Each expression must be fulfilled by licences of the list alone; `deny.toml`
//! holds the same list for cargo-deny.

use super::Report;
use super::metadata::Metadata;

const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Returns how many crates were looked at.
pub(super) fn check(metadata: &Metadata, report: &mut Report) -> usize {
    for package in metadata.foreign() {
        let what = format!("{} {}", package.name, package.version);
        match &package.license {
            None => report.error(format!("{what} names no licence")),
            Some(expression) if !fulfilled(expression) => {
                report.error(format!("{what} has the licence `{expression}`, which is not on the list"));
            }
            Some(_) => {}
        }
    }
    metadata.foreign().count()
}

/// Evaluates an SPDX expression; `/` is how old crates write OR.
fn fulfilled(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let value = any(&tokens, &mut at);
    value && at == tokens.len()
}

fn any(tokens: &[&str], at: &mut usize) -> bool {
    let mut value = all(tokens, at);
    while tokens.get(*at) == Some(&"OR") {
        *at += 1;
        value |= all(tokens, at);
    }
    value
}

fn all(tokens: &[&str], at: &mut usize) -> bool {
    let mut value = one(tokens, at);
    while tokens.get(*at) == Some(&"AND") {
        *at += 1;
        value &= one(tokens, at);
    }
    value
}

fn one(tokens: &[&str], at: &mut usize) -> bool {
    match &tokens[(*at).min(tokens.len())..] {
        ["(", ..] => {
            *at += 1;
            let value = any(tokens, at);
            let closed = tokens.get(*at) == Some(&")");
            *at += 1;
            value && closed
        }
        [name, "WITH", exception, ..] => {
            *at += 3;
            ALLOWED.contains(&format!("{name} WITH {exception}").as_str())
        }
        [name, ..] => {
            *at += 1;
            ALLOWED.contains(name)
        }
        [] => {
            *at += 1; // beyond the end: the expression is cut off
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fulfilled;

    #[test]
    fn expressions_are_evaluated() {
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-3.0 OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
        ] {
            assert!(fulfilled(good), "{good}");
        }
        for bad in [
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "(MIT",
            "MIT)",
            "",
            "MIT OR",
            "GPL-2.0 WITH Classpath-exception-2.0",
        ] {
            assert!(!fulfilled(bad), "{bad}");
        }
    }
}
