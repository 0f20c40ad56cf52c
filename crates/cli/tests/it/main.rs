//! The program as it is, against a model server on loopback.

#![cfg(test)]

mod failures;
mod flags;
mod formats;
mod rig;
mod signals;
mod terminal;
mod wrong_input;
