//! The program as a user runs it, most of it against a model server on loopback.

#![cfg(test)]

mod demo;
mod failures;
mod flags;
mod flood;
mod formats;
mod peer_llama;
mod rig;
mod signals;
mod speed;
mod terminal;
mod wrong_input;
