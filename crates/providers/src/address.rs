//! Where requests go. Owns the rules by which a base URL becomes an endpoint, and its form without secrets.

use std::fmt;

use open_agent_model::{ProviderError, ProviderErrorKind, ProviderHint};
use reqwest::Url;

use crate::{Api, Profile};

/// A server's address.
#[derive(Clone)]
pub(crate) struct Address {
    endpoint: Url,
    shown: String,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl Address {
    /// Anthropic: `/v1/messages` is appended unless the path ends in `/v1`. OpenAI: a path is used as it is, an empty
    /// one becomes `/v1`. A path that names the endpoint already is left alone.
    pub(crate) fn new(profile: &Profile, base_url: &str) -> Result<Self, ProviderError> {
        let wrong = |text: String, hint| {
            Err(ProviderError::new(ProviderErrorKind::Configuration, text).with_hint(hint))
        };
        let base_url = base_url.trim();
        if base_url.is_empty() {
            let text = if profile.base_url.is_empty() {
                format!("the provider {:?} has no address of its own", profile.name)
            } else {
                "the base URL is empty".to_owned()
            };
            return wrong(text, ProviderHint::SetBaseUrl);
        }
        let mut endpoint = match Url::parse(base_url) {
            Ok(url) if url.has_host() && matches!(url.scheme(), "http" | "https") => url,
            _ => {
                let text = "the base URL is not an http or https address".to_owned();
                return wrong(text, ProviderHint::CheckBaseUrl);
            }
        };
        let path = endpoint.path().trim_end_matches('/').to_owned();
        let (leaf, root) = match profile.api {
            Api::Anthropic => ("/messages", if path.ends_with("/v1") { "" } else { "/v1" }),
            Api::OpenAi => ("/chat/completions", if path.is_empty() { "/v1" } else { "" }),
        };
        let path = if path.ends_with(leaf) { path } else { format!("{path}{root}{leaf}") };
        endpoint.set_path(&path);
        endpoint.set_fragment(None);
        let shown = format!("{}{path}", endpoint.origin().ascii_serialization());
        Ok(Self { endpoint, shown })
    }

    /// Whether that is the profile's own host.
    pub(crate) fn is_home(profile: &Profile, address: &Self) -> bool {
        Url::parse(profile.base_url).is_ok_and(|own| own.host_str() == address.endpoint.host_str())
    }

    pub(crate) fn url(&self) -> &Url {
        &self.endpoint
    }

    /// The address with `more` after its path.
    pub(crate) fn below(&self, more: &str) -> Self {
        let mut endpoint = self.endpoint.clone();
        endpoint.set_path(&format!("{}{more}", self.endpoint.path()));
        Self { endpoint, shown: format!("{}{more}", self.shown) }
    }

    /// Without user, password and query.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    pub(crate) fn path(&self) -> &str {
        self.endpoint.path()
    }

    pub(crate) fn host(&self) -> &str {
        self.endpoint.host_str().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(profile: &str, base: &str) -> String {
        Address::new(Profile::by_name(profile).unwrap(), base).unwrap().url().to_string()
    }

    #[test]
    fn base_urls_become_endpoints() {
        for (profile, base, want) in [
            ("anthropic", "https://api.anthropic.com", "https://api.anthropic.com/v1/messages"),
            ("anthropic", "http://h:1/x/", "http://h:1/x/v1/messages"),
            ("anthropic", "http://h:1/x/v1/", "http://h:1/x/v1/messages"),
            ("anthropic", "http://h/v1/messages", "http://h/v1/messages"),
            ("openai", "https://api.openai.com/v1", "https://api.openai.com/v1/chat/completions"),
            ("deepseek", "https://api.deepseek.com", "https://api.deepseek.com/v1/chat/completions"),
            ("glm", "https://api.z.ai/api/paas/v4", "https://api.z.ai/api/paas/v4/chat/completions"),
            ("generic", "http://h/deployments/m", "http://h/deployments/m/chat/completions"),
            ("generic", "http://h/v1/chat/completions?v=2", "http://h/v1/chat/completions?v=2"),
        ] {
            assert_eq!(at(profile, base), want);
        }
    }

    #[test]
    fn what_is_no_address_is_refused_without_being_repeated() {
        for bad in ["localhost:8080", "ftp://u:sk-canary@h", "sk-canary", "http://"] {
            let error = Address::new(Profile::by_name("openai").unwrap(), bad).err().unwrap();
            assert!(error.message.contains("not an http or https address"), "{error}");
            assert!(!error.message.contains("canary"), "{error}");
            assert_eq!(error.hint.as_deref(), Some(&ProviderHint::CheckBaseUrl));
        }
    }

    #[test]
    fn an_empty_address_is_told_apart_from_none() {
        let refused = |name| Address::new(Profile::by_name(name).unwrap(), " ").err().unwrap().message;
        assert!(refused("anthropic").contains("the base URL is empty"), "{}", refused("anthropic"));
        assert!(refused("generic").contains("no address of its own"), "{}", refused("generic"));
    }

    #[test]
    fn what_is_shown_holds_no_secret() {
        let a = Address::new(Profile::by_name("generic").unwrap(), "http://u:p@h:9/v1?key=k").unwrap();
        assert_eq!(a.shown(), "http://h:9/v1/chat/completions");
        assert_eq!(a.below("/x").shown(), "http://h:9/v1/chat/completions/x");
    }
}
