//! Tools: the typed [`Tool`] and its erased twin [`DynTool`], sets and sources of them, what a call knows ([`ToolCx`]) and
//! gives back ([`ToolOutput`], [`ToolError`]), and the ports through which tools reach files, processes and time.
//!
//! Carries nothing out: `sandbox` and `engine` implement the ports.

mod cx;
mod error;
mod output;
mod ports;
mod schema;
mod set;
mod tasks;
mod tool;

pub use cx::{CxParts, ProgressSink, SessionState, ToolCx};
pub use error::{Suspended, ToolError, ToolErrorKind};
pub use output::ToolOutput;
pub use ports::{
    Absent, Clock, CommandRunner, CommandSpec, Descendant, Exit, Files, PortError, Ports, Running, file_stamp,
};
pub use schema::schema_of;
pub use set::{ToolSet, ToolSource};
pub use tasks::{TaskSpec, TaskStatus, TaskWork, Tasks};
pub use tool::{DynTool, PreparedCall, Tool, erase, read_only_tool_fn, tool_fn};
