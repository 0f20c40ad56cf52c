//! The dialects in which other programs read events. Each conversion lies here, beside the enum, and names every event, so
//! that a new one cannot vanish silently. Pure: bytes out, no IO.

pub mod claude;
