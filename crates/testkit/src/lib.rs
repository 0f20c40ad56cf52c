//! Test helpers: temporary workspaces, a scripted model server, servers of others. Only tests use it; it knows no engine.

pub mod llama;
pub mod mocks;
mod process;
#[cfg(feature = "server")]
pub mod server;
