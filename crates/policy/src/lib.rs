//! Judges tool calls and starts nothing: the pure [`decide`] and the [`Gate`] that every call passes.

mod gate;
mod permission;

pub use gate::{Gate, Verdict};
pub use permission::{CallFacts, Policy, decide};
