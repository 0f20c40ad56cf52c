//! How long a server asks to wait. Owns reading that from headers and error texts; waits for nothing itself.

use std::time::{Duration, SystemTime};

use reqwest::header::{DATE, HeaderMap, HeaderName, RETRY_AFTER};

/// Longer than anything meant: keeps sums of times far from overflow.
const MOST: f64 = 366.0 * 24.0 * 3600.0;

/// `retry-after-ms`, then `retry-after` in seconds or as a date (against the server's own clock, if it told it).
pub(crate) fn from_headers(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: HeaderName| headers.get(name)?.to_str().ok().map(str::trim);
    if let Some(ms) = text(HeaderName::from_static("retry-after-ms")).and_then(|t| t.parse::<f64>().ok()) {
        // A number that is none must not hide the other header.
        if let Some(wait) = seconds(ms / 1000.0) {
            return Some(wait);
        }
    }
    let after = text(RETRY_AFTER)?;
    if let Ok(number) = after.parse::<f64>() {
        return seconds(number);
    }
    let until = httpdate::parse_http_date(after).ok()?;
    let now = text(DATE).and_then(|d| httpdate::parse_http_date(d).ok()).unwrap_or_else(SystemTime::now);
    Some(until.duration_since(now).unwrap_or_default())
}

/// Phrases after which vendors write a delay in an error's text, and fields in which they put one.
const MARKS: &[&str] = &["try again in", "retry after", "retry in", "\"retrydelay\":", "\"retry_after\":"];

/// A delay in an error body: `1m30s`, `20s`, `350ms`, `1.5 seconds`.
pub(crate) fn from_body(body: &str) -> Option<Duration> {
    let lower = body.to_ascii_lowercase();
    MARKS.iter().find_map(|mark| {
        let rest = lower.get(lower.find(mark)? + mark.len()..)?;
        delay(rest.trim_start_matches([' ', '"', ':']))
    })
}

fn delay(text: &str) -> Option<Duration> {
    let mut total = None;
    let mut rest = text;
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        // A full stop at the end of the sentence is no part of the number.
        let Ok(number) = number.trim_end_matches('.').parse::<f64>() else { break };
        let after = after.trim_start();
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, next) = after.split_at(letters);
        let factor = match unit {
            "ms" | "milliseconds" => 0.001,
            "" | "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
            "m" | "min" | "minute" | "minutes" => 60.0,
            "h" | "hour" | "hours" => 3600.0,
            _ => break,
        };
        total = Some(total.unwrap_or(0.0) + number * factor);
        rest = next;
    }
    seconds(total?)
}

fn seconds(number: f64) -> Option<Duration> {
    (number >= 0.0).then(|| Duration::from_secs_f64(number.min(MOST)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(k, v)| (HeaderName::from_static(k), v.parse().unwrap())).collect()
    }

    #[test]
    fn h_ret_02_headers_in_all_forms() {
        let of =
            |pairs: &[(&'static str, &'static str)]| from_headers(&headers(pairs)).map(|d| d.as_millis());
        assert_eq!(of(&[("retry-after", "60")]), Some(60_000));
        assert_eq!(of(&[("retry-after", "1.5")]), Some(1500));
        assert_eq!(of(&[("retry-after", "2"), ("retry-after-ms", "1250")]), Some(1250));
        let date = ("date", "Sun, 29 Nov 2026 20:27:54 GMT");
        assert_eq!(of(&[date, ("retry-after", "Sun, 29 Nov 2026 20:28:54 GMT")]), Some(60_000));
        assert_eq!(of(&[date, ("retry-after", "Sun, 29 Nov 2026 20:00:00 GMT")]), Some(0));
        assert_eq!(of(&[("retry-after-ms", "-1"), ("retry-after", "4")]), Some(4_000));
        assert_eq!(of(&[("retry-after", "soon")]), None);
        assert_eq!(of(&[("retry-after", "-1")]), None);
        assert_eq!(of(&[("retry-after", "inf")]), Some(31_622_400_000));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn h_ret_02_delays_in_error_texts() {
        let of = |text| from_body(text).map(|d| d.as_millis());
        assert_eq!(of("Please try again in 20s. Visit"), Some(20_000));
        assert_eq!(of("try again in 1m30.5s"), Some(90_500));
        assert_eq!(of("Try again in 350ms."), Some(350));
        assert_eq!(of("retry after 3 seconds"), Some(3000));
        assert_eq!(of(r#"{"retryDelay": "21s"}"#), Some(21_000));
        assert_eq!(of(r#"{"retry_after":7}"#), Some(7000));
        assert_eq!(of("try again in a while"), None);
        assert_eq!(of("try again in 5 bananas"), None);
    }
}
