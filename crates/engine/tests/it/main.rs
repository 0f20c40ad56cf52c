//! The loop: scenarios, laws over random runs, and crashes.

#![cfg(test)]

mod background;
mod budget;
mod budget_tree;
mod claude;
mod commands;
mod crash;
mod crash_told;
mod events;
mod laws;
mod long_runs;
mod media;
mod queue;
mod scenarios;
mod tools_changed;
mod world;
