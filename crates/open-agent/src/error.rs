//! Why an agent cannot be made, or a prompt not be answered at all. What a model or a tool does wrong is in the result.

use std::path::PathBuf;

use open_agent_engine::EngineError;
use open_agent_model::ProviderError;

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
    #[error("{0}")]
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
    Engine(#[from] EngineError),
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

fn known_tasks(known: &[String]) -> String {
    if known.is_empty() { "there are none".to_owned() } else { format!("there are {}", known.join(", ")) }
}
