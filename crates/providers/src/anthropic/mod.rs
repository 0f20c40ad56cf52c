//! Anthropic's Messages API. Owns the provider; `request` and `stream` map the wire.

mod request;
mod stream;
mod thinking;

use std::fmt;

use open_agent_model::{
    BoxFuture, ModelInfo, ModelRequest, ModelStream, Provider, ProviderError, ProviderErrorKind as Kind,
};
use serde::Deserialize;

use crate::endpoint::{Endpoint, read};
use crate::wire::Num;
use crate::{ENCODED_LIMIT, ProviderConfig};

pub(crate) use request::{NOTHING_VISIBLE, plain_text};
pub(crate) use thinking::left_out;

/// A server that speaks the Messages API.
pub struct AnthropicProvider {
    endpoint: Endpoint,
    encoder: request::Encoder,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Counted {
    input_tokens: Num,
}

impl AnthropicProvider {
    /// Checks the options; no IO.
    pub fn new(config: ProviderConfig) -> Result<Self, ProviderError> {
        let encoder = request::Encoder::new(config.prompt_cache, ENCODED_LIMIT);
        Ok(Self { endpoint: Endpoint::new(config)?, encoder })
    }

    async fn count(&self, request: &ModelRequest) -> Result<u64, ProviderError> {
        let address = self.endpoint.address().below("/count_tokens");
        let site = self.endpoint.site(&address, &request.model);
        let body = self.encoder.count(request).map_err(unwritable)?;
        let response = self.endpoint.post(&address, body, &site).await?;
        let body = read(response, 1 << 20, self.endpoint.config().idle_timeout).await;
        let counted: Counted = serde_json::from_slice(&body).unwrap_or_default();
        counted.input_tokens.0.ok_or_else(|| site.senseless("no token count", &body))
    }
}

impl Provider for AnthropicProvider {
    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ProviderError>> {
        Box::pin(async move {
            let site = self.endpoint.site(self.endpoint.address(), &request.model);
            let body = self.encoder.messages(&request).map_err(unwritable)?;
            let decoder = stream::Decoder::new(site.clone());
            self.endpoint.stream(body, site, decoder).await
        })
    }

    fn count_tokens(&self, request: ModelRequest) -> BoxFuture<'_, Result<Option<u64>, ProviderError>> {
        Box::pin(async move { self.count(&request).await.map(Some) })
    }

    fn capabilities(&self, model: &ModelInfo) -> ModelInfo {
        self.endpoint.config().profile.capabilities(model)
    }

    fn notes(&self, request: &ModelRequest) -> Vec<String> {
        thinking::notes(request)
    }
}

impl fmt::Debug for AnthropicProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AnthropicProvider").field(self.endpoint.config()).finish()
    }
}

pub(crate) fn unwritable(error: serde_json::Error) -> ProviderError {
    ProviderError::new(Kind::Configuration, "the request cannot be written as JSON").with_source(error)
}

#[cfg(test)]
pub(crate) fn decoder(site: std::sync::Arc<crate::failure::Site>) -> stream::Decoder {
    stream::Decoder::new(site)
}
