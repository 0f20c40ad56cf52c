//! Why an agent cannot be made, or a prompt not be answered at all. What a model or a tool does wrong is in the result.

use std::path::PathBuf;

use open_agent_engine::EngineError;
use open_agent_model::{Changes, ProviderError, ProviderHint};

/// The options make no agent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The model's name is empty.
    #[error("the model name is empty: give one with `--model NAME` or `.model(\"NAME\")`")]
    EmptyModel,
    /// An option that has to be above 0 is not.
    #[error("{option} is 0: it has to be above 0, or be left out")]
    NotPositive {
        /// Which.
        option: &'static str,
    },
    /// A text to stop at is empty.
    #[error("a stop sequence is empty: vendors refuse those, leave it out")]
    EmptyStopSequence,
    /// The temperature is none.
    #[error("the temperature has to be between 0 and 2")]
    Temperature,
    /// There is a key for one vendor, and the default model is another's.
    #[error(
        "there is only {found}, and the default model {model} is not that vendor's: give a model with `--model NAME`"
    )]
    NoModelForKey {
        /// The variable that is set.
        found: &'static str,
        /// The default model.
        model: String,
    },
    /// No provider has that name.
    #[error("there is no provider {name:?}: there are {known}")]
    NoProvider {
        /// The name.
        name: String,
        /// The providers there are.
        known: String,
    },
    /// Nothing says where the model is.
    #[error(
        "no provider is known for the model {model:?}: name one with `--provider NAME`, or its address with `--base-url URL`"
    )]
    NoProviderForModel {
        /// The model.
        model: String,
    },
    /// The provider does not have the default model.
    #[error("the default model {model} is not one of {provider}'s: give a model with `--model NAME`")]
    NoModelForProvider {
        /// The provider.
        provider: &'static str,
        /// The default model.
        model: String,
    },
    /// A limit on spending is of no use without a price.
    #[error(
        "a budget needs the price of {model}, which is not known: register it with `register_model` (in the library), or leave the budget out"
    )]
    NoPrice {
        /// The model.
        model: String,
    },
    /// `budget_scope` is `session` and there is no limit that it could apply to. A shared budget is none: it covers only
    /// what is spent through it.
    #[error(
        "budget_scope is session, but there is no max_budget_usd that it applies to: set one, or leave it out"
    )]
    ScopeWithoutBudget,
    /// The permission mode is known, but agents cannot run in it yet.
    #[error("permission mode {:?} is not available yet: use default or bypassPermissions", mode.as_str())]
    ModeNotAvailable {
        /// The mode.
        mode: open_agent_model::PermissionMode,
    },
    /// A list names a tool that does not exist.
    #[error("there is no tool {name:?}: there are {known}")]
    NoTool {
        /// The name.
        name: String,
        /// The tools there are.
        known: String,
    },
    /// No vendor takes such a tool.
    #[error("the tool {name:?} has no legal name: 1 to 64 letters, digits, `_` and `-`")]
    ToolName {
        /// Its name.
        name: String,
    },
    /// No vendor takes such a tool.
    #[error("the input schema of the tool {name} is no JSON object")]
    ToolSchema {
        /// Its name.
        name: String,
    },
    /// The project's folder cannot be used.
    #[error("the working folder {path} cannot be used: {source}", path = .path.display())]
    Cwd {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// No place for sessions is known.
    #[error(
        "there is no HOME to keep sessions in: set HOME, or keep the session in memory (`--no-session-persistence`, `persist_session = false`), or give `sessions_dir`"
    )]
    NoHome,
    /// The provider cannot be used as configured.
    #[error("{}", explained(.0))]
    Provider(ProviderError),
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
    #[error("there is no background task {id:?}: {}", known_tasks(.known))]
    NoTask {
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

fn known_tasks(known: &[String]) -> String {
    if known.is_empty() { "there are none".to_owned() } else { format!("there are {}", known.join(", ")) }
}

#[cfg(test)]
mod tests {
    use open_agent_model::ProviderErrorKind;

    use super::*;

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
