//! The map of the crates as data: who may depend on whom, and what may not be in whose dependency tree. A new crate
//! or arrow is a line here, and so a line in the review.

/// One crate of the workspace. Names are folder names; the package is `open-agent-<name>` (see [`Row::package`]).
pub(super) struct Row {
    pub(super) name: &'static str,
    /// An arrow must lead to a lower layer.
    pub(super) layer: u8,
    /// Our crates that it may depend on, in any kind of dependency.
    pub(super) deps: &'static [&'static str],
    /// Our crates that its tests may use in addition. Such an arrow may lead up, but never back.
    pub(super) test_deps: &'static [&'static str],
    /// What its dependency tree must not hold, beside what is banned everywhere.
    pub(super) without: &'static [&'static [&'static str]],
    /// The same, but for the product's tree only: its tests may use it.
    pub(super) product_without: &'static [&'static str],
    /// Features that bring what `without` names; all others are checked together.
    pub(super) heavy_features: &'static [&'static str],
}

impl Row {
    pub(super) fn package(&self) -> String {
        match self.name {
            "open-agent" | "xtask" => self.name.to_string(),
            name => format!("open-agent-{name}"),
        }
    }

    /// All forbidden packages of the whole tree, tests included.
    pub(super) fn forbidden(&self) -> impl Iterator<Item = &'static str> {
        self.without.iter().flat_map(|list| list.iter().copied())
    }
}

/// Only in dev-dependencies, by any crate above it.
pub(super) const TESTKIT: &str = "testkit";

/// Crates that may switch on testkit's scripted HTTP server, which brings hyper.
pub(super) const TESTKIT_SERVER: &[&str] = &["providers", "open-agent", "cli"];

const HTTP: &[&str] = &["reqwest", "hyper", "hyper-util", "h2", "rustls", "tokio-rustls", "axum", "rmcp"];
const SQL: &[&str] = &["rusqlite", "libsqlite3-sys", "sqlx", "tokio-postgres"];
/// Crates that start a C compiler or a C build in a build script.
const C_COMPILER: &[&str] = &["cc", "cmake", "bindgen"];
const LIGHT: &[&[&str]] = &[HTTP, SQL, C_COMPILER];

/// In no tree and no lock entry: a second TLS stack, with a long C build.
pub(super) const BANNED: &[&str] =
    &["aws-lc-rs", "aws-lc-sys", "aws-lc-fips-sys", "native-tls", "openssl", "openssl-sys"];

/// Two versions of these would mean two connection pools or two TLS configurations in one process.
pub(super) const ONE_VERSION: &[&str] = &["reqwest", "rustls", "hyper"];

const PLAIN: Row = Row {
    name: "",
    layer: 0,
    deps: &[],
    test_deps: &[],
    without: &[],
    product_without: &[],
    heavy_features: &[],
};

pub(super) const CRATES: &[Row] = &[
    Row { name: "model", without: LIGHT, product_without: &["tokio", "schemars"], ..PLAIN },
    Row { name: "tool", layer: 1, deps: &["model"], without: LIGHT, ..PLAIN },
    Row { name: "session", layer: 1, deps: &["model"], without: LIGHT, ..PLAIN },
    Row { name: "http", layer: 1, deps: &["model"], without: &[SQL], ..PLAIN },
    Row { name: "policy", layer: 2, deps: &["model", "tool"], without: LIGHT, ..PLAIN },
    Row { name: "providers", layer: 2, deps: &["model", "http"], without: &[SQL], ..PLAIN },
    Row {
        name: "builtins",
        layer: 2,
        deps: &["model", "tool"],
        // The tools are tested on real files, processes and background work.
        test_deps: &["sandbox", "engine"],
        without: LIGHT,
        ..PLAIN
    },
    Row { name: "sandbox", layer: 3, deps: &["model", "tool", "policy"], without: LIGHT, ..PLAIN },
    Row { name: "engine", layer: 3, deps: &["model", "tool", "session", "policy"], without: LIGHT, ..PLAIN },
    Row {
        name: "open-agent",
        layer: 5,
        deps: &["model", "tool", "session", "http", "policy", "providers", "builtins", "sandbox", "engine"],
        ..PLAIN
    },
    Row { name: "cli", layer: 6, deps: &["open-agent"], ..PLAIN },
    // Above what it depends on, so that no arrow leads back; used from tests of every layer.
    Row { name: TESTKIT, layer: 2, deps: &["model", "tool", "session"], ..PLAIN },
    Row { name: "xtask", ..PLAIN },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str) -> &'static Row {
        CRATES.iter().find(|row| row.name == name).expect(name)
    }

    fn reaches(from: &str, to: &str) -> bool {
        from == to || row(from).deps.iter().any(|dep| reaches(dep, to))
    }

    #[test]
    fn every_arrow_of_the_table_leads_down() {
        for above in CRATES {
            for dep in above.deps {
                assert!(row(dep).layer < above.layer, "{} -> {dep}", above.name);
            }
        }
    }

    #[test]
    fn no_arrow_of_tests_leads_back() {
        for row in CRATES {
            for dep in row.test_deps {
                assert!(!reaches(dep, row.name), "{} -> {dep}", row.name);
            }
        }
    }
}
