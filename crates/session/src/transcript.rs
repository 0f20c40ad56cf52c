//! The fold from a log to the conversation that a model gets. Owns two forms of it: the *items* (messages and results as
//! they were recorded, each with the place that it came from) and the *messages* (items joined so that every vendor
//! accepts them). Does no IO.
//!
//! The messages grow with the items: each new item is joined to the end, and what stands before it is never walked again.
//! [`Messages`] shares that beginning with the requests that are made of it.
//! The results of an answer's calls follow it in the model's order once every call has one; until then the answer is the
//! last message.

use std::collections::HashSet;
use std::sync::Arc;

use open_agent_model::{
    Block, CallId, Message, MessageId, Messages, Open, ResultBlock, Role, RunId, Seq, ToolResult, ToolUse,
    ToolUseId,
};

use crate::withhold::{replace_lost, suspects, withhold};
use crate::{Done, MediaScope, ModelDone, Origin, SessionEntry, Stored};

/// What stands in for a beginning that is lost: no vendor accepts a conversation that begins with an answer.
const LOST_BEGINNING: &str = "[The beginning of this conversation was lost: its record is damaged.]";
/// What stands in for a result whose record is lost.
const LOST_RESULT: &str = "The record of this result is damaged, and the result is lost. What the call did is unknown: check \
                           it before you repeat the call.";

/// The conversation so far.
#[derive(Clone, Debug, Default)]
pub struct Transcript {
    items: Vec<Item>,
    /// The items joined into messages.
    messages: Messages,
    open: Option<OpenTurn>,
    /// Kept if the run ends on it, dropped if the request is made again.
    partial: Option<Item>,
    run: Option<RunId>,
    /// The turn of the next answer.
    turns: u32,
    used_ids: HashSet<ToolUseId>,
    seq: Seq,
}

/// A part of the conversation and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// The record that holds it.
    pub seq: Seq,
    /// The run in which it was recorded.
    pub run: Option<RunId>,
    /// The model turn that it belongs to: that of the answer, of the call, or of the answer that follows a message.
    pub turn: u32,
    /// Who it comes from.
    pub origin: ItemOrigin,
    /// What it says.
    pub content: ItemContent,
}

/// Who an item comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemOrigin {
    /// The model.
    Model,
    /// A tool.
    Tool,
    /// A message from outside the model.
    User(Open<Origin>),
    /// The loop itself, about something that happened meanwhile.
    Reminder,
}

/// What an item says.
#[derive(Clone, Debug, PartialEq)]
pub enum ItemContent {
    /// A message.
    Message(Arc<Message>),
    /// The result of a call.
    Result(CallId, Arc<ToolResult>),
}

/// An answer whose calls do not all have a result yet.
#[derive(Clone, Debug)]
struct OpenTurn {
    turn: u32,
    results_id: MessageId,
    uses: Vec<ToolUseId>,
    results: Vec<Option<Arc<ToolResult>>>,
    /// User content that came while calls were open; it follows the results.
    after: Vec<Block>,
}

impl Transcript {
    /// Takes the next record. Entries that say nothing to a model change nothing.
    pub fn apply(&mut self, record: &Stored) {
        self.seq = record.seq;
        if let Some(call) = call_of(&record.entry) {
            // Its answer may be in a record that is lost. No later call may have the same identity.
            self.turns = self.turns.max(call.turn.saturating_add(1));
        }
        match &record.entry {
            SessionEntry::RunStarted(started) => self.run = Some(started.run),
            SessionEntry::User(user) => {
                self.push_user(&user.message, ItemOrigin::User(user.origin.clone()));
            }
            SessionEntry::BackgroundEnded(ended) => self.push_user(&ended.message, ItemOrigin::Reminder),
            SessionEntry::ToolsChanged(changed) => self.push_user(&changed.message, ItemOrigin::Reminder),
            SessionEntry::ModelDone(done) => self.push_answer(done),
            SessionEntry::ModelFailed(failed) => {
                let kept = failed.partial.as_ref().filter(|_| failed.retry.is_none());
                self.partial = kept.map(|message| self.item(ItemOrigin::Model, message));
            }
            SessionEntry::Done(done) => self.push_result(done),
            SessionEntry::RunEnded(_) => self.push_partial(),
            SessionEntry::Withheld(withheld) => withhold(&mut self.messages, withheld),
            SessionEntry::BlobsLost { ids } => replace_lost(&mut self.messages, ids),
            _ => {}
        }
    }

