//! Contents that are not sent any more, and the notes that stand in their place: pictures and documents that a provider
//! refused, and what was in blobs that are lost. Says what becomes of a message; which messages are meant is the entry's
//! business.

use std::sync::Arc;

use open_agent_model::{Blob, BlobId, Block, Message, Messages, ResultBlock, ResultText, Source, ToolResult};

use crate::{MediaScope, Withheld};

/// The messages that media could be withheld from: the newest one is suspected before all others, for those before it
/// have been accepted once. `None` if there are none.
pub(crate) fn suspects(messages: &Messages) -> Option<MediaScope> {
    if messages.last().is_some_and(|m| has(m, |content| content.is_media())) {
        Some(MediaScope::LastMessage)
    } else {
        messages.iter().any(|m| has(m, |content| content.is_media())).then_some(MediaScope::All)
    }
}

pub(crate) fn withhold(messages: &mut Messages, withheld: &Withheld) {
    let first = match withheld.scope {
        MediaScope::LastMessage => messages.len().saturating_sub(1),
        MediaScope::All => 0,
    };
    let why = format!(
        "It was taken out because the provider refused it: {}. Do not send it again unchanged.",
        withheld.reason
    );
    replace(messages, first, &why, |content| content.is_media());
}

/// Puts notes in the place of what was in these blobs.
pub(crate) fn replace_lost(messages: &mut Messages, ids: &[BlobId]) {
    let why = "It is lost: the file that held it is missing from the session, or damaged.";
    replace(messages, 0, why, |content| content.blob().is_some_and(|blob| ids.contains(blob.id())));
}

/// A part of a message that a note can stand for.
#[derive(Clone, Copy)]
enum Content<'a> {
    Picture(&'a Source),
    Document(&'a Source, &'a Option<String>),
    /// A text of a result.
    Text(&'a ResultText),
}

impl<'a> Content<'a> {
    /// Returns what a block that is no result holds.
    fn of(block: &'a Block) -> Option<Self> {
        match block {
            Block::Image(source) => Some(Self::Picture(source)),
            Block::Document { source, title } => Some(Self::Document(source, title)),
            _ => None,
        }
    }

    fn of_part(part: &'a ResultBlock) -> Self {
        match part {
            ResultBlock::Image { source } => Self::Picture(source),
            ResultBlock::Document { source, title } => Self::Document(source, title),
            ResultBlock::Text { text } | ResultBlock::Resource { text, .. } => Self::Text(text),
        }
    }

    fn is_media(self) -> bool {
        matches!(self, Self::Picture(_) | Self::Document(..))
    }

    fn blob(self) -> Option<&'a Blob> {
        match self {
            Self::Picture(Source::Blob { blob, .. }) | Self::Document(Source::Blob { blob, .. }, _) => {
                Some(blob)
            }
            Self::Text(ResultText::Blob(blob)) => Some(blob),
            _ => None,
        }
    }

    fn note(self, why: &str) -> String {
        let what = match self {
            Self::Picture(_) => "A picture".to_owned(),
            Self::Document(_, Some(title)) => format!("The document {title:?}"),
            Self::Document(_, None) => "A document".to_owned(),
            Self::Text(_) => "A text".to_owned(),
        };
        format!("[{what} was here. {why}]")
    }
}

fn has(message: &Message, is_meant: impl Fn(Content<'_>) -> bool) -> bool {
    message.content.iter().any(|block| match block {
        Block::ToolResult(result) => result.content.iter().map(Content::of_part).any(&is_meant),
        block => Content::of(block).is_some_and(&is_meant),
    })
}

/// Puts notes in the place of what is meant in the messages from `first` on. A message without any stays the same `Arc`:
/// encodings are kept by it.
fn replace(messages: &mut Messages, first: usize, why: &str, is_meant: impl Fn(Content<'_>) -> bool + Copy) {
    let part = |part: &ResultBlock| match Content::of_part(part) {
        content if is_meant(content) => ResultBlock::text(content.note(why)),
        _ => part.clone(),
    };
    let block = |block: &Block| match (block, Content::of(block)) {
        (_, Some(content)) if is_meant(content) => Block::Text(content.note(why)),
        (Block::ToolResult(result), _) => {
            let content = result.content.iter().map(part).collect();
            Block::ToolResult(ToolResult { content, ..result.clone() })
        }
        (other, _) => other.clone(),
    };
    let changed: Vec<(usize, Arc<Message>)> = (first..)
        .zip(messages.since(first))
        .filter(|(_, message)| has(message, is_meant))
        .map(|(at, message)| {
            let content = message.content.iter().map(block).collect();
            (at, Arc::new(Message { content, ..Message::clone(message) }))
        })
        .collect();
    for (at, message) in changed {
        messages.set(at, message);
    }
}
