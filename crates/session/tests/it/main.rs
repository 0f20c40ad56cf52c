//! Stores: the conformance suite, and what only files can suffer.

mod stores;
