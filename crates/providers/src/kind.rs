//! What kind of failure an error is. Owns the reading of statuses and of vendors' words for them; decides nothing about
//! retries.

use open_agent_model::ProviderErrorKind as Kind;
use reqwest::StatusCode;

use crate::vendor_error::VendorError;

pub(crate) fn kind_of_status(status: StatusCode, told: &VendorError, words: &str) -> Kind {
    if status != StatusCode::TOO_MANY_REQUESTS && is_overflow(told, words) {
        return Kind::ContextOverflow;
    }
    match status.as_u16() {
        _ if lacks_credit(status.as_u16(), told, words) => Kind::Authentication,
        300..=399 => Kind::Configuration,
        401..=403 => Kind::Authentication,
        407 => Kind::Configuration,
        404 | 405 | 410 => Kind::NotFound,
        // 522 and 524: a proxy that waited in vain for the server behind it.
        408 | 504 | 522 | 524 => Kind::Timeout,
        413 => Kind::ContextOverflow,
        429 => Kind::RateLimited,
        425 | 503 | 529 => Kind::Overloaded,
        // A proxy's words for a server that it does not reach.
        520 | 521 | 523 => Kind::Connection,
        500..=599 => Kind::Server,
        _ => Kind::InvalidRequest,
    }
}

/// An account without credit stays one, however long we wait.
pub(crate) fn lacks_credit(status: u16, told: &VendorError, words: &str) -> bool {
    let names = [told.kind.as_str(), told.code.as_str()];
    let named =
        names.iter().any(|n| matches!(*n, "insufficient_quota" | "insufficient_balance" | "billing_error"));
    let lower = words.to_ascii_lowercase();
    // No server whose own credit is gone fails with these statuses for long.
    let may = !(500..=599).contains(&status);
    status == 402 || named || (may && CREDIT.iter().any(|phrase| lower.contains(phrase)))
}

/// How vendors say that an account has no credit. A quota that is used up may be one of a minute.
const CREDIT: &[&str] = &["insufficient balance", "insufficient credit", "credit balance is too low"];

pub(crate) fn kind_of_words(told: &VendorError, words: &str) -> Option<Kind> {
    if is_overflow(told, words) {
        return Some(Kind::ContextOverflow);
    }
    if lacks_credit(200, told, words) {
        return Some(Kind::Authentication);
    }
    [told.kind.as_str(), told.code.as_str()].into_iter().find_map(|word| {
        Some(match word {
            "overloaded_error" | "overloaded" | "UNAVAILABLE" => Kind::Overloaded,
            "rate_limit_error" | "rate_limit_exceeded" | "RESOURCE_EXHAUSTED" => Kind::RateLimited,
            "authentication_error" | "permission_error" => Kind::Authentication,
            "not_found_error" => Kind::NotFound,
            "invalid_request_error" => Kind::InvalidRequest,
            "request_too_large" => Kind::ContextOverflow,
            "timeout_error" => Kind::Timeout,
            _ => return None,
        })
    })
}

/// How vendors say that the conversation is too long.
const OVERFLOW: &[&str] = &[
    "prompt is too long",
    "context_length_exceeded",
    "maximum context length",
    "exceeds the available context",
    "exceed context limit",
    "exceeds the context window",
    "context window exceeds",
    "context size has been exceeded",
    "context length exceeded",
    "prompt exceeds max length",
    "input is too long",
    "input token count exceeds",
    "longer than the model's context length",
    "exceeds the maximum number of tokens allowed",
];

fn is_overflow(told: &VendorError, words: &str) -> bool {
    let names = [told.kind.as_str(), told.code.as_str()];
    if names.iter().any(|n| matches!(*n, "exceed_context_size_error" | "context_length_exceeded")) {
        return true;
    }
    let lower = words.to_ascii_lowercase();
    OVERFLOW.iter().any(|phrase| lower.contains(phrase))
}
