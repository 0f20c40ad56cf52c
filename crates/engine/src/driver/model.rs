//! One model request: built from the machine, streamed, assembled, written down.

use std::collections::HashSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use open_agent_model::{
    Assembled, Assembler, Block, Cost, CostSource, Message, MessageId, ModelEvent, ModelRequest, ModelStream,
    Open, Price, Provider, ProviderError, ProviderErrorKind, Role, ToolChoice, ToolUseId, Usage,
};
use open_agent_session::{Durability, ModelDone, ModelFailed, SessionEntry};
use tokio::time::Instant;

use super::fit;
use super::tell::Teller;
use super::tokens::{billed, guessed};
use super::{Driver, next_letter};
use crate::machine::{AnswerFacts, Failed, FailureFacts};
use crate::{AgentEvent, AnswerStarted, BlockDelta, BlockKind, BlockStarted, DeltaKind, EngineError};

/// The most calls of one answer; further ones are left out.
const MAX_CALLS: usize = 1_000;

impl Driver {
    pub(super) async fn call_model(&mut self) -> Result<(), EngineError> {
        let host = Arc::clone(&self.host);
        let (mut request, media_note) = self.request();
        let model = Arc::clone(&request.model);
        if let Err(invalid) = self.checker.check(&request) {
            // Never sent: an invalid history would make this and every later request fail.
            let text = format!("this request would not be valid: {invalid}. Please report this as a bug");
            let error = ProviderError::new(ProviderErrorKind::InvalidRequest, text);
            return self.failed(&model, Some(error), Vec::new(), Spent::nothing()).await;
        }
        let price = request.info.price;
        // The vendor's count of the last request is a bound from below: conversations grow.
        let sent = self.estimator.estimate(&request);
        let estimate = sent.max(self.machine.context_tokens());
        request.options.max_tokens = fit::max_tokens(request.options.max_tokens, &request.info, estimate);
        let notes = host.provider.notes(&request).into_iter().chain(media_note).collect();
        let fitted = self.machine.about_request(notes);
        if !fitted.is_empty() {
            // Told before the request is made; then the same step comes again.
            return self.record(fitted, Durability::Written).await;
        }
        let reservation = match self.reserve(&request, estimate).await? {
            // The run was interrupted or its settings were changed, which comes first.
            None => return Ok(()),
            Some(Ok(reservation)) => reservation,
            Some(Err(exceeded)) => {
                let entries = self.machine.over_budget(exceeded.to_string());
                return self.record(entries, Durability::Written).await;
            }
        };
        if reservation.max_tokens() < request.options.max_tokens {
            request.options.max_tokens = reservation.max_tokens();
            let fitted = self.machine.about_request(host.provider.notes(&request));
            if !fitted.is_empty() {
                // Nobody must wait for this reservation while a slow reader of events holds up the record.
                drop(reservation);
                return self.record(fitted, Durability::Written).await;
            }
        }
        tracing::debug!(%model, messages = request.messages.len(), about_tokens = estimate, "a request");

        let mut assembler = Assembler::new();
        let began = Instant::now();
        let teller = self.teller();
        let mut first = None;
        let answered = {
            let receiving = receive(&*host.provider, request, (&mut assembler, &mut first), teller);
            let mut receiving = std::pin::pin!(receiving);
            loop {
                tokio::select! {
                    biased;
                    () = self.cancel.cancelled() => break None,
                    letter = next_letter(self.inbox.as_mut()) => self.obey(letter).await?,
                    answered = &mut receiving => break Some(answered),
                }
            }
        };
        let api_ms = millis(began.elapsed());
        let told = assembler.usage().total();
        let used = match &answered {
            Some(Ok(())) => billed(&assembler, sent),
            // It broke off, so what was told is less than what came.
            _ if assembler.output_bytes() > 0 => {
                let (billed, guess) = (billed(&assembler, sent), guessed(&assembler, sent));
                Usage { output_tokens: billed.output_tokens.max(guess.output_tokens), ..billed }
            }
            _ => told,
        };
        let source = if used == told { CostSource::Computed } else { CostSource::Estimated };
        let cost = cost_of(price, &used);
        host.budget.settle(reservation, cost);
        let usage = told;
        let ttft_ms = first.map(|first: Instant| millis(first.duration_since(began)));
        let spent = Spent { usage, cost, cost_source: cost.map(|_| source.into()), api_ms, ttft_ms };
        match answered {
            None => self.failed(&model, None, assembler.partial(), spent).await,
            Some(Err(error)) => self.failed(&model, Some(error), assembler.partial(), spent).await,
            Some(Ok(())) => {
                let partial = assembler.partial();
                match assembler.finish() {
                    Ok(assembled) => self.done(&model, assembled, sent, spent).await,
                    Err(error) => self.failed(&model, Some(error), partial, spent).await,
                }
            }
        }
    }

