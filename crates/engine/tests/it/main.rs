//! The loop: scenarios, laws over random runs, and crashes.

#![cfg(test)]

mod budget;
mod budget_tree;
mod claude;
mod crash;
mod laws;
mod media;
mod scenarios;
mod tasks;
mod tools_changed;
mod world;
