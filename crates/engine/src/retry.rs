//! Whether and when a failed request is made again. Owns the rule; waits for nothing, and takes chance as an argument.

use std::time::Duration;

use open_agent_model::{ProviderError, ProviderErrorKind};
use serde::{Deserialize, Serialize};

/// No wait of our own choice is longer, whatever is configured.
const DAY: Duration = Duration::from_secs(86_400);

/// How failed requests are retried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryConfig {
    /// How often a request is made again; 0 = never.
    pub max_retries: u32,
    /// The first wait; it doubles each time and varies by a quarter.
    #[serde(rename = "base_delay_ms", with = "open_agent_model::millis")]
    pub base_delay: Duration,
    /// The longest wait of our own choice.
    #[serde(rename = "max_delay_ms", with = "open_agent_model::millis")]
    pub max_delay: Duration,
    /// The longest wait that a server may ask for; when it asks for more, the request fails at once.
    #[serde(rename = "max_server_delay_ms", with = "open_agent_model::millis")]
    pub max_server_delay: Duration,
    /// HTTP statuses that are worth another attempt.
    pub statuses: Vec<u16>,
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self {
            max_retries: 3,
            base_delay: Duration::from_secs(2),
            max_delay: Duration::from_secs(30),
            max_server_delay: Duration::from_secs(300),
            // Those from 520 on are a relay's word for a host that does not answer.
            statuses: vec![408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529],
        }
    }
}

/// What to do about a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Make it again after this long.
    After(Duration),
    /// No further attempt: it was the last one, and another model may have more luck.
    Exhausted,
    /// The server asks for a longer wait than is allowed.
    TooLong(Duration),
    /// Another attempt would fail alike.
    Hopeless,
}

impl RetryConfig {
    /// The longest wait there can be.
    pub(crate) fn longest(&self) -> Duration {
        self.max_delay.min(DAY).max(self.max_server_delay)
    }

