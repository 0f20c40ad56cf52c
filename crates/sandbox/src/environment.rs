//! Which variables a started process sees. Owns the list of those that are kept from it.

use std::collections::BTreeMap;

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

/// What is passed on, and the names of what is not.
pub(crate) fn split(env: &Env, removed: &[&str]) -> (BTreeMap<String, String>, Vec<String>) {
    let mut kept = BTreeMap::new();
    let mut gone = Vec::new();
    for (name, value) in env.iter() {
        if removed.iter().any(|pattern| matches(pattern.as_bytes(), name.as_bytes())) {
            gone.push(name.to_owned());
        } else {
            kept.insert(name.to_owned(), value.to_owned());
        }
    }
    (kept, gone)
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
        let kept: Vec<&str> = kept.keys().map(String::as_str).collect();
        assert_eq!(kept, ["GITHUB_TOKEN", "OPENAI_BASE_URL", "PATH"]);
        assert_eq!(gone.len(), 7);
    }
}
