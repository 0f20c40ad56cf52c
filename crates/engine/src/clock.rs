//! The real clock.

use std::time::{SystemTime, UNIX_EPOCH};

use open_agent_model::Timestamp;
use open_agent_tool::Clock;
use uuid::Uuid;

/// The machine's time, and random numbers as ids.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn new_id(&self) -> u128 {
        // Version 7 begins with the time, so that ids sort by age.
        Uuid::now_v7().as_u128()
    }
}
