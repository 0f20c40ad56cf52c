//! The loop: scenarios, laws over random runs, and crashes.

mod crash;
mod laws;
mod scenarios;
mod world;
