//! The loop: scenarios, laws over random runs, and crashes.

#![cfg(test)]

mod claude;
mod crash;
mod laws;
mod scenarios;
mod tasks;
mod world;
