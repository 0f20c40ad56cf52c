//! What a vendor says of an error. Owns the nestings and names in which servers put it; what kind of failure that is, and
//! what people are told, is decided elsewhere.

use serde_json::value::RawValue;

use crate::body::{Body, first_of_list, text};
use crate::wire::{Text, says_something};

/// What a vendor says of an error, out of all nestings.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct VendorError {
    pub(crate) message: String,
    pub(crate) kind: String,
    pub(crate) code: String,
    pub(crate) request_id: Option<String>,
}

impl VendorError {
    pub(crate) fn read(body: &str) -> Self {
        Self::read_json(first_of_list(body), 3).unwrap_or_default()
    }

    fn read_json(json: &str, depth: u8) -> Option<Self> {
        let outer = Body::read(json)?;
        let first = |texts: [Text<'_>; 4]| texts.into_iter().find_map(Text::some).unwrap_or_default();
        let mut told = Self {
            message: first([text(outer.message), text(outer.msg), outer.error_msg, outer.status_msg]),
            kind: outer.kind.0.into_owned(),
            code: first([outer.code, outer.error_code, outer.status_code, outer.status]),
            request_id: outer.request_id.some(),
        };
        let inner = [outer.error, outer.errors, outer.base_resp];
        let inner = inner.into_iter().flatten().find(|inner| says_something(inner)).map(RawValue::get);
        // Where there are several, the first one is told.
        if let Some(inner) = inner.map(first_of_list) {
            match serde_json::from_str::<String>(inner) {
                Ok(text) => told.message = text,
                Err(_) if depth > 0 => {
                    let request_id = told.request_id.take();
                    told = Self::read_json(inner, depth - 1).unwrap_or(told);
                    told.request_id = told.request_id.take().or(request_id);
                }
                Err(_) => {}
            }
        }
        if told.message.is_empty()
            && let Some(detail) = outer.detail.map(RawValue::get)
        {
            told.message = serde_json::from_str::<String>(detail).unwrap_or_else(|_| detail.to_owned());
        }
        // A router's own words say nothing; what the model's host said is in here.
        if let Some(more) = outer.metadata.map(RawValue::get) {
            told.message = format!("{} {more}", told.message);
        }
        Some(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_bodies_of_all_shapes_are_read() {
        for (body, want) in [
            (r#"{"type":"error","error":{"type":"t","message":"m"},"request_id":"r"}"#, "m"),
            (r#"{"error":{"message":"m","type":"t","code":null}}"#, "m"),
            (r#"{"error":"m"}"#, "m"),
            (r#"{"code":500,"message":"m","type":"server_error"}"#, "m"),
            (r#"{"detail":"m"}"#, "m"),
            (r#"[{"error":{"code":400,"message":"m","status":"INVALID_ARGUMENT"}}]"#, "m"),
            (r#"{"detail":[{"msg":"x"}]}"#, r#"[{"msg":"x"}]"#),
        ] {
            assert_eq!(VendorError::read(body).message, want, "{body}");
        }
        assert_eq!(VendorError::read("<html>"), VendorError::default());
    }
}
