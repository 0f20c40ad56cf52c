//! What is too large for a record is put out of line: into blobs, to which the record refers. Owns what that is. Stores
//! nothing itself.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use open_agent_model::{Blob, BlobId, BlobUse, Block, Message, ResultBlock, ResultText, Source};

use crate::{SessionEntry, blob_id};

/// Texts of results with more bytes than this are put into blobs.
const MAX_TEXT: usize = 32 * 1024;
/// Pictures and documents with more bytes of base64 than this are put into blobs. A reference has about 150 bytes.
const MAX_BASE64: usize = 1024;

/// The blobs of one session, as far as its writer has stored them.
#[derive(Default)]
pub(crate) struct Outlined {
    stored: HashSet<BlobId>,
    /// Contents that someone still holds, as they were put into references: a picture that is read again is in memory
    /// once.
    contents: HashMap<(BlobId, Form), Weak<str>>,
}

/// In which form a reference has its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Form {
    Base64,
    Text,
}

/// Blobs and their bytes, which have to be stored before the entries that refer to them.
type Bytes = Vec<(BlobId, Vec<u8>)>;

impl Outlined {
    /// Puts references in the place of large contents and returns the blobs that are not stored yet.
    pub(crate) fn outline(&mut self, entries: &mut [SessionEntry]) -> Bytes {
        let mut new = Vec::new();
        for entry in entries {
            match entry {
                SessionEntry::User(user) => self.message(&mut user.message, &mut new),
                SessionEntry::Queued(queued) => self.message(&mut queued.message, &mut new),
                SessionEntry::BackgroundEnded(ended) => self.message(&mut ended.message, &mut new),
                SessionEntry::ToolsChanged(changed) => self.message(&mut changed.message, &mut new),
                SessionEntry::ModelDone(done) => self.message(&mut done.message, &mut new),
                SessionEntry::ModelFailed(failed) => {
                    failed.partial.iter_mut().for_each(|partial| self.message(partial, &mut new));
                }
                SessionEntry::Done(done) => {
                    done.content.iter_mut().for_each(|part| self.part(part, &mut new))
                }
                SessionEntry::SessionStarted(_)
                | SessionEntry::Moved(_)
                | SessionEntry::Opened(_)
                | SessionEntry::Delivered { .. }
                | SessionEntry::Unqueued { .. }
                | SessionEntry::RunStarted(_)
                | SessionEntry::Configured(_)
                | SessionEntry::Prefix(_)
                | SessionEntry::Noticed(_)
                | SessionEntry::Withheld(_)
                | SessionEntry::BlobsLost { .. }
                | SessionEntry::Ruled(_)
                | SessionEntry::Asked { .. }
                | SessionEntry::Answered { .. }
                | SessionEntry::Started { .. }
                | SessionEntry::BackgroundStarted(_)
                | SessionEntry::Interrupted {}
                | SessionEntry::RunEnded(_)
                | SessionEntry::Unknown(_) => {}
            }
        }
        new
    }

    /// Notes that the session has a blob.
    pub(crate) fn stored(&mut self, id: BlobId) {
        self.stored.insert(id);
    }

    fn message(&mut self, message: &mut Arc<Message>, new: &mut Bytes) {
        if !message.content.iter().any(has_large) {
            return;
        }
        for block in &mut Arc::make_mut(message).content {
            match block {
                Block::Image(source) | Block::Document { source, .. } => self.source(source, new),
                Block::ToolResult(result) => {
                    result.content.iter_mut().for_each(|part| self.part(part, new));
                }
                _ => {}
            }
        }
    }

    fn part(&mut self, part: &mut ResultBlock, new: &mut Bytes) {
        match part {
            ResultBlock::Image { source } | ResultBlock::Document { source, .. } => self.source(source, new),
            ResultBlock::Text { text } | ResultBlock::Resource { text, .. } => self.text(text, new),
        }
    }

