//! The fold from a log to the messages that a model gets. Owns pairing: the results of an answer's calls follow
//! it in the model's order once every call has one; until then the answer is the last message. Does no IO.

use std::collections::HashSet;
use std::sync::Arc;

use open_agent_model::{Block, Message, MessageId, Role, ToolResult, ToolUseId};

use crate::withhold::{suspects, withhold};
use crate::{Done, MediaScope, SessionEntry};

/// The conversation so far.
#[derive(Clone, Debug, Default)]
pub struct Transcript {
    messages: Vec<Arc<Message>>,
    open: Option<OpenTurn>,
    /// Kept if the run ends on it, dropped if the request is made again.
    partial: Option<Arc<Message>>,
    turns: u32,
    used_ids: HashSet<ToolUseId>,
}

#[derive(Clone, Debug)]
struct OpenTurn {
    results_id: u128,
    uses: Vec<ToolUseId>,
    results: Vec<Option<ToolResult>>,
    /// User content that came while calls were open; it follows the results.
    after: Vec<Block>,
}

impl Transcript {
    /// Takes one entry. Entries that say nothing to a model change nothing.
    pub fn apply(&mut self, entry: &SessionEntry) {
        match entry {
            SessionEntry::User(user) => self.push_user(&user.message),
            SessionEntry::TaskEnded(ended) => self.push_user(&ended.message),
            SessionEntry::ModelDone(done) => self.push_answer(&done.message),
            SessionEntry::ModelFailed(failed) => {
                self.partial = failed.partial.clone().filter(|_| failed.retry.is_none());
            }
            SessionEntry::Done(done) => self.push_result(done),
            SessionEntry::RunEnded(_) => self.push_partial(),
            SessionEntry::Withheld(withheld) => withhold(&mut self.messages, withheld),
            _ => {}
        }
    }

    /// The messages. While calls are open, the last one is the answer that made them.
    #[must_use]
    pub fn messages(&self) -> &[Arc<Message>] {
        &self.messages
    }

    /// Whose pictures and documents to withhold first if the provider refuses some; `None` if none are sent.
    #[must_use]
    pub fn suspected_media(&self) -> Option<MediaScope> {
        suspects(&self.messages)
    }

    /// How many answers there are; the next one is turn number `turns()`.
    #[must_use]
    pub fn turns(&self) -> u32 {
        self.turns
    }

    /// Whether an id was used for a call before.
    #[must_use]
    pub fn is_used(&self, id: &ToolUseId) -> bool {
        self.used_ids.contains(id)
    }

    fn push_partial(&mut self) {
        if let Some(partial) = self.partial.take() {
            self.push(Role::Assistant, partial);
        }
    }

    fn push_user(&mut self, message: &Arc<Message>) {
        self.push_partial();
        match &mut self.open {
            Some(open) => open.after.extend(message.content.iter().cloned()),
            None => self.push(Role::User, Arc::clone(message)),
        }
    }

    fn push_answer(&mut self, message: &Arc<Message>) {
        self.partial = None;
        self.turns += 1;
        let uses: Vec<ToolUseId> = message.tool_uses().map(|u| u.id.clone()).collect();
        self.used_ids.extend(uses.iter().cloned());
        // An answer may be empty: the model had nothing to say. It cannot be sent back.
        if !message.content.is_empty() {
            self.push(Role::Assistant, Arc::clone(message));
        }
        if !uses.is_empty() {
            let results = vec![None; uses.len()];
            let results_id = message.id.number().wrapping_add(1);
            self.open = Some(OpenTurn { results_id, uses, results, after: Vec::new() });
        }
    }

    fn push_result(&mut self, done: &Done) {
        let Some(open) = self.open.as_mut().filter(|_| done.call.turn + 1 == self.turns) else { return };
        let index = usize::from(done.call.index);
        let (Some(id), Some(place)) = (open.uses.get(index), open.results.get_mut(index)) else { return };
        // The first result counts: a call is answered once.
        place.get_or_insert_with(|| ToolResult {
            tool_use_id: id.clone(),
            content: done.content.clone(),
            is_error: done.is_error,
        });
        if open.results.iter().all(Option::is_some)
            && let Some(open) = self.open.take()
        {
            let results = open.results.into_iter().flatten().map(Block::ToolResult);
            let message = Message {
                id: MessageId::from_number(open.results_id),
                role: Role::User,
                content: results.chain(open.after).collect(),
                model: None,
            };
            self.push(Role::User, Arc::new(message));
        }
    }

    /// Appends, or joins with a last message of the same role: vendors refuse two in a row.
    fn push(&mut self, role: Role, message: Arc<Message>) {
        match self.messages.last_mut() {
            Some(last) if last.role == role => {
                let mut joined = Message::clone(last);
                if joined.model != message.model {
                    // Thinking goes back to its own model only, and the joined message has one name.
                    joined
                        .content
                        .retain(|b| !matches!(b, Block::Thinking(_) | Block::RedactedThinking { .. }));
                    joined.model.clone_from(&message.model);
                }
                joined.content.extend(message.content.iter().cloned());
                *last = Arc::new(joined);
            }
            _ => self.messages.push(message),
        }
    }
}
