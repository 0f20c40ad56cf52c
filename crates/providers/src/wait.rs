//! How long a server asks to wait. Owns reading that from headers and error texts; waits for nothing itself.

use std::time::{Duration, SystemTime};

use reqwest::header::{DATE, HeaderMap, HeaderName, RETRY_AFTER};

/// Longer than anything meant: keeps sums of times far from overflow.
const MOST: f64 = 366.0 * 24.0 * 3600.0;

/// `retry-after-ms`, then `retry-after` in seconds, as a delay such as `1m30s`, or as a date (against the server's own clock, if it told it).
pub(crate) fn from_headers(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: HeaderName| headers.get(name)?.to_str().ok().map(str::trim);
    if let Some(ms) = text(HeaderName::from_static("retry-after-ms")).and_then(|t| t.parse::<f64>().ok()) {
        // A number that is none must not hide the other header.
        if let Some(wait) = seconds(ms / 1000.0) {
            return Some(wait);
        }
    }
    let now = || text(DATE).and_then(|d| httpdate::parse_http_date(d).ok()).unwrap_or_else(SystemTime::now);
    let after = |text: &str| {
        if let Ok(number) = text.parse::<f64>() {
            return seconds(number);
        }
        delay(text, 1.0).or_else(|| {
            let until = httpdate::parse_http_date(text).ok()?;
            Some(until.duration_since(now()).unwrap_or_default())
        })
    };
    // A proxy may add its own to the server's: the longer one serves both.
    let all = headers.get_all(RETRY_AFTER).iter().filter_map(|v| v.to_str().ok());
    all.filter_map(|text| after(text.trim())).max()
}

/// Phrases after which vendors write a delay in an error's text, and fields in which they put one.
const MARKS: &[&str] = &[
    "again in",
    "again after",
    "retry after",
    "retry in",
    "retrydelay",
    "retry_after",
    "retryafter",
    "please wait",
];

/// A delay in an error body: `1m30s`, `20s`, `350ms`, `1.5 seconds`, `1 hour and 5 minutes`.
pub(crate) fn from_body(body: &str) -> Option<Duration> {
    let lower = body.to_ascii_lowercase();
    MARKS.iter().find_map(|mark| {
        // A phrase may come without a delay, and once more with one.
        lower.match_indices(mark).find_map(|(at, _)| {
            let mut rest = lower.get(at + mark.len()..)?;
            let mut unit = 1.0;
            for (name, factor) in [("_ms", 0.001), ("_seconds", 1.0), ("_secs", 1.0)] {
                if let Some(after) = rest.strip_prefix(name) {
                    (rest, unit) = (after, factor);
                }
            }
            let rest = rest.trim_start_matches([' ', '"', '\\', '\'', ':', '=']);
            delay(rest.strip_prefix("about ").unwrap_or(rest), unit)
        })
    })
}

/// `unit` is meant where none is written.
fn delay(text: &str, unit: f64) -> Option<Duration> {
    let mut total = None;
    let mut rest = text;
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        // A full stop at the end of the sentence is no part of the number.
        let Ok(number) = number.trim_end_matches('.').parse::<f64>() else { break };
        let after = after.trim_start();
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (name, next) = after.split_at(letters);
        let factor = match name {
            // A date or a time of day is no delay.
            "" if next.starts_with(['-', '/', ':']) => break,
            "" => unit,
            "ms" | "msec" | "millis" | "millisecond" | "milliseconds" => 0.001,
            "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
            "h" | "hr" | "hrs" | "hour" | "hours" => 3600.0,
            "d" | "day" | "days" => 86_400.0,
            _ => break,
        };
        total = Some(total.unwrap_or(0.0) + number * factor);
        let next = next.trim_start_matches([' ', ',']);
        rest = next.strip_prefix("and ").unwrap_or(next);
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
        assert_eq!(of(&[("retry-after", "1m30s")]), Some(90_000));
        assert_eq!(of(&[("retry-after", "soon")]), None);
        assert_eq!(of(&[("retry-after", "2026-11-29T20:28:54Z")]), None);
        assert_eq!(of(&[("retry-after", "-1")]), None);
        assert_eq!(of(&[("retry-after", "inf")]), Some(31_622_400_000));
        assert_eq!(of(&[]), None);
        for (first, second) in [("5", "60"), ("60", "5"), ("soon", "60"), ("60", "-1")] {
            let mut two = HeaderMap::new();
            two.append(RETRY_AFTER, first.parse().unwrap());
            two.append(RETRY_AFTER, second.parse().unwrap());
            assert_eq!(from_headers(&two), Some(Duration::from_secs(60)), "{first} {second}");
        }
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
        assert_eq!(of("try again in 1 day"), Some(86_400_000));
        assert_eq!(of("Please try again in 2 hours."), Some(7_200_000));
        assert_eq!(of("available again in 1 hour and 5 minutes"), Some(3_900_000));
        assert_eq!(of("try again in about 2 mins, 3 secs"), Some(123_000));
        assert_eq!(of("try again in 1d2h3m4s"), Some(93_784_000));
        assert_eq!(of("Please retry after 20 seconds"), Some(20_000));
        assert_eq!(of("Please try again after 1 minute."), Some(60_000));
        assert_eq!(of("Please wait 5 seconds"), Some(5_000));
        assert_eq!(of(r#"retryDelay:"34s""#), Some(34_000));
        assert_eq!(of(r#"{\"retryDelay\": \"34s\"}"#), Some(34_000));
        assert_eq!(of("{'retryDelay': '34.5s'}"), Some(34_500));
        assert_eq!(of(r#"{"retry_after_ms":250}"#), Some(250));
        assert_eq!(of(r#"{"retry_after_seconds": 5}"#), Some(5_000));
        assert_eq!(of(r#"{"retryAfter":3}"#), Some(3_000));
        assert_eq!(of("Try again in a moment. Limits: retry in 9s"), Some(9_000));
        assert_eq!(of("Try again in a moment; you can try again in 9s"), Some(9_000));
        assert_eq!(of("try again in a while"), None);
        assert_eq!(of("retry after 2026-11-29 20:28"), None);
        assert_eq!(of("try again in 5 bananas"), None);
    }
}
