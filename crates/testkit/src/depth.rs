//! How many cases a test tries: few in everyday runs, many in deep ones.

/// The environment variable that turns a test run into a deep one. `cargo xtask test --deep` sets it to `1`.
pub const DEEP: &str = "OPEN_AGENT_DEEP_TESTS";

/// Returns `deep` in a deep test run and `small` otherwise.
///
/// Every test that repeats something (cases of a property, cuts of a recording, kills of a process) asks this function
/// how often. `small` is chosen so that the test takes a few seconds at most in a debug build; `deep` is what has
/// to hold before a change is accepted.
pub fn cases<T>(small: T, deep: T) -> T {
    if is_deep(std::env::var_os(DEEP).as_deref()) { deep } else { small }
}

/// An empty value and `0` count as unset, so that a variable can be switched off without removing it.
fn is_deep(value: Option<&std::ffi::OsStr>) -> bool {
    value.is_some_and(|value| !value.is_empty() && value != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_value_that_is_not_zero_makes_a_run_deep() {
        for (value, deep) in [(None, false), (Some(""), false), (Some("0"), false), (Some("1"), true)] {
            assert_eq!(is_deep(value.map(std::ffi::OsStr::new)), deep, "{value:?}");
        }
    }
}
