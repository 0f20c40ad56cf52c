//! Collections of tools. Owns their order and the look-up by name.

use std::sync::Arc;

use open_agent_model::ToolSpec;

use crate::DynTool;

/// Tools by name, in a stable order. Of two tools with one name the later one wins.
#[derive(Clone, Default)]
pub struct ToolSet(Vec<Arc<dyn DynTool>>);

impl ToolSet {
    /// Collects tools.
    #[must_use]
    pub fn new(tools: impl IntoIterator<Item = Arc<dyn DynTool>>) -> Self {
        let mut all: Vec<Arc<dyn DynTool>> = Vec::new();
        for tool in tools {
            match all.binary_search_by(|t| t.spec().name.cmp(&tool.spec().name)) {
                Ok(at) => all[at] = tool,
                Err(at) => all.insert(at, tool),
            }
        }
        Self(all)
    }

    /// The tool of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<dyn DynTool>> {
        let at = self.0.binary_search_by(|t| t.spec().name.as_str().cmp(name)).ok()?;
        self.0.get(at)
    }

    /// All tools, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn DynTool>> {
        self.0.iter()
    }

    /// How a model sees them.
    #[must_use]
    pub fn specs(&self) -> Vec<ToolSpec> {
        self.0.iter().map(|t| t.spec().clone()).collect()
    }

    /// Up to three names that are most like `name`, for a model that made one up.
    #[must_use]
    pub fn nearest(&self, name: &str) -> Vec<&str> {
        let name = name.to_lowercase();
        let mut names: Vec<(usize, &str)> = self
            .0
            .iter()
            .map(|t| (distance(&name, &t.spec().name.to_lowercase()), t.spec().name.as_str()))
            .collect();
        names.sort();
        names.into_iter().take(3).map(|(_, n)| n).collect()
    }
}

/// Edit distance; names are short.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replace = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// Where tools come from. A source may change between runs; a run's calls are
/// looked up in the tools that its last request saw.
pub trait ToolSource: Send + Sync {
    /// The tools now, and a number that changes when they do.
    fn snapshot(&self) -> (u64, Arc<ToolSet>);
}

/// Tools that never change.
impl ToolSource for Arc<ToolSet> {
    fn snapshot(&self) -> (u64, Arc<ToolSet>) {
        (0, Self::clone(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool_fn;

    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Nothing {}

    fn tool(name: &str, description: &str) -> Arc<dyn DynTool> {
        tool_fn(name, description, |_: Nothing, _| async { Ok("") })
    }

    #[test]
    fn sorted_and_the_later_one_wins() {
        let set = ToolSet::new([tool("b", "1"), tool("a", "2"), tool("b", "3")]);
        let all: Vec<_> = set.specs().into_iter().map(|s| (s.name, s.description)).collect();
        assert_eq!(all, [("a".into(), "2".into()), ("b".into(), "3".into())]);
        assert!(set.get("c").is_none());
    }

    #[test]
    fn nearest_names_come_first() {
        let set = ToolSet::new(["Read", "Write", "Edit", "Bash"].map(|n| tool(n, "")));
        assert_eq!(set.nearest("read_file")[0], "Read");
        assert_eq!(set.nearest("bsh")[0], "Bash");
        assert_eq!(set.nearest("x").len(), 3);
    }
}
