//! The providers as their callers see them: against a server on loopback that checks each request.

#![expect(clippy::unwrap_used, reason = "a test's helper may panic as the test itself may")]

mod end_to_end;
mod golden;
mod support;
