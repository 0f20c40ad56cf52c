//! Providers as data. Owns the table of what each server wants and accepts; no code elsewhere asks for a provider's
//! name.

use open_agent_model::{Catalogue, ModelInfo};
use serde::{Deserialize, Serialize};

/// Which wire format a provider speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Api {
    /// Anthropic's Messages API.
    Anthropic,
    /// OpenAI's chat completions.
    OpenAi,
}

impl Api {
    /// Its name, for people.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Anthropic => "Anthropic Messages API",
            Self::OpenAi => "OpenAI chat completions API",
        }
    }
}

/// When what a model thought goes back to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReasoningBack {
    /// Never: the server refuses the field, or ignores it.
    Never,
    /// In each message that has some.
    Present,
    /// In each message with tool calls, even if there was none: the server refuses the message without the field.
    WithCalls,
}

/// How thinking and effort are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ThinkingStyle {
    /// `thinking` and `output_config.effort`, by what the model knows.
    Messages,
    /// `reasoning_effort`; a budget becomes the nearest effort. `off` is the value that turns thinking off.
    Effort {
        /// Sent where thinking is disabled.
        off: Option<&'static str>,
    },
    /// `thinking: { type: "enabled" | "disabled" }`, and `reasoning_effort` beside it.
    Switch,
    /// `reasoning: { effort | max_tokens | enabled }`.
    Reasoning,
    /// `chat_template_kwargs: { enable_thinking, reasoning_effort }`.
    Template,
}

/// What one provider wants and accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Profile {
    /// Its name, as users write it.
    pub name: &'static str,
    /// Its wire format.
    pub api: Api,
    /// Where it is; empty = must be given.
    pub base_url: &'static str,
    /// Environment variables that hold its key, the first that is set wins.
    pub key_variables: &'static [&'static str],
    /// Environment variables that hold its address.
    pub url_variables: &'static [&'static str],
    /// At its own address it answers nobody without a key.
    pub needs_key: bool,
    /// The vendors whose models it serves by default, as the catalogue names them.
    pub vendors: &'static [&'static str],
    /// The field that bounds the answer.
    pub max_tokens: &'static str,
    /// It takes `stream_options.include_usage`.
    pub stream_usage: bool,
    /// When thinking goes back.
    pub reasoning_back: ReasoningBack,
    /// In which field it goes back.
    pub reasoning_field: &'static str,
    /// How thinking is asked for.
    pub thinking: ThinkingStyle,
    /// Whether the API takes documents, from models that do.
    pub documents: bool,
    /// Whether pictures and documents may stand inside tool results.
    pub media_in_results: bool,
    /// It is told the window that it is to use, as `num_ctx` and as `options.num_ctx`. (What Ollama's own
    /// `/v1/chat/completions` makes of that depends on its version; `OLLAMA_CONTEXT_LENGTH` always works.)
    pub context_option: bool,
    /// It can be told that it must or must not call a tool. Others are told nothing, or get no tools.
    pub tool_choice: bool,
    /// It sends arguments of calls piece by piece only if `tool_stream` is set.
    pub tool_stream: bool,
}

/// What most OpenAI-compatible servers agree on.
const COMPATIBLE: Profile = Profile {
    name: "generic",
    api: Api::OpenAi,
    base_url: "",
    key_variables: &["OPENAI_API_KEY"],
    url_variables: &["OPENAI_BASE_URL"],
    needs_key: false,
    vendors: &[],
    max_tokens: "max_tokens",
    stream_usage: true,
    reasoning_back: ReasoningBack::Present,
    reasoning_field: "reasoning_content",
    thinking: ThinkingStyle::Effort { off: None },
    documents: false,
    media_in_results: false,
    context_option: false,
    tool_choice: true,
    tool_stream: false,
};

