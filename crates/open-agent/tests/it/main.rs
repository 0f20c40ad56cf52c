//! The library as a user sees it.

#![cfg(test)]

mod agent;
mod background;
mod blobs;
mod budget;
mod damage;
mod examples;
mod idle;
mod models;
mod options;
mod peer_llama;
mod peer_mocks;
mod ports;
mod send;
mod seventh_tool;
mod silence;
mod soak;
mod speed;
mod wake;
mod wire;
