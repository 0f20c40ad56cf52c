//! What to change so that a request works, in terms of this program's options. The library has words of its own for the
//! same hints.

use std::collections::BTreeSet;

use open_agent::{Changes, ConfigError, Denial, ProviderHint};

/// What went wrong, and what to change.
pub(crate) fn explained(error: &str, hint: Option<&ProviderHint>) -> String {
    match hint {
        Some(hint) => format!("{error}: {}", advice(hint)),
        None => error.to_owned(),
    }
}

/// What is wrong with the options, and what to change.
pub(crate) fn config_explained(error: &ConfigError) -> String {
    let advice = match error {
        ConfigError::EmptyModel
        | ConfigError::NoModelForKey { .. }
        | ConfigError::NoModelForProvider { .. } => "give a model with --model NAME",
        ConfigError::NoProviderForModel { .. } => {
            "name one with --provider NAME, or its address with --base-url URL"
        }
        ConfigError::NoPrice { .. } => {
            "leave --max-budget-usd out, or choose a model that `open-agent models` lists with a price"
        }
        ConfigError::ScopeWithoutBudget => "give --max-budget-usd, or leave --budget-scope out",
        ConfigError::NoHome => "set HOME, or keep the session in memory with --no-session-persistence",
        ConfigError::Provider(error) => return explained(&error.message, error.hint.as_deref()),
        _ => return error.problem(),
    };
    format!("{}: {advice}", error.problem())
}

/// How the calls that were refused could be allowed, first what allows least. `None` if none was refused.
pub(crate) fn to_allow(denials: &[Denial]) -> Option<String> {
    let tools: BTreeSet<&str> = denials.iter().map(|denial| denial.tool.as_str()).collect();
    let (these, tools) = match tools.len() {
        0 => return None,
        1 => ("this tool", tools),
        _ => ("these tools", tools),
    };
    let tools = tools.into_iter().collect::<Vec<_>>().join(",");
    Some(format!(
        "to allow {these}, add --allowed-tools {tools}; to allow every call, --permission-mode bypassPermissions"
    ))
}

fn advice(hint: &ProviderHint) -> String {
    match hint {
        ProviderHint::SetKey { variables } => {
            format!("set {}, or name a server that needs none with --base-url", variables.join(" or "))
        }
        ProviderHint::CheckKey { variables } => format!("check {}", variables.join(" or ")),
        ProviderHint::SetBaseUrl => "give an address with --base-url".to_owned(),
        ProviderHint::CheckBaseUrl => "is --base-url right?".to_owned(),
        ProviderHint::FollowBaseUrl { to } => format!("set --base-url to {to}"),
        ProviderHint::CheckServer => "is it running, and is --base-url right?".to_owned(),
        ProviderHint::ChangeProvider { provider, base_url, changes } => {
            let provider = provider.as_ref().map(|name| format!("--provider {name}"));
            let base_url = format!("--base-url to {base_url}");
            match (provider, changes) {
                (Some(provider), Changes::Either) => format!("use {provider}, or set {base_url}"),
                (Some(provider), Changes::Both) => format!("use {provider} and set {base_url}"),
                (None, _) => format!("set {base_url}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_the_options_is_told_in_flags() {
        let model = || "m".to_owned();
        for (error, flag) in [
            (ConfigError::EmptyModel, "--model NAME"),
            (ConfigError::NoModelForKey { found: "A_KEY", model: model() }, "--model NAME"),
            (ConfigError::NoModelForProvider { provider: "p", model: model() }, "--model NAME"),
            (ConfigError::NoProviderForModel { model: model() }, "--base-url URL"),
            (ConfigError::NoPrice { model: model() }, "leave --max-budget-usd out"),
            (ConfigError::ScopeWithoutBudget, "give --max-budget-usd"),
            (ConfigError::NoHome, "--no-session-persistence"),
        ] {
            let text = config_explained(&error);
            assert!(text.starts_with(&error.problem()) && text.contains(flag), "{text}");
            // The library's own options are not named.
            assert!(!text.contains('`') || text.contains("`open-agent models`"), "{text}");
        }
        assert_eq!(config_explained(&ConfigError::Temperature), "the temperature has to be between 0 and 2");
    }

    #[test]
    fn advice_is_given_in_flags() {
        let change = |provider: Option<&str>, changes| ProviderHint::ChangeProvider {
            provider: provider.map(str::to_owned),
            base_url: "the same server".into(),
            changes,
        };
        let variables = || vec!["A_KEY".to_owned(), "B_KEY".to_owned()];
        for (hint, want) in [
            (
                ProviderHint::SetKey { variables: variables() },
                "set A_KEY or B_KEY, or name a server that needs none with --base-url",
            ),
            (ProviderHint::CheckKey { variables: variables() }, "check A_KEY or B_KEY"),
            (ProviderHint::SetBaseUrl, "give an address with --base-url"),
            (ProviderHint::CheckBaseUrl, "is --base-url right?"),
            (ProviderHint::FollowBaseUrl { to: "http://h".into() }, "set --base-url to http://h"),
            (ProviderHint::CheckServer, "is it running, and is --base-url right?"),
            (
                change(Some("ollama"), Changes::Both),
                "use --provider ollama and set --base-url to the same server",
            ),
            (
                change(Some("ollama"), Changes::Either),
                "use --provider ollama, or set --base-url to the same server",
            ),
            (change(None, Changes::Both), "set --base-url to the same server"),
        ] {
            assert_eq!(explained("it failed", Some(&hint)), format!("it failed: {want}"));
        }
        assert_eq!(explained("it failed", None), "it failed");
    }
}