static TABLE: &[Profile] = &[
    Profile {
        name: "anthropic",
        api: Api::Anthropic,
        base_url: "https://api.anthropic.com",
        key_variables: &["ANTHROPIC_API_KEY"],
        url_variables: &["ANTHROPIC_BASE_URL"],
        needs_key: true,
        vendors: &["anthropic"],
        thinking: ThinkingStyle::Messages,
        documents: true,
        media_in_results: true,
        ..COMPATIBLE
    },
    Profile {
        name: "openai",
        base_url: "https://api.openai.com/v1",
        needs_key: true,
        vendors: &["openai"],
        max_tokens: "max_completion_tokens",
        reasoning_back: ReasoningBack::Never,
        documents: true,
        ..COMPATIBLE
    },
    Profile {
        name: "deepseek",
        base_url: "https://api.deepseek.com",
        key_variables: &["DEEPSEEK_API_KEY"],
        url_variables: &["DEEPSEEK_BASE_URL"],
        needs_key: true,
        vendors: &["deepseek"],
        reasoning_back: ReasoningBack::WithCalls,
        thinking: ThinkingStyle::Switch,
        ..COMPATIBLE
    },
    Profile {
        name: "glm",
        base_url: "https://api.z.ai/api/paas/v4",
        key_variables: &["ZAI_API_KEY", "GLM_API_KEY", "ZHIPUAI_API_KEY"],
        url_variables: &["ZAI_BASE_URL", "GLM_BASE_URL"],
        needs_key: true,
        vendors: &["zai"],
        // Counts come without being asked for.
        stream_usage: false,
        thinking: ThinkingStyle::Switch,
        tool_choice: false,
        tool_stream: true,
        ..COMPATIBLE
    },
    Profile {
        name: "ollama",
        base_url: "http://localhost:11434/v1",
        key_variables: &["OLLAMA_API_KEY"],
        url_variables: &["OLLAMA_BASE_URL"],
        reasoning_field: "reasoning",
        thinking: ThinkingStyle::Effort { off: Some("none") },
        context_option: true,
        ..COMPATIBLE
    },
    Profile {
        name: "openrouter",
        base_url: "https://openrouter.ai/api/v1",
        key_variables: &["OPENROUTER_API_KEY"],
        url_variables: &["OPENROUTER_BASE_URL"],
        needs_key: true,
        reasoning_field: "reasoning",
        thinking: ThinkingStyle::Reasoning,
        documents: true,
        ..COMPATIBLE
    },
    Profile {
        name: "vllm",
        base_url: "http://localhost:8000/v1",
        key_variables: &["VLLM_API_KEY"],
        url_variables: &["VLLM_BASE_URL"],
        thinking: ThinkingStyle::Template,
        ..COMPATIBLE
    },
    Profile {
        name: "llama.cpp",
        base_url: "http://localhost:8080/v1",
        key_variables: &["LLAMA_API_KEY"],
        url_variables: &["LLAMA_BASE_URL"],
        thinking: ThinkingStyle::Template,
        ..COMPATIBLE
    },
    COMPATIBLE,
];

impl Profile {
    /// The profile of that name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<&'static Self> {
        let name = if name == "llamacpp" || name == "llama-cpp" { "llama.cpp" } else { name };
        TABLE.iter().find(|p| p.name == name)
    }

    /// The provider that serves a model: the one that serves its vendor, as far as `catalogue` knows that, else the one
    /// whose way to name models this is. `None` if there is none.
    #[must_use]
    pub fn for_model(model: &str, catalogue: &Catalogue) -> Option<&'static Self> {
        let info = catalogue.find(model).unwrap_or_else(|| ModelInfo::unknown(model));
        // `vendor/model` is how a router names it, unless the whole name is known.
        let is_routed = model.contains('/') && info.name != model;
        if is_routed {
            return Self::by_name("openrouter");
        }
        let of_vendor = TABLE.iter().find(|p| p.vendors.contains(&info.vendor.as_str()));
        // `model:size` is how Ollama names them.
        of_vendor.or_else(|| {
            let name = if model.contains('/') { "openrouter" } else { "ollama" };
            if model.contains(['/', ':']) { Self::by_name(name) } else { None }
        })
    }

    /// What of a model's abilities holds at a server with this profile.
    pub(crate) fn capabilities(&self, model: &ModelInfo) -> ModelInfo {
        let mut holds = model.clone();
        if !self.documents {
            holds.pdf = Some(false);
        }
        if !self.media_in_results {
            holds.media_in_results = Some(false);
        }
        holds
    }

    /// All profiles.
    #[must_use]
    pub fn all() -> &'static [Self] {
        TABLE
    }

    /// All names, for help and error texts.
    pub fn names() -> impl Iterator<Item = &'static str> {
        TABLE.iter().map(|p| p.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_unique() {
        for name in Profile::names() {
            assert_eq!(Profile::by_name(name).map(|p| p.name), Some(name));
            assert_eq!(Profile::names().filter(|n| *n == name).count(), 1);
        }
        assert_eq!(Profile::by_name("nobody"), None);
    }

    #[test]
    fn a_models_name_chooses_the_provider() {
        let mut catalogue = Catalogue::default();
        let mine = ModelInfo { vendor: "deepseek".into(), ..ModelInfo::unknown("org/mine") };
        catalogue.register_model(mine);
        let of = |model| Profile::for_model(model, &catalogue).map(|p| p.name);
        assert_eq!(of("claude-sonnet-4-6"), Some("anthropic"));
        assert_eq!(of("opus"), Some("anthropic"));
        assert_eq!(of("claude-next-99"), Some("anthropic"));
        assert_eq!(of("org/mine"), Some("deepseek"), "a registered model's vendor counts");
        assert_eq!(of("gpt-4o"), Some("openai"));
        assert_eq!(of("gpt-99"), Some("openai"));
        assert_eq!(of("o3-mini"), Some("openai"));
        assert_eq!(of("deepseek-chat"), Some("deepseek"));
        assert_eq!(of("glm-4.6"), Some("glm"));
        assert_eq!(of("qwen/qwen3-max"), Some("openrouter"));
        assert_eq!(of("anthropic/claude-opus-5"), Some("openrouter"));
        assert_eq!(of("deepseek-ai/DeepSeek-V3"), Some("openrouter"));
        assert_eq!(of("llama3.2:3b"), Some("ollama"));
        assert_eq!(of("smol"), None);
        assert_eq!(of("gemini-2.5-pro"), None, "no profile serves that vendor");
    }
}
