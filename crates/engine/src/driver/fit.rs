//! Fits requests to what is known about their model. Owns what becomes of pictures and documents that the model does not
//! take, and how long its answer may be. The log is not changed: a model that takes pictures sees them again.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use open_agent_model::{Block, Message, ModelInfo, ResultBlock, Source, ToolResult};

use crate::Host;

/// Room for an answer is left although the estimate says that the window is full: estimates are high.
const LEAST_ANSWER: u64 = 4_096;

/// What is known about the model that is asked, and the messages that were changed for it. All of it can be made again.
#[derive(Default)]
pub(super) struct Fit {
    model: Option<(Arc<str>, Arc<ModelInfo>)>,
    /// The messages that are sent in the place of others, by the address of those. Providers cache encodings by `Arc`, so
    /// a message must not become a new one with each request.
    changed: HashMap<usize, (Weak<Message>, Arc<Message>)>,
    /// Pictures and documents were in the last request.
    sent_media: bool,
}

impl Fit {
    /// What is known about the model, as the provider reaches it.
    pub(super) fn info(&mut self, host: &Host, model: &Arc<str>) -> Arc<ModelInfo> {
        if let Some((known, info)) = &self.model
            && known == model
        {
            return Arc::clone(info);
        }
        let info = Arc::new(host.provider.capabilities(&host.catalogue.info(model)));
        self.model = Some((Arc::clone(model), Arc::clone(&info)));
        self.changed.clear();
        info
    }

    /// Puts notes in the place of pictures and documents that the model does not take. Returns what people are to be
    /// told of it.
    pub(super) fn media(
        &mut self,
        model: &str,
        info: &ModelInfo,
        messages: &mut [Arc<Message>],
    ) -> Option<String> {
        let takes = Takes { pictures: info.vision != Some(false), documents: info.pdf != Some(false), model };
        self.sent_media = true;
        if takes.pictures && takes.documents {
            return None;
        }
        self.changed.retain(|_, (original, _)| original.strong_count() > 0);
        self.sent_media = false;
        let (mut pictures, mut documents) = (false, false);
        for message in messages {
            let (mut refused, mut sent) = (false, false);
            for media in message.content.iter().flat_map(Media::of) {
                let takes_it = takes.takes(media);
                refused |= !takes_it;
                sent |= takes_it;
                pictures |= !takes_it && matches!(media, Media::Picture);
                documents |= !takes_it && matches!(media, Media::Document(_));
            }
            self.sent_media |= sent;
            if refused {
                *message = self.without(message, takes);
            }
        }
        let what = match (pictures, documents) {
            (true, true) => "pictures and documents",
            (true, false) => "pictures",
            (false, true) => "documents",
            (false, false) => return None,
        };
        Some(format!(
            "{what} are not sent: {model} takes none. They stay in the session for a model that does"
        ))
    }

    /// Whether a provider can have refused the last request for its pictures or documents.
    pub(super) fn sent_media(&self) -> bool {
        self.sent_media
    }

    fn without(&mut self, message: &Arc<Message>, takes: Takes<'_>) -> Arc<Message> {
        let make = || {
            let content = message.content.iter().map(|block| takes.fitted(block)).collect();
            let fitted = Arc::new(Message { content, ..Message::clone(message) });
            (Arc::downgrade(message), fitted)
        };
        Arc::clone(&self.changed.entry(Arc::as_ptr(message).addr()).or_insert_with(make).1)
    }
}

/// The most output tokens to ask for, so that an input of about `input` tokens and the answer fit into the model's window
/// and within its own limit.
pub(super) fn max_tokens(wish: u64, info: &ModelInfo, input: u64) -> u64 {
    let wish = wish.min(info.max_output_tokens.unwrap_or(u64::MAX));
    match info.context_tokens {
        Some(window) => wish.min(window.saturating_sub(input).max(LEAST_ANSWER)),
        None => wish,
    }
}

#[derive(Clone, Copy)]
enum Media<'a> {
    Picture,
    /// A document that is more than plain text, with its title.
    Document(Option<&'a str>),
}

impl<'a> Media<'a> {
    fn of(block: &'a Block) -> Vec<Self> {
        match block {
            Block::Image(_) => vec![Media::Picture],
            Block::Document { source, title } => Self::document(source, title).into_iter().collect(),
            Block::ToolResult(result) => result.content.iter().filter_map(Self::of_result).collect(),
            _ => Vec::new(),
        }
    }

    fn of_result(block: &'a ResultBlock) -> Option<Self> {
        match block {
            ResultBlock::Image { .. } => Some(Media::Picture),
            ResultBlock::Document { source, title } => Self::document(source, title),
            _ => None,
        }
    }

    /// Plain text goes out as text, to any model.
    fn document(source: &Source, title: &'a Option<String>) -> Option<Self> {
        let is_text = source.media_type().is_some_and(|media_type| media_type.starts_with("text/"));
        (!is_text).then_some(Media::Document(title.as_deref()))
    }
}

#[derive(Clone, Copy)]
struct Takes<'a> {
    pictures: bool,
    documents: bool,
    model: &'a str,
}

impl Takes<'_> {
    fn takes(self, media: Media<'_>) -> bool {
        match media {
            Media::Picture => self.pictures,
            Media::Document(_) => self.documents,
        }
    }

    fn fitted(self, block: &Block) -> Block {
        match block {
            Block::ToolResult(result) => {
                let content = result.content.iter().map(|part| match Media::of_result(part) {
                    Some(media) if !self.takes(media) => ResultBlock::text(self.note(media)),
                    _ => part.clone(),
                });
                Block::ToolResult(ToolResult { content: content.collect(), ..result.clone() })
            }
            other => match Media::of(other).first() {
                Some(media) if !self.takes(*media) => Block::Text(self.note(*media)),
                _ => other.clone(),
            },
        }
    }

    fn note(self, media: Media<'_>) -> String {
        let model = self.model;
        match media {
            Media::Picture => {
                format!("[A picture is here. It was not sent because {model} takes no pictures.]")
            }
            Media::Document(title) => {
                let what =
                    title.map_or_else(|| "A document".to_owned(), |title| format!("The document {title:?}"));
                format!(
                    "[{what} is here. It was not sent because {model} takes no documents. Extract its text another way.]"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_fits_into_what_the_input_leaves_of_the_window() {
        let info = |context_tokens, max_output_tokens| ModelInfo {
            context_tokens,
            max_output_tokens,
            ..ModelInfo::unknown("m")
        };
        assert_eq!(max_tokens(16_384, &info(None, None), 900_000), 16_384);
        assert_eq!(max_tokens(16_384, &info(None, Some(8_192)), 0), 8_192);
        assert_eq!(max_tokens(16_384, &info(Some(32_768), None), 10_000), 16_384);
        assert_eq!(max_tokens(16_384, &info(Some(32_768), None), 22_768), 10_000);
        assert_eq!(max_tokens(16_384, &info(Some(32_768), Some(8_192)), 22_768), 8_192);
        assert_eq!(max_tokens(16_384, &info(Some(32_768), None), 40_000), LEAST_ANSWER);
        assert_eq!(max_tokens(100, &info(Some(32_768), None), 40_000), 100);
    }
}
