//! Tests of the tasks as they are called: the built program, on small workspaces made for the purpose, and the peers
//! that `cargo xtask peers` provides.

mod fake;
mod peer_llama;
mod tidy;
