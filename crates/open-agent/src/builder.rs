//! From options and objects to an agent. Owns the order in which code, environment and defaults count, and the wiring;
//! does no IO before the first prompt.

use std::path::PathBuf;
use std::sync::Arc;

use open_agent_engine::{
    AgentBudget, BackgroundSet, Budget, BudgetScope, FixedSection, Host, Identity, SectionSource,
    Surroundings, SystemClock,
};
use open_agent_model::{
    AgentId, Catalogue, Cost, Effort, Env, ModelInfo, PermissionMode, Provider, RequestOptions, SessionId,
};
use open_agent_policy::{Gate, Policy};
use open_agent_providers::Profile;
use open_agent_sandbox::{OrphanReaper, PlainFiles, PlainRunner, REMOVED_VARIABLES};
use open_agent_session::{JsonlStore, MemoryStore, ModelSettings, Owner, SessionStore};
use open_agent_tool::{Clock, DynTool, Ports, ToolSource};

use crate::provider::{self, Choice, Resolved, SharedProviders};
use crate::restrict;
use crate::{Agent, AgentOptions, ConfigError, provider_names};

/// Describes an agent. Clone it to make many that share provider and tools.
#[derive(Clone)]
pub struct AgentBuilder {
    options: AgentOptions,
    env: Env,
    catalogue: Catalogue,
    provider: Option<Arc<dyn Provider>>,
    store: Option<Arc<dyn SessionStore>>,
    custom_tools: Vec<Arc<dyn DynTool>>,
    sources: Vec<Arc<dyn ToolSource>>,
    shared: SharedProviders,
    shared_budget: Option<Arc<Budget>>,
    reaper: OrphanReaper,
}

/// Everything that an agent is made of, checked.
pub(crate) struct Wiring {
    pub options: AgentOptions,
    pub session_id: SessionId,
    model: Arc<str>,
    pub key_source: &'static str,
    env: Env,
    catalogue: Catalogue,
    provider: Arc<dyn Provider>,
    store: Option<Arc<dyn SessionStore>>,
    tools: Vec<Arc<dyn ToolSource>>,
    pub budget: Arc<AgentBudget>,
    reaper: OrphanReaper,
}

/// What an agent has once it was first asked.
pub(crate) struct Live {
    pub host: Arc<Host>,
    /// The one that is in the host's ports.
    pub runner: Arc<PlainRunner>,
    /// Where long outputs go if nothing is to be left of the session.
    passing: Option<PassingFolder>,
}

impl Live {
    /// Removes what an agent that keeps no session has written.
    pub(crate) fn end_passing(&self) {
        if let Some(folder) = &self.passing {
            folder.remove();
        }
    }
}

/// A folder that is made when it is first needed and goes with its agent.
struct PassingFolder(PathBuf);

impl PassingFolder {
    fn remove(&self) {
        match std::fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(folder = %self.0.display(), %error, "a folder of long outputs could not be removed");
            }
            _ => {}
        }
    }
}

impl Drop for PassingFolder {
    fn drop(&mut self) {
        self.remove();
    }
}

impl AgentBuilder {
    /// Keys, addresses and the model's name come from the process's environment, where the options say nothing.
    #[must_use]
    pub fn from_environment() -> Self {
        Self::with_env(Env::from_process())
    }

    /// As [`AgentBuilder::from_environment`], with an environment of your own.
    #[must_use]
    pub fn with_env(env: Env) -> Self {
        let reaper = OrphanReaper::new(&env);
        Self {
            options: AgentOptions::default(),
            env,
            catalogue: Catalogue::default(),
            provider: None,
            store: None,
            custom_tools: Vec::new(),
            sources: Vec::new(),
            shared: SharedProviders::default(),
            shared_budget: None,
            reaper,
        }
    }

    /// Replaces all options.
    #[must_use]
    pub fn options(mut self, options: AgentOptions) -> Self {
        self.options = options;
        self
    }

