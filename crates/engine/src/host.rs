//! What a driver works with. Owns no behaviour: it is put together by the embedding program.

use std::path::PathBuf;
use std::sync::Arc;

use open_agent_model::{Block, BoxFuture, Catalogue, Provider, ProviderError, RequestOptions, Section};
use open_agent_policy::Gate;
use open_agent_session::{ModelSettings, Owner, RunLimits, SessionStore, StoreError};
use open_agent_tool::{Ports, ToolSource};

use crate::{AgentBudget, RetryConfig};

/// Everything that does not change during an agent's life. Shared by all its runs.
pub struct Host {
    /// Answers requests.
    pub provider: Arc<dyn Provider>,
    /// Keeps the log.
    pub store: Arc<dyn SessionStore>,
    /// Where tools come from; of two tools with one name the later source wins.
    pub tools: Vec<Arc<dyn ToolSource>>,
    /// Rules calls.
    pub gate: Gate,
    /// What tools reach.
    pub ports: Ports,
    /// Where the system prompt comes from.
    pub sections: Vec<Arc<dyn SectionSource>>,
    /// What is known about models.
    pub catalogue: Catalogue,
    /// What may be spent, and what the session had cost before.
    pub budget: Arc<AgentBudget>,
    /// Who claims sessions.
    pub owner: Owner,
    /// What requests ask for.
    pub request: RequestOptions,
    /// How failed requests are retried.
    pub retry: RetryConfig,
    /// Whom to ask when the model has no luck, for the rest of the run.
    pub fallback_model: Option<Arc<str>>,
}

/// Gives sections of the system prompt.
pub trait SectionSource: Send + Sync {
    /// The sections, static ones first.
    fn load(&self) -> BoxFuture<'_, Vec<Section>>;
}

/// A run to begin.
#[derive(Clone, Debug)]
pub struct RunSpec {
    /// What is asked.
    pub prompt: Vec<Block>,
    /// Of which model, and how.
    pub settings: ModelSettings,
    /// In which folder.
    pub root: PathBuf,
    /// Within which limits.
    pub limits: RunLimits,
}

/// Why a run cannot go on. What a model or a tool does wrong is no such error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The log cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is nothing to answer.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// The prompt holds a block that only a model or a tool can make.
    #[error("a prompt is made of text, pictures and documents; it holds another block")]
    BadPrompt,
    /// The provider could not count a request's tokens.
    #[error(transparent)]
    Provider(ProviderError),
    /// No such question is open.
    #[error("no question {0} waits for an answer")]
    NoQuestion(open_agent_model::AskId),
}
