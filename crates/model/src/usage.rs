//! Token counts. Owns the four counters into which all vendors' counts are normalised: none of them overlaps another.

use serde::{Deserialize, Serialize};

/// Tokens of one or more requests. The counters do not overlap: a request's whole input is the sum of the four input
/// counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Input that came from no cache and went into none.
    pub input_tokens: u64,
    /// Output, thinking included.
    pub output_tokens: u64,
    /// Input read from the cache.
    pub cache_read_input_tokens: u64,
    /// Input written to the five-minute cache.
    pub cache_write_5m_input_tokens: u64,
    /// Input written to the one-hour cache.
    pub cache_write_1h_input_tokens: u64,
}

impl Usage {
    /// All input, cached or not.
    #[must_use]
    pub fn all_input(&self) -> u64 {
        [self.cache_read_input_tokens, self.cache_write_5m_input_tokens, self.cache_write_1h_input_tokens]
            .into_iter()
            .fold(self.input_tokens, u64::saturating_add)
    }
}

impl std::ops::AddAssign for Usage {
    /// Stays at the top instead of wrapping: the counts come from servers, and no server must be able to end a run.
    fn add_assign(&mut self, o: Self) {
        let add = |a: &mut u64, b: u64| *a = a.saturating_add(b);
        add(&mut self.input_tokens, o.input_tokens);
        add(&mut self.output_tokens, o.output_tokens);
        add(&mut self.cache_read_input_tokens, o.cache_read_input_tokens);
        add(&mut self.cache_write_5m_input_tokens, o.cache_write_5m_input_tokens);
        add(&mut self.cache_write_1h_input_tokens, o.cache_write_1h_input_tokens);
    }
}

/// Counts as they come in during a stream: running totals, of which a later one replaces an earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageUpdate {
    /// See [`Usage::input_tokens`].
    pub input_tokens: Option<u64>,
    /// See [`Usage::output_tokens`].
    pub output_tokens: Option<u64>,
    /// See [`Usage::cache_read_input_tokens`].
    pub cache_read_input_tokens: Option<u64>,
    /// See [`Usage::cache_write_5m_input_tokens`].
    pub cache_write_5m_input_tokens: Option<u64>,
    /// See [`Usage::cache_write_1h_input_tokens`].
    pub cache_write_1h_input_tokens: Option<u64>,
}

impl UsageUpdate {
    /// Takes over what `later` knows.
    pub fn merge(&mut self, later: &Self) {
        self.input_tokens = later.input_tokens.or(self.input_tokens);
        self.output_tokens = later.output_tokens.or(self.output_tokens);
        self.cache_read_input_tokens = later.cache_read_input_tokens.or(self.cache_read_input_tokens);
        self.cache_write_5m_input_tokens =
            later.cache_write_5m_input_tokens.or(self.cache_write_5m_input_tokens);
        self.cache_write_1h_input_tokens =
            later.cache_write_1h_input_tokens.or(self.cache_write_1h_input_tokens);
    }

    /// The totals; what was never said counts 0.
    #[must_use]
    pub fn total(&self) -> Usage {
        Usage {
            input_tokens: self.input_tokens.unwrap_or_default(),
            output_tokens: self.output_tokens.unwrap_or_default(),
            cache_read_input_tokens: self.cache_read_input_tokens.unwrap_or_default(),
            cache_write_5m_input_tokens: self.cache_write_5m_input_tokens.unwrap_or_default(),
            cache_write_1h_input_tokens: self.cache_write_1h_input_tokens.unwrap_or_default(),
        }
    }

    /// From vendors that count cached tokens inside the input.
    #[must_use]
    pub fn inclusive(input: Option<u64>, output: Option<u64>, cached: Option<u64>) -> Self {
        Self {
            input_tokens: input.map(|i| i.saturating_sub(cached.unwrap_or_default())),
            output_tokens: output,
            cache_read_input_tokens: cached,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_counts_stay_at_the_top() {
        let absurd = UsageUpdate {
            input_tokens: Some(u64::MAX),
            cache_read_input_tokens: Some(9),
            ..UsageUpdate::default()
        };
        let mut sum = absurd.total();
        sum += absurd.total();
        assert_eq!((sum.input_tokens, sum.all_input()), (u64::MAX, u64::MAX));
    }

    #[test]
    fn h_cst_02_inclusive_and_exclusive_counts_are_the_same() {
        let exclusive = UsageUpdate {
            input_tokens: Some(100),
            output_tokens: Some(7),
            cache_read_input_tokens: Some(900),
            ..UsageUpdate::default()
        };
        let inclusive = UsageUpdate::inclusive(Some(1000), Some(7), Some(900));
        assert_eq!(exclusive.total(), inclusive.total());
        assert_eq!(inclusive.total().all_input(), 1000);
    }
}
