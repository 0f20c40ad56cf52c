//! Dialects in which other programs read events.
