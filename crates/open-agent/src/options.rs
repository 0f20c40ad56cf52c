//! What an agent can be told. Owns the options, their defaults and their check; wires nothing.

use std::path::PathBuf;
use std::time::Duration;

use open_agent_engine::{BudgetScope, RetryConfig};
use open_agent_model::{Cost, Effort, PermissionMode, Secret, SessionId, ThinkingMode, ToolChoice};
use open_agent_session::ToolScheduling;
use serde::{Deserialize, Serialize};

use crate::ConfigError;

/// An agent's options. Every one has a default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct AgentOptions {
    /// The model, or a short name for one. Default: `CODEANY_MODEL`, else `claude-sonnet-4-6`.
    pub model: Option<String>,
    /// Whom to ask when the model fails in spite of retries, for the rest of the run.
    pub fallback_model: Option<String>,
    /// How failed requests are retried.
    pub retry: RetryConfig,
    /// How long a server may say nothing, before its answer and within it, until the request counts as failed. There is no
    /// bound on the whole answer.
    #[serde(rename = "idle_timeout_ms", with = "open_agent_model::millis")]
    pub idle_timeout: Duration,
    /// The provider's or profile's name. Default: chosen by the model's name.
    pub provider: Option<String>,
    /// Where the provider is reached. Default: the environment's, else the vendor's own.
    pub base_url: Option<String>,
    /// The key. Default: the environment's. Never written to settings.
    #[serde(skip)]
    pub api_key: Option<Secret>,
    /// Beta features to ask the vendor for, by its names for them.
    pub betas: Vec<String>,
    /// The window that a local server is to use, in tokens, where it can be told. Default: the server's own.
    pub context_window: Option<u64>,
    /// Instructions instead of the default ones.
    pub system_prompt: Option<String>,
    /// Instructions after the others.
    pub append_system_prompt: Option<String>,
    /// The most output tokens of an answer. Default: 16,384, or what the model can.
    pub max_tokens: Option<u64>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Texts at which the model stops.
    pub stop_sequences: Vec<String>,
    /// Whether the model thinks before it answers.
    pub thinking: Option<ThinkingMode>,
    /// How much work it puts into an answer.
    pub effort: Option<Effort>,
    /// Whether the first answer of a run has to call a tool.
    pub tool_choice: ToolChoice,
    /// The most answers of a run; `None` = no limit.
    pub max_turns: Option<u32>,
    /// The most requests of a run.
    pub max_model_calls: u32,
    /// The most that the agent may spend during its life; `None` = no limit.
    ///
    /// Counted is the cost of every model request that this agent makes, from when it was built: those of all its prompts,
    /// failed and interrupted ones, retries, and requests to the fallback model. Clones of an agent are the same
    /// agent. Not counted is what the session had cost before the agent opened it (see
    /// [`QueryResult::spent_before`](crate::QueryResult::spent_before)), unless `budget_scope` says so.
    ///
    /// A request that could pass the limit is not sent. It needs the prices of all models that the agent asks. A provider
    /// that bills more than was estimated can make the last request pass the limit: see [`Budget`](crate::Budget).
    pub max_budget_usd: Option<Cost>,
    /// What `max_budget_usd` covers: the requests of this agent (the default), or all that its session has cost by its log,
    /// with earlier agents and processes. An agent that resumes a run after a crash starts from zero with the default.
    pub budget_scope: BudgetScope,
    /// Tools by name, of those there are; `None` = all.
    pub tools: Option<Vec<String>>,
    /// Tools that are taken away, by name.
    pub disallowed_tools: Vec<String>,
    /// Tools that run without being asked about, by name.
    pub allowed_tools: Vec<String>,
    /// How calls are ruled that nothing else speaks of.
    pub permission_mode: PermissionMode,
    /// In which order calls of one answer run.
    pub tool_scheduling: ToolScheduling,
    /// Whether the end of background work starts a run of an idle agent. See
    /// [`AgentBuilder::wake_on_task_end`](crate::AgentBuilder::wake_on_task_end).
    pub wake_on_task_end: bool,
    /// The project's folder. Default: the process's.
    pub cwd: Option<PathBuf>,
    /// The session. Default: a new one.
    pub session_id: Option<SessionId>,
    /// Where sessions are kept. Default: `~/.open-agent-sdk/sessions`.
    pub sessions_dir: Option<PathBuf>,
    /// Whether the session is kept on disk.
    pub persist_session: bool,
}

impl Default for AgentOptions {
    fn default() -> Self {
        Self {
            model: None,
            fallback_model: None,
            retry: RetryConfig::default(),
            idle_timeout: Duration::from_secs(300),
            provider: None,
            base_url: None,
            api_key: None,
            betas: Vec::new(),
            context_window: None,
            system_prompt: None,
            append_system_prompt: None,
            max_tokens: None,
            temperature: None,
            stop_sequences: Vec::new(),
            thinking: None,
            effort: None,
            tool_choice: ToolChoice::Auto,
            max_turns: Some(10),
            max_model_calls: 500,
            max_budget_usd: None,
            budget_scope: BudgetScope::Agent,
            tools: None,
            disallowed_tools: Vec::new(),
            allowed_tools: Vec::new(),
            permission_mode: PermissionMode::Default,
            tool_scheduling: ToolScheduling::Ordered,
            wake_on_task_end: false,
            cwd: None,
            session_id: None,
            sessions_dir: None,
            persist_session: true,
        }
    }
}

impl AgentOptions {
    /// Whether they make sense, as far as that can be said without looking anywhere.
    pub fn check(&self) -> Result<(), ConfigError> {
        let empty = |text: &Option<String>| text.as_ref().is_some_and(|t| t.trim().is_empty());
        if empty(&self.model) || empty(&self.fallback_model) {
            return Err(ConfigError::EmptyModel);
        }
        if !self.permission_mode.is_available() {
            return Err(ConfigError::ModeNotAvailable { mode: self.permission_mode });
        }
        if self.stop_sequences.iter().any(|text| text.trim().is_empty()) {
            return Err(ConfigError::EmptyStopSequence);
        }
        if self.temperature.is_some_and(|t| !(0.0..=2.0).contains(&t)) {
            return Err(ConfigError::Temperature);
        }
        if self.budget_scope == BudgetScope::Session && self.max_budget_usd.is_none() {
            return Err(ConfigError::ScopeWithoutBudget);
        }
        let positive = [
            ("max_turns", self.max_turns == Some(0)),
            ("max_model_calls", self.max_model_calls == 0),
            ("max_budget_usd", self.max_budget_usd == Some(Cost(0))),
            ("idle_timeout", self.idle_timeout.is_zero()),
            ("max_tokens", self.max_tokens == Some(0)),
            ("context_window", self.context_window == Some(0)),
            ("thinking", self.thinking == Some(ThinkingMode::Enabled { budget_tokens: 0 })),
        ];
        match positive.iter().find(|(_, is_zero)| *is_zero) {
            Some((option, _)) => Err(ConfigError::NotPositive { option }),
            None => Ok(()),
        }
    }
}
