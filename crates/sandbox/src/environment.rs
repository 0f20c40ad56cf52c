//! Which variables a started process sees. Owns the list of those that are kept from it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use open_agent_model::Env;

/// Variables that no started process sees, unless it is given them by name: keys and tokens of model providers. `*`
/// stands for any characters; case is ignored. Tokens of other services (`GITHUB_TOKEN`, `AWS_ACCESS_KEY_ID` …) stay,
/// because commands need them.
///
/// `BASH_ENV` and `ENV` name files that a shell reads when it starts: they could put a key back.
pub const REMOVED_VARIABLES: &[&str] = &[
    "*_API_KEY",
    "*_API_KEYS",
    "*_API_KEY_*",
    "*_AUTH_TOKEN",
    "*_OAUTH_TOKEN",
    "*_BEARER_TOKEN*",
    "ANTHROPIC_*KEY",
    "ANTHROPIC_*TOKEN",
    "AZURE_OPENAI_*KEY",
    "AZURE_OPENAI_*TOKEN",
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "OPENAI_*KEY",
    "OPENAI_*TOKEN",
    "BASH_ENV",
    "ENV",
];

/// A shorter value is no key, and is met in too many places.
const SECRET: usize = 12;

/// What is passed on, byte for byte, and the names of what is not.
pub(crate) fn split(env: &Env, removed: &[&str]) -> (BTreeMap<OsString, OsString>, Vec<String>) {
    let (mut kept, mut gone) = (BTreeMap::new(), BTreeMap::new());
    for (name, value) in env.iter() {
        let is_removed = removed.iter().any(|pattern| matches(pattern.as_bytes(), name.as_bytes()));
        let into = if is_removed { &mut gone } else { &mut kept };
        into.insert(name.to_owned(), value.to_owned());
    }
    // The key may stand in another variable as well: in an address, or under a name of the user's own.
    let secrets: Vec<&[u8]> = gone
        .iter()
        .filter(|(name, _)| !names_a_file(name))
        .map(|(_, value)| value.as_bytes())
        .filter(|value| value.trim_ascii().len() >= SECRET)
        .collect();
    let is_copy = |value: &OsString| {
        secrets.iter().any(|secret| memchr::memmem::find(value.as_bytes(), secret).is_some())
    };
    let copies: Vec<OsString> =
        kept.iter().filter(|(_, value)| is_copy(value)).map(|(name, _)| name.clone()).collect();
    kept.retain(|name, _| !copies.contains(name));
    let names = gone.into_keys().chain(copies).map(|name| name.to_string_lossy().into_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    (kept, names)
}

fn names_a_file(name: &OsStr) -> bool {
    name == "BASH_ENV" || name == "ENV"
}

fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        Some((b'*', rest)) => (0..=name.len()).any(|at| matches(rest, &name[at..])),
        Some((first, rest)) => {
            name.split_first().is_some_and(|(n, more)| n.eq_ignore_ascii_case(first) && matches(rest, more))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h_log_02_a_key_goes_wherever_it_stands() {
        let env: Env = [
            ("OPENAI_API_KEY", "sk-canary-1234567890"),
            ("MY_KEY", "sk-canary-1234567890"),
            ("OPENAI_BASE_URL", "http://h/v1?key=sk-canary-1234567890"),
            ("BASH_ENV", "/etc/profile.d/all"),
            ("PROFILE", "/etc/profile.d/all"),
            ("SHORT_API_KEY", "none"),
            ("KIND", "none"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into_iter()
        .collect();
        let (kept, gone) = split(&env, REMOVED_VARIABLES);
        assert_eq!(gone, ["BASH_ENV", "MY_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "SHORT_API_KEY"]);
        assert_eq!(kept.into_keys().collect::<Vec<_>>(), ["KIND", "PROFILE"]);
    }

    #[test]
    fn provider_keys_go_and_the_rest_stays() {
        let names = [
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_AUTH_TOKEN",
            "CLAUDE_CODE_OAUTH_TOKEN",
            "CODEANY_API_KEY",
            "deepseek_api_key",
            "GITHUB_TOKEN",
            "HF_TOKEN",
            "OPENAI_ADMIN_KEY",
            "OPENAI_BASE_URL",
            "PATH",
        ];
        let env: Env = names.iter().map(|n| ((*n).to_owned(), "v".to_owned())).collect();
        let (kept, gone) = split(&env, REMOVED_VARIABLES);
        let kept: Vec<&str> = kept.keys().filter_map(|name| name.to_str()).collect();
        assert_eq!(kept, ["GITHUB_TOKEN", "OPENAI_BASE_URL", "PATH"]);
        assert_eq!(gone.len(), 7);
    }
}
