//! Answers in both wire formats, streamed and whole. Owns the other side of what `providers` reads, written without it.

use serde_json::{Value, json};

use crate::server::reply::{Answer, Part};
use crate::server::{Format, Recorded};

/// Content type and body of an answer.
pub(super) fn answer(
    answer: &Answer,
    request: &Recorded,
    format: Format,
    turn: usize,
) -> (&'static str, String) {
    let streamed = request.body.get("stream").and_then(Value::as_bool).unwrap_or_default();
    let model = request.body.get("model").cloned().unwrap_or_default();
    let cx = Cx { answer, model, turn };
    if answer.plain || !streamed {
        let whole = match format {
            Format::Anthropic => cx.anthropic_whole(),
            Format::OpenAi => cx.openai_whole(),
        };
        return ("application/json", whole.to_string());
    }
    let mut events = match format {
        Format::Anthropic => cx.anthropic_events(),
        Format::OpenAi => cx.openai_events(request),
    };
    if let Some((at, error)) = &answer.error_after {
        events.truncate(*at);
        events.push(match format {
            Format::Anthropic => event("error", &json!({ "type": "error", "error": error })),
            Format::OpenAi => data(&json!({ "error": error })),
        });
    }
    ("text/event-stream", events.concat())
}

struct Cx<'a> {
    answer: &'a Answer,
    model: Value,
    turn: usize,
}

fn event(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

fn data(data: &Value) -> String {
    format!("data: {data}\n\n")
}

fn pieces(text: &str, size: usize) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    characters.chunks(size).map(|c| c.iter().collect()).collect()
}

