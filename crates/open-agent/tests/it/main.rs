//! The library as a user sees it.

#![cfg(test)]

mod agent;
mod examples;
mod seventh_tool;
