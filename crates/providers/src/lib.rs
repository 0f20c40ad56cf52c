//! Model providers: Anthropic's Messages API, and OpenAI's chat completions with all that is compatible with them. Owns
//! the vendors' JSON, both ways; no other crate knows it. Retries nothing and decides nothing: errors are typed and go up.

mod address;
mod anthropic;
mod body;
mod cache;
mod config;
mod endpoint;
mod events;
mod failure;
mod flavour;
mod frame;
mod halves;
mod inband;
mod kind;
mod name;
mod open_files;
mod openai;
mod profile;
mod vendor_error;
mod wait;
mod wire;

use std::sync::Arc;

use open_agent_model::{Provider, ProviderError};

pub use anthropic::AnthropicProvider;
pub use config::ProviderConfig;
pub use openai::OpenAiProvider;
pub use profile::{Api, Profile, ReasoningBack, ThinkingStyle};

/// How many bytes of encoded messages a provider keeps.
const ENCODED_LIMIT: usize = 16 << 20;

/// The provider that speaks the profile's API. Checks the options; no IO.
pub fn provider(config: ProviderConfig) -> Result<Arc<dyn Provider>, ProviderError> {
    Ok(match config.profile.api {
        Api::Anthropic => Arc::new(AnthropicProvider::new(config)?),
        Api::OpenAi => Arc::new(OpenAiProvider::new(config)?),
    })
}
