//! The HTTP client that everything shares, and the decoder of server-sent events. Owns proxies, certificates and TLS;
//! knows no vendor and no message. Reads no process environment but what the platform's certificate store reads.

mod client;
mod error;
mod proxy;
mod sse;
mod tls;

pub use client::{ClientOptions, client};
pub use error::HttpError;
pub use proxy::proxy_variable;
pub use reqwest::Client;
pub use sse::{SseDecoder, SseEvent};
