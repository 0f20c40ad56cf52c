//! Money. Owns `Cost` in whole nano-dollars, so that sums do not depend on their order, and `Price`.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Usage;

/// Nano-dollars (10⁻⁹ USD).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cost(pub u64);

const NANO: u64 = 1_000_000_000;
const MILLION: u128 = 1_000_000;

impl Cost {
    /// From a decimal such as `1.5`. `None` if it is no amount of zero or more dollars.
    #[must_use]
    pub fn from_usd(text: &str) -> Option<Self> {
        let (whole, part) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
        let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
        if (whole.is_empty() && part.is_empty()) || !digits(whole) || !digits(part) || part.len() > 9 {
            return None;
        }
        let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let part: u64 = format!("{part:0<9}").parse().ok()?;
        whole.checked_mul(NANO)?.checked_add(part).map(Self)
    }

    /// As a float, for display and for JSON fields that others read.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "display only; exact up to 9 million dollars")]
    pub fn usd(self) -> f64 {
        self.0 as f64 / NANO as f64
    }

    /// The sum; stays at the top instead of wrapping.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${}.{:06}", self.0 / NANO, self.0 % NANO / 1000)
    }
}

/// What a million tokens cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Price {
    /// Input.
    pub input: Cost,
    /// Output.
    pub output: Cost,
    /// Reading from the cache; as input where the vendor has no other price.
    pub cache_read: Cost,
    /// Writing to the five-minute cache; as input where the vendor has no other price.
    pub cache_write_5m: Cost,
    /// Writing to the one-hour cache; as input where the vendor has no other price.
    pub cache_write_1h: Cost,
}

impl Price {
    /// A price without cache prices of its own.
    #[must_use]
    pub fn new(input: Cost, output: Cost) -> Self {
        Self { input, output, cache_read: input, cache_write_5m: input, cache_write_1h: input }
    }

    /// What `usage` costs, rounded to the nearest nano-dollar.
    #[must_use]
    pub fn of(&self, usage: &Usage) -> Cost {
        let parts = [
            (usage.input_tokens, self.input),
            (usage.output_tokens, self.output),
            (usage.cache_read_input_tokens, self.cache_read),
            (usage.cache_write_5m_input_tokens, self.cache_write_5m),
            (usage.cache_write_1h_input_tokens, self.cache_write_1h),
        ];
        let sum: u128 = parts.iter().map(|(tokens, price)| u128::from(*tokens) * u128::from(price.0)).sum();
        Cost(u64::try_from((sum + MILLION / 2) / MILLION).unwrap_or(u64::MAX))
    }

    /// How many output tokens `money` buys.
    #[must_use]
    pub fn output_tokens_for(&self, money: Cost) -> u64 {
        if self.output.0 == 0 {
            return u64::MAX;
        }
        u64::try_from(u128::from(money.0) * MILLION / u128::from(self.output.0)).unwrap_or(u64::MAX)
    }
}

/// Where a request's cost comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CostSource {
    /// Computed from the provider's token counts and the price list.
    Computed,
    /// Reported by the provider in money.
    Reported,
    /// Estimated from the length of what was sent and received, because the provider counted nothing.
    Estimated,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usd(text: &str) -> Cost {
        Cost::from_usd(text).unwrap()
    }

    #[test]
    fn the_two_reference_amounts() {
        let usage = |i, o| Usage { input_tokens: i, output_tokens: o, ..Usage::default() };
        assert_eq!(Price::new(usd("3"), usd("15")).of(&usage(45, 3)), usd("0.000180"));
        assert_eq!(Price::new(usd("15"), usd("75")).of(&usage(52, 156)), usd("0.012480"));
    }

    #[test]
    fn amounts_are_read_exactly_or_not_at_all() {
        assert_eq!(usd("0.000000001"), Cost(1));
        assert_eq!(usd(".5"), Cost(NANO / 2));
        assert_eq!(usd("12.").0, 12 * NANO);
        for bad in ["", ".", "-1", "1e3", "1,5", "0.0000000001", "99999999999999999999"] {
            assert_eq!(Cost::from_usd(bad), None, "{bad}");
        }
        assert_eq!(usd("1.25").to_string(), "$1.250000");
    }
}
