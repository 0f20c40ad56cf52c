//! The built-in tools

/// To come.
#[must_use]
pub fn core_tools() -> Vec<std::sync::Arc<dyn open_agent_tool::DynTool>> {
    Vec::new()
}
