//! HTTP client and SSE decoder shared by everything that speaks HTTP

/// To come.
#[derive(Debug, thiserror::Error)]
#[error("http")]
pub struct HttpError;