    /// Adds a message that waited in the queue; the record that is applied delivers it.
    pub fn deliver(&mut self, seq: Seq, message: &Arc<Message>, origin: &Open<Origin>) {
        self.seq = seq;
        self.push_user(message, ItemOrigin::User(origin.clone()));
    }

    /// Returns the conversation as messages that every vendor accepts. While calls are open, the last one is the answer
    /// that made them.
    #[must_use]
    pub fn messages(&self) -> &Messages {
        &self.messages
    }

    /// Returns all items, in the order of their records.
    #[must_use]
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// Returns the items from record `from` on, joined into messages as if the conversation began there.
    #[must_use]
    pub fn messages_since(&self, from: Seq) -> Vec<Arc<Message>> {
        let first = self.items.partition_point(|item| item.seq < from);
        let mut part = Self::default();
        for item in &self.items[first..] {
            part.seq = item.seq;
            match &item.content {
                ItemContent::Message(message) if message.role == Role::User => {
                    part.push_user(message, item.origin.clone());
                }
                ItemContent::Message(message) => part.join_answer(item.turn, message),
                ItemContent::Result(call, result) => part.join_result(*call, result),
            }
        }
        part.messages.to_vec()
    }

    /// Returns whose pictures and documents to withhold first if the provider refuses some; `None` if none are sent.
    #[must_use]
    pub fn suspected_media(&self) -> Option<MediaScope> {
        suspects(&self.messages)
    }

    /// Returns the number of the next answer's turn. It never falls.
    #[must_use]
    pub fn next_turn(&self) -> u32 {
        self.turns
    }

    /// Returns true if an id was used for a call before.
    #[must_use]
    pub fn is_used(&self, id: &ToolUseId) -> bool {
        self.used_ids.contains(id)
    }

    fn item(&self, origin: ItemOrigin, message: &Arc<Message>) -> Item {
        let content = ItemContent::Message(Arc::clone(message));
        Item { seq: self.seq, run: self.run, turn: self.turns, origin, content }
    }

    fn push_partial(&mut self) {
        if let Some(partial) = self.partial.take()
            && let ItemContent::Message(message) = &partial.content
        {
            let message = Arc::clone(message);
            self.items.push(partial);
            self.join(message);
        }
    }

    fn push_user(&mut self, message: &Arc<Message>, origin: ItemOrigin) {
        self.push_partial();
        self.items.push(self.item(origin, message));
        match &mut self.open {
            Some(open) => open.after.extend(message.content.iter().cloned()),
            None => self.join(Arc::clone(message)),
        }
    }

    fn push_answer(&mut self, done: &ModelDone) {
        self.partial = None;
        self.close_open_turn();
        self.turns = self.turns.max(done.turn);
        let mut item = self.item(ItemOrigin::Model, &done.message);
        item.turn = done.turn;
        self.items.push(item);
        self.turns = self.turns.max(done.turn.saturating_add(1));
        self.join_answer(done.turn, &done.message);
    }

    fn join_answer(&mut self, turn: u32, message: &Arc<Message>) {
        self.close_open_turn();
        let uses: Vec<ToolUseId> = message.tool_uses().map(|u: &ToolUse| u.id.clone()).collect();
        self.used_ids.extend(uses.iter().cloned());
        // An answer may be empty: the model had nothing to say. It cannot be sent back.
        if !message.content.is_empty() {
            self.join(Arc::clone(message));
        }
        if !uses.is_empty() {
            let results = vec![None; uses.len()];
            let results_id = MessageId::from_number(message.id.number().wrapping_add(1));
            self.open = Some(OpenTurn { turn, results_id, uses, results, after: Vec::new() });
        }
    }

