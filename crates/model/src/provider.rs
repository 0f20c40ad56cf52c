//! The port behind which every model lives. Owns the trait and its errors; holds no implementation but the scripted one.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_core::Stream;
use serde::{Deserialize, Serialize};

use crate::{ModelEvent, ModelInfo, ModelRequest, ProviderHint};

/// A boxed future.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A model's answer as it comes. Dropping it cancels the request.
pub type ModelStream = Pin<Box<dyn Stream<Item = Result<ModelEvent, ProviderError>> + Send>>;

/// Something that answers model requests.
pub trait Provider: Send + Sync {
    /// Sends a request. The future ends when the answer begins.
    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ProviderError>>;

    /// Returns what holds of `model` when it is reached through this provider: `model` is what the catalogue knows, and a
    /// server may take less than its models could. Requests are fitted to the result.
    fn capabilities(&self, model: &ModelInfo) -> ModelInfo {
        model.clone()
    }

    /// How many input tokens a request has, where the provider can say so before it is made.
    fn count_tokens(&self, _request: ModelRequest) -> BoxFuture<'_, Result<Option<u64>, ProviderError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Where the request will be sent otherwise than it asks, a sentence each: wishes that the model or the rest of the
    /// request rules out are fitted, and whoever asked should know.
    fn notes(&self, _request: &ModelRequest) -> Vec<String> {
        Vec::new()
    }
}

/// A provider's failure.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct ProviderError {
    /// What kind.
    pub kind: ProviderErrorKind,
    /// What happened, in one sentence for people, with the vendor's own words; never a secret. It names no option of a
    /// program or library: what to change is in `hint`.
    pub message: String,
    /// What the user could change.
    pub hint: Option<Box<ProviderHint>>,
    /// The HTTP status.
    pub status: Option<u16>,
    /// The vendor's id of the request.
    pub request_id: Option<String>,
    /// How long the vendor asks to wait.
    pub retry_after: Option<Duration>,
    /// The cause.
    #[source]
    pub source: Option<Arc<dyn Error + Send + Sync>>,
}

impl ProviderError {
    /// An error without an HTTP answer.
    #[must_use]
    pub fn new(kind: ProviderErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: None,
            status: None,
            request_id: None,
            retry_after: None,
            source: None,
        }
    }

    /// Adds what the user could change.
    #[must_use]
    pub fn with_hint(mut self, hint: ProviderHint) -> Self {
        self.hint = Some(Box::new(hint));
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }
}

/// Kinds of provider failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderErrorKind {
    /// The options make no request.
    Configuration,
    /// The key is missing, wrong or may not do this.
    Authentication,
    /// No such model or address.
    NotFound,
    /// The vendor refuses the request's shape.
    InvalidRequest,
    /// The conversation is longer than the model's window.
    ContextOverflow,
    /// Too many requests.
    RateLimited,
    /// The vendor is overloaded.
    Overloaded,
    /// The vendor failed.
    Server,
    /// No connection.
    Connection,
    /// Nothing came for too long.
    Timeout,
    /// The answer makes no sense.
    Protocol,
}

impl fmt::Display for ProviderErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl ProviderErrorKind {
    /// Its name in records and frames.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Authentication => "authentication",
            Self::NotFound => "not_found",
            Self::InvalidRequest => "invalid_request",
            Self::ContextOverflow => "context_overflow",
            Self::RateLimited => "rate_limited",
            Self::Overloaded => "overloaded",
            Self::Server => "server",
            Self::Connection => "connection",
            Self::Timeout => "timeout",
            Self::Protocol => "protocol",
        }
    }
}
