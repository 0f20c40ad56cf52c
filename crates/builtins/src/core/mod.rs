//! The six tools that every agent has. Owns their list.

use std::sync::Arc;

use open_agent_tool::{DynTool, erase};

mod bash;
mod edit;
mod glob;
mod grep;
mod read;
mod write;

/// Read, Write, Edit, Glob, Grep and Bash.
#[must_use]
pub fn core_tools() -> Vec<Arc<dyn DynTool>> {
    vec![
        erase(bash::Bash),
        erase(edit::Edit),
        erase(glob::Glob),
        erase(grep::Grep),
        erase(read::Read),
        erase(write::Write),
    ]
}
