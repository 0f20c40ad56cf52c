//! OpenAI's chat completions and all that is compatible with them. Owns the provider; `request` and `stream` map the
//! wire, the profile says where servers differ.

mod details;
mod request;
mod stream;
mod thinking;

use std::fmt;

use open_agent_model::{
    BoxFuture, ModelInfo, ModelRequest, ModelStream, Provider, ProviderError, ThinkingKinds,
};

use crate::anthropic::{left_out, unwritable};
use crate::endpoint::Endpoint;
use crate::{ENCODED_LIMIT, ProviderConfig};

/// A server that speaks chat completions.
pub struct OpenAiProvider {
    endpoint: Endpoint,
    encoder: request::Encoder,
}

impl OpenAiProvider {
    /// Checks the options; no IO.
    pub fn new(config: ProviderConfig) -> Result<Self, ProviderError> {
        let encoder = request::Encoder::new(config.profile, config.context_window, ENCODED_LIMIT);
        Ok(Self { endpoint: Endpoint::new(config)?, encoder })
    }
}

impl Provider for OpenAiProvider {
    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ProviderError>> {
        Box::pin(async move {
            let site = self.endpoint.site(self.endpoint.address(), &request.model);
            let body = self.encoder.body(&request).map_err(unwritable)?;
            let decoder = stream::Decoder::new(site.clone());
            self.endpoint.stream(body, site, decoder).await
        })
    }

    fn capabilities(&self, model: &ModelInfo) -> ModelInfo {
        self.endpoint.config().profile.capabilities(model)
    }

    fn notes(&self, request: &ModelRequest) -> Vec<String> {
        let thinks = request.info.thinking.is_none_or(ThinkingKinds::thinks);
        left_out(request).filter(|_| !thinks).into_iter().collect()
    }
}

impl fmt::Debug for OpenAiProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OpenAiProvider").field(self.endpoint.config()).finish()
    }
}

#[cfg(test)]
pub(crate) fn decoder(site: std::sync::Arc<crate::failure::Site>) -> stream::Decoder {
    stream::Decoder::new(site)
}
