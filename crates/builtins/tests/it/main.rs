//! The built-in tools on real files and processes.

#![cfg(test)]

mod background;
mod bash;
mod corpus;
mod edit;
mod encodings;
mod glob;
mod golden;
mod grep;
mod orphans;
mod peer_rg;
mod read;
mod reality;
mod swaps;
mod world;
mod write;
