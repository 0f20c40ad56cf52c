//! Why an agent cannot be made, or a prompt not be answered at all. What a model or a tool does wrong is in the result.

use std::path::PathBuf;

use open_agent_engine::EngineError;
use open_agent_model::{Changes, ProviderError, ProviderHint};

/// The options make no agent. What is wrong ([`ConfigError::problem`]) and what to change ([`ConfigError::advice`]) are
/// apart, so that a program with settings of its own can name those instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The model's name is empty.
    EmptyModel,
    /// An option that has to be above 0 is not.
    NotPositive {
        /// Which.
        option: &'static str,
    },
    /// A text to stop at is empty.
    EmptyStopSequence,
    /// The temperature is none.
    Temperature,
    /// There is a key for one vendor, and the default model is another's.
    NoModelForKey {
        /// The variable that is set.
        found: &'static str,
        /// The default model.
        model: String,
    },
    /// No provider has that name.
    NoProvider {
        /// The name.
        name: String,
        /// The providers there are.
        known: String,
    },
    /// Nothing says where the model is.
    NoProviderForModel {
        /// The model.
        model: String,
    },
    /// The provider does not have the default model.
    NoModelForProvider {
        /// The provider.
        provider: &'static str,
        /// The default model.
        model: String,
    },
    /// A limit on spending is of no use without a price.
    NoPrice {
        /// The model.
        model: String,
    },
    /// `budget_scope` is `session` and there is no limit that it could apply to. A shared budget is none: it covers only
    /// what is spent through it.
    ScopeWithoutBudget,
    /// The permission mode is known, but agents cannot run in it yet.
    ModeNotAvailable {
        /// The mode.
        mode: open_agent_model::PermissionMode,
    },
    /// A list names a tool that does not exist.
    NoTool {
        /// The name.
        name: String,
        /// The tools there are.
        known: String,
    },
    /// No vendor takes such a tool.
    ToolName {
        /// Its name.
        name: String,
    },
    /// No vendor takes such a tool.
    ToolSchema {
        /// Its name.
        name: String,
    },
    /// The project's folder cannot be used.
    Cwd {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// No place for sessions is known.
    NoHome,
    /// The provider cannot be used as configured.
    Provider(ProviderError),
}

impl ConfigError {
    /// Returns what is wrong, without what to change.
    #[must_use]
    pub fn problem(&self) -> String {
        match self {
            Self::EmptyModel => "the model name is empty".to_owned(),
            Self::NotPositive { option } => format!("{option} is 0: it has to be above 0, or be left out"),
            Self::EmptyStopSequence => {
                "a stop sequence is empty: vendors refuse those, leave it out".to_owned()
            }
            Self::Temperature => "the temperature has to be between 0 and 2".to_owned(),
            Self::NoModelForKey { found, model } => {
                format!("there is only {found}, and the default model {model} is not that vendor's")
            }
            Self::NoProvider { name, known } => format!("there is no provider {name:?}: there are {known}"),
            Self::NoProviderForModel { model } => format!("no provider is known for the model {model:?}"),
            Self::NoModelForProvider { provider, model } => {
                format!("the default model {model} is not one of {provider}'s")
            }
            Self::NoPrice { model } => {
                format!("a budget needs the price of {model}, which is not known")
            }
            Self::ScopeWithoutBudget => {
                "the budget's scope is the session, but there is no limit that it applies to".to_owned()
            }
            Self::ModeNotAvailable { mode } => {
                format!(
                    "permission mode {:?} is not available yet: use default or bypassPermissions",
                    mode.as_str()
                )
            }
            Self::NoTool { name, known } => format!("there is no tool {name:?}: there are {known}"),
            Self::ToolName { name } => {
                format!("the tool {name:?} has no legal name: 1 to 64 letters, digits, `_` and `-`")
            }
            Self::ToolSchema { name } => format!("the input schema of the tool {name} is no JSON object"),
            Self::Cwd { path, source } => {
                format!("the working folder {} cannot be used: {source}", path.display())
            }
            Self::NoHome => "there is no HOME to keep sessions in".to_owned(),
            Self::Provider(error) => error.to_string(),
        }
    }

    /// Returns what to change, in terms of this library's options and of environment variables. `None` where the problem
    /// says it already.
    #[must_use]
    pub fn advice(&self) -> Option<String> {
        let advice = match self {
            Self::EmptyModel | Self::NoModelForKey { .. } | Self::NoModelForProvider { .. } => {
                "give a model with the option `model`"
            }
            Self::NoProviderForModel { .. } => {
                "name one with the option `provider`, or its address with `base_url`"
            }
            Self::NoPrice { .. } => "register it with `register_model`, or leave the budget out",
            Self::ScopeWithoutBudget => "set `max_budget_usd`, or leave `budget_scope` out",
            Self::NoHome => {
                "set HOME, or give `sessions_dir`, or keep the session in memory with `persist_session = false`"
            }
            Self::Provider(error) => return error.hint.as_deref().map(advice),
            _ => return None,
        };
        Some(advice.to_owned())
    }
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.advice() {
            Some(advice) => write!(f, "{}: {advice}", self.problem()),
            None => f.write_str(&self.problem()),
        }
    }
}