    /// Decides. `failures` is how often the request failed so far, this time included; `chance` is evenly spread over 0..1.
    pub(crate) fn decide(&self, error: &ProviderError, failures: u32, chance: f64) -> Verdict {
        if !self.is_retryable(error) {
            return Verdict::Hopeless;
        }
        if let Some(asked) = error.retry_after.filter(|asked| *asked > self.max_server_delay) {
            return Verdict::TooLong(asked);
        }
        if failures > self.max_retries {
            return Verdict::Exhausted;
        }
        let doubled = self.base_delay.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)));
        let varied = doubled.min(self.max_delay).min(DAY).mul_f64(0.75 + chance.clamp(0.0, 1.0) / 2.0);
        // Never earlier than the server asked.
        Verdict::After(varied.min(self.max_delay).max(error.retry_after.unwrap_or_default()))
    }

    fn is_retryable(&self, error: &ProviderError) -> bool {
        use ProviderErrorKind::{Connection, Overloaded, Protocol, RateLimited, Server, Timeout};
        if error.kind == ProviderErrorKind::Authentication {
            // Such as a quota that is used up, which vendors tell with 429: it stays so, however long we wait.
            return false;
        }
        match error.status {
            Some(status) if status >= 400 => self.statuses.contains(&status),
            // No answer, or one that broke off or failed in the middle.
            _ => matches!(error.kind, Connection | Overloaded | Protocol | RateLimited | Server | Timeout),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(kind: ProviderErrorKind, status: Option<u16>, retry_after: Option<u64>) -> ProviderError {
        let retry_after = retry_after.map(Duration::from_secs);
        ProviderError { status, retry_after, ..ProviderError::new(kind, "x") }
    }

    #[test]
    fn waits_double_vary_and_are_capped() {
        let config = RetryConfig { max_retries: 9, ..RetryConfig::default() };
        let overloaded = error(ProviderErrorKind::Overloaded, Some(529), None);
        let secs = |failures, chance| match config.decide(&overloaded, failures, chance) {
            Verdict::After(wait) => wait.as_secs_f64(),
            other => panic!("{other:?}"),
        };
        assert_eq!([secs(1, 0.5), secs(2, 0.5), secs(3, 0.5)], [2.0, 4.0, 8.0]);
        assert_eq!([secs(1, 0.0), secs(1, 1.0)], [1.5, 2.5]);
        assert_eq!([secs(5, 1.0), secs(9, 0.0)], [30.0, 22.5]);
        assert_eq!(config.decide(&overloaded, 10, 0.5), Verdict::Exhausted);
    }

    /// Every field, read off the struct, with a value and a failure for which it decides otherwise than the default.
    #[test]
    fn every_field_makes_a_difference() {
        type Row = (&'static str, fn(&mut RetryConfig), ProviderError, u32);
        let busy = |after| error(ProviderErrorKind::Overloaded, Some(529), after);
        let rows: [Row; 5] = [
            ("max_retries", |c| c.max_retries = 9, busy(None), 5),
            ("base_delay_ms", |c| c.base_delay = Duration::from_millis(1), busy(None), 1),
            ("max_delay_ms", |c| c.max_delay = Duration::from_secs(1), busy(None), 3),
            ("max_server_delay_ms", |c| c.max_server_delay = Duration::from_secs(1), busy(Some(9)), 1),
            (
                "statuses",
                |c| c.statuses = vec![418],
                error(ProviderErrorKind::InvalidRequest, Some(418), None),
                1,
            ),
        ];
        let default = RetryConfig::default();
        for (field, set, error, failures) in &rows {
            let mut config = default.clone();
            set(&mut config);
            let [by_default, as_set] = [&default, &config].map(|c| c.decide(error, *failures, 0.5));
            assert_ne!(by_default, as_set, "{field}");
        }
        let fields = serde_json::to_value(&default).unwrap();
        let mut shown: Vec<&str> = rows.iter().map(|(field, ..)| *field).collect();
        shown.sort_unstable();
        assert_eq!(fields.as_object().unwrap().keys().map(String::as_str).collect::<Vec<_>>(), shown);
    }

    #[test]
    fn settings_say_milliseconds() {
        let config: RetryConfig = serde_json::from_str(r#"{"max_retries":1,"base_delay_ms":250}"#).unwrap();
        let want =
            RetryConfig { max_retries: 1, base_delay: Duration::from_millis(250), ..RetryConfig::default() };
        assert_eq!(config, want);
        let again = serde_json::to_string(&config).unwrap();
        assert!(again.contains(r#""max_server_delay_ms":300000"#), "{again}");
    }

    #[test]
    fn h_ret_02_never_earlier_than_asked_and_not_beyond_the_cap() {
        let config = RetryConfig::default();
        let asked =
            |secs| config.decide(&error(ProviderErrorKind::RateLimited, Some(429), Some(secs)), 1, 0.5);
        assert_eq!(asked(60), Verdict::After(Duration::from_secs(60)));
        assert_eq!(asked(1), Verdict::After(Duration::from_secs(2)));
        assert_eq!(asked(301), Verdict::TooLong(Duration::from_secs(301)));
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        use ProviderErrorKind::{
            Authentication, Connection, ContextOverflow, InvalidRequest, NotFound, Protocol, Server, Timeout,
        };
        let config = RetryConfig::default();
        let hopeless = |kind, status| config.decide(&error(kind, status, None), 1, 0.5) == Verdict::Hopeless;
        for (kind, status) in [
            (Authentication, Some(401)),
            (Authentication, Some(429)),
            (NotFound, Some(404)),
            (InvalidRequest, Some(400)),
            (ContextOverflow, Some(400)),
            (Server, Some(501)),
        ] {
            assert!(hopeless(kind, status), "{kind:?}");
        }
        for (kind, status) in [
            (Connection, None),
            (Timeout, None),
            (Protocol, Some(200)),
            (Server, Some(200)),
            (Server, Some(503)),
            (Timeout, Some(504)),
            (Server, Some(524)),
        ] {
            assert!(!hopeless(kind, status), "{kind:?}");
        }
        let never = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        assert_eq!(never.decide(&error(Connection, None, None), 1, 0.5), Verdict::Exhausted);
    }
}
