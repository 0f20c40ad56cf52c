//! Fits requests to what is known about their model. Owns what becomes of pictures and documents that the model does not
//! take, and how long its answer may be. The log is not changed: a model that takes pictures sees them again.

use std::sync::Arc;

use open_agent_model::{Block, Message, Messages, ModelInfo, ResultBlock, Source, ToolResult};

use crate::Host;

/// Room for an answer is left although the estimate says that the window is full: estimates are high.
const LEAST_ANSWER: u64 = 4_096;

/// What is known about the model that is asked, and the conversation as it is sent to it. All of it can be made again.
#[derive(Default)]
pub(super) struct Fit {
    model: Option<(Arc<str>, Arc<ModelInfo>)>,
    /// The conversation of the last request, if the model does not take all of it.
    original: Messages,
    /// The same as it was sent. Providers keep encodings by `Arc`, so a message that was changed must not become another
    /// one with each request.
    fitted: Messages,
    media: MediaCount,
    /// Pictures and documents were in the last request.
    sent_media: bool,
}

/// How many messages hold what kind of media.
#[derive(Default)]
struct MediaCount {
    refused_pictures: usize,
    refused_documents: usize,
    sent: usize,
}

/// What media a message holds.
#[derive(Clone, Copy, Default)]
struct HeldMedia {
    refused_pictures: bool,
    refused_documents: bool,
    sent: bool,
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
        *self = Self { model: Some((Arc::clone(model), Arc::clone(&info))), ..Self::default() };
        info
    }

    /// Puts notes in the place of pictures and documents that the model does not take. Returns the messages to send and
    /// what people are to be told of it. Walks only messages that the last conversation did not have.
    ///
    /// `info` is what [`Fit::info`] returned for this model.
    pub(super) fn media(
        &mut self,
        model: &str,
        info: &ModelInfo,
        messages: Messages,
    ) -> (Messages, Option<String>) {
        let takes = Takes { pictures: info.vision != Some(false), documents: info.pdf != Some(false), model };
        if takes.pictures && takes.documents {
            self.sent_media = true;
            return (messages, None);
        }
        let known = self.original.shared_with(&messages);
        for gone in self.original.since(known) {
            self.media.remove(takes.held(gone));
        }
        self.fitted.truncate(known);
        for new in messages.since(known) {
            let held = takes.held(new);
            self.media.add(held);
            self.fitted.push(if held.is_refused() { takes.without(new) } else { Arc::clone(new) });
        }
        self.original = messages;
        self.sent_media = self.media.sent > 0;
        let what = match (self.media.refused_pictures > 0, self.media.refused_documents > 0) {
            (true, true) => "pictures and documents",
            (true, false) => "pictures",
            (false, true) => "documents",
            (false, false) => return (self.fitted.clone(), None),
        };
        let note = format!(
            "{what} are not sent: {model} takes none. They stay in the session for a model that does"
        );
        (self.fitted.clone(), Some(note))
    }

    /// Whether a provider can have refused the last request for its pictures or documents.
    pub(super) fn sent_media(&self) -> bool {
        self.sent_media
    }
}

impl MediaCount {
    fn add(&mut self, held: HeldMedia) {
        self.refused_pictures += usize::from(held.refused_pictures);
        self.refused_documents += usize::from(held.refused_documents);
        self.sent += usize::from(held.sent);
    }

    fn remove(&mut self, held: HeldMedia) {
        self.refused_pictures -= usize::from(held.refused_pictures);
        self.refused_documents -= usize::from(held.refused_documents);
        self.sent -= usize::from(held.sent);
    }
}

impl HeldMedia {
    fn is_refused(self) -> bool {
        self.refused_pictures || self.refused_documents
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
    fn held(self, message: &Message) -> HeldMedia {
        let mut held = HeldMedia::default();
        for media in message.content.iter().flat_map(Media::of) {
            let is_taken = self.takes(media);
            held.sent |= is_taken;
            held.refused_pictures |= !is_taken && matches!(media, Media::Picture);
            held.refused_documents |= !is_taken && matches!(media, Media::Document(_));
        }
        held
    }

    fn without(self, message: &Message) -> Arc<Message> {
        let content = message.content.iter().map(|block| self.fitted(block)).collect();
        Arc::new(Message { content, ..Message::clone(message) })
    }

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
