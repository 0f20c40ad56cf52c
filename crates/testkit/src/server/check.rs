//! The verdict about a request's shape, as a strict vendor gives it. Owns the rules for both wire formats: roles
//! alternate, each call is answered once and in order, nothing is empty. Written without our own validator.

use std::collections::HashSet;

use serde_json::Value;

use crate::server::Format;

type Verdict = Result<(), String>;

/// Says what is wrong with a request. `counts`: it asks for a token count only.
pub(super) fn request(body: &Value, format: Format, counts: bool) -> Verdict {
    ensure(body.is_object(), || "the body is no JSON object".into())?;
    ensure(!text(body, "model").trim().is_empty(), || "model is missing".into())?;
    let messages = list(body, "messages");
    ensure(!messages.is_empty(), || "messages is empty".into())?;
    tools(body, format)?;
    match format {
        Format::Anthropic => {
            let most = body.get("max_tokens").and_then(Value::as_u64).unwrap_or_default();
            ensure(counts || most > 0, || "max_tokens is missing".into())?;
            anthropic_thinking(body, most)?;
            anthropic_marks(body)?;
            anthropic(messages)
        }
        Format::OpenAi => openai(messages),
    }
}

fn ensure(ok: bool, fault: impl FnOnce() -> String) -> Verdict {
    if ok { Ok(()) } else { Err(fault()) }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

fn tools(body: &Value, format: Format) -> Verdict {
    let mut names = HashSet::new();
    for tool in list(body, "tools") {
        let (spec, schema) = match format {
            Format::Anthropic => (tool, tool.get("input_schema")),
            Format::OpenAi => {
                let function = tool.get("function").unwrap_or(&Value::Null);
                (function, function.get("parameters"))
            }
        };
        let name = text(spec, "name");
        ensure(is_name(name), || format!("tool name {name:?} is not legal"))?;
        ensure(names.insert(name), || format!("tool {name:?} is declared twice"))?;
        ensure(schema.is_some_and(Value::is_object), || format!("tool {name:?} has no schema object"))?;
    }
    Ok(())
}

fn anthropic_thinking(body: &Value, max_tokens: u64) -> Verdict {
    let thinking = body.get("thinking").unwrap_or(&Value::Null);
    let kind = text(thinking, "type");
    if kind == "enabled" {
        let budget = thinking.get("budget_tokens").and_then(Value::as_u64).unwrap_or_default();
        ensure(budget >= 1024, || "thinking.budget_tokens is less than 1024".into())?;
        ensure(max_tokens == 0 || budget < max_tokens, || {
            "max_tokens is not greater than thinking.budget_tokens".into()
        })?;
    }
    if matches!(kind, "enabled" | "adaptive") {
        let choice = body.get("tool_choice").map(|c| text(c, "type")).unwrap_or_default();
        ensure(!matches!(choice, "any" | "tool"), || "thinking with a forced tool choice".into())?;
        ensure(body.get("temperature").is_none(), || "thinking with a temperature".into())?;
    }
    Ok(())
}

fn anthropic_marks(body: &Value) -> Verdict {
    fn count(value: &Value) -> usize {
        match value {
            Value::Object(map) => {
                usize::from(map.contains_key("cache_control")) + map.values().map(count).sum::<usize>()
            }
            Value::Array(list) => list.iter().map(count).sum(),
            _ => 0,
        }
    }
    let marks = count(body);
    ensure(marks <= 4, || format!("{marks} blocks have cache_control, 4 may"))
}

fn anthropic(messages: &[Value]) -> Verdict {
    let mut open: Vec<String> = Vec::new();
    let mut used = HashSet::new();
    let mut last_role = "assistant";
    for (at, message) in messages.iter().enumerate() {
        let role = text(message, "role");
        ensure(matches!(role, "user" | "assistant"), || format!("message {at}: role {role:?}"))?;
        ensure(role != last_role, || format!("message {at}: roles do not alternate"))?;
        last_role = if role == "user" { "user" } else { "assistant" };
        let blocks = match message.get("content") {
            Some(Value::String(t)) => {
                ensure(!t.trim().is_empty(), || format!("message {at} is empty"))?;
                &[]
            }
            Some(Value::Array(blocks)) => {
                ensure(!blocks.is_empty(), || format!("message {at} is empty"))?;
                blocks.as_slice()
            }
            _ => return Err(format!("message {at} has no content")),
        };
        let results: Vec<String> = blocks
            .iter()
            .filter(|b| text(b, "type") == "tool_result")
            .map(|b| text(b, "tool_use_id").to_owned())
            .collect();
        ensure(results == open, || format!("message {at}: results for {results:?}, calls were {open:?}"))?;
        open.clear();
        let mut results_over = false;
        for block in blocks {
            let kind = text(block, "type");
            anthropic_block(block, role, results_over).map_err(|e| format!("message {at}: {e}"))?;
            results_over |= kind != "tool_result";
            if kind == "tool_use" {
                let id = text(block, "id").to_owned();
                ensure(used.insert(id.clone()), || format!("message {at}: id {id:?} is used twice"))?;
                open.push(id);
            }
        }
    }
    ensure(open.is_empty(), || format!("calls {open:?} have no result"))
}

fn anthropic_block(block: &Value, role: &str, results_over: bool) -> Verdict {
    let kind = text(block, "type");
    let assistant = role == "assistant";
    match kind {
        "text" => ensure(!text(block, "text").trim().is_empty(), || "a text block is empty".into()),
        "thinking" => {
            ensure(assistant, || "thinking in a user's message".into())?;
            ensure(!text(block, "signature").is_empty(), || "thinking without signature".into())
        }
        "redacted_thinking" => ensure(assistant, || "thinking in a user's message".into()),
        "tool_use" => {
            ensure(assistant, || "a call in a user's message".into())?;
            ensure(is_name(text(block, "id")), || format!("id {:?} is not legal", text(block, "id")))?;
            ensure(is_name(text(block, "name")), || "a call has no legal name".into())?;
            ensure(block.get("input").is_some_and(Value::is_object), || "input is no object".into())
        }
        "tool_result" => {
            ensure(!assistant && !results_over, || "a result must come first in a user's message".into())?;
            let empty = |b: &Value| text(b, "type") == "text" && text(b, "text").trim().is_empty();
            ensure(!list(block, "content").iter().any(empty), || "an empty text in a result".into())
        }
        "" => Err("a block has no type".into()),
        _ => Ok(()),
    }
}

fn openai(messages: &[Value]) -> Verdict {
    let mut open: Vec<String> = Vec::new();
    let mut used = HashSet::new();
    let mut last_role = "system";
    for (at, message) in messages.iter().enumerate() {
        let fault = |what: &str| Err(format!("message {at}: {what}"));
        let role = text(message, "role");
        if role == "tool" {
            let id = text(message, "tool_call_id");
            if open.first().map(String::as_str) != Some(id) {
                return Err(format!("message {at}: result for {id:?}, open calls are {open:?}"));
            }
            open.remove(0);
            if !message.get("content").is_some_and(|c| c.is_string() || c.is_array()) {
                return fault("a tool message has no content");
            }
            last_role = "tool";
            continue;
        }
        ensure(open.is_empty(), || format!("message {at}: calls {open:?} have no result"))?;
        let content = message.get("content").unwrap_or(&Value::Null);
        let empty = match content {
            Value::String(t) => t.trim().is_empty(),
            Value::Array(parts) => parts.is_empty(),
            _ => true,
        };
        let calls = list(message, "tool_calls");
        match role {
            "system" | "developer" if at == 0 => {}
            "user" if last_role == "user" => return fault("roles do not alternate"),
            "user" if empty => return fault("a user's message is empty"),
            "user" => {}
            "assistant" if matches!(last_role, "system" | "assistant") => {
                return fault("roles do not alternate");
            }
            "assistant" if empty && calls.is_empty() => return fault("an assistant's message is empty"),
            "assistant" => {}
            _ => return Err(format!("message {at}: role {role:?}")),
        }
        last_role = role;
        for call in calls {
            let id = text(call, "id").to_owned();
            let function = call.get("function").unwrap_or(&Value::Null);
            let arguments: Value = serde_json::from_str(text(function, "arguments")).unwrap_or_default();
            ensure(is_name(&id), || format!("message {at}: id {id:?} is not legal"))?;
            ensure(is_name(text(function, "name")), || format!("message {at}: a call has no legal name"))?;
            ensure(arguments.is_object(), || {
                format!("message {at}: arguments are no JSON object in a string")
            })?;
            ensure(used.insert(id.clone()), || format!("message {at}: id {id:?} is used twice"))?;
            open.push(id);
        }
    }
    ensure(open.is_empty(), || format!("calls {open:?} have no result"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn verdict(format: Format, messages: Value) -> String {
        let body = json!({ "model": "m", "max_tokens": 1, "messages": messages });
        request(&body, format, false).err().unwrap_or_default()
    }

    #[test]
    fn both_formats_name_the_fault() {
        let user = json!({ "role": "user", "content": "x" });
        let a_call = json!({ "role": "assistant", "content": [
            { "type": "tool_use", "id": "1", "name": "R", "input": {} }] });
        let o_call = json!({ "role": "assistant", "content": null, "tool_calls": [
            { "id": "1", "type": "function", "function": { "name": "R", "arguments": "{}" } }] });
        let result = json!({ "role": "tool", "tool_call_id": "1", "content": "x" });
        use Format::{Anthropic, OpenAi};
        for (format, messages, want) in [
            (Anthropic, json!([user]), ""),
            (OpenAi, json!([user]), ""),
            (Anthropic, json!([]), "messages is empty"),
            (Anthropic, json!([user, user]), "alternate"),
            (OpenAi, json!([user, user]), "alternate"),
            (Anthropic, json!([user, a_call, user]), "results for"),
            (Anthropic, json!([user, a_call]), "no result"),
            (OpenAi, json!([user, o_call, user]), "no result"),
            (OpenAi, json!([user, o_call, result]), ""),
            (OpenAi, json!([user, result]), "open calls are"),
            (Anthropic, json!([{ "role": "user", "content": [{ "type": "text", "text": " " }] }]), "empty"),
        ] {
            let got = verdict(format, messages.clone());
            assert!(
                if want.is_empty() { got.is_empty() } else { got.contains(want) },
                "{got} / {want} {messages}"
            );
        }
    }
}
