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

/// The names of the providers and profiles there are.
pub fn provider_names() -> impl Iterator<Item = &'static str> {
    Profile::names()
}

/// What options, environment and defaults come to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resolved {
    /// The model that is asked.
    pub model: String,
    /// The provider's or profile's name.
    pub provider: &'static str,
    /// Where requests go, without what may be a secret in it.
    pub address: String,
    /// Where the key comes from: a variable's name, `option`, or `none`.
    pub key_source: &'static str,
}

/// Makes the provider.
pub(crate) fn choose(
    options: &AgentOptions,
    env: &Env,
    catalogue: &Catalogue,
    shared: &SharedProviders,
) -> Result<Choice, ConfigError> {
    let (resolved, config) = resolve(options, env, catalogue)?;
    let provider = shared.get(config)?;
    Ok(Choice { model: resolved.model.into(), provider, key_source: resolved.key_source })
}

/// Finds the provider: the one named, else the one that the model's name speaks for, else, at an address that was given,
/// one that speaks the most common API.
pub(crate) fn resolve(
    options: &AgentOptions,
    env: &Env,
    catalogue: &Catalogue,
) -> Result<(Resolved, ProviderConfig), ConfigError> {
    let model = model_name(options, env, catalogue);
    let has_address = options.base_url.is_some() || env.get("CODEANY_BASE_URL").is_some();
    let profile = profile(options, (&model, catalogue), has_address)?;
    let mut config = ProviderConfig::from_env(profile, env).with_idle_timeout(options.idle_timeout);
    if let Some(url) = &options.base_url {
        config.base_url.clone_from(url);
    }
    if let Some(key) = &options.api_key {
        config = config.with_key(key.clone());
    }
    config.betas.clone_from(&options.betas);
    config.context_window = options.context_window;
    if options.model.is_none() && env.get("CODEANY_MODEL").is_none() {
        check_default_model((&model, catalogue), &config, has_address, env)?;
    }
    let key_source = key_source(options, env, &config);
    let address = config.shown_address();
    Ok((Resolved { model, provider: profile.name, address, key_source }, config))
}

fn profile(
    options: &AgentOptions,
    (model, catalogue): (&str, &Catalogue),
    has_address: bool,
) -> Result<&'static Profile, ConfigError> {
    let unknown = || ConfigError::NoProviderForModel { model: model.to_owned() };
    match &options.provider {
        Some(name) => Profile::by_name(name).ok_or_else(|| ConfigError::NoProvider {
            name: name.clone(),
            known: provider_names().collect::<Vec<_>>().join(", "),
        }),
        None => match Profile::for_model(model, catalogue) {
            Some(profile) => Ok(profile),
            None if has_address => Profile::by_name("generic").ok_or_else(unknown),
            None => Err(unknown()),
        },
    }
}

/// Nobody named a model: the default one has to be the provider's, and reachable.
fn check_default_model(
    (model, catalogue): (&str, &Catalogue),
    config: &ProviderConfig,
    has_address: bool,
    env: &Env,
) -> Result<(), ConfigError> {
    let provider = config.profile.name;
    if Profile::for_model(model, catalogue).is_none_or(|theirs| theirs.name != provider) {
        return Err(ConfigError::NoModelForProvider { provider, model: model.to_owned() });
    }
    let elsewhere = has_address || env.get("ANTHROPIC_BASE_URL").is_some();
    if config.key.is_none() && !elsewhere && env.get("OPENAI_API_KEY").is_some() {
        return Err(ConfigError::NoModelForKey { found: "OPENAI_API_KEY", model: model.to_owned() });
    }
    Ok(())
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
    betas: Vec<String>,
    context_window: Option<u64>,
    idle_timeout: Duration,
}

impl SharedProviders {
    fn get(&self, config: ProviderConfig) -> Result<Arc<dyn Provider>, ConfigError> {
        let place = Place {
            profile: config.profile.name,
            base_url: config.base_url.clone(),
            key: config.key.clone(),
            bearer: config.bearer,
            betas: config.betas.clone(),
            context_window: config.context_window,
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
