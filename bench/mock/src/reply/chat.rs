//! OpenAI chat completions.

use serde_json::{Value, json};

use super::{Act, Call, Events, repeated};

const CREATED: u64 = 1_750_000_000;

pub fn events(act: Act, model: String, id: String) -> Events {
    let chunk = |delta: Value, finish: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        data(&json!({"id": format!("chatcmpl-{id}"), "object": "chat.completion.chunk", "created": CREATED,
            "model": model, "choices": [choice]}))
    };
    let usage =
        data(&json!({"id": format!("chatcmpl-{id}"), "object": "chat.completion.chunk", "created": CREATED,
        "model": model, "choices": [], "usage": usage()}));
    let tail = [usage, "data: [DONE]\n\n".to_string()];
    match act {
        Act::Calls(calls) => {
            let mut out = vec![chunk(json!({"role": "assistant", "content": null}), Value::Null)];
            for (index, call) in calls.iter().enumerate() {
                let mut head = tool_call(call, "");
                head["index"] = json!(index);
                out.push(chunk(json!({"tool_calls": [head]}), Value::Null));
                let rest = json!({"index": index, "function": {"arguments": call.input.to_string()}});
                out.push(chunk(json!({"tool_calls": [rest]}), Value::Null));
            }
            out.push(chunk(json!({}), json!("tool_calls")));
            Box::new(out.into_iter().chain(tail))
        }
        Act::Text { count, delta } => {
            let before = vec![chunk(json!({"role": "assistant", "content": ""}), Value::Null)];
            let after = std::iter::once(chunk(json!({}), json!("stop"))).chain(tail).collect();
            repeated(before, chunk(json!({"content": delta}), Value::Null), count, after)
        }
    }
}

pub fn whole(act: Act, model: &str, id: &str) -> Value {
    let (message, finish) = match act {
        Act::Calls(calls) => {
            let calls: Vec<Value> =
                calls.iter().map(|call| tool_call(call, &call.input.to_string())).collect();
            (json!({"role": "assistant", "content": null, "tool_calls": calls}), "tool_calls")
        }
        Act::Text { count, delta } => (json!({"role": "assistant", "content": delta.repeat(count)}), "stop"),
    };
    let choice = json!({"index": 0, "message": message, "finish_reason": finish});
    json!({"id": format!("chatcmpl-{id}"), "object": "chat.completion", "created": CREATED, "model": model,
        "choices": [choice], "usage": usage()})
}

fn tool_call(call: &Call, arguments: &str) -> Value {
    let function = json!({"name": call.name, "arguments": arguments});
    json!({"id": format!("call_{}", call.id), "type": "function", "function": function})
}

fn usage() -> Value {
    json!({"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120})
}

fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}
