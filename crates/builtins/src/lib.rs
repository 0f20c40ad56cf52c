//! The built-in tools, one file each. They reach files and processes through the ports of their context only.

mod bounds;
mod core;
mod edits;
mod media;
mod paths;
#[cfg(test)]
mod testing;
mod text;
mod walk;

pub use crate::core::core_tools;
