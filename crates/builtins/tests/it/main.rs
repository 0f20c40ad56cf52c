//! The built-in tools on real files and processes.

#![cfg(test)]

mod bash;
mod edit;
mod glob;
mod golden;
mod grep;
mod read;
mod world;
mod write;