impl Cx<'_> {
    fn id(&self, prefix: &str, part: usize) -> String {
        format!("{prefix}_{}_{part}", self.turn)
    }

    fn call_id(&self, id: &str, part: usize) -> String {
        if id.is_empty() { self.id("call", part) } else { id.to_owned() }
    }

    fn stop(&self) -> &str {
        let calls = self.answer.parts.iter().any(|p| matches!(p, Part::Tool { .. }));
        let by_parts = if calls { "tool_use" } else { "end_turn" };
        self.answer.stop.as_deref().unwrap_or(by_parts)
    }

    fn finish_reason(&self) -> &str {
        match self.stop() {
            "end_turn" | "stop_sequence" => "stop",
            "tool_use" => "tool_calls",
            "max_tokens" => "length",
            "refusal" => "content_filter",
            other => other,
        }
    }

    fn anthropic_usage(&self) -> Value {
        let a = self.answer;
        json!({
            "input_tokens": a.input_tokens,
            "cache_read_input_tokens": a.cached_tokens,
            "output_tokens": a.output_tokens,
        })
    }

    fn openai_usage(&self) -> Value {
        let a = self.answer;
        let input = a.input_tokens + a.cached_tokens;
        json!({
            "prompt_tokens": input,
            "completion_tokens": a.output_tokens,
            "total_tokens": input + a.output_tokens,
            "prompt_tokens_details": { "cached_tokens": a.cached_tokens },
        })
    }

    fn anthropic_message(&self, content: Vec<Value>) -> Value {
        json!({
            "id": self.id("msg", 0), "type": "message", "role": "assistant", "model": self.model,
            "content": content, "stop_reason": null, "stop_sequence": null,
        })
    }

    fn anthropic_whole(&self) -> Value {
        let block = |(i, part): (usize, &Part)| match part {
            Part::Text(text) => json!({ "type": "text", "text": text }),
            Part::Thinking { text, signature } => {
                json!({ "type": "thinking", "thinking": text, "signature": signature })
            }
            Part::Tool { id, name, input } => {
                json!({ "type": "tool_use", "id": self.call_id(id, i), "name": name, "input": input })
            }
        };
        let mut message = self.anthropic_message(self.answer.parts.iter().enumerate().map(block).collect());
        message["stop_reason"] = json!(self.stop());
        message["usage"] = self.anthropic_usage();
        message
    }

    fn anthropic_events(&self) -> Vec<String> {
        let mut message = self.anthropic_message(Vec::new());
        message["usage"] = self.anthropic_usage();
        message["usage"]["output_tokens"] = json!(1);
        let mut out = vec![event("message_start", &json!({ "type": "message_start", "message": message }))];
        for (index, part) in self.answer.parts.iter().enumerate() {
            let start = |block: Value| {
                let data = json!({ "type": "content_block_start", "index": index, "content_block": block });
                event("content_block_start", &data)
            };
            let delta = |delta: Value| {
                let data = json!({ "type": "content_block_delta", "index": index, "delta": delta });
                event("content_block_delta", &data)
            };
            match part {
                Part::Text(text) => {
                    out.push(start(json!({ "type": "text", "text": "" })));
                    let piece = |t| delta(json!({ "type": "text_delta", "text": t }));
                    out.extend(pieces(text, self.answer.delta).into_iter().map(piece));
                }
                Part::Thinking { text, signature } => {
                    out.push(start(json!({ "type": "thinking", "thinking": "", "signature": "" })));
                    let piece = |t| delta(json!({ "type": "thinking_delta", "thinking": t }));
                    out.extend(pieces(text, self.answer.delta).into_iter().map(piece));
                    out.push(delta(json!({ "type": "signature_delta", "signature": signature })));
                }
                Part::Tool { id, name, input } => {
                    let id = self.call_id(id, index);
                    out.push(start(json!({ "type": "tool_use", "id": id, "name": name, "input": {} })));
                    let piece = |t| delta(json!({ "type": "input_json_delta", "partial_json": t }));
                    out.extend(pieces(&input.to_string(), self.answer.delta).into_iter().map(piece));
                }
            }
            let stop = json!({ "type": "content_block_stop", "index": index });
            out.push(event("content_block_stop", &stop));
        }
        let delta = json!({ "stop_reason": self.stop(), "stop_sequence": null });
        let usage = json!({ "output_tokens": self.answer.output_tokens });
        let end = json!({ "type": "message_delta", "delta": delta, "usage": usage });
        out.push(event("message_delta", &end));
        out.push(event("message_stop", &json!({ "type": "message_stop" })));
        out
    }

    fn openai_chunk(&self, choices: Value) -> Value {
        json!({
            "id": self.id("chatcmpl", 0), "object": "chat.completion.chunk", "created": 0,
            "model": self.model, "choices": choices,
        })
    }

    fn openai_whole(&self) -> Value {
        let (mut text, mut thinking, mut calls) = (String::new(), String::new(), Vec::new());
        for (i, part) in self.answer.parts.iter().enumerate() {
            match part {
                Part::Text(t) => text.push_str(t),
                Part::Thinking { text: t, .. } => thinking.push_str(t),
                Part::Tool { id, name, input } => calls.push(json!({
                    "id": self.call_id(id, i), "type": "function",
                    "function": { "name": name, "arguments": input.to_string() },
                })),
            }
        }
        let mut message = json!({ "role": "assistant", "content": text });
        if !thinking.is_empty() {
            message["reasoning_content"] = json!(thinking);
        }
        if !calls.is_empty() {
            message["tool_calls"] = json!(calls);
        }
        let choice = json!({ "index": 0, "message": message, "finish_reason": self.finish_reason() });
        let mut whole = self.openai_chunk(json!([choice]));
        whole["object"] = json!("chat.completion");
        whole["usage"] = self.openai_usage();
        whole
    }

    fn openai_events(&self, request: &Recorded) -> Vec<String> {
        let chunk = |delta: Value, reason: Value| {
            data(&self.openai_chunk(json!([{ "index": 0, "delta": delta, "finish_reason": reason }])))
        };
        let mut out = vec![chunk(json!({ "role": "assistant", "content": null }), Value::Null)];
        let mut calls = 0;
        for (i, part) in self.answer.parts.iter().enumerate() {
            match part {
                Part::Text(text) => {
                    let piece = |t| chunk(json!({ "content": t }), Value::Null);
                    out.extend(pieces(text, self.answer.delta).into_iter().map(piece));
                }
                Part::Thinking { text, .. } => {
                    let piece = |t| chunk(json!({ "reasoning_content": t }), Value::Null);
                    out.extend(pieces(text, self.answer.delta).into_iter().map(piece));
                }
                Part::Tool { id, name, input } => {
                    let function = json!({ "name": name, "arguments": "" });
                    let first = json!({
                        "index": calls, "id": self.call_id(id, i), "type": "function", "function": function,
                    });
                    out.push(chunk(json!({ "tool_calls": [first] }), Value::Null));
                    let piece = |t| {
                        let more = json!({ "index": calls, "function": { "arguments": t } });
                        chunk(json!({ "tool_calls": [more] }), Value::Null)
                    };
                    out.extend(pieces(&input.to_string(), self.answer.delta).into_iter().map(piece));
                    calls += 1;
                }
            }
        }
        out.push(chunk(json!({}), json!(self.finish_reason())));
        if self.answer.usage_unasked || request.body["stream_options"]["include_usage"] == true {
            let mut last = self.openai_chunk(json!([]));
            last["usage"] = self.openai_usage();
            out.push(data(&last));
        }
        out.push("data: [DONE]\n\n".to_owned());
        out
    }
}
