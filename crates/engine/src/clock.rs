//! The real clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use open_agent_model::Timestamp;
use open_agent_tool::Clock;
use uuid::Uuid;

/// The machine's time, and random numbers as ids.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        timestamp(SystemTime::now())
    }

    fn new_id(&self) -> u128 {
        id(SystemTime::now())
    }
}

/// Milliseconds since 1970; negative if the machine's clock is set to an earlier time.
fn timestamp(time: SystemTime) -> Timestamp {
    let millis = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    Timestamp(match time.duration_since(UNIX_EPOCH) {
        Ok(since) => millis(since),
        Err(before) => -millis(before.duration()),
    })
}

/// A random number that begins with the time, so that ids sort by age.
fn id(time: SystemTime) -> u128 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(_) => Uuid::now_v7().as_u128(),
        // Version 7 has no times before 1970, and `now_v7` panics. Such ids are unique all the same.
        Err(_) => Uuid::new_v4().as_u128(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_before_1970_tells_a_negative_time_and_gives_ids() {
        let early = UNIX_EPOCH - Duration::from_millis(1_500);
        assert_eq!(timestamp(early), Timestamp(-1_500));
        assert_ne!(id(early), id(early));
        let later = UNIX_EPOCH + Duration::from_millis(1_500);
        assert_eq!(timestamp(later), Timestamp(1_500));
        assert!(id(later) < id(later), "ids of one process sort by age");
    }
}