    /// The request, and what people are to be told of what it leaves out.
    fn request(&mut self) -> (ModelRequest, Option<String>) {
        self.tools = Some(self.snapshot());
        let messages = self.machine.transcript().messages().clone();
        let mut options = self.host.request.clone();
        options.resumes_pause =
            self.machine.resumes_pause() && messages.last().is_some_and(|m| m.role == Role::Assistant);
        let run = self.machine.run();
        if let Some(run) = run {
            options.thinking = run.settings.thinking;
            options.effort = run.settings.effort;
        }
        // A call that every request had to make would never let the run end.
        let is_forced = matches!(options.tool_choice, ToolChoice::Any | ToolChoice::Tool(_));
        if is_forced && run.is_some_and(|r| r.summary.turns > 0) {
            options.tool_choice = ToolChoice::Auto;
        }
        let model = run.map_or_else(|| Arc::from(""), |r| Arc::clone(&r.model));
        // This model is not always the one that the run began with.
        let info = self.fit.info(&self.host, &model);
        let (messages, note) = self.fit.media(&model, &info, messages);
        let prefix = self.machine.prefix().cloned().unwrap_or_default();
        (ModelRequest { model, info, prefix, messages, options }, note)
    }

    async fn done(
        &mut self,
        model: &Arc<str>,
        answer: Assembled,
        sent: u64,
        spent: Spent,
    ) -> Result<(), EngineError> {
        let content = self.with_legal_ids(at_most(answer.content, MAX_CALLS));
        let message = Message {
            id: MessageId::from_number(self.host.ports.clock.new_id()),
            role: Role::Assistant,
            content,
            model: Some(Arc::clone(model)),
        };
        let Spent { usage, cost, cost_source, api_ms, ttft_ms } = spent;
        tracing::debug!(stop = answer.stop.as_str(), api_ms, tokens = usage.output_tokens, "an answer");
        let facts = AnswerFacts { message: &message, stop: &answer.stop, usage, cost, sent };
        let mut entries = self.machine.about_answer(facts);
        let done = ModelDone {
            turn: self.machine.transcript().next_turn(),
            message: Arc::new(message),
            stop: answer.stop,
            stop_sequence: answer.stop_sequence,
            usage,
            cost,
            cost_source,
            api_ms,
            ttft_ms,
            vendor_id: answer.id,
            answered_by: answer.model.filter(|by| **by != **model),
        };
        entries.push(SessionEntry::ModelDone(done));
        self.record(entries, Durability::Written).await
    }

    /// Without an error, the run was interrupted.
    async fn failed(
        &mut self,
        model: &Arc<str>,
        error: Option<ProviderError>,
        partial: Vec<Block>,
        Spent { usage, cost, cost_source, api_ms, .. }: Spent,
    ) -> Result<(), EngineError> {
        let clock = &self.host.ports.clock;
        let decided = error.as_ref().map(|error| {
            // 16 of the id's random bits.
            let chance = f64::from((clock.new_id() & 0xFFFF) as u16) / f64::from(u16::MAX);
            self.machine.after_failure(FailureFacts {
                model,
                error,
                config: &self.host.retry,
                fallback: self.host.fallback_model.as_ref(),
                sent_media: self.fit.sent_media(),
                now: clock.now(),
                chance,
            })
        });
        let interrupted = decided.is_none();
        let provider_error = error;
        let (error, retry, entries) = match decided {
            Some(Failed { failure, retry, entries }) => (Some(failure), retry, entries),
            None => (None, None, Vec::new()),
        };
        self.failure = provider_error.filter(|_| retry.is_none());
        let partial = (!partial.is_empty()).then(|| {
            Arc::new(Message {
                id: MessageId::from_number(clock.new_id()),
                role: Role::Assistant,
                content: partial,
                model: Some(Arc::clone(model)),
            })
        });
        let failed =
            ModelFailed { model: Arc::clone(model), error, partial, usage, cost, cost_source, api_ms, retry };
        let entry = SessionEntry::ModelFailed(failed);
        if interrupted {
            self.cancel = tokio_util::sync::CancellationToken::new();
            self.interrupt(vec![entry]).await
        } else {
            let entries = std::iter::once(entry).chain(entries).collect();
            self.record(entries, Durability::Written).await
        }
    }

    /// Vendors' ids are made legal and unique before they enter the log.
    fn with_legal_ids(&self, mut content: Vec<Block>) -> Vec<Block> {
        let transcript = self.machine.transcript();
        let turn = transcript.next_turn();
        let mut seen: HashSet<ToolUseId> = HashSet::new();
        let mut index = 0;
        for block in &mut content {
            let Block::ToolUse(call) = block else { continue };
            let mut suffix = String::new();
            while !call.id.is_legal() || transcript.is_used(&call.id) || seen.contains(&call.id) {
                call.id = ToolUseId::new(format!("call_{turn}_{index}{suffix}"));
                suffix.push('x');
            }
            seen.insert(call.id.clone());
            index += 1;
        }
        content
    }
}

