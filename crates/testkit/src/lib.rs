//! Test helpers: temporary workspaces and a scripted model server. Only tests use it; it knows no engine.

pub mod llama;
#[cfg(feature = "server")]
pub mod server;
