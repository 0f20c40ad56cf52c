//! Answers of another API than the one that was asked for. Owns telling them apart by their own marks, and what to set;
//! it is asked only about what no decoder knows.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::wire::{Objects, Text};
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

#[derive(Default, Deserialize)]
#[serde(default)]
struct Marks<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow)]
    object: Text<'a>,
    #[serde(borrow)]
    choices: Objects<ChoiceMarks<'a>>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    done: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    response: Option<&'a RawValue>,
    #[serde(borrow)]
    candidates: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ChoiceMarks<'a> {
    #[serde(borrow)]
    delta: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
}

impl Flavour {
    /// Whose answer that is, if its marks leave no doubt.
    pub(crate) fn of(json: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(json);
        // Gemini sends a list where it was not asked for a stream of events.
        let first = serde_json::from_str::<Vec<&RawValue>>(&text).ok().and_then(|list| list.first().copied());
        let json = first.map_or(text.as_ref(), RawValue::get);
        let marks: Marks<'_> = serde_json::from_str(json).ok()?;
        let begins = |field: Option<&RawValue>, with: char| field.is_some_and(|f| f.get().starts_with(with));
        let choices = marks.choices.0.iter().any(|c| c.delta.is_some() || c.message.is_some());
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

    /// What to set, without what is set already.
    pub(crate) fn advice(self, profile: &Profile) -> &'static str {
        let advice = self.full_advice();
        let set = advice.strip_prefix("--provider ").and_then(|rest| rest.strip_prefix(profile.name));
        set.and_then(|rest| rest.strip_prefix(" and ")).unwrap_or(advice)
    }

    fn full_advice(self) -> &'static str {
        match self {
            Self::Messages => "--provider anthropic, or --base-url to an address with chat completions",
            Self::ChatCompletions => {
                "--provider generic, or the server's own name there, or --base-url to an address of the Messages API"
            }
            Self::TextCompletions | Self::Responses => {
                "--provider generic and --base-url to the server's chat completions; often that address ends in /v1"
            }
            Self::Ollama => "--provider ollama and --base-url to the same server with /v1 at the end",
            Self::Gemini => {
                "--provider generic and --base-url to its OpenAI-compatible address, which ends in /v1beta/openai"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_advice_repeats_what_is_set() {
        let advice = |flavour: Flavour, name| flavour.advice(Profile::by_name(name).unwrap());
        for (flavour, own) in [
            (Flavour::TextCompletions, "generic"),
            (Flavour::Responses, "generic"),
            (Flavour::Gemini, "generic"),
            (Flavour::Ollama, "ollama"),
        ] {
            assert!(advice(flavour, own).starts_with("--base-url"), "{}", advice(flavour, own));
            assert!(advice(flavour, "openai").starts_with(&format!("--provider {own} and --base-url")));
        }
        assert!(advice(Flavour::ChatCompletions, "anthropic").starts_with("--provider generic, or"));
    }
}
