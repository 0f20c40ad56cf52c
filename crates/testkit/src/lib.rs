//! Test helpers: temporary workspaces and a scripted model server. Only tests use it; it knows no engine.

#[cfg(feature = "server")]
pub mod server;
