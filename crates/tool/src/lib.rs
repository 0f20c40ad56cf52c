//! Tools: the typed [`Tool`] and its erased twin [`DynTool`], sets and sources of them, what a call knows ([`ToolCx`]) and
//! gives back ([`ToolOutput`], [`ToolError`]), and the ports through which tools reach files, processes and time.
//!
//! Carries nothing out: `sandbox` and `engine` implement the ports.

mod background;
mod command;
mod cx;
mod error;
mod files;
mod lenient;
mod output;
mod ports;
mod schema;
mod set;
mod tool;

pub use background::{Background, BackgroundJob, BackgroundSpec, BackgroundStatus};
pub use command::{CommandRunner, CommandSpec, Descendant, Exit, LimitHit, Limits, Purpose, Running, Stdin};
pub use cx::{CxParts, ProgressSink, SessionState, ToolCx};
pub use error::{Suspended, ToolError, ToolErrorKind};
pub use files::{Entry, EntryInfo, Files, Folder, Located, PathKind, file_stamp};
pub use lenient::read_input;
pub use output::ToolOutput;
pub use ports::{Absent, Blobs, Clock, PortError, Ports};
pub use schema::schema_of;
pub use set::{ToolSet, ToolSource};
pub use tool::{DynTool, Planned, PlannedTool, PreparedCall, Tool, erase, read_only_tool_fn, tool_fn};
