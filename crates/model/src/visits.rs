//! For tests: how many messages were looked at. Work that begins with a conversation's first message at each request makes
//! a long run quadratic, and a count shows it where a clock would not.

use std::cell::Cell;

thread_local! {
    static VISITS: Cell<u64> = const { Cell::new(0) };
}

/// Returns the number of messages that iterators of [`Messages`](crate::Messages) have given out on this thread.
#[must_use]
pub fn visits() -> u64 {
    VISITS.get()
}

pub(crate) fn count() {
    VISITS.set(VISITS.get().wrapping_add(1));
}
