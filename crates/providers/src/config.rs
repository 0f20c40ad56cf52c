//! What a provider is made from. Owns the options, where they come from in the environment, and the rule about missing
//! keys.

use std::fmt;
use std::time::Duration;

use open_agent_http::Client;
use open_agent_model::{Env, ProviderError, ProviderErrorKind, ProviderHint, Secret};

use crate::Profile;
use crate::address::Address;
use crate::failure::key_variables;

/// Options of one provider.
#[derive(Clone)]
pub struct ProviderConfig {
    /// What the server wants and accepts.
    pub profile: &'static Profile,
    /// Its name in texts; the profile's by default.
    pub name: String,
    /// Where it is; the profile's own address by default.
    pub base_url: String,
    /// The key.
    pub key: Option<Secret>,
    /// The key goes out as `authorization: Bearer` where it otherwise would as `x-api-key`.
    pub bearer: bool,
    /// Values of `anthropic-beta`.
    pub betas: Vec<String>,
    /// Further headers of each request. Values count as secrets.
    pub headers: Vec<(String, Secret)>,
    /// How long nothing may come. There is no bound on the whole answer.
    pub idle_timeout: Duration,
    /// Requests mark what the vendor is to cache, where that has to be asked for.
    pub prompt_cache: bool,
    /// The window that the server is to use, where it can be told.
    pub context_window: Option<u64>,
    /// Proxies and certificates come from here.
    pub env: Env,
    /// A client to share; otherwise one is made from `env` at the first request.
    pub client: Option<Client>,
}

impl ProviderConfig {
    /// The profile's defaults: its own address, no key.
    #[must_use]
    pub fn new(profile: &'static Profile) -> Self {
        Self {
            profile,
            name: profile.name.to_owned(),
            base_url: profile.base_url.to_owned(),
            key: None,
            bearer: false,
            betas: Vec::new(),
            headers: Vec::new(),
            idle_timeout: Duration::from_secs(300),
            prompt_cache: true,
            context_window: None,
            env: Env::default(),
            client: None,
        }
    }

    /// As `env` has it: `CODEANY_API_KEY` and `CODEANY_BASE_URL` first, then the profile's own variables.
    #[must_use]
    pub fn from_env(profile: &'static Profile, env: &Env) -> Self {
        let first = |ours: &str, theirs: &[&'static str]| {
            let found = env.get(ours).or_else(|| theirs.iter().find_map(|name| env.get(name)));
            found.map(str::to_owned)
        };
        let mut config = Self::new(profile);
        config.env = env.clone();
        config.key = first("CODEANY_API_KEY", profile.key_variables).map(Secret::new);
        if let Some(url) = first("CODEANY_BASE_URL", profile.url_variables) {
            config.base_url = url;
        }
        if config.key.is_none()
            && profile.api == crate::Api::Anthropic
            && let Some(token) = env.get("ANTHROPIC_AUTH_TOKEN")
        {
            config.key = Some(Secret::new(token));
            config.bearer = true;
        }
        config
    }

    /// Sets the address.
    #[must_use]
    pub fn with_base_url(mut self, base_url: impl Into<String>) -> Self {
        self.base_url = base_url.into();
        self
    }

    /// Sets the key; it goes out in the API's own header again, whatever the environment had said.
    #[must_use]
    pub fn with_key(mut self, key: Secret) -> Self {
        self.key = Some(key);
        self.bearer = false;
        self
    }

    /// Sets how long nothing may come.
    #[must_use]
    pub fn with_idle_timeout(mut self, limit: Duration) -> Self {
        self.idle_timeout = limit;
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: Secret) -> Self {
        self.headers.push((name.into(), value));
        self
    }

    /// Where requests go, for people: without user, password and query, and without a key in the path.
    #[must_use]
    pub fn shown_address(&self) -> String {
        let address = Address::new(self.profile, &self.base_url);
        let shown = address.map(|a| a.shown().to_owned()).unwrap_or_default();
        self.key
            .iter()
            .chain(self.headers.iter().map(|(_, value)| value))
            .fold(shown, |s, key| key.redact(&s))
    }

