//! Proxies from the environment. Owns which variables count; the client does the rest.

use open_agent_model::Env;
use reqwest::{NoProxy, Proxy};

use crate::HttpError;

/// The proxies in the order in which they are asked.
pub(crate) struct Proxies {
    pub(crate) list: Vec<Proxy>,
    /// One of them is itself reached over TLS.
    pub(crate) over_tls: bool,
}

type Make = fn(&str) -> reqwest::Result<Proxy>;

/// Lower case wins, as in curl. `HTTP_PROXY` in capitals is left out in a CGI process, where it is a request header
/// that a stranger wrote.
const VARIABLES: &[(&str, &str, Make)] = &[
    ("https_proxy", "HTTPS_PROXY", |url| Proxy::https(url)),
    ("http_proxy", "HTTP_PROXY", |url| Proxy::http(url)),
    ("all_proxy", "ALL_PROXY", |url| Proxy::all(url)),
];

/// The variable that names the proxy for `https` or else `http` addresses, for people who wonder why a server cannot be
/// reached. Exceptions are not looked at.
#[must_use]
pub fn proxy_variable(env: &Env, https: bool) -> Option<&'static str> {
    let scheme = if https { "https_proxy" } else { "http_proxy" };
    let names = VARIABLES.iter().filter(|(lower, ..)| *lower == scheme || *lower == "all_proxy");
    names.flat_map(|(lower, upper, _)| [*lower, *upper]).find(|name| env.get(name).is_some())
}

/// How the client can speak to a proxy. It would silently go around one with another scheme.
const SCHEMES: &[&str] = &["http", "https", "socks4", "socks4a", "socks5", "socks5h"];

/// Whether an address has none or one of [`SCHEMES`].
fn has_known_scheme(url: &str) -> bool {
    url.trim()
        .split_once("://")
        .is_none_or(|(scheme, _)| SCHEMES.iter().any(|s| scheme.eq_ignore_ascii_case(s)))
}

pub(crate) fn from_env(env: &Env) -> Result<Proxies, HttpError> {
    let exceptions = env.get("no_proxy").or_else(|| env.get("NO_PROXY")).unwrap_or_default();
    let mut proxies = Proxies { list: Vec::new(), over_tls: false };
    // The library takes the star for names only, not for addresses.
    if exceptions.split(',').any(|e| e.trim() == "*") {
        return Ok(proxies);
    }
    let no_proxy = NoProxy::from_string(exceptions);
    for (lower, upper, make) in VARIABLES {
        let cgi = *upper == "HTTP_PROXY" && env.get("REQUEST_METHOD").is_some();
        let found = env
            .get(lower)
            .map(|url| (*lower, url))
            .or_else(|| env.get(upper).filter(|_| !cgi).map(|url| (*upper, url)));
        let Some((variable, url)) = found else { continue };
        if !has_known_scheme(url) {
            return Err(HttpError::ProxyScheme { variable });
        }
        let proxy = make(url).map_err(|e| HttpError::Proxy { variable, source: e.without_url() })?;
        proxies.over_tls |= url.starts_with("https:");
        proxies.list.push(proxy.no_proxy(no_proxy.clone()));
    }
    Ok(proxies)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(pairs: &[(&str, &str)]) -> usize {
        let env: Env = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        from_env(&env).unwrap().list.len()
    }

    #[test]
    fn h_plt_02_a_proxy_that_the_client_would_go_around_is_refused() {
        for variable in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
            for scheme in ["ftp", "ws", "htp", "socks", "file"] {
                let url = format!("{scheme}://u:sk-canary@127.0.0.1:1");
                let env: Env = [(variable.to_owned(), url)].into_iter().collect();
                let error = from_env(&env).err().unwrap();
                assert!(error.to_string().contains(variable), "{error}");
                assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
            }
            for url in
                ["http://p:1", "HTTPS://p:1", "socks4://p:1", "socks4a://p:1", "socks5://p:1", "p:1", "p"]
            {
                assert_eq!(count(&[(variable, url)]), 1, "{url}");
            }
        }
    }

    #[test]
    fn each_variable_counts_once() {
        assert_eq!(count(&[]), 0);
        assert_eq!(count(&[("HTTPS_PROXY", "http://p:1"), ("https_proxy", "http://p:2")]), 1);
        assert_eq!(count(&[("HTTP_PROXY", "p:1"), ("ALL_PROXY", "socks5h://p:1")]), 2);
        assert_eq!(count(&[("HTTP_PROXY", "p:1"), ("REQUEST_METHOD", "GET")]), 0);
    }
}
