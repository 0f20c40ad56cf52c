//! Open Agent: an agent that runs in your own process. A prompt goes to a model, the model asks for tools, the tools run,
//! their results go back, until the model is done.
//!
//! ```
//! use open_agent::testing::{Reply, Scripted};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // With a key in the environment, leave `.provider(…)` out.
//! let agent = open_agent::Agent::builder()
//!     .provider(Scripted::new([Reply::text("Hello!")]))
//!     .configure(|o| o.persist_session = false)
//!     .build()?;
//! let result = agent.prompt("Say hello.").await?;
//! assert_eq!(result.text, "Hello!");
//! # Ok(())
//! # }
//! ```

mod agent;
mod builder;
mod error;
mod options;
mod provider;
mod restrict;
mod result;

pub use agent::{Agent, Interrupter, Prompt, RunStream, Sent};
pub use builder::AgentBuilder;
pub use error::{AgentError, ConfigError};
pub use options::AgentOptions;
pub use provider::{DEFAULT_MODEL, Resolved, provider_names};
pub use result::{ModelCost, QueryResult};

pub use open_agent_engine as engine;
pub use open_agent_engine::{
    AgentEvent, Budget, BudgetScope, Denial, Envelope, EventStream, RetryConfig, TokenCount, wire,
};
pub use open_agent_model as model;
pub use open_agent_model::{
    AgentId, Answer, AskId, AskSource, BackgroundEnd, BackgroundId, BackgroundKind, BackgroundOutcome,
    BackgroundWork, Block, Catalogue, Changes, Cost, Effort, Env, Message, ModelInfo, Open, Outcome,
    OutputRef, PermissionMode, Price, Provider, ProviderError, ProviderErrorKind, ProviderHint, Question,
    QuestionItem, QuestionOption, QueueId, RunStatus, Secret, SessionId, ThinkingKinds, ThinkingMode, Usage,
};
pub use open_agent_session as session;
pub use open_agent_session::{JsonlStore, MemoryStore, SessionStore, ToolScheduling};
pub use open_agent_tool as tool;
pub use open_agent_tool::{
    BackgroundStatus, Tool, ToolCx, ToolError, ToolOutput, erase, read_only_tool_fn, tool_fn,
};

/// For tests of what is built on this library: a model that plays a script.
pub mod testing {
    pub use open_agent_model::scripted::{Reply, Scripted, input, newest_results};
}
