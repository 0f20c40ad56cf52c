//! The loop: scenarios, laws over random runs, and crashes.

#![cfg(test)]

mod crash;
mod laws;
mod scenarios;
mod world;
