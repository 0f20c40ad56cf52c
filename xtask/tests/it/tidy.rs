//! Faults planted one at a time: tidy names each, and says nothing without them.

use anyhow::Result;

use crate::fake::Workspace;

/// Tidy fails with exactly one finding, which holds all of `parts`.
fn finds(workspace: &Workspace, parts: &[&str]) -> Result<()> {
    let (passed, output) = workspace.tidy()?;
    assert!(!passed, "tidy passed:\n{output}");
    let errors: Vec<&str> = output.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(errors.len(), 1, "{output}");
    for part in parts {
        assert!(errors[0].contains(part), "no `{part}` in:\n{output}");
    }
    assert!(output.ends_with(": 1 errors, 0 warnings\n"), "{output}");
    Ok(())
}

fn passes(workspace: &Workspace) -> Result<()> {
    let (passed, output) = workspace.tidy()?;
    assert!(passed, "{output}");
    assert!(output.contains(": 0 errors, "), "{output}");
    Ok(())
}

#[test]
fn a_workspace_without_faults_passes() -> Result<()> {
    let workspace = Workspace::new("clean")?;
    // What only looks like a fault.
    workspace.write(
        "crates/model/src/quotes.rs",
        "//! It may say println!(), unsafe and #[allow(x)].\nconst A: &str = \"println!() unsafe { #[allow(x)] }\";\n\
         #[cfg(test)]\nmod tests {\n    fn f() { println!(); }\n}\n",
    )?;
    workspace.write("crates/model/tests/it/main.rs", "//! Tests.\nfn f() { println!(); }\n")?;
    passes(&workspace)
}

#[test]
fn modules_in_a_circle_are_named() -> Result<()> {
    let workspace = Workspace::new("circle")?;
    workspace.write("crates/cli/src/a.rs", "//! A.\nuse crate::{c, d::{E, F}};\n")?;
    workspace.write("crates/cli/src/c.rs", "//! C.\n#[cfg(test)]\nmod tests { use crate::a; }\n")?;
    workspace.write("crates/cli/src/d/mod.rs", "//! D.\nmod inner;\n")?;
    workspace.write("crates/cli/src/d/inner.rs", "//! Part of D.\nuse super::a;\nuse crate::d::G;\n")?;
    passes(&workspace)?;
    workspace.append("crates/cli/src/d/inner.rs", "fn f() { crate::a::g() }\n")?;
    finds(
        &workspace,
        &[
            "crates/cli: modules in a circle: a -> d (crates/cli/src/a.rs:2), d -> a (crates/cli/src/d/inner.rs:4)",
        ],
    )?;
    let workspace = Workspace::new("circle-super")?;
    workspace.write("crates/cli/src/a.rs", "//! A.\nuse super::c;\n")?;
    workspace.write("crates/cli/src/c/mod.rs", "//! C.\nuse super::a::B;\n")?;
    finds(&workspace, &["a -> c (crates/cli/src/a.rs:2), c -> a (crates/cli/src/c/mod.rs:2)"])
}

#[test]
fn a_wrong_arrow_names_both_crates() -> Result<()> {
    let workspace = Workspace::new("arrow")?;
    workspace.append("crates/engine/Cargo.toml", "open-agent-http = { path = \"../http\" }\n")?;
    finds(&workspace, &["wrong arrow open-agent-engine -> open-agent-http (normal dependency)"])
}

#[test]
fn a_wrong_arrow_of_tests_counts_too() -> Result<()> {
    let workspace = Workspace::new("dev-arrow")?;
    workspace.append(
        "crates/tool/Cargo.toml",
        "[dev-dependencies]\nopen-agent-sandbox = { path = \"../sandbox\" }\n",
    )?;
    finds(&workspace, &["wrong arrow open-agent-tool -> open-agent-sandbox (dev dependency)", "leads up"])
}

#[test]
fn what_tests_may_use_is_for_tests_only() -> Result<()> {
    let workspace = Workspace::new("test-arrow")?;
    let sandbox = "open-agent-sandbox = { path = \"../sandbox\" }\n";
    workspace.append("crates/builtins/Cargo.toml", &format!("[dev-dependencies]\n{sandbox}"))?;
    passes(&workspace)?;
    let workspace = Workspace::new("test-arrow-normal")?;
    workspace.append("crates/builtins/Cargo.toml", sandbox)?;
    finds(&workspace, &["wrong arrow open-agent-builtins -> open-agent-sandbox (normal dependency)"])
}

