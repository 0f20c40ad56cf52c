//! What to change so that a request works, in terms of this program's options. The library has words of its own for the
//! same hints.

use open_agent::{Changes, ProviderHint};

/// What went wrong, and what to change.
pub(crate) fn explained(error: &str, hint: Option<&ProviderHint>) -> String {
    match hint {
        Some(hint) => format!("{error}: {}", advice(hint)),
        None => error.to_owned(),
    }
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
