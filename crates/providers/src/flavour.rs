//! Answers of another API than the one that was asked for. Owns telling them apart by their own marks, and what to set;
//! it is asked only about what no decoder knows.

use open_agent_model::{Changes, ProviderHint};
use serde_json::value::RawValue;

use crate::body::{Body, first_of_list};
use crate::wire::Objects;
use crate::{Api, Profile};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    Messages,
    ChatCompletions,
    TextCompletions,
    Responses,
    Ollama,
    Gemini,
}

impl Flavour {
    /// Whose answer that is, if its marks leave no doubt.
    pub(crate) fn of(json: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(json);
        // Gemini sends a list where it was not asked for a stream of events.
        let marks = Body::read(first_of_list(&text))?;
        let begins = |field: Option<&RawValue>, with: char| field.is_some_and(|f| f.get().starts_with(with));
        let choices = marks.choices.and_then(|raw| serde_json::from_str::<Objects<Body<'_>>>(raw.get()).ok());
        let choices = choices.unwrap_or_default().0.iter().any(|c| c.delta.is_some() || c.message.is_some());
        Some(match (marks.kind.as_str(), marks.object.as_str()) {
            ("message_start" | "message_delta" | "message_stop", _)
            | ("content_block_start" | "content_block_delta" | "content_block_stop", _) => Self::Messages,
            ("message", _) if begins(marks.content, '[') => Self::Messages,
            (kind, object) if kind.starts_with("response.") || object == "response" => Self::Responses,
            (_, "text_completion") => Self::TextCompletions,
            (_, object) if choices || object.starts_with("chat.completion") => Self::ChatCompletions,
            _ if marks.done.is_some() && (begins(marks.message, '{') || begins(marks.response, '"')) => {
                Self::Ollama
            }
            _ if begins(marks.candidates, '[') => Self::Gemini,
            _ => return None,
        })
    }

    /// Which of our providers reads it.
    pub(crate) fn api(self) -> Option<Api> {
        match self {
            Self::Messages => Some(Api::Anthropic),
            Self::ChatCompletions => Some(Api::OpenAi),
            Self::TextCompletions | Self::Responses | Self::Ollama | Self::Gemini => None,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Messages => Api::Anthropic.as_str(),
            Self::ChatCompletions => Api::OpenAi.as_str(),
            Self::TextCompletions => "OpenAI text completions API",
            Self::Responses => "OpenAI Responses API",
            Self::Ollama => "native Ollama API",
            Self::Gemini => "native Gemini API",
        }
    }

    /// What to change so that the server is understood. A provider that is chosen already is not named.
    pub(crate) fn hint(self, profile: &Profile) -> ProviderHint {
        let (provider, base_url, changes) = match self {
            Self::Messages => ("anthropic", "an address with chat completions", Changes::Either),
            Self::ChatCompletions => ("generic", "an address of the Messages API", Changes::Either),
            Self::TextCompletions | Self::Responses => {
                ("generic", "the server's chat completions, whose address often ends in /v1", Changes::Both)
            }
            Self::Ollama => ("ollama", "the same server with /v1 at the end", Changes::Both),
            Self::Gemini => {
                ("generic", "its OpenAI-compatible address, which ends in /v1beta/openai", Changes::Both)
            }
        };
        let provider = (provider != profile.name).then(|| provider.to_owned());
        ProviderHint::ChangeProvider { provider, base_url: base_url.to_owned(), changes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_hint_repeats_what_is_set() {
        let hint = |flavour: Flavour, name| match flavour.hint(Profile::by_name(name).unwrap()) {
            ProviderHint::ChangeProvider { provider, changes, .. } => (provider, changes),
            other => panic!("{other:?}"),
        };
        for (flavour, own) in [
            (Flavour::TextCompletions, "generic"),
            (Flavour::Responses, "generic"),
            (Flavour::Gemini, "generic"),
            (Flavour::Ollama, "ollama"),
        ] {
            assert_eq!(hint(flavour, own), (None, Changes::Both));
            assert_eq!(hint(flavour, "openai"), (Some(own.to_owned()), Changes::Both));
        }
        let from_messages = hint(Flavour::ChatCompletions, "anthropic");
        assert_eq!(from_messages, (Some("generic".to_owned()), Changes::Either));
    }
}