#[test]
fn testkit_is_for_tests_and_its_server_for_few() -> Result<()> {
    let workspace = Workspace::new("testkit")?;
    workspace.append(
        "crates/engine/Cargo.toml",
        "[dev-dependencies]\nopen-agent-testkit = { path = \"../testkit\" }\n",
    )?;
    passes(&workspace)?;
    workspace.append(
        "crates/policy/Cargo.toml",
        "[dev-dependencies]\nopen-agent-testkit = { path = \"../testkit\", features = [\"server\"] }\n",
    )?;
    finds(&workspace, &["open-agent-policy -> open-agent-testkit", "may use testkit's server"])?;

    let workspace = Workspace::new("testkit-normal")?;
    workspace.append("crates/engine/Cargo.toml", "open-agent-testkit = { path = \"../testkit\" }\n")?;
    finds(&workspace, &["open-agent-engine -> open-agent-testkit (normal", "dev-dependencies only"])
}

#[test]
fn table_and_workspace_name_the_same_crates() -> Result<()> {
    let workspace = Workspace::new("unknown")?;
    workspace.write(
        "crates/extra/Cargo.toml",
        "[package]\nname = \"open-agent-extra\"\nversion = \"0.1.0\"\nedition = \"2024\"\n",
    )?;
    workspace.write("crates/extra/src/lib.rs", "//! A crate.\n")?;
    finds(&workspace, &["the workspace has the crate open-agent-extra"])?;

    let workspace = Workspace::new("missing")?;
    workspace.write("Cargo.toml", "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\n")?;
    finds(&workspace, &["the table names the crate xtask"])
}

#[test]
fn a_heavy_crate_in_a_light_tree_is_found() -> Result<()> {
    let workspace = Workspace::new("heavy")?;
    // A folder outside of `crates/` stands for a third-party crate that brings HTTP.
    for (name, deps) in [("hyper", ""), ("client", "hyper = { path = \"../hyper\" }\n")] {
        workspace.write(
            &format!("vendor/{name}/Cargo.toml"),
            &format!(
                "[package]\nname = \"{name}\"\nversion = \"1.0.0\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n{deps}"
            ),
        )?;
        workspace.write(&format!("vendor/{name}/src/lib.rs"), "//! A crate.\n")?;
    }
    workspace.append("Cargo.toml", "exclude = [\"vendor\"]\n")?;
    workspace.append("crates/session/Cargo.toml", "client = { path = \"../../vendor/client\" }\n")?;
    let (passed, output) = workspace.tidy()?;
    assert!(!passed);
    for name in ["session", "engine"] {
        let text = format!("open-agent-{name} may not depend on hyper (its tests included)");
        assert!(output.contains(&text), "no `{text}` in:\n{output}");
    }
    assert!(!output.contains("open-agent-tool may not"), "{output}");
    Ok(())
}

#[test]
fn a_feature_that_only_tests_switch_on_is_found() -> Result<()> {
    let workspace = Workspace::new("features")?;
    let manifest = "[package]\nname = \"parser\"\nversion = \"1.2.3\"\nedition = \"2024\"\n[workspace]\n\
                    [features]\nfast = []\nlong = []\n";
    workspace.write("vendor/parser/Cargo.toml", manifest)?;
    workspace.write("vendor/parser/src/lib.rs", "//! A crate.\n")?;
    workspace.append("Cargo.toml", "exclude = [\"vendor\"]\n")?;
    let parser =
        |features: &str| format!("parser = {{ path = \"../../vendor/parser\", features = [{features}] }}\n");
    workspace.append("crates/tool/Cargo.toml", &parser("\"fast\""))?;
    workspace.append("crates/policy/Cargo.toml", &format!("[dev-dependencies]\n{}", parser("\"long\"")))?;
    let error = "error: parser v1.2.3 is built twice: only tests switch on long;";
    let (passed, output) = workspace.tidy()?;
    assert!(!passed && output.contains(error), "no `{error}` in:\n{output}");
    // Where anything of the workspace switches it on, all of it is built with it.
    workspace.append("crates/testkit/Cargo.toml", &parser("\"long\""))?;
    let (_, output) = workspace.tidy()?;
    assert!(!output.contains("is built twice"), "{output}");
    Ok(())
}

#[test]
fn a_long_file_fails_unless_it_is_listed_with_a_reason() -> Result<()> {
    let workspace = Workspace::new("long-file")?;
    workspace.write("crates/model/src/long.rs", &("//! Long.\n".to_string() + &"// x\n".repeat(799)))?;
    finds(&workspace, &["crates/model/src/long.rs: 800 lines, more than 700"])?;
    workspace.write("xtask/long-files.txt", "# Listed.\ncrates/model/src/long.rs: a table\n")?;
    passes(&workspace)?;
    workspace.write("crates/model/src/long.rs", "//! Short.\n")?;
    finds(&workspace, &["crates/model/src/long.rs", "needs no line"])
}

