//! OpenAI Responses.

use serde_json::{Value, json};

use super::{Act, Call, Events, named, repeated};

pub fn events(act: Act, model: &str, id: &str) -> Events {
    let created = json!({"type": "response.created", "sequence_number": 0,
        "response": response("in_progress", model, id, json!([]))});
    let mut out = vec![named(&created)];
    match act {
        Act::Calls(calls) => {
            for (index, call) in calls.iter().enumerate() {
                call_events(index, call, &mut out);
            }
            let items: Vec<Value> = calls.iter().map(call_item).collect();
            out.push(completed(999, response("completed", model, id, json!(items))));
            Box::new(out.into_iter())
        }
        Act::Text { count, delta } => {
            let item = text_item(id, &delta.repeat(count));
            let part = |text: &str| json!({"type": "output_text", "text": text, "annotations": []});
            // What all events of one part share.
            let event = |kind: &str, number: usize, key: &str, value: Value| {
                named(&json!({"type": kind, "sequence_number": number, "item_id": format!("msg_{id}"),
                    "output_index": 0, "content_index": 0, key: value, "logprobs": []}))
            };
            let mut open = item.clone();
            open["status"] = json!("in_progress");
            open["content"] = json!([]);
            out.push(named(
                &json!({"type": "response.output_item.added", "sequence_number": 1, "output_index": 0,
                "item": open}),
            ));
            out.push(event("response.content_part.added", 2, "part", part("")));
            let text = item["content"][0]["text"].clone();
            let after = vec![
                event("response.output_text.done", 4, "text", text.clone()),
                event("response.content_part.done", 5, "part", part(text.as_str().unwrap_or(""))),
                named(&json!({"type": "response.output_item.done", "sequence_number": 6, "output_index": 0,
                    "item": item})),
                completed(7, response("completed", model, id, json!([item]))),
            ];
            repeated(out, event("response.output_text.delta", 3, "delta", json!(delta)), count, after)
        }
    }
}

pub fn whole(act: Act, model: &str, id: &str) -> Value {
    let output = match act {
        Act::Calls(calls) => calls.iter().map(call_item).collect(),
        Act::Text { count, delta } => vec![text_item(id, &delta.repeat(count))],
    };
    response("completed", model, id, json!(output))
}

fn call_events(index: usize, call: &Call, out: &mut Vec<String>) {
    let item = call_item(call);
    let mut open = item.clone();
    open["status"] = json!("in_progress");
    open[if call.custom { "input" } else { "arguments" }] = json!("");
    out.push(named(&json!({"type": "response.output_item.added", "sequence_number": 3 * index + 1,
        "output_index": index, "item": open})));
    if !call.custom {
        let arguments = call.input.to_string();
        out.push(named(
            &json!({"type": "response.function_call_arguments.delta", "sequence_number": 3 * index + 2,
            "item_id": item["id"], "output_index": index, "delta": arguments}),
        ));
        out.push(named(
            &json!({"type": "response.function_call_arguments.done", "sequence_number": 3 * index + 2,
            "item_id": item["id"], "output_index": index, "name": call.name, "arguments": arguments}),
        ));
    }
    out.push(named(&json!({"type": "response.output_item.done", "sequence_number": 3 * index + 3,
        "output_index": index, "item": item})));
}

fn completed(number: usize, response: Value) -> String {
    named(&json!({"type": "response.completed", "sequence_number": number, "response": response}))
}

fn response(status: &str, model: &str, id: &str, output: Value) -> Value {
    let usage = match status {
        "completed" => {
            json!({"input_tokens": 100, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 20,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 120})
        }
        _ => Value::Null,
    };
    json!({"id": format!("resp_{id}"), "object": "response", "created_at": 1_750_000_000, "status": status,
        "model": model, "output": output, "parallel_tool_calls": true, "tool_choice": "auto", "tools": [],
        "usage": usage})
}

fn call_item(call: &Call) -> Value {
    let (kind, prefix, key) = match call.custom {
        true => ("custom_tool_call", "ctc", "input"),
        false => ("function_call", "fc", "arguments"),
    };
    let input = call.input.as_str().map_or_else(|| call.input.to_string(), String::from);
    json!({"id": format!("{prefix}_{}", call.id), "type": kind, "status": "completed",
        "call_id": format!("call_{}", call.id), "name": call.name, key: input})
}

fn text_item(id: &str, text: &str) -> Value {
    let part = json!({"type": "output_text", "text": text, "annotations": []});
    json!({"id": format!("msg_{id}"), "type": "message", "role": "assistant", "status": "completed",
        "content": [part]})
}
