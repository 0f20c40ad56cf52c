//! How many tokens a request has: counted by the provider where it can, else estimated from its length.

use std::sync::Arc;

use open_agent_model::{
    Assembler, Block, Message, MessageId, Messages, ModelRequest, Prefix, ResultBlock, Role, Usage,
};
use open_agent_session::{Durability, ModelSettings, Origin, SessionEntry, Stored, UserMessage};

use super::{Driver, prompt_content};
use crate::EngineError;

/// About how many bytes of a request make a token: three for code, more for English. A budget has to err on the side of
/// more tokens.
const BYTES_PER_TOKEN: u64 = 3;

/// How many input tokens a request has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenCount {
    /// The number.
    pub input_tokens: u64,
    /// The provider counts nothing beforehand, so it was estimated from the request's length.
    pub estimated: bool,
    /// The size of the model's context window, which input and answer share; `None` if it is not known.
    pub context_tokens: Option<u64>,
}

impl Driver {
    /// Counts what a request with this prompt would send. Nothing of it is written down.
    pub async fn count_tokens(
        &mut self,
        prompt: Vec<Block>,
        settings: ModelSettings,
    ) -> Result<TokenCount, EngineError> {
        let content = prompt_content(prompt)?;
        let lost = self.read_blobs().await?;
        if !lost.is_empty() {
            // People are told in the next run.
            let (notices, lost) =
                lost.into_iter().partition(|entry| matches!(entry, SessionEntry::Noticed(_)));
            self.untold.extend::<Vec<_>>(notices);
            self.record(lost, Durability::Written).await?;
        }
        let id = MessageId::from_number(self.host.ports.clock.new_id());
        let message = Arc::new(Message { id, role: Role::User, content, model: None });
        let mut transcript = self.machine.transcript().clone();
        // As the prompt itself would do it.
        let mut seq = self.machine.seq();
        let user = SessionEntry::User(UserMessage { message, origin: Origin::Prompt.into() });
        for entry in self.machine.give_up().into_iter().chain([user]) {
            seq = seq.next();
            transcript.apply(&Stored::new(seq, self.host.ports.clock.now(), entry));
        }
        let prefix = match self.machine.prefix() {
            Some(frozen) => Arc::clone(frozen),
            None => Arc::new(self.rendered_prefix().await),
        };
        let mut options = self.host.request.clone();
        (options.thinking, options.effort) = (settings.thinking, settings.effort);
        let info = self.fit.info(&self.host, &settings.model);
        let (messages, _) = self.fit.media(&settings.model, &info, transcript.messages().clone());
        let context_tokens = info.context_tokens;
        let request = ModelRequest { model: settings.model, info, prefix, messages, options };
        let about = self.estimator.estimate(&request);
        let counted = self.host.provider.count_tokens(request).await.map_err(EngineError::Provider)?;
        Ok(TokenCount {
            input_tokens: counted.unwrap_or(about),
            estimated: counted.is_none(),
            context_tokens,
        })
    }
}

/// What an answer is paid by: the provider's own count, or a guess where it tells none. Neither a budget nor a sum must
/// take silence for nothing.
pub(super) fn billed(assembler: &Assembler, sent: u64) -> Usage {
    match assembler.usage().total() {
        told if told != Usage::default() => told,
        _ => guessed(assembler, sent),
    }
}

/// What it would be by the length of what was sent and came.
pub(super) fn guessed(assembler: &Assembler, sent: u64) -> Usage {
    let output_tokens = assembler.output_bytes() as u64 / BYTES_PER_TOKEN;
    Usage { input_tokens: sent, output_tokens, ..Usage::default() }
}

/// Estimates how many tokens the input of requests has, roughly. Of a request that continues the one before, only what is
/// new is walked.
#[derive(Default)]
pub(super) struct Estimator {
    /// The messages of the last request, and their length.
    messages: Messages,
    message_bytes: usize,
    /// The system prompt and tools of the last request, and their length.
    prefix: Option<(Arc<Prefix>, usize)>,
}

impl Estimator {
    pub(super) fn estimate(&mut self, request: &ModelRequest) -> u64 {
        let known = self.messages.shared_with(&request.messages);
        let gone: usize = self.messages.since(known).map(|message| message_bytes(message)).sum();
        let new: usize = request.messages.since(known).map(|message| message_bytes(message)).sum();
        self.message_bytes = self.message_bytes - gone + new;
        self.messages = request.messages.clone();
        let prefix_bytes = match &self.prefix {
            Some((known, bytes)) if Arc::ptr_eq(known, &request.prefix) => *bytes,
            _ => {
                let bytes = prefix_bytes(&request.prefix);
                self.prefix = Some((Arc::clone(&request.prefix), bytes));
                bytes
            }
        };
        (self.message_bytes + prefix_bytes) as u64 / BYTES_PER_TOKEN
    }
}

fn prefix_bytes(prefix: &Prefix) -> usize {
    let system = prefix.system.iter().map(|section| section.text.len());
    let tools = prefix.tools.iter();
    let tools = tools.map(|t| t.name.len() + t.description.len() + t.input_schema.get().len());
    system.chain(tools).sum()
}

fn message_bytes(message: &Message) -> usize {
    let block = |b: &Block| match b {
        Block::Text(text) => text.len(),
        Block::Thinking(t) => t.text.len(),
        Block::RedactedThinking { data } => data.len(),
        Block::ToolUse(u) => u.name.len() + u.input.get().len(),
        Block::ToolResult(r) => r.content.iter().map(result_bytes).sum(),
        Block::Opaque { raw } => raw.get().len(),
        // Pictures and pages are billed by size, not by their base64: about 1,600 tokens each.
        _ => 6_400,
    };
    message.content.iter().map(block).sum()
}

fn result_bytes(block: &ResultBlock) -> usize {
    match block {
        ResultBlock::Text { text } | ResultBlock::Resource { text, .. } => text.len(),
        _ => 6_400,
    }
}