#[test]
fn a_long_function_is_a_warning() -> Result<()> {
    let workspace = Workspace::new("long-function")?;
    let body = "    f();\n".repeat(120);
    workspace.write("crates/model/src/long.rs", &format!("//! Long.\nfn long() {{\n{body}}}\n"))?;
    let (passed, output) = workspace.tidy()?;
    assert!(passed, "{output}");
    assert!(output.contains("warning: crates/model/src/long.rs:2: a function of 122 lines"), "{output}");
    Ok(())
}

/// Each fault in a file that is fine otherwise. All are planted at once, since a look at a workspace takes a second.
#[test]
fn source_rules() -> Result<()> {
    let workspace = Workspace::new("source")?;
    let cases: &[(&str, &str, &str)] = &[
        ("crates/tool/src/a.rs", "#[allow(dead_code)]\nfn f() {}", "`#[allow(…)]`: write"),
        ("crates/tool/src/b.rs", "#![allow(dead_code)]", "`#[allow(…)]`: write"),
        ("crates/tool/src/c.rs", "#[cfg_attr(unix, allow(dead_code))]\nfn f() {}", "`#[allow(…)]`: write"),
        ("crates/tool/src/d.rs", "fn f() { println!(\"x\"); }", "`println!`: only cli"),
        ("crates/tool/src/e.rs", "fn f() { eprint!(\"x\"); }", "`eprint!`: only cli"),
        ("crates/tool/src/f.rs", "fn f() { unsafe { g() } }", "`unsafe`: only crates/sandbox"),
        ("crates/tool/src/g.rs", "fn f() { std::env::var(\"X\").ok(); }", "`env::var`: the environment"),
        (
            "crates/tool/src/h.rs",
            "use open_agent_testkit::x;",
            "`open_agent_testkit`: use testkit from tests/it only",
        ),
        ("crates/model/src/i.rs", "use std::fs;", "`std::fs`: the model crate is data"),
        ("crates/engine/src/machine.rs", "async fn f() {}", "`async`: the machine is a pure fold"),
        ("crates/engine/src/machine/fold.rs", "use std::time::Instant;", "`Instant`: the machine"),
    ];
    for (path, code, _) in cases {
        workspace.write(path, &format!("//! A module.\n{code}\n"))?;
    }
    workspace.write("crates/tool/src/j.rs", "fn f() {}\n")?;
    let (passed, output) = workspace.tidy()?;
    assert!(!passed, "{output}");
    let errors: Vec<&str> = output.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(errors.len(), cases.len() + 1, "{output}");
    for (path, _, message) in cases {
        let start = format!("error: {path}:2: {message}");
        assert!(errors.iter().any(|error| error.starts_with(&start)), "no `{start}` in:\n{output}");
    }
    assert!(output.contains("error: crates/tool/src/j.rs:1: begin with a `//!` comment"), "{output}");
    Ok(())
}

#[test]
fn places_where_the_same_is_fine() -> Result<()> {
    let workspace = Workspace::new("places")?;
    let cases: &[(&str, &str)] = &[
        ("crates/sandbox/src/a.rs", "fn f() { unsafe { g() } }"),
        ("crates/cli/src/a.rs", "fn f() { println!(); std::env::vars(); }"),
        ("crates/model/src/secret.rs", "fn f() { std::env::vars(); }"),
        ("crates/open-agent/examples/a.rs", "fn main() { println!(); }"),
        ("crates/policy/src/a.rs", "fn f() { g(rule, allow(x)); unsafe_code(); }"),
        ("crates/engine/src/driver.rs", "async fn f() { g().await }"),
        ("crates/http/build.rs", "fn main() { println!(\"cargo::rerun-if-changed=x\"); }"),
    ];
    for (path, code) in cases {
        workspace.write(path, &format!("//! A module.\n{code}\n"))?;
    }
    passes(&workspace)
}

#[test]
fn files_that_git_would_not_track_do_not_count() -> Result<()> {
    let workspace = Workspace::new("ignored")?;
    workspace.write(".gitignore", "target/\n/made.rs\n")?;
    for path in ["target/a.rs", "crates/tool/target/b.rs", "made.rs", ".git/c.rs"] {
        workspace.write(path, "fn f() {}\n")?;
    }
    passes(&workspace)?;
    workspace.write("crates/tool/made.rs", "fn f() {}\n")?;
    finds(&workspace, &["crates/tool/made.rs:1: begin with"])?;
    workspace.write("crates/tool/.gitignore", "made.rs\n")?;
    passes(&workspace)?;
    workspace.write(".hidden/d.rs", "fn f() {}\n")?;
    finds(&workspace, &[".hidden/d.rs:1: begin with"])
}
