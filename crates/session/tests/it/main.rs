//! Stores: the conformance suite, and what only files can suffer.

#![cfg(test)]

mod stores;