fn cost_of(price: Option<Price>, usage: &Usage) -> Option<Cost> {
    // Nothing was used, so nothing is owed, whatever the price.
    if *usage == Usage::default() {
        return Some(Cost(0));
    }
    price.map(|price| price.of(usage))
}

/// What a request used.
struct Spent {
    usage: Usage,
    cost: Option<Cost>,
    cost_source: Option<Open<CostSource>>,
    api_ms: u64,
    ttft_ms: Option<u64>,
}

impl Spent {
    fn nothing() -> Self {
        Self { usage: Usage::default(), cost: Some(Cost(0)), cost_source: None, api_ms: 0, ttft_ms: None }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Sends the request and takes the answer in until it ends.
async fn receive(
    provider: &dyn Provider,
    request: ModelRequest,
    (assembler, first): (&mut Assembler, &mut Option<Instant>),
    teller: Teller,
) -> Result<(), ProviderError> {
    let model = Arc::clone(&request.model);
    let mut stream: ModelStream = provider.stream(request).await?;
    let live = teller.is_heard();
    let mut opening = live.then(|| AnswerStarted { model, vendor_id: None, usage: Usage::default() });
    let mut lengths: Vec<usize> = Vec::new();
    while let Some(event) = poll_fn(|cx| stream.as_mut().poll_next(cx)).await {
        let event = event?;
        if !matches!(event, ModelEvent::Ping) {
            first.get_or_insert_with(Instant::now);
        }
        let landed = assembler.push(&event);
        // Told once it is known what the first events say about the whole answer.
        match (&event, &mut opening) {
            (ModelEvent::Start { id, model }, Some(opening)) => {
                opening.vendor_id.clone_from(id);
                if let Some(model) = model {
                    opening.model = model.as_str().into();
                }
            }
            (ModelEvent::Usage(_), Some(_)) | (_, None) => {}
            _ => tell_opening(&teller, &mut opening, assembler),
        }
        let (true, Some(landed)) = (live, landed) else { continue };
        if landed.opened {
            lengths.resize(landed.index + 1, 0);
            let kind = block_kind(&event);
            teller.tell(AgentEvent::BlockStarted(BlockStarted { index: landed.index, kind }));
        }
        if let Some((kind, text)) = delta(event)
            && let Some(length) = lengths.get_mut(landed.index)
        {
            let offset = *length;
            *length += text.len();
            teller.tell(AgentEvent::BlockDelta(BlockDelta { index: landed.index, offset, kind, text }));
        }
    }
    Ok(())
}

fn tell_opening(teller: &Teller, opening: &mut Option<AnswerStarted>, assembler: &Assembler) {
    if let Some(started) = opening.take() {
        teller.tell(AgentEvent::AnswerStarted(AnswerStarted { usage: assembler.usage().total(), ..started }));
    }
}

/// A server that goes mad must not make a session that no machine can hold.
fn at_most(mut content: Vec<Block>, calls: usize) -> Vec<Block> {
    let mut seen = 0;
    content.retain(|b| {
        seen += usize::from(matches!(b, Block::ToolUse(_)));
        seen <= calls || !matches!(b, Block::ToolUse(_))
    });
    content
}

fn block_kind(event: &ModelEvent) -> BlockKind {
    match event {
        ModelEvent::Text { .. } => BlockKind::Text,
        ModelEvent::Thinking { .. } | ModelEvent::Signature { .. } | ModelEvent::ThinkingDetail { .. } => {
            BlockKind::Thinking
        }
        ModelEvent::Tool(f) => BlockKind::ToolUse {
            id: f.id.clone().unwrap_or_default(),
            name: f.name.clone().unwrap_or_default(),
        },
        ModelEvent::Redacted { data, .. } => BlockKind::RedactedThinking { data: data.clone() },
        ModelEvent::Opaque { raw, .. } => BlockKind::Opaque { raw: raw.clone() },
        _ => BlockKind::Text,
    }
}

fn delta(event: ModelEvent) -> Option<(DeltaKind, String)> {
    let (kind, text) = match event {
        ModelEvent::Text { text, .. } => (DeltaKind::Text, text),
        ModelEvent::Thinking { text, .. } => (DeltaKind::Thinking, text),
        ModelEvent::Signature { signature, .. } => (DeltaKind::Signature, signature),
        ModelEvent::Tool(f) => (DeltaKind::Input, f.input?),
        _ => return None,
    };
    (!text.is_empty()).then_some((kind, text))
}