    /// Changes options in place.
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(&mut AgentOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// The model, or a short name for one.
    #[must_use]
    pub fn model(self, name: impl Into<String>) -> Self {
        self.configure(|o| o.model = Some(name.into()))
    }

    /// Instructions instead of the default ones.
    #[must_use]
    pub fn system_prompt(self, text: impl Into<String>) -> Self {
        self.configure(|o| o.system_prompt = Some(text.into()))
    }

    /// The project's folder.
    #[must_use]
    pub fn cwd(self, folder: impl Into<PathBuf>) -> Self {
        self.configure(|o| o.cwd = Some(folder.into()))
    }

    /// The most answers of a run.
    #[must_use]
    pub fn max_turns(self, turns: u32) -> Self {
        self.configure(|o| o.max_turns = Some(turns))
    }

    /// Limits what the agent may spend during its life: on all requests of all its prompts since it was built. See
    /// [`AgentOptions::max_budget_usd`] for what exactly is counted.
    ///
    /// Each agent that is built from a clone of this builder has the whole limit for itself. To share one limit between
    /// agents, use [`AgentBuilder::budget`].
    #[must_use]
    pub fn max_budget_usd(self, limit: Cost) -> Self {
        self.configure(|o| o.max_budget_usd = Some(limit))
    }

    /// Decides what [`AgentBuilder::max_budget_usd`] covers: what this agent spends, or all that its session has cost.
    #[must_use]
    pub fn budget_scope(self, scope: BudgetScope) -> Self {
        self.configure(|o| o.budget_scope = scope)
    }

    /// Lets the agent spend from a budget that it shares with other agents. Together they stay within its limit.
    ///
    /// Each request reserves its estimated cost before it is sent; one that does not fit only because of what others have
    /// reserved waits for its turn, first come first served. When the money has come to its end, runs end with
    /// [`RunStatus::ErrorMaxBudgetUsd`](crate::RunStatus::ErrorMaxBudgetUsd). How many requests can run at once depends on
    /// `max_tokens`: see [`Budget`].
    ///
    /// With [`AgentBuilder::max_budget_usd`] the agent has a limit of its own within the shared one.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use open_agent::testing::{Reply, Scripted};
    /// use open_agent::{Agent, Budget, Cost};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limit = Cost::from_usd("0.50").ok_or("not an amount")?;
    /// let budget = Arc::new(Budget::new(limit));
    /// let builder = Agent::builder()
    ///     .provider(Scripted::responding(|_| Reply::text("ok").usage(1_000, 100)))
    ///     .configure(|o| o.persist_session = false)
    ///     .budget(Arc::clone(&budget));
    /// let (one, two) = (builder.clone().build()?, builder.build()?);
    /// let (a, b) = tokio::join!(one.prompt("Hello"), two.prompt("Hello"));
    /// assert!(a?.is_success() && b?.is_success());
    /// assert_eq!(budget.spent(), one.budget().spent().plus(two.budget().spent()));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn budget(mut self, budget: Arc<Budget>) -> Self {
        self.shared_budget = Some(budget);
        self
    }

    /// How much work the model puts into an answer.
    #[must_use]
    pub fn effort(self, effort: Effort) -> Self {
        self.configure(|o| o.effort = Some(effort))
    }

    /// How calls are ruled that nothing else speaks of.
    #[must_use]
    pub fn permission_mode(self, mode: PermissionMode) -> Self {
        self.configure(|o| o.permission_mode = mode)
    }

    /// Lets the end of background work start a run while the agent is idle. The run's first message is the note about the
    /// work that has ended, and the model goes on from there. Off by default: the model reads the note with the next prompt.
    ///
    /// The run has the limits of any other. Its events come to [`Agent::events`], and [`Agent::resume`] waits for it and
    /// returns its result. No run is started by work that was stopped ([`Agent::stop_task`]); nor after an interrupt, at
    /// the end of the budget, while a question waits for its answer, after [`Agent::close`], or when another process has
    /// gone on with the session.
    #[must_use]
    pub fn wake_on_task_end(self, wake: bool) -> Self {
        self.configure(|o| o.wake_on_task_end = wake)
    }