    fn source(&mut self, source: &mut Source, new: &mut Bytes) {
        match source {
            Source::Inline { media_type, data } if is_large_base64(data) => {
                // What is no base64 stays as it came.
                let Ok(bytes) = STANDARD.decode(data.as_bytes()) else { return };
                let blob = self.blob(bytes, Form::Base64, data, new);
                *source = Source::Blob { media_type: std::mem::take(media_type), blob };
            }
            Source::Blob { blob, .. } => {
                self.foreign(blob, |content| STANDARD.decode(content).ok(), new);
            }
            Source::Inline { .. } | Source::Url { .. } => {}
        }
    }

    fn text(&mut self, text: &mut ResultText, new: &mut Bytes) {
        match text {
            ResultText::Inline(inline) if is_large_text(inline) => {
                let content = Arc::clone(inline);
                let bytes = content.as_bytes().to_vec();
                *text = ResultText::Blob(self.blob(bytes, Form::Text, &content, new));
            }
            ResultText::Blob(blob) => self.foreign(blob, |content| Some(content.as_bytes().to_vec()), new),
            ResultText::Inline(_) => {}
        }
    }

    /// A reference may come from another session, which shares its blobs with none.
    fn foreign(&self, blob: &Blob, bytes: impl FnOnce(&str) -> Option<Vec<u8>>, new: &mut Bytes) {
        if self.stored.contains(blob.id()) {
            return;
        }
        let bytes = blob.content().and_then(bytes).filter(|bytes| blob_id(bytes) == *blob.id());
        new.extend(bytes.map(|bytes| (blob.id().clone(), bytes)));
    }

    fn blob(&mut self, bytes: Vec<u8>, form: Form, content: &Arc<str>, new: &mut Bytes) -> Blob {
        let id = blob_id(&bytes);
        let blob = Blob::new(id.clone(), bytes.len() as u64);
        if !self.stored.contains(&id) {
            new.push((id.clone(), bytes));
        }
        let known = self.contents.get(&(id.clone(), form)).and_then(Weak::upgrade);
        let content = known.unwrap_or_else(|| Arc::clone(content));
        self.contents.insert((id, form), Arc::downgrade(&content));
        blob.fill(content);
        blob
    }
}

impl SessionEntry {
    /// Returns the blobs that the entry refers to, in order.
    pub fn blobs(&self) -> impl Iterator<Item = BlobUse<'_>> {
        let message = match self {
            Self::User(user) => Some(&user.message),
            Self::Queued(queued) => Some(&queued.message),
            Self::BackgroundEnded(ended) => Some(&ended.message),
            Self::ToolsChanged(changed) => Some(&changed.message),
            Self::ModelDone(done) => Some(&done.message),
            Self::ModelFailed(failed) => failed.partial.as_ref(),
            _ => None,
        };
        let parts = if let Self::Done(done) = self { done.content.as_slice() } else { &[] };
        let of_message = message.into_iter().flat_map(|message| message.blobs());
        of_message.chain(parts.iter().filter_map(ResultBlock::blob))
    }
}

fn is_large_base64(data: &str) -> bool {
    data.len() > MAX_BASE64
}

fn is_large_text(text: &str) -> bool {
    text.len() > MAX_TEXT
}

fn has_large(block: &Block) -> bool {
    let is_large = |source: &Source| match source {
        Source::Inline { data, .. } => is_large_base64(data),
        Source::Blob { .. } => true,
        Source::Url { .. } => false,
    };
    match block {
        Block::Image(source) | Block::Document { source, .. } => is_large(source),
        Block::ToolResult(result) => result.content.iter().any(|part| match part {
            ResultBlock::Image { source } | ResultBlock::Document { source, .. } => is_large(source),
            ResultBlock::Text { text } | ResultBlock::Resource { text, .. } => {
                is_large_text(text) || matches!(text, ResultText::Blob(_))
            }
        }),
        _ => false,
    }
}