    fn push_result(&mut self, done: &Done) {
        let Some(id) = self.open_use(done.call) else { return };
        let result = Arc::new(ToolResult {
            tool_use_id: id,
            content: done.content.clone(),
            is_error: done.is_error(),
        });
        self.items.push(Item {
            seq: self.seq,
            run: self.run,
            turn: done.call.turn,
            origin: ItemOrigin::Tool,
            content: ItemContent::Result(done.call, Arc::clone(&result)),
        });
        self.join_result(done.call, &result);
    }

    /// Returns the id of a call that has no result yet. The first result counts: a call is answered once.
    fn open_use(&self, call: CallId) -> Option<ToolUseId> {
        let open = self.open.as_ref().filter(|open| open.turn == call.turn)?;
        let index = usize::from(call.index);
        let id = open.uses.get(index)?;
        open.results.get(index)?.is_none().then(|| id.clone())
    }

    fn join_result(&mut self, call: CallId, result: &Arc<ToolResult>) {
        if self.open_use(call).is_none() {
            return;
        }
        let Some(open) = &mut self.open else { return };
        if let Some(place) = open.results.get_mut(usize::from(call.index)) {
            *place = Some(Arc::clone(result));
        }
        if open.results.iter().all(Option::is_some) {
            self.close_open_turn();
        }
    }

    /// Lets the results follow their answer. A result that is missing was in a record that is lost: without one, no later
    /// request would be valid.
    fn close_open_turn(&mut self) {
        let Some(open) = self.open.take() else { return };
        let lost = |id: ToolUseId| ToolResult {
            tool_use_id: id,
            content: vec![ResultBlock::text(LOST_RESULT)],
            is_error: true,
        };
        let results = open.uses.into_iter().zip(open.results);
        let results = results.map(|(id, result)| {
            Block::ToolResult(result.map_or_else(|| lost(id), |result| ToolResult::clone(&result)))
        });
        let content = results.chain(open.after).collect();
        self.join(Arc::new(Message { id: open.results_id, role: Role::User, content, model: None }));
    }

    /// Appends a message, or joins it with a last message of the same role: vendors refuse two in a row.
    fn join(&mut self, message: Arc<Message>) {
        if self.messages.is_empty() && message.role == Role::Assistant {
            let id = MessageId::from_number(message.id.number().wrapping_sub(1));
            self.messages.push(Arc::new(Message::user(id, LOST_BEGINNING)));
        }
        match self.messages.last() {
            Some(last) if last.role == message.role => {
                let mut joined = Message::clone(last);
                if joined.model != message.model {
                    // Thinking goes back to its own model only, and the joined message has one name.
                    joined
                        .content
                        .retain(|b| !matches!(b, Block::Thinking(_) | Block::RedactedThinking { .. }));
                    joined.model.clone_from(&message.model);
                }
                joined.content.extend(message.content.iter().cloned());
                // A new `Arc`: what is known about a message, such as its encoding, is kept by it.
                self.messages.set(self.messages.len() - 1, Arc::new(joined));
            }
            _ => self.messages.push(message),
        }
    }
}

/// Returns the call that a record is about.
fn call_of(entry: &SessionEntry) -> Option<CallId> {
    match entry {
        SessionEntry::Ruled(ruled) => Some(ruled.call),
        SessionEntry::Started { call } => Some(*call),
        SessionEntry::Done(done) => Some(done.call),
        SessionEntry::Asked { ask, .. } | SessionEntry::Answered { ask, .. } => ask.call,
        SessionEntry::BackgroundStarted(work) => Some(work.call),
        _ => None,
    }
}
