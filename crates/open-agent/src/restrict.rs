//! Which tools an agent has: the lists of names in the options, applied to every source of tools alike.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use open_agent_model::is_legal_name;
use open_agent_tool::{DynTool, ToolSet, ToolSource};

use crate::{AgentOptions, ConfigError};

/// The names that the options allow and take away.
#[derive(Clone, Debug, Default)]
struct Names {
    /// Only these; `None` allows all.
    only: Option<BTreeSet<String>>,
    /// Not these, whatever `only` says.
    not: BTreeSet<String>,
}

impl Names {
    fn of(options: &AgentOptions) -> Self {
        let only = options.tools.as_ref().map(|names| names.iter().cloned().collect());
        Self { only, not: options.disallowed_tools.iter().cloned().collect() }
    }

    fn keep(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(name)) && !self.not.contains(name)
    }
}

/// Returns the agent's sources of tools: the built-in tools with the caller's own, then the caller's sources, each
/// restricted by the options.
///
/// # Errors
///
/// Returns [`ConfigError::ToolName`] and [`ConfigError::ToolSchema`] for a tool that no vendor would accept, and
/// [`ConfigError::NoTool`] for a name in one of the lists that no tool has now: a typing mistake in the list of tools to take
/// away would leave the tool in.
pub(crate) fn tool_sources(
    custom: Vec<Arc<dyn DynTool>>,
    sources: Vec<Arc<dyn ToolSource>>,
    options: &AgentOptions,
) -> Result<Vec<Arc<dyn ToolSource>>, ConfigError> {
    let own = ToolSet::new(open_agent_builtins::core_tools().into_iter().chain(custom));
    let of_sources: Vec<Arc<ToolSet>> = sources.iter().map(|source| source.snapshot().1).collect();
    let all = ToolSet::new(own.iter().chain(of_sources.iter().flat_map(|set| set.iter())).cloned());
    check(&all, options)?;
    let names = Names::of(options);
    let own = ToolSet::new(own.iter().filter(|tool| names.keep(&tool.spec().name)).cloned());
    let mut restricted: Vec<Arc<dyn ToolSource>> = vec![Arc::new(Arc::new(own))];
    for source in sources {
        restricted.push(Arc::new(Restricted { source, names: names.clone(), last: Mutex::default() }));
    }
    Ok(restricted)
}

fn check(all: &ToolSet, options: &AgentOptions) -> Result<(), ConfigError> {
    for spec in all.iter().map(|tool| tool.spec()) {
        if !is_legal_name(&spec.name) {
            return Err(ConfigError::ToolName { name: spec.name.clone() });
        }
        if !spec.input_schema.is_object() {
            return Err(ConfigError::ToolSchema { name: spec.name.clone() });
        }
    }
    let lists =
        [options.tools.as_deref().unwrap_or_default(), &options.disallowed_tools, &options.allowed_tools];
    match lists.into_iter().flatten().find(|name| all.get(name).is_none()) {
        Some(name) => {
            let known: Vec<&str> = all.iter().map(|t| t.spec().name.as_str()).collect();
            Err(ConfigError::NoTool { name: name.clone(), known: known.join(", ") })
        }
        None => Ok(()),
    }
}

/// A source of which only some tools are seen. Tools that come later are restricted as well; one that no vendor would accept
/// is left out, because with it every request would be refused.
struct Restricted {
    source: Arc<dyn ToolSource>,
    names: Names,
    /// The last result and the version of the source that it was made from.
    last: Mutex<Option<(u64, Arc<ToolSet>)>>,
}

impl ToolSource for Restricted {
    fn snapshot(&self) -> (u64, Arc<ToolSet>) {
        let (version, all) = self.source.snapshot();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, set)) = last.as_ref().filter(|(known, _)| *known == version) {
            return (*known, Arc::clone(set));
        }
        let is_legal = |tool: &&Arc<dyn DynTool>| {
            let spec = tool.spec();
            let legal = is_legal_name(&spec.name) && spec.input_schema.is_object();
            if !legal {
                tracing::warn!(tool = spec.name, "a tool is left out: its name or schema is not legal");
            }
            legal && self.names.keep(&spec.name)
        };
        let set = Arc::new(ToolSet::new(all.iter().filter(is_legal).cloned()));
        *last = Some((version, Arc::clone(&set)));
        (version, set)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use open_agent_tool::tool_fn;

    use super::*;

    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Nothing {}

    fn tool(name: &str) -> Arc<dyn DynTool> {
        tool_fn(name, "Does nothing.", |_: Nothing, _| async { Ok("") })
    }

    /// Offers `weather` and `mail`, and from its second version on `news` and a tool with an illegal name.
    #[derive(Default)]
    struct Growing(AtomicU64);

    impl ToolSource for Growing {
        fn snapshot(&self) -> (u64, Arc<ToolSet>) {
            let version = self.0.load(Ordering::Relaxed);
            let mut tools = vec![tool("weather"), tool("mail")];
            if version > 0 {
                tools.extend([tool("news"), tool("not legal!")]);
            }
            (version, Arc::new(ToolSet::new(tools)))
        }
    }

    fn names(sources: &[Arc<dyn ToolSource>]) -> Vec<String> {
        let sets = sources.iter().map(|source| source.snapshot().1);
        sets.flat_map(|set| set.specs()).map(|spec| spec.name).collect()
    }

    fn restricted(
        source: Arc<Growing>,
        change: impl FnOnce(&mut AgentOptions),
    ) -> Result<Vec<Arc<dyn ToolSource>>, ConfigError> {
        let mut options = AgentOptions::default();
        change(&mut options);
        tool_sources(vec![tool("own")], vec![source], &options)
    }

    #[test]
    fn the_lists_hold_for_tools_of_every_source() {
        let source = Arc::new(Growing::default());
        let list = |o: &mut AgentOptions| o.tools = Some(vec!["Read".into(), "weather".into(), "own".into()]);
        let sources = restricted(Arc::clone(&source), list).unwrap();
        assert_eq!(names(&sources), ["Read", "own", "weather"]);
        let without = |o: &mut AgentOptions| o.disallowed_tools = vec!["mail".into(), "own".into()];
        let sources = restricted(Arc::clone(&source), without).unwrap();
        let left = names(&sources);
        assert!(left.contains(&"weather".into()) && left.contains(&"Bash".into()), "{left:?}");
        assert!(!left.contains(&"mail".into()) && !left.contains(&"own".into()), "{left:?}");
    }

    #[test]
    fn tools_that_come_later_are_restricted_and_must_be_legal() {
        let source = Arc::new(Growing::default());
        let sources = restricted(Arc::clone(&source), |o| o.disallowed_tools = vec!["mail".into()]).unwrap();
        assert!(!names(&sources).contains(&"news".into()));
        source.0.store(1, Ordering::Relaxed);
        let later = names(&sources);
        assert!(later.contains(&"news".into()), "{later:?}");
        assert!(!later.contains(&"mail".into()) && !later.contains(&"not legal!".into()), "{later:?}");
    }

    #[test]
    fn names_that_no_tool_has_are_refused_and_those_of_sources_are_known() {
        let source = || Arc::new(Growing::default());
        assert!(restricted(source(), |o| o.allowed_tools = vec!["weather".into()]).is_ok());
        let refused = restricted(source(), |o| o.allowed_tools = vec!["wether".into()]).map(|_| ());
        assert!(matches!(refused, Err(ConfigError::NoTool { name, .. }) if name == "wether"));
    }
}
