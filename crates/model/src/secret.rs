//! Values that must not be seen. Owns `Secret`, which shows nothing, and `Env`, which shows names only.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A key. `Debug` and `Display` show `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Hides `text`.
    #[must_use]
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text. Call it where the key is sent, nowhere else.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// `text` with every occurrence of the key replaced by `***`: servers echo keys in their error texts.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        // A key of a few characters would tear words apart, and is no key.
        if self.0.len() < 4 { text.to_owned() } else { text.replace(&*self.0, "***") }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The environment as a value: read once by a binary, passed to whoever needs it. Two agents in one process can have
/// different ones.
#[derive(Clone, Default)]
pub struct Env(Arc<BTreeMap<String, String>>);

impl Env {
    /// The process's environment. Names and values that are not UTF-8 are left out.
    #[must_use]
    pub fn from_process() -> Self {
        let text = |(k, v): (std::ffi::OsString, std::ffi::OsString)| {
            Some((k.into_string().ok()?, v.into_string().ok()?))
        };
        std::env::vars_os().filter_map(text).collect()
    }

    /// The value of `name`, unless it is missing or empty.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|v| !v.trim().is_empty())
    }

    /// All names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }
}

impl FromIterator<(String, String)> for Env {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(pairs: I) -> Self {
        Self(Arc::new(pairs.into_iter().collect()))
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_keys_nor_environment_show_values() {
        let key = Secret::new("sk-canary");
        assert_eq!(format!("{key:?} {key}"), "*** ***");
        assert_eq!(key.redact("bad key sk-canary!"), "bad key ***!");
        let env: Env = [("A_KEY".to_owned(), "sk-canary".to_owned())].into_iter().collect();
        assert_eq!(format!("{env:?}"), r#"{"A_KEY"}"#);
        assert_eq!(env.get("A_KEY"), Some("sk-canary"));
    }
}
