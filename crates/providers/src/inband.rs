//! Errors that a server tells inside an answer that began as a success. Owns the forms in which they were met; asked only
//! about what is no content. Says nothing about their kind.

use serde_json::value::RawValue;

use crate::body::Body;
use crate::wire::{Text, says_something};

/// Whether an object without content is an error.
pub(crate) fn is_error(json: &[u8]) -> bool {
    let Ok(signs) = serde_json::from_slice::<Body<'_>>(json) else { return false };
    let says = |part: Option<&RawValue>| part.is_some_and(says_something);
    let words = |part: Option<&RawValue>| {
        part.filter(|p| p.get().starts_with('"') && !is_fine(p.get().trim_matches('"'))).is_some()
    };
    if signs.kind.as_str() == "error" || signs.object.as_str() == "error" {
        return true;
    }
    if says(signs.error) || says(signs.errors) || says(signs.detail) || fails(&signs.error_code) {
        return true;
    }
    if base_failed(&signs) {
        return true;
    }
    if !is_fine(signs.error_msg.as_str()) && signs.error_code.is_empty() {
        return true;
    }
    // Others tell with a code that all is well.
    let told = words(signs.message) || words(signs.msg);
    let number = signs.code.as_str().parse::<f64>().is_ok_and(|n| n >= 400.0);
    number || (told && (signs.code.is_empty() || fails(&signs.code)))
}

/// Whether one part of a frame with choices says that the request failed: MiniMax tells so beside empty choices.
pub(crate) fn has_failed_status(json: &[u8]) -> bool {
    serde_json::from_slice::<Body<'_>>(json).is_ok_and(|signs| base_failed(&signs))
}

fn base_failed(signs: &Body<'_>) -> bool {
    signs.base_resp.and_then(|base| Body::read(base.get())).is_some_and(|base| fails(&base.status_code))
}

/// The error of an event that is no object: `[{"error":…}]`, `Error: …`, `[ERROR] …`. `name` is the event's own.
pub(crate) fn of_word<'a>(name: &str, word: &'a [u8]) -> Option<&'a [u8]> {
    if name.eq_ignore_ascii_case("error") {
        return Some(word);
    }
    if let Ok(list) = serde_json::from_slice::<Vec<&RawValue>>(word) {
        let first = list.first().map(|first| first.get().as_bytes());
        return first.filter(|first| first.starts_with(b"{") && is_error(first));
    }
    let plain = word.strip_prefix(b"[").unwrap_or(word);
    let (head, rest) = plain.split_at_checked(5)?;
    let ends = matches!(rest.first(), None | Some(b':' | b']'));
    (head.eq_ignore_ascii_case(b"error") && ends).then_some(word)
}

fn fails(code: &Text<'_>) -> bool {
    !is_fine(code.as_str())
}

fn is_fine(word: &str) -> bool {
    let fine = ["", "0", "200", "ok", "success", "succeeded"];
    fine.iter().any(|f| word.trim().eq_ignore_ascii_case(f))
}
