//! What a driver works with. Owns no behaviour: it is put together by the embedding program.

use std::path::PathBuf;
use std::sync::Arc;

use open_agent_model::{
    AgentId, AskId, BackgroundId, Block, BoxFuture, Catalogue, Provider, ProviderError, QueueId,
    RequestOptions, Section, SessionId,
};
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
    /// Whose session it is, and of which project.
    pub identity: Identity,
    /// What requests ask for.
    pub request: RequestOptions,
    /// How failed requests are retried.
    pub retry: RetryConfig,
    /// Whom to ask when the model has no luck, for the rest of the run.
    pub fallback_model: Option<Arc<str>>,
}

/// Whose session a driver works on, and of which project. Fixed for the life of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The agent.
    pub agent: AgentId,
    /// The session of the agent that started this one as its sub-agent.
    pub parent: Option<SessionId>,
    /// The project's folder, as a real path. The system prompt and the policy name the same one.
    pub root: PathBuf,
    /// The session's own folder, if it has one: outputs below it are stored relative to it.
    pub folder: Option<PathBuf>,
    /// The program, with its version, as it is stored in the log.
    pub product: String,
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
    /// Within which limits.
    pub limits: RunLimits,
    /// The system prompt and the tools are rendered anew, instead of being sent as the log has them. The provider's cache
    /// of the conversation is lost then.
    pub refresh_prefix: bool,
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
    /// No such message waits in the queue: it was delivered or taken back before.
    #[error("message {0} is not in the queue any more")]
    NotQueued(QueueId),
    /// The agent has started no background work of that name.
    #[error("there is no background work {0}")]
    NoBackgroundWork(BackgroundId),
    /// The run that the command was sent to has ended.
    #[error("no run goes on")]
    NoRun,
    /// No such question is open.
    #[error("no question {ask} waits for an answer{}", or_is_lost(.damage.as_deref()))]
    NoQuestion {
        /// The question that was to be answered.
        ask: AskId,
        /// The first damage of the session's log, if it has any: the question may have been in what is lost.
        damage: Option<String>,
    },
    /// The record that began the run is damaged or missing.
    #[error(
        "the record that began the newest run is damaged or missing, so the run cannot go on: send a new prompt; it tells \
         the model which calls may have run"
    )]
    RunLost,
}

fn or_is_lost(damage: Option<&str>) -> String {
    damage.map(|damage| format!(", or it was lost with a record of the log ({damage})")).unwrap_or_default()
}
