//! The library as a user sees it.

#![cfg(test)]

mod agent;
mod examples;
mod peer_llama;
mod seventh_tool;