    /// Lets a tool run without being asked about.
    #[must_use]
    pub fn allow_tool(self, name: impl Into<String>) -> Self {
        self.configure(|o| o.allowed_tools.push(name.into()))
    }

    /// Restricts the agent to these of its tools; an empty list leaves none.
    #[must_use]
    pub fn tools<I: IntoIterator<Item = S>, S: Into<String>>(self, names: I) -> Self {
        let names = names.into_iter().map(Into::into).collect();
        self.configure(|o| o.tools = Some(names))
    }

    /// Takes these tools away.
    #[must_use]
    pub fn without_tools<I: IntoIterator<Item = S>, S: Into<String>>(self, names: I) -> Self {
        self.configure(|o| o.disallowed_tools.extend(names.into_iter().map(Into::into)))
    }

    /// Adds a tool of your own; it replaces one of the same name. A name has 1 to 64 letters, digits, `_` and `-`.
    #[must_use]
    pub fn tool(mut self, tool: Arc<dyn DynTool>) -> Self {
        self.custom_tools.push(tool);
        self
    }

    /// Adds a source of tools that may change while the agent lives.
    #[must_use]
    pub fn tool_source(mut self, source: Arc<dyn ToolSource>) -> Self {
        self.sources.push(source);
        self
    }

    /// Answers requests with this provider; key, address and provider options are not used then.
    #[must_use]
    pub fn provider(mut self, provider: impl Provider + 'static) -> Self {
        self.provider = Some(Arc::new(provider));
        self
    }

    /// Keeps the session there.
    #[must_use]
    pub fn session_store(mut self, store: impl SessionStore + 'static) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// Adds a model to this agent's catalogue, or overrides what is known about it: its price, its window, whether it
    /// takes pictures. What `info` leaves unknown is still taken from the built-in table.
    ///
    /// # Examples
    ///
    /// ```
    /// use open_agent::{Agent, ModelInfo};
    ///
    /// let local = ModelInfo {
    ///     context_tokens: Some(32_768),
    ///     vision: Some(false),
    ///     ..ModelInfo::unknown("my-model")
    /// };
    /// let builder = Agent::builder().model("my-model").register_model(local);
    /// # let _ = builder;
    /// ```
    #[must_use]
    pub fn register_model(mut self, info: ModelInfo) -> Self {
        self.catalogue.register_model(info);
        self
    }

    /// What options, environment and defaults come to, for display. Keys are not in it.
    pub fn resolved(&self) -> Result<Resolved, ConfigError> {
        provider::resolve(&self.options, &self.env, &self.catalogue).map(|(resolved, _)| resolved)
    }

    /// Checks everything that can be checked without IO and makes the agent.
    pub fn build(self) -> Result<Agent, ConfigError> {
        self.options.check()?;
        for variable in unusable_keys(&self.env) {
            tracing::warn!(variable, "the value is not UTF-8, so it cannot be a key");
        }
        let Choice { model, provider, key_source } = match self.provider {
            Some(provider) => {
                let model = provider::model_name(&self.options, &self.env, &self.catalogue);
                Choice { model: model.into(), provider, key_source: provider::NO_KEY }
            }
            None => provider::choose(&self.options, &self.env, &self.catalogue, &self.shared)?,
        };
        let model: Arc<str> = model;
        let asked = std::iter::once(&*model).chain(self.options.fallback_model.as_deref());
        let unpriced = asked.into_iter().find(|m| self.catalogue.find(m).and_then(|m| m.price).is_none());
        let (limit, scope) = (self.options.max_budget_usd, self.options.budget_scope);
        let budget = AgentBudget::new(self.shared_budget.as_ref(), limit, scope);
        if let (true, Some(model)) = (budget.node().is_limited(), unpriced) {
            return Err(ConfigError::NoPrice { model: model.to_owned() });
        }
        let tools = restrict::tool_sources(self.custom_tools, self.sources, &self.options)?;
        let session_id = self.options.session_id.clone();
        let session_id = session_id.unwrap_or_else(|| SessionId::from_number(SystemClock.new_id()));
        Ok(Agent::new(Wiring {
            options: self.options,
            session_id,
            model,
            env: self.env,
            catalogue: self.catalogue,
            provider,
            key_source,
            store: self.store,
            tools,
            budget: Arc::new(budget),
            reaper: self.reaper,
        }))
    }
}

impl Wiring {
    /// Whom the first request asks, and how.
    pub(crate) fn settings(&self) -> ModelSettings {
        let (thinking, effort) = (self.options.thinking, self.options.effort);
        ModelSettings { model: Arc::clone(&self.model), thinking, effort }
    }

