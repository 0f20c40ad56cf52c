//! Which provider answers, and with which model. Owns the order in which options, environment and defaults count.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use open_agent_model::{Catalogue, Env, Provider, Secret};
use open_agent_providers::{Profile, ProviderConfig};

use crate::{AgentOptions, ConfigError};

/// The model when nothing else is said.
pub const DEFAULT_MODEL: &str = "claude-sonnet-4-6";

/// The source of no key.
pub(crate) const NO_KEY: &str = "none";

/// A provider and the model to ask it for.
pub(crate) struct Choice {
    pub model: Arc<str>,
    pub provider: Arc<dyn Provider>,
    /// Where the key comes from.
    pub key_source: &'static str,
}

/// Options, then `CODEANY_MODEL`, then the default; short names in full.
pub(crate) fn model_name(options: &AgentOptions, env: &Env, catalogue: &Catalogue) -> String {
    let named = options.model.as_deref().or_else(|| env.get("CODEANY_MODEL")).unwrap_or(DEFAULT_MODEL);
    catalogue.resolve(named.trim()).to_owned()
}

/// Makes the provider: the one named, else the one that the model's name speaks for, else, at an address that was given,
/// one that speaks the most common API.
pub(crate) fn choose(
    options: &AgentOptions,
    env: &Env,
    catalogue: &Catalogue,
    shared: &SharedProviders,
) -> Result<Choice, ConfigError> {
    let model = model_name(options, env, catalogue);
    let is_named = options.model.is_some() || env.get("CODEANY_MODEL").is_some();
    let has_address = options.base_url.is_some() || env.get("CODEANY_BASE_URL").is_some();
    let profile = match &options.provider {
        Some(name) => {
            let known = || Profile::names().collect::<Vec<_>>().join(", ");
            Profile::by_name(name)
                .ok_or_else(|| ConfigError::NoProvider { name: name.clone(), known: known() })?
        }
        None => match Profile::for_model(&model) {
            Some(profile) => profile,
            None if has_address => {
                Profile::by_name("generic").ok_or(ConfigError::NoProviderForModel { model: model.clone() })?
            }
            None => return Err(ConfigError::NoProviderForModel { model }),
        },
    };
    let mut config = ProviderConfig::from_env(profile, env).with_idle_timeout(options.idle_timeout);
    if let Some(url) = &options.base_url {
        config.base_url.clone_from(url);
    }
    if let Some(key) = &options.api_key {
        config = config.with_key(key.clone());
    }
    if !is_named {
        let default_is_theirs = Profile::for_model(&model).is_some_and(|theirs| theirs.name == profile.name);
        if !default_is_theirs {
            return Err(ConfigError::NoModelForProvider { provider: profile.name, model });
        }
        if config.key.is_none()
            && !has_address
            && env.get("OPENAI_API_KEY").is_some()
            && env.get("ANTHROPIC_BASE_URL").is_none()
        {
            return Err(ConfigError::NoModelForKey { found: "OPENAI_API_KEY", model });
        }
    }
    let key_source = key_source(options, env, &config);
    let provider = shared.get(config)?;
    Ok(Choice { model: model.into(), provider, key_source })
}

/// The variable that the key was read from, for people who wonder which one counted.
fn key_source(options: &AgentOptions, env: &Env, config: &ProviderConfig) -> &'static str {
    match (&options.api_key, &config.key) {
        (Some(_), _) => "option",
        (None, None) => NO_KEY,
        (None, Some(key)) => {
            let ours = ["CODEANY_API_KEY"].into_iter();
            let mut all =
                ours.chain(config.profile.key_variables.iter().copied()).chain(["ANTHROPIC_AUTH_TOKEN"]);
            all.find(|name| env.get(name) == Some(key.expose())).unwrap_or("environment")
        }
    }
}

/// The providers that a builder and its clones made, so that agents with the same address and key share one, with its
/// connections.
#[derive(Clone, Default)]
pub(crate) struct SharedProviders(Arc<Mutex<Vec<Made>>>);

struct Made {
    place: Place,
    provider: Arc<dyn Provider>,
}

/// What makes two providers the same.
#[derive(PartialEq)]
struct Place {
    profile: &'static str,
    base_url: String,
    key: Option<Secret>,
    bearer: bool,
    idle_timeout: Duration,
}

impl SharedProviders {
    fn get(&self, config: ProviderConfig) -> Result<Arc<dyn Provider>, ConfigError> {
        let place = Place {
            profile: config.profile.name,
            base_url: config.base_url.clone(),
            key: config.key.clone(),
            bearer: config.bearer,
            idle_timeout: config.idle_timeout,
        };
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = made.iter().find(|known| known.place == place) {
            return Ok(Arc::clone(&known.provider));
        }
        let provider = open_agent_providers::provider(config).map_err(ConfigError::Provider)?;
        made.push(Made { place, provider: Arc::clone(&provider) });
        Ok(provider)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_with_one_address_and_key_share_their_provider() {
        let env: Env = [("ANTHROPIC_API_KEY".to_owned(), "k-test".to_owned())].into_iter().collect();
        let shared = SharedProviders::default();
        let provider = |change: fn(&mut AgentOptions)| {
            let mut options = AgentOptions::default();
            change(&mut options);
            choose(&options, &env, &Catalogue::default(), &shared).unwrap_or_else(|e| panic!("{e}")).provider
        };
        let one = provider(|_| {});
        assert!(Arc::ptr_eq(&one, &provider(|o| o.model = Some("haiku".into()))));
        assert!(!Arc::ptr_eq(&one, &provider(|o| o.api_key = Some(Secret::new("k-other")))));
        assert!(!Arc::ptr_eq(&one, &provider(|o| o.base_url = Some("http://127.0.0.1:1".into()))));
        assert!(!Arc::ptr_eq(&one, &provider(|o| o.idle_timeout = Duration::from_secs(1))));
    }
}
