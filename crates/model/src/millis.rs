//! Durations in settings: whole milliseconds, for `#[serde(with = "…")]`. A pair of seconds and nanoseconds is nothing that
//! a person would write.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer};

/// Writes it.
pub fn serialize<S: Serializer>(duration: &Duration, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// Reads it.
pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
    u64::deserialize(d).map(Duration::from_millis)
}
