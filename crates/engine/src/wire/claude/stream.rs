//! Live events as the raw events of the Messages API's stream, whichever API they came from. The delta path is the one that
//! runs a hundred times a second: it allocates nothing.

use open_agent_model::RawJson;
use serde::Serialize;
use uuid::Uuid;

use super::{ClaudeFrames, Detail, frame};
use crate::{AnswerStarted, AssistantMessage, BlockDelta, BlockKind, BlockStarted, DeltaKind};

/// An answer of which pieces were printed.
pub(super) struct Streamed {
    pub message_id: String,
    /// The block that is not closed yet.
    open: Option<usize>,
    calls: u32,
}

#[derive(Serialize)]
struct StreamEvent<'a, E> {
    #[serde(rename = "type")]
    kind: &'static str,
    event: E,
    session_id: &'a str,
    parent_tool_use_id: Option<&'a str>,
    uuid: Uuid,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ApiEvent<'a> {
    MessageStart { message: frame::ApiMessage<'a, [(); 0]> },
    ContentBlockStart { index: usize, content_block: BlockStart<'a> },
    ContentBlockDelta { index: usize, delta: Delta<'a> },
    ContentBlockStop { index: usize },
    MessageDelta { delta: Stop<'a>, usage: frame::ApiUsage },
    MessageStop,
}

#[derive(Serialize)]
#[serde(untagged)]
enum BlockStart<'a> {
    Known(KnownStart<'a>),
    Raw(&'a RawJson),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum KnownStart<'a> {
    Text { text: &'static str },
    Thinking { thinking: &'static str, signature: &'static str },
    RedactedThinking { data: &'a str },
    ToolUse { id: &'a str, name: &'a str, input: NoInput },
}

#[derive(Serialize)]
struct NoInput {}

#[derive(Serialize)]
#[serde(tag = "type")]
enum Delta<'a> {
    #[serde(rename = "text_delta")]
    Text { text: &'a str },
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: &'a str },
    #[serde(rename = "signature_delta")]
    Signature { signature: &'a str },
    #[serde(rename = "input_json_delta")]
    Input { partial_json: &'a str },
}

#[derive(Serialize)]
struct Stop<'a> {
    stop_reason: &'a str,
    stop_sequence: Option<&'a str>,
}

impl ClaudeFrames {
    pub(super) fn answer_started(&mut self, started: &AnswerStarted, turn: u32, out: &mut Vec<u8>) {
        self.stop_blocks(out);
        let message_id = self.ids.message(started.vendor_id.as_deref(), turn);
        let message = frame::ApiMessage {
            id: &message_id,
            kind: "message",
            role: "assistant",
            model: &started.model,
            content: [],
            stop_reason: None,
            stop_sequence: None,
            usage: frame::ApiUsage::from(&started.usage),
        };
        self.stream_event(ApiEvent::MessageStart { message }, out);
        self.streamed = Some(Streamed { message_id, open: None, calls: 0 });
    }

    pub(super) fn block_started(&mut self, block: &BlockStarted, turn: u32, out: &mut Vec<u8>) {
        self.stop_blocks(out);
        let Some(streamed) = &mut self.streamed else { return };
        streamed.open = Some(block.index);
        let made_up;
        let content_block = BlockStart::Known(match &block.kind {
            BlockKind::Text => KnownStart::Text { text: "" },
            BlockKind::Thinking => KnownStart::Thinking { thinking: "", signature: "" },
            BlockKind::RedactedThinking { data } => KnownStart::RedactedThinking { data },
            BlockKind::ToolUse { id, name } => {
                // The same id as the call will get in the transcript.
                made_up = format!("call_{turn}_{}", streamed.calls);
                streamed.calls += 1;
                KnownStart::ToolUse { id: if id.is_empty() { &made_up } else { id }, name, input: NoInput {} }
            }
            BlockKind::Opaque { raw } => {
                let content_block = BlockStart::Raw(raw);
                return self
                    .stream_event(ApiEvent::ContentBlockStart { index: block.index, content_block }, out);
            }
        });
        self.stream_event(ApiEvent::ContentBlockStart { index: block.index, content_block }, out);
    }

    pub(super) fn delta(&mut self, delta: &BlockDelta, out: &mut Vec<u8>) {
        let text = delta.text.as_str();
        let piece = match delta.kind {
            DeltaKind::Text => Delta::Text { text },
            DeltaKind::Thinking => Delta::Thinking { thinking: text },
            DeltaKind::Signature => Delta::Signature { signature: text },
            DeltaKind::Input => Delta::Input { partial_json: text },
        };
        self.stream_event(ApiEvent::ContentBlockDelta { index: delta.index, delta: piece }, out);
    }

    pub(super) fn stop_blocks(&mut self, out: &mut Vec<u8>) {
        if let Some(index) = self.streamed.as_mut().and_then(|s| s.open.take()) {
            self.stream_event(ApiEvent::ContentBlockStop { index }, out);
        }
    }

    pub(super) fn stop_message(&mut self, answer: &AssistantMessage, out: &mut Vec<u8>) {
        if self.streamed.take().is_none() {
            return;
        }
        let delta = Stop { stop_reason: answer.stop.as_str(), stop_sequence: None };
        let usage = frame::ApiUsage::from(&answer.usage);
        self.stream_event(ApiEvent::MessageDelta { delta, usage }, out);
        self.stream_event(ApiEvent::MessageStop, out);
    }

    fn stream_event(&mut self, event: ApiEvent<'_>, out: &mut Vec<u8>) {
        if self.setup.detail < Detail::Partial {
            return;
        }
        let uuid = self.ids.live();
        let session_id = self.session.as_str();
        let frame = StreamEvent { kind: "stream_event", event, session_id, parent_tool_use_id: None, uuid };
        self.line(Detail::Partial, &frame, out);
    }
}
