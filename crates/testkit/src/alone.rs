//! Tests that need a process of their own. `cargo test` runs all tests of a binary in one process, so a test that
//! measures the process (its memory, its open files) would measure its neighbours as well. nextest starts a process for
//! each test; elsewhere such a test starts its binary again for itself alone.

use std::io;
use std::process::{Command, Stdio};

/// Set in the process that was started for one test; holds the test's name.
const ALONE: &str = "OPEN_AGENT_TEST_ALONE";

/// Makes the enclosing test run in a process of its own. It must be the first statement of the test, which must return
/// `()`; the test may be async.
///
/// In a process that the test shares with others, this starts the test binary again with this test only, fails if that
/// fails, and returns from the test.
///
/// # Panics
///
/// Panics if the process cannot be started or if the test fails in it; the message holds its output.
#[macro_export]
macro_rules! in_own_process {
    () => {
        fn enclosing_test() {}
        if !$crate::is_alone(std::any::type_name_of_val(&enclosing_test)).unwrap() {
            return;
        }
    };
}

/// Returns true in a process that runs only the test which holds `item`, the path of something declared in that test.
/// Otherwise runs the test in a process of its own and returns false. [`in_own_process`] calls this.
///
/// # Errors
///
/// Returns an error with the output of the other process if the test failed in it, or was not found in it.
pub fn is_alone(item: &str) -> io::Result<bool> {
    let test = test_name(item);
    if std::env::var_os("NEXTEST_EXECUTION_MODE").is_some_and(|mode| mode == "process-per-test")
        || std::env::var_os(ALONE).is_some_and(|alone| alone == *test)
    {
        return Ok(true);
    }
    let out = Command::new(std::env::current_exe()?)
        .args(["--exact", &test, "--include-ignored", "--nocapture"])
        .env(ALONE, &test)
        .stdin(Stdio::null())
        .output()?;
    let text = String::from_utf8_lossy(&out.stdout);
    if out.status.success() && text.contains("1 passed") {
        return Ok(false);
    }
    let errors = String::from_utf8_lossy(&out.stderr);
    Err(io::Error::other(format!("{test} failed in its own process ({}):\n{text}\n{errors}", out.status)))
}

/// The name by which the test binary knows the test: the path of `item` without the crate in front and without the
/// item and the compiler's names for async bodies behind.
fn test_name(item: &str) -> String {
    let parts = item.split("::").skip(1).filter(|part| !part.starts_with('{'));
    let parts: Vec<&str> = parts.collect();
    parts[..parts.len().saturating_sub(1)].join("::")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_found_by_an_item_in_it() {
        for item in ["it::bash::flood::here", "it::bash::flood::{{closure}}::here"] {
            assert_eq!(test_name(item), "bash::flood");
        }
    }

    #[test]
    fn a_test_of_its_own_shares_its_process_with_no_other() {
        crate::in_own_process!();
        let alone = std::env::var(ALONE).is_ok_and(|name| name.ends_with("shares_its_process_with_no_other"));
        assert!(alone || std::env::var_os("NEXTEST_EXECUTION_MODE").is_some());
    }

    #[test]
    fn a_failure_in_the_other_process_is_a_failure_here() {
        if std::env::var_os("NEXTEST_EXECUTION_MODE").is_some() {
            return;
        }
        let error = is_alone("testkit::alone::tests::fails_alone::item").unwrap_err().to_string();
        assert!(error.contains("this one fails"), "{error}");
        let error = is_alone("testkit::alone::tests::no_such_test::item").unwrap_err().to_string();
        assert!(error.contains("0 passed"), "{error}");
    }

    #[test]
    #[ignore = "run by a_failure_in_the_other_process_is_a_failure_here"]
    fn fails_alone() {
        // Also run by whoever runs all ignored tests.
        assert!(std::env::var_os(ALONE).is_none(), "this one fails");
    }
}
