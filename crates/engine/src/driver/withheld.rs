//! What a provider refused pictures or documents for. Owns how such a refusal is told from others, and what is written
//! down so that one bad picture does not make every later request fail.

use open_agent_model::{ProviderError, ProviderErrorKind};
use open_agent_session::{MediaScope, Notice, NoticeKind, SessionEntry, Transcript, Withheld};

/// What vendors say when a picture or document is at fault: too large, broken, too many, or not for this model.
const WORDS: &[&str] = &["image", "picture", "photo", "vision", "pdf", "multimodal", "media", "base64"];
/// What the rest of a request is called when that is at fault.
const OTHERS: &[&str] = &[
    "tools.",
    "tool_",
    "tool schema",
    "max_tokens",
    "temperature",
    "thinking",
    "reasoning",
    "prompt is too long",
];
/// As much of the provider's words as the model and people need.
const MAX_REASON: usize = 300;

/// The entries that leave out what the provider refused, with which the request is worth another attempt. `None` if
/// something else is at fault, or if no picture and no document is left that could be.
pub(super) fn withheld(error: &ProviderError, transcript: &Transcript) -> Option<[SessionEntry; 2]> {
    let scope = transcript.suspected_media()?;
    // A picture that was never accepted is suspected whatever a refusal says, in whatever language.
    let is_new = scope == MediaScope::LastMessage && is_vague(error);
    if !is_new && !is_about_media(error) {
        return None;
    }
    let reason: String = error.message.chars().take(MAX_REASON).collect();
    let text = format!(
        "pictures or documents were taken out of the conversation, for the provider refused them: {reason}"
    );
    Some([
        SessionEntry::Noticed(Notice { kind: NoticeKind::MediaWithheld, text }),
        SessionEntry::Withheld(Withheld { scope, reason }),
    ])
}

fn is_about_media(error: &ProviderError) -> bool {
    if matches!(error.kind, ProviderErrorKind::Authentication | ProviderErrorKind::Configuration) {
        return false;
    }
    // A body that is too large says nothing of what is in it.
    error.status == Some(413) || names_media(&error.message)
}

fn is_vague(error: &ProviderError) -> bool {
    let lower = error.message.to_ascii_lowercase();
    error.kind == ProviderErrorKind::InvalidRequest && !OTHERS.iter().any(|word| lower.contains(word))
}

fn names_media(message: &str) -> bool {
    let lower = message.to_ascii_lowercase();
    WORDS.iter().any(|word| lower.contains(word))
        || lower.match_indices("document").any(|(at, word)| !lower[at + word.len()..].starts_with("ation"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_media_are_told_from_others() {
        for said in [
            "messages.2.content.0.tool_result.content.0.image.source.base64: image exceeds 5 MB maximum",
            "A maximum of 100 PDF pages may be provided.",
            "Could not process image",
            "unknown variant `image_url`, expected `text`",
            "the document is encrypted",
        ] {
            assert!(names_media(said), "{said}");
        }
        for said in ["tools.0.name: too long", "see the documentation", "prompt is too long"] {
            assert!(!names_media(said), "{said}");
        }
        let large = ProviderError {
            status: Some(413),
            ..ProviderError::new(ProviderErrorKind::ContextOverflow, "x")
        };
        assert!(is_about_media(&large));
        assert!(!is_about_media(&ProviderError::new(ProviderErrorKind::Authentication, "no image for you")));
    }
}