    /// Where requests go; an error if it is no address, or if a key is missing where none is served without.
    pub(crate) fn address(&self) -> Result<Address, ProviderError> {
        let address = Address::new(self.profile, &self.base_url)?;
        let own_host = Profile::all().iter().find(|p| p.needs_key && Address::is_home(p, &address));
        match own_host {
            Some(owner) if self.key.is_none() => Err(Self::no_key(owner, &address)),
            _ => Ok(address),
        }
    }

    fn no_key(owner: &Profile, address: &Address) -> ProviderError {
        let text = format!("no API key for {}", address.host());
        let hint = ProviderHint::SetKey { variables: key_variables(owner) };
        ProviderError::new(ProviderErrorKind::Authentication, text).with_hint(hint)
    }
}

impl fmt::Debug for ProviderConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderConfig")
            .field("profile", &self.profile.name)
            .field("name", &self.name)
            .field("address", &self.shown_address())
            .field("key", &self.key)
            .field("bearer", &self.bearer)
            .field("betas", &self.betas)
            .field("headers", &self.headers)
            .field("idle_timeout", &self.idle_timeout)
            .field("prompt_cache", &self.prompt_cache)
            .field("context_window", &self.context_window)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(name: &str, pairs: &[(&str, &str)]) -> ProviderConfig {
        let env: Env = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        ProviderConfig::from_env(Profile::by_name(name).unwrap(), &env)
    }

    #[test]
    fn our_variables_come_first_then_the_vendors() {
        let c = config("openai", &[("OPENAI_API_KEY", "a"), ("CODEANY_API_KEY", "b")]);
        assert_eq!(c.key.unwrap().expose(), "b");
        let c = config("glm", &[("OPENAI_API_KEY", "a"), ("GLM_API_KEY", "c")]);
        assert_eq!(c.key.unwrap().expose(), "c");
        let c = config("anthropic", &[("ANTHROPIC_AUTH_TOKEN", "t"), ("ANTHROPIC_BASE_URL", "http://x")]);
        assert!(c.bearer && c.base_url == "http://x" && c.key.is_some());
    }

    #[test]
    fn a_missing_key_is_an_error_on_own_hosts_only() {
        let error = config("anthropic", &[]).address().unwrap_err();
        assert_eq!(error.kind, ProviderErrorKind::Authentication);
        assert!(error.message.contains("api.anthropic.com"), "{error}");
        let key = |first: &str| {
            Some(Box::new(ProviderHint::SetKey { variables: vec![first.into(), "CODEANY_API_KEY".into()] }))
        };
        assert_eq!(error.hint, key("ANTHROPIC_API_KEY"));
        assert_eq!(config("openai", &[]).address().unwrap_err().hint, key("OPENAI_API_KEY"));
        assert!(config("anthropic", &[("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")]).address().is_ok());
        assert!(config("ollama", &[]).address().is_ok());
        assert_eq!(
            config("generic", &[]).address().unwrap_err().hint.as_deref(),
            Some(&ProviderHint::SetBaseUrl)
        );
        let at_openai = config("generic", &[("OPENAI_BASE_URL", "https://api.openai.com")]);
        assert!(at_openai.address().is_err());
    }

    #[test]
    fn h_log_01_debug_shows_no_secret() {
        let c = config("anthropic", &[("ANTHROPIC_API_KEY", "sk-canary")])
            .with_base_url("http://u:sk-canary@h/?key=sk-canary")
            .with_header("x-more", Secret::new("sk-canary"));
        let in_path = c.clone().with_base_url("http://h/sk-canary/v1").shown_address();
        assert_eq!(in_path, "http://h/***/v1/messages");
        assert!(!format!("{c:?}").contains("canary"), "{c:?}");
    }
}
