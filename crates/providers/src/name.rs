//! Names of tools that a model made up. Owns how they are written where no vendor takes them as they are; the log and the
//! answer to the model keep what it wrote.

use std::borrow::Cow;

use open_agent_model::is_legal_name;

const LONGEST: usize = 64;

/// The name, with `_` for each character that is not accepted, and cut to what is.
pub(crate) fn sendable(name: &str) -> Cow<'_, str> {
    if is_legal_name(name) {
        return Cow::Borrowed(name);
    }
    let legal = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    let written: String = name.chars().take(LONGEST).map(legal).collect();
    Cow::Owned(if written.is_empty() { "unknown".into() } else { written })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h_prv_07_any_name_becomes_one_that_is_accepted() {
        for (name, want) in [
            ("Read", "Read"),
            ("mcp__a-b__c", "mcp__a-b__c"),
            ("read file!", "read_file_"),
            ("functions.Read", "functions_Read"),
            ("größe", "gr__e"),
            ("", "unknown"),
        ] {
            assert_eq!(sendable(name), want);
        }
        assert!(is_legal_name(&sendable(&"ä".repeat(99))));
    }
}
