//! The one client factory. Owns what all requests have in common; sends none itself. There is no total time-out: a
//! long answer is healthy as long as something comes.

use std::time::Duration;

use open_agent_model::Env;
use reqwest::{Client, redirect};

use crate::{HttpError, proxy, tls};

/// What a client is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientOptions {
    /// It will speak to `https` addresses: the platform's certificates are loaded, which takes milliseconds.
    pub https: bool,
    /// How it introduces itself; the default is our name and version.
    pub user_agent: Option<String>,
}

impl ClientOptions {
    /// Options for requests to `url`.
    #[must_use]
    pub fn for_url(url: &str) -> Self {
        let https = url.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https:"));
        Self { https, ..Self::default() }
    }

    /// Introduces the client as `user_agent`.
    #[must_use]
    pub fn with_user_agent(mut self, user_agent: impl Into<String>) -> Self {
        self.user_agent = Some(user_agent.into());
        self
    }
}

/// A client that honours the proxies and certificates of `env`. It follows no redirect, because a redirect would carry
/// keys to where nobody sent them.
pub fn client(env: &Env, options: &ClientOptions) -> Result<Client, HttpError> {
    let default_agent = concat!("open-agent/", env!("CARGO_PKG_VERSION"));
    let proxies = proxy::from_env(env)?;
    // A proxy may itself be reached over TLS, and certificates decide there too.
    let tls = tls::config(env, options.https || proxies.over_tls)?;
    let mut builder = Client::builder()
        .no_proxy()
        .tls_backend_preconfigured(tls)
        .redirect(redirect::Policy::none())
        .connect_timeout(Duration::from_secs(30))
        .tcp_nodelay(true)
        .tcp_keepalive(Duration::from_secs(60))
        .user_agent(options.user_agent.as_deref().unwrap_or(default_agent));
    for proxy in proxies.list {
        builder = builder.proxy(proxy);
    }
    builder.build().map_err(|e| HttpError::Client(e.without_url()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> Env {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn only_https_needs_certificates() {
        assert!(ClientOptions::for_url("HTTPS://a/").https);
        assert!(!ClientOptions::for_url("http://a/").https);
        assert!(!ClientOptions::for_url("a").https);
        assert!(client(&Env::default(), &ClientOptions::for_url("https://a/")).is_ok());
    }

    #[test]
    fn a_bad_proxy_names_its_variable_and_hides_its_value() {
        let bad = env(&[("https_proxy", "http://user:sk-canary@ho st:x")]);
        let error = client(&bad, &ClientOptions::default()).unwrap_err();
        assert!(error.to_string().contains("https_proxy"), "{error}");
        assert!(!format!("{error} {error:?}").contains("sk-canary"));
    }

    #[test]
    fn a_missing_certificate_file_is_named_when_it_is_needed() {
        let e = env(&[("NODE_EXTRA_CA_CERTS", "/no/such/ca.pem")]);
        let error = client(&e, &ClientOptions::for_url("https://a/")).unwrap_err().to_string();
        assert!(error.contains("/no/such/ca.pem") && error.contains("NODE_EXTRA_CA_CERTS"), "{error}");
        assert!(client(&e, &ClientOptions::for_url("http://a/")).is_ok());
    }
}
