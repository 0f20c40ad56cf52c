//! Pictures and documents that a provider refused, and the notes that stand in their place. Says what becomes of a
//! message; which messages are meant is the entry's business.

use std::sync::Arc;

use open_agent_model::{Block, Message, ResultBlock, ToolResult};

use crate::{MediaScope, Withheld};

/// The messages that media could be withheld from: the newest one is suspected before all others, for those before it
/// have been accepted once. `None` if there are none.
pub(crate) fn suspects(messages: &[Arc<Message>]) -> Option<MediaScope> {
    if messages.last().is_some_and(|m| has_media(m)) {
        Some(MediaScope::LastMessage)
    } else {
        messages.iter().any(|m| has_media(m)).then_some(MediaScope::All)
    }
}

pub(crate) fn withhold(messages: &mut [Arc<Message>], withheld: &Withheld) {
    let first = match withheld.scope {
        MediaScope::LastMessage => messages.len().saturating_sub(1),
        MediaScope::All => 0,
    };
    for message in messages.iter_mut().skip(first).filter(|m| has_media(m)) {
        let content = message.content.iter().map(|b| without_media(b, &withheld.reason)).collect();
        // A new `Arc`: encodings are kept by it.
        *message = Arc::new(Message { content, ..Message::clone(message) });
    }
}

fn has_media(message: &Message) -> bool {
    message.content.iter().any(|block| match block {
        Block::Image(_) | Block::Document { .. } => true,
        Block::ToolResult(result) => result.content.iter().any(is_media),
        _ => false,
    })
}

fn is_media(block: &ResultBlock) -> bool {
    matches!(block, ResultBlock::Image { .. } | ResultBlock::Document { .. })
}

fn without_media(block: &Block, reason: &str) -> Block {
    match block {
        Block::Image(_) => Block::Text(note("A picture", reason)),
        Block::Document { title, .. } => Block::Text(note(&document(title.as_deref()), reason)),
        Block::ToolResult(result) => {
            let content = result.content.iter().map(|b| match b {
                ResultBlock::Image { .. } => ResultBlock::text(note("A picture", reason)),
                ResultBlock::Document { title, .. } => {
                    ResultBlock::text(note(&document(title.as_deref()), reason))
                }
                other => other.clone(),
            });
            Block::ToolResult(ToolResult { content: content.collect(), ..result.clone() })
        }
        other => other.clone(),
    }
}

fn document(title: Option<&str>) -> String {
    title.map_or_else(|| "A document".to_owned(), |title| format!("The document {title:?}"))
}

fn note(what: &str, reason: &str) -> String {
    format!(
        "[{what} was here. It was taken out because the provider refused it: {reason}. Do not send it again unchanged.]"
    )
}