    /// The full name of a model that may be asked.
    pub(crate) fn check_model(&self, name: &str) -> Result<Arc<str>, ConfigError> {
        let name = name.trim();
        if name.is_empty() {
            return Err(ConfigError::EmptyModel);
        }
        let model = self.catalogue.resolve(name);
        let price = self.catalogue.find(model).and_then(|m| m.price);
        if self.budget.node().is_limited() && price.is_none() {
            return Err(ConfigError::NoPrice { model: model.to_owned() });
        }
        Ok(model.into())
    }

    /// The project's folder, as a real path.
    pub(crate) fn root(&self) -> Result<PathBuf, ConfigError> {
        let path = match &self.options.cwd {
            Some(path) => path.clone(),
            None => PathBuf::from("."),
        };
        let real = path.canonicalize().and_then(|real| {
            // The log and the model are told paths as text.
            let wrong = if !real.is_dir() {
                Some(std::io::Error::from(std::io::ErrorKind::NotADirectory))
            } else {
                real.to_str().is_none().then(|| std::io::Error::other("its path is not UTF-8 text"))
            };
            wrong.map_or(Ok(real), Err)
        });
        real.map_err(|source| ConfigError::Cwd { path, source })
    }

    fn sessions_dir(&self) -> Option<PathBuf> {
        let in_home =
            || Some(PathBuf::from(self.env.get_os("HOME")?).join(".open-agent-sdk").join("sessions"));
        self.options.sessions_dir.clone().or_else(in_home)
    }

    /// The session's own folder; `None` if nothing is to be left of the session.
    pub(crate) fn session_folder(&self) -> Option<PathBuf> {
        let sessions = self.sessions_dir().filter(|_| self.options.persist_session)?;
        Some(sessions.join(self.session_id.as_str()))
    }

