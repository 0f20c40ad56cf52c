//! What a provider refused pictures or documents for. Owns how such a refusal is told from others, and what is written
//! down so that one bad picture does not make every later request fail.

use open_agent_model::{ProviderError, ProviderErrorKind};
use open_agent_session::{MediaScope, Notice, NoticeKind, SessionEntry, Transcript, Withheld};

/// Words by which vendors say that a picture or document is at fault: too large, broken, too many, or not for this model.
const WORDS: &[&str] = &[
    "image",
    "images",
    "picture",
    "pictures",
    "photo",
    "vision",
    "pdf",
    "pdfs",
    "multimodal",
    "media",
    "base64",
    "document",
    "documents",
];
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
pub(super) fn withheld(
    error: &ProviderError,
    model: &str,
    transcript: &Transcript,
) -> Option<[SessionEntry; 2]> {
    let scope = transcript.suspected_media()?;
    if !is_suspected(error, model, scope) {
        return None;
    }
    let reason: String = error.message.chars().take(MAX_REASON).collect();
    let text = format!(
        "pictures or documents were taken out of the conversation, for the provider refused them: {reason}"
    );
    Some([
        SessionEntry::Noticed(Notice { kind: NoticeKind::MediaWithheld.into(), text }),
        SessionEntry::Withheld(Withheld { scope, reason }),
    ])
}

/// What was accepted once is lost only for a plain word about it; what is new is suspected sooner.
fn is_suspected(error: &ProviderError, model: &str, scope: MediaScope) -> bool {
    use ProviderErrorKind::{ContextOverflow, InvalidRequest, NotFound, Server};
    let is_new = scope == MediaScope::LastMessage;
    match error.kind {
        // A body that is too large says nothing of what is in it.
        ContextOverflow => error.status == Some(413),
        // A refusal of the request's shape, in whatever language, is most likely about what was never accepted.
        InvalidRequest if is_new => {
            let lower = error.message.to_ascii_lowercase();
            !OTHERS.iter().any(|word| lower.contains(word)) || names_media(&error.message, model)
        }
        // Some servers have no better status for a model without eyes.
        Server => is_new && names_media(&error.message, model),
        InvalidRequest | NotFound => names_media(&error.message, model),
        _ => false,
    }
}

/// The model's name and addresses may hold such words as well.
fn names_media(message: &str, model: &str) -> bool {
    let is_name = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()).eq_ignore_ascii_case(model);
    let words = message.split_whitespace().filter(|word| !word.contains("://") && !is_name(word));
    words
        .flat_map(|word| word.split(|c: char| !c.is_alphanumeric()))
        .any(|word| WORDS.contains(&word.to_ascii_lowercase().as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(kind: ProviderErrorKind, status: Option<u16>, message: &str) -> ProviderError {
        ProviderError { status, ..ProviderError::new(kind, message) }
    }

    #[test]
    fn refusals_of_media_are_told_from_others() {
        for said in [
            "messages.2.content.0.tool_result.content.0.image.source.base64: image exceeds 5 MB maximum",
            "A maximum of 100 PDF pages may be provided.",
            "Could not process image",
            "unknown variant `image_url`, expected `text`",
            "the document is encrypted",
        ] {
            assert!(names_media(said, "m"), "{said}");
        }
        for said in [
            "tools.0.name: too long",
            "see the documentation",
            "the division is being provisioned immediately",
            "404 for model \"llama3.2-vision\" at /v1/chat/completions: not found",
            "cannot reach server at http://media-box/image: refused",
        ] {
            assert!(!names_media(said, "llama3.2-vision"), "{said}");
        }
    }

    #[test]
    fn only_refusals_cost_a_picture() {
        use MediaScope::{All, LastMessage};
        use ProviderErrorKind::{
            Authentication, Connection, ContextOverflow, InvalidRequest, NotFound, Overloaded, RateLimited,
            Server, Timeout,
        };
        let suspects = |kind, status, message, scope| is_suspected(&error(kind, status, message), "m", scope);
        for kind in [Authentication, Connection, Overloaded, RateLimited, Timeout] {
            assert!(!suspects(kind, None, "no image for you", LastMessage), "{kind:?}");
        }
        assert!(suspects(NotFound, Some(404), "no endpoints found that support image input", All));
        assert!(suspects(ContextOverflow, Some(413), "x", All));
        assert!(!suspects(ContextOverflow, Some(400), "the image and all else is too long", All));
        assert!(suspects(Server, Some(500), "image input is not supported", LastMessage));
        assert!(!suspects(Server, Some(500), "the image service is down", All), "it was accepted once");
        assert!(suspects(InvalidRequest, Some(400), "参数有误", LastMessage));
        assert!(!suspects(InvalidRequest, Some(400), "参数有误", All));
        assert!(!suspects(InvalidRequest, Some(400), "tools.0.name: too long", LastMessage));
    }
}
