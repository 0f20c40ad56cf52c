//! Reading a request of any of the three APIs: which tools it offers, how far the conversation is, which tool of a
//! stranger's reads a file and with which arguments.

use serde_json::{Map, Value, json};

#[derive(Clone, Copy)]
pub enum Api {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI chat completions.
    Chat,
    /// OpenAI Responses.
    Responses,
}

impl Api {
    pub fn of(route: &str) -> Option<Api> {
        let all =
            [("/messages", Api::Anthropic), ("/chat/completions", Api::Chat), ("/responses", Api::Responses)];
        all.into_iter().find(|(end, _)| route.ends_with(end)).map(|(_, api)| api)
    }

    pub fn name(self) -> &'static str {
        match self {
            Api::Anthropic => "anthropic",
            Api::Chat => "chat",
            Api::Responses => "responses",
        }
    }
}

pub struct Tool {
    pub name: String,
    schema: Value,
    /// Free-form input instead of a schema.
    pub custom: bool,
}

pub fn tools(api: Api, request: &Value) -> Vec<Tool> {
    list(&request["tools"])
        .iter()
        .map(|tool| {
            let kind = text(&tool["type"]);
            match api {
                Api::Anthropic => {
                    Tool { name: text(&tool["name"]), schema: tool["input_schema"].clone(), custom: false }
                }
                Api::Chat => {
                    let function = &tool["function"];
                    Tool {
                        name: text(&function["name"]),
                        schema: function["parameters"].clone(),
                        custom: false,
                    }
                }
                Api::Responses => Tool {
                    name: tool["name"].as_str().unwrap_or(&kind).into(),
                    schema: tool["parameters"].clone(),
                    custom: kind == "custom",
                },
            }
        })
        .collect()
}

/// The tool that reads a file, or else a shell.
pub fn pick<'a>(tools: &'a [Tool], forced: Option<&str>) -> Option<&'a Tool> {
    const READERS: [&str; 13] = [
        "Read",
        "read",
        "read_file",
        "view",
        "view_file",
        "cat",
        "exec_command",
        "shell",
        "shell_command",
        "local_shell",
        "bash",
        "Bash",
        "exec",
    ];
    let named = |name: &str| tools.iter().find(|tool| tool.name == name);
    match forced {
        Some(name) => named(name),
        None => READERS
            .into_iter()
            .find_map(named)
            .or_else(|| tools.iter().find(|tool| tool.name.contains("read") || tool.name.contains("shell"))),
    }
}

/// Input that makes the tool read `file`, with something legal in each other required field.
pub fn arguments(tool: &Tool, file: &str) -> Value {
    if tool.custom {
        // A script that calls the real tool.
        return json!(format!(
            "const r = await tools.exec_command({{cmd: \"cat {file}\"}}); text(r.output);"
        ));
    }
    let fields = &tool.schema["properties"];
    let has = |key: &&str| fields.get(*key).is_some();
    let mut input = Map::new();
    let paths = ["file_path", "filePath", "absolute_path", "path", "filename", "file"];
    if let Some(key) = paths.into_iter().find(has) {
        input.insert(key.into(), json!(file));
    } else if let Some(key) = ["cmd", "command"].into_iter().find(has) {
        let words = fields[key]["type"] == "array";
        input.insert(key.into(), if words { json!(["cat", file]) } else { json!(format!("cat {file}")) });
    }
    for key in list(&tool.schema["required"]).iter().filter_map(Value::as_str) {
        if !input.contains_key(key) {
            let field = &fields[key];
            let value = match field["type"].as_str().unwrap_or("string") {
                "number" | "integer" => json!(1),
                "boolean" => json!(false),
                "array" => json!([]),
                "object" => json!({}),
                _ => field["enum"].get(0).cloned().unwrap_or_else(|| json!("read a file")),
            };
            input.insert(key.into(), value);
        }
    }
    Value::Object(input)
}

pub struct Shape {
    pub results: usize,
    pub messages: usize,
    pub system_bytes: usize,
}

pub fn shape(api: Api, request: &Value) -> Shape {
    let (messages, system) = match api {
        Api::Anthropic => (list(&request["messages"]), &request["system"]),
        Api::Chat => (list(&request["messages"]), &Value::Null),
        Api::Responses => (list(&request["input"]), &request["instructions"]),
    };
    let results = |message: &Value| match api {
        Api::Anthropic => {
            list(&message["content"]).iter().filter(|block| block["type"] == "tool_result").count()
        }
        Api::Chat => usize::from(message["role"] == "tool"),
        Api::Responses => usize::from(text(&message["type"]).ends_with("_call_output")),
    };
    let system_roles = |message: &&Value| message["role"] == "system" || message["role"] == "developer";
    let system_messages = messages.iter().filter(system_roles).map(|message| len(&message["content"]));
    Shape {
        results: messages.iter().map(results).sum(),
        messages: messages.len(),
        system_bytes: len(system) + system_messages.sum::<usize>(),
    }
}

pub fn len(value: &Value) -> usize {
    match value {
        Value::Null => 0,
        Value::String(text) => text.len(),
        other => other.to_string().len(),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("").into()
}
