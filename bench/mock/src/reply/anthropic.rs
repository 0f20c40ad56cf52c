//! Anthropic Messages.

use serde_json::{Value, json};

use super::{Act, Call, Events, named, repeated};

pub fn events(act: Act, model: &str, id: &str) -> Events {
    let usage = json!({"input_tokens": 100, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
        "output_tokens": 1});
    let message = json!({"id": format!("msg_{id}"), "type": "message", "role": "assistant", "model": model,
        "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage});
    let mut out = vec![named(&json!({"type": "message_start", "message": message}))];
    match act {
        Act::Calls(calls) => {
            for (index, call) in calls.iter().enumerate() {
                out.push(start(index, &tool_use(call, json!({}))));
                let input = json!({"type": "input_json_delta", "partial_json": call.input.to_string()});
                out.push(delta(index, &input));
                out.push(stop(index));
            }
            out.extend(end("tool_use"));
            Box::new(out.into_iter())
        }
        Act::Text { count, delta: text } => {
            out.push(start(0, &json!({"type": "text", "text": ""})));
            let after = std::iter::once(stop(0)).chain(end("end_turn")).collect();
            repeated(out, delta(0, &json!({"type": "text_delta", "text": text})), count, after)
        }
    }
}

pub fn whole(act: Act, model: &str, id: &str) -> Value {
    let (reason, content) = match act {
        Act::Calls(calls) => {
            ("tool_use", calls.iter().map(|call| tool_use(call, call.input.clone())).collect())
        }
        Act::Text { count, delta } => {
            ("end_turn", vec![json!({"type": "text", "text": delta.repeat(count)})])
        }
    };
    json!({"id": format!("msg_{id}"), "type": "message", "role": "assistant", "model": model, "stop_reason": reason,
        "stop_sequence": null, "usage": {"input_tokens": 100, "output_tokens": 20}, "content": content})
}

fn tool_use(call: &Call, input: Value) -> Value {
    json!({"type": "tool_use", "id": format!("toolu_{}", call.id), "name": call.name, "input": input})
}

fn start(index: usize, block: &Value) -> String {
    named(&json!({"type": "content_block_start", "index": index, "content_block": block}))
}

fn delta(index: usize, delta: &Value) -> String {
    named(&json!({"type": "content_block_delta", "index": index, "delta": delta}))
}

fn stop(index: usize) -> String {
    named(&json!({"type": "content_block_stop", "index": index}))
}

fn end(reason: &str) -> [String; 2] {
    let delta = json!({"stop_reason": reason, "stop_sequence": null});
    [
        named(&json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 20}})),
        named(&json!({"type": "message_stop"})),
    ]
}
