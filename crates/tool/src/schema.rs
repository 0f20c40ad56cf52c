//! JSON Schema of input types. Owns what is taken off schemars' output and in which order the rest is written: the bytes
//! of a tool list must be the same in every process and feature set, or a vendor's prompt cache misses.

use open_agent_model::RawJson;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

/// The schema of `T` as tools send it: inlined, without `$schema`, titles, number formats and `null` alternatives.
#[must_use]
pub fn schema_of<T: JsonSchema>() -> RawJson {
    let settings = SchemaSettings::draft2020_12().with(|s| {
        s.inline_subschemas = true;
        s.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    simplify(&mut schema);
    if let Some(object) = schema.as_object_mut() {
        object.entry("type").or_insert_with(|| "object".into());
        object.entry("properties").or_insert_with(|| Value::Object(serde_json::Map::new()));
        object.remove("description");
    }
    let mut text = String::new();
    write(&schema, &mut text);
    RawJson::parse(text).unwrap_or_else(|_| RawJson::object())
}

fn simplify(value: &mut Value) {
    match value {
        Value::Object(map) => {
            // Not inside `properties`, where a name such as `format` is a field and no keyword.
            let is_keyword = |map: &serde_json::Map<String, Value>, key: &str| {
                map.get(key).is_some_and(|v| !v.is_object())
            };
            for key in ["title", "format", "minimum", "$schema"] {
                if is_keyword(map, key) {
                    map.remove(key);
                }
            }
            if let Some(Value::Array(types)) = map.get_mut("type") {
                types.retain(|t| t != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    map.insert("type".into(), only);
                }
            }
            if let Some(Value::Array(values)) = map.get_mut("enum") {
                values.retain(|v| !v.is_null());
            }
            if let Some(Value::Array(any)) = map.get_mut("anyOf") {
                any.retain(|v| v.get("type").is_none_or(|t| t != "null"));
                if let [Value::Object(only)] = any.as_slice() {
                    let only = only.clone();
                    map.remove("anyOf");
                    for (key, inner) in only {
                        map.entry(key).or_insert(inner);
                    }
                }
            }
            if map.get("default").is_some_and(Value::is_null) {
                map.remove("default");
            }
            map.values_mut().for_each(simplify);
        }
        Value::Array(items) => items.iter_mut().for_each(simplify),
        _ => {}
    }
}

/// Keys sorted, so that serde_json's `preserve_order`, which any dependency can switch on, changes nothing.
fn write(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort();
            out.push('{');
            for (i, key) in keys.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                out.push_str(&Value::String((*key).clone()).to_string());
                out.push(':');
                write(&map[*key], out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        other => out.push_str(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is read")]
    struct Input {
        /// Which file.
        path: String,
        /// How many lines.
        limit: Option<u64>,
        format: Option<Mode>,
    }

    #[derive(JsonSchema)]
    #[serde(rename_all = "snake_case")]
    #[expect(dead_code, reason = "only its schema is read")]
    enum Mode {
        A,
        B,
    }

    #[test]
    fn schemas_are_plain_and_sorted() {
        let want = concat!(
            r#"{"properties":{"format":{"enum":["a","b"],"type":"string"},"#,
            r#""limit":{"description":"How many lines.","type":"integer"},"#,
            r#""path":{"description":"Which file.","type":"string"}},"required":["path"],"type":"object"}"#
        );
        assert_eq!(schema_of::<Input>().get(), want);
    }
}
