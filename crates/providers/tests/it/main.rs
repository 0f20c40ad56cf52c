//! The providers as their callers see them: against a server on loopback that checks each request.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's helper may panic as the test itself may")]

mod conformance;
mod connection;
mod decoding;
mod golden;
mod logs;
mod network;
mod reasoning;
mod support;