    pub(crate) fn host(&self) -> Result<Live, ConfigError> {
        let root = self.root()?;
        let home: Option<PathBuf> = self.env.get_os("HOME").map(PathBuf::from);
        let sessions = self.sessions_dir();
        let store: Arc<dyn SessionStore> = match &self.store {
            Some(store) => Arc::clone(store),
            None if !self.options.persist_session => Arc::new(MemoryStore::new()),
            None => Arc::new(JsonlStore::new(sessions.clone().ok_or(ConfigError::NoHome)?)),
        };
        let folder = self.session_folder();
        let (scratch, is_passing) = match &folder {
            Some(folder) => (folder.join("scratch"), false),
            // A name that nobody can have taken before: the folder is shared with all users of the machine.
            None => (self.env.temp_dir().join(format!("open-agent-{:032x}", SystemClock.new_id())), true),
        };
        let policy = Policy {
            mode: self.options.permission_mode,
            allowed_tools: self.options.allowed_tools.iter().cloned().collect(),
            roots: vec![root.clone(), scratch.clone()],
        };
        let runner = Arc::new(PlainRunner::with_reaper(&self.env, &hidden_variables(), &self.reaper));
        let passing = is_passing.then(|| PassingFolder(scratch.clone()));
        let ports = Ports {
            files: Arc::new(PlainFiles::new(home, scratch)),
            runner: Arc::<PlainRunner>::clone(&runner),
            background: Arc::new(BackgroundSet::new(Arc::new(SystemClock)).with_folder(folder.clone())),
            clock: Arc::new(SystemClock),
        };
        let host = Host {
            provider: Arc::clone(&self.provider),
            store,
            tools: self.tools.clone(),
            gate: Gate::new(policy),
            ports,
            sections: self.sections(root.clone()),
            catalogue: self.catalogue.clone(),
            budget: Arc::clone(&self.budget),
            owner: Owner(format!("process {}", std::process::id())),
            identity: Identity {
                agent: AgentId::main(),
                parent: None,
                root: root.clone(),
                folder,
                product: concat!("open-agent ", env!("CARGO_PKG_VERSION")).to_owned(),
            },
            request: self.request(),
            retry: self.options.retry.clone(),
            fallback_model: self.options.fallback_model.as_deref().map(|m| self.catalogue.resolve(m).into()),
        };
        Ok(Live { host: Arc::new(host), runner, passing })
    }

    fn sections(&self, root: PathBuf) -> Vec<Arc<dyn SectionSource>> {
        let first = match &self.options.system_prompt {
            Some(text) => FixedSection::custom(text),
            None => FixedSection::default_prompt(),
        };
        let mut sections: Vec<Arc<dyn SectionSource>> = vec![Arc::new(first)];
        if let Some(text) = &self.options.append_system_prompt {
            sections.push(Arc::new(FixedSection::appended(text)));
        }
        sections.push(Arc::new(Surroundings { root, platform: std::env::consts::OS.to_owned() }));
        sections
    }

    fn request(&self) -> RequestOptions {
        let defaults = RequestOptions::default();
        RequestOptions {
            // The output limit of the model is applied to each request, as models are switched.
            max_tokens: self.options.max_tokens.unwrap_or(defaults.max_tokens),
            temperature: self.options.temperature,
            stop_sequences: self.options.stop_sequences.clone(),
            tool_choice: self.options.tool_choice.clone(),
            ..defaults
        }
    }
}

/// The names of variables that a provider's key would be read from if their values were text.
fn unusable_keys(env: &Env) -> Vec<&str> {
    let keys: Vec<&str> = profiles().flat_map(|profile| profile.key_variables).copied().collect();
    env.not_text().filter_map(|name| name.to_str()).filter(|name| keys.contains(name)).collect()
}

fn profiles() -> impl Iterator<Item = &'static Profile> {
    provider_names().filter_map(Profile::by_name)
}

/// Variables that commands do not see: what looks like a key, and those that profiles read one from.
fn hidden_variables() -> Vec<&'static str> {
    let keys = profiles().flat_map(|profile| profile.key_variables);
    REMOVED_VARIABLES.iter().chain(keys).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h_bsh_06_a_key_that_is_no_text_is_named() {
        use std::os::unix::ffi::OsStringExt;
        let odd = || std::ffi::OsString::from_vec(vec![0xFF]);
        let env: Env = ["ANTHROPIC_API_KEY", "PATH"].map(|name| (name.into(), odd())).into_iter().collect();
        assert_eq!(unusable_keys(&env), ["ANTHROPIC_API_KEY"], "what is only passed on is no concern");
    }

    #[test]
    fn h_log_02_each_profiles_keys_are_hidden_by_name() {
        let hidden = hidden_variables();
        for profile in provider_names().filter_map(Profile::by_name) {
            assert!(profile.key_variables.iter().all(|name| hidden.contains(name)), "{}", profile.name);
        }
        assert!(hidden.contains(&"HF_TOKEN"), "and the patterns");
    }
}