/// A prompt could not be answered at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// The options make no agent.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The session cannot go on.
    #[error(transparent)]
    Engine(EngineError),
    /// The provider could not do what was asked of it outside a run.
    #[error("{}", explained(.0))]
    Provider(ProviderError),
    /// It was interrupted while it waited for an earlier prompt to end.
    #[error("the prompt was interrupted before its turn came")]
    Interrupted,
    /// [`Agent::close`](crate::Agent::close) was called.
    #[error("the agent is closed")]
    Closed,
    /// No background work has that name.
    #[error("there is no background work {id:?}: {}", known_work(.known))]
    NoBackgroundWork {
        /// The name.
        id: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// The session has no run yet.
    #[error("there is no run to go on with")]
    NothingToResume,
    /// The run's task ended without a result.
    #[error("the run ended without a result")]
    Lost,
}

impl From<EngineError> for AgentError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Provider(error) => Self::Provider(error),
            other => Self::Engine(other),
        }
    }
}

/// What went wrong, and what to change.
fn explained(error: &ProviderError) -> String {
    match error.hint.as_deref() {
        Some(hint) => format!("{error}: {}", advice(hint)),
        None => error.to_string(),
    }
}

/// What to change so that a request works, in terms of this library's options and of environment variables.
pub(crate) fn advice(hint: &ProviderHint) -> String {
    match hint {
        ProviderHint::SetKey { variables } => format!(
            "set {} or the option `api_key`, or name a server that needs none with `base_url`",
            variables.join(" or ")
        ),
        ProviderHint::CheckKey { variables } => {
            format!("check the option `api_key`, or {}", variables.join(" or "))
        }
        ProviderHint::SetBaseUrl => "set the option `base_url`".to_owned(),
        ProviderHint::CheckBaseUrl => "check the option `base_url`".to_owned(),
        ProviderHint::FollowBaseUrl { to } => format!("set the option `base_url` to {to}"),
        ProviderHint::CheckServer => "check that it is running, and the option `base_url`".to_owned(),
        ProviderHint::ChangeProvider { provider, base_url, changes } => {
            let provider = provider.as_ref().map(|name| format!("`provider` to \"{name}\""));
            let base_url = format!("`base_url` to {base_url}");
            match (provider, changes) {
                (Some(provider), Changes::Either) => format!("set {provider}, or {base_url}"),
                (Some(provider), Changes::Both) => format!("set {provider} and {base_url}"),
                (None, _) => format!("set {base_url}"),
            }
        }
    }
}

fn known_work(known: &[String]) -> String {
    if known.is_empty() { "there are none".to_owned() } else { format!("there are {}", known.join(", ")) }
}

#[cfg(test)]
mod tests {
    use open_agent_model::ProviderErrorKind;

    use super::*;

    #[test]
    fn configuration_errors_name_options_and_no_flags() {
        let model = || "m".to_owned();
        for (error, want) in [
            (ConfigError::EmptyModel, "the model name is empty: give a model with the option `model`"),
            (
                ConfigError::NoModelForKey { found: "A_KEY", model: model() },
                "there is only A_KEY, and the default model m is not that vendor's: give a model with the option `model`",
            ),
            (
                ConfigError::NoModelForProvider { provider: "p", model: model() },
                "the default model m is not one of p's: give a model with the option `model`",
            ),
            (
                ConfigError::NoProviderForModel { model: model() },
                "no provider is known for the model \"m\": name one with the option `provider`, or its address with `base_url`",
            ),
            (
                ConfigError::NoPrice { model: model() },
                "a budget needs the price of m, which is not known: register it with `register_model`, or leave the budget out",
            ),
            (
                ConfigError::ScopeWithoutBudget,
                "the budget's scope is the session, but there is no limit that it applies to: set `max_budget_usd`, or leave `budget_scope` out",
            ),
            (
                ConfigError::NoHome,
                "there is no HOME to keep sessions in: set HOME, or give `sessions_dir`, or keep the session in memory with `persist_session = false`",
            ),
            (ConfigError::Temperature, "the temperature has to be between 0 and 2"),
        ] {
            assert_eq!(error.to_string(), want);
            assert_eq!(AgentError::from(error).to_string(), want);
        }
    }

    #[test]
    fn advice_is_given_in_the_librarys_words() {
        let change = |provider: Option<&str>, changes| ProviderHint::ChangeProvider {
            provider: provider.map(str::to_owned),
            base_url: "the same server".into(),
            changes,
        };
        let variables = || vec!["A_KEY".to_owned(), "B_KEY".to_owned()];
        for (hint, want) in [
            (
                ProviderHint::SetKey { variables: variables() },
                "set A_KEY or B_KEY or the option `api_key`, or name a server that needs none with `base_url`",
            ),
            (
                ProviderHint::CheckKey { variables: variables() },
                "check the option `api_key`, or A_KEY or B_KEY",
            ),
            (ProviderHint::SetBaseUrl, "set the option `base_url`"),
            (ProviderHint::CheckBaseUrl, "check the option `base_url`"),
            (ProviderHint::FollowBaseUrl { to: "http://h".into() }, "set the option `base_url` to http://h"),
            (ProviderHint::CheckServer, "check that it is running, and the option `base_url`"),
            (
                change(Some("ollama"), Changes::Both),
                "set `provider` to \"ollama\" and `base_url` to the same server",
            ),
            (
                change(Some("ollama"), Changes::Either),
                "set `provider` to \"ollama\", or `base_url` to the same server",
            ),
            (change(None, Changes::Either), "set `base_url` to the same server"),
        ] {
            let error = ProviderError::new(ProviderErrorKind::Configuration, "it failed").with_hint(hint);
            let want = format!("it failed: {want}");
            assert_eq!(ConfigError::Provider(error.clone()).to_string(), want);
            assert_eq!(AgentError::from(EngineError::Provider(error)).to_string(), want);
        }
    }
}
