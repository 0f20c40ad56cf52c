//! Which provider answers, and with which model. Owns the order in which options, environment and defaults count.

use std::sync::Arc;

use open_agent_model::{Catalogue, Env, Provider};

use crate::{AgentOptions, ConfigError};

/// The model when nothing else is said.
pub const DEFAULT_MODEL: &str = "claude-sonnet-4-6";

/// A provider and the model to ask it for.
pub(crate) struct Choice {
    pub model: Arc<str>,
    pub provider: Arc<dyn Provider>,
}

/// Options, then `CODEANY_MODEL`, then the default; short names in full.
pub(crate) fn model_name(options: &AgentOptions, env: &Env, catalogue: &Catalogue) -> String {
    let named = options.model.as_deref().or_else(|| env.get("CODEANY_MODEL")).unwrap_or(DEFAULT_MODEL);
    catalogue.resolve(named.trim()).to_owned()
}

pub(crate) fn choose(_: &AgentOptions, _: &Env, _: &Catalogue) -> Result<Choice, ConfigError> {
    Err(ConfigError::EmptyModel)
}
