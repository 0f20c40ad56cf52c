//! The providers as their callers see them: against a server on loopback that checks each request.

mod end_to_end;
mod golden;
mod support;
