//! The one place where the input of a call is read leniently, before any tool sees it.
//!
//! Models write `"5000"` for 5000, `"True"` for true, `null` for a field that they leave out, one string for a list of
//! one, or a list inside a string. What they mean is clear, and refusing it costs a turn. [`read_input`] corrects such
//! values as far as the tool's own schema decides what is meant. It never touches a value that the schema allows as it
//! is, above all no string where a string is allowed, and where more than one reading is possible it refuses the input
//! and says why.
//!
//! Values are replaced in the input's own text, so that everything else stays as the model wrote it: a long number does
//! not lose digits on the way.

use std::borrow::Cow;
use std::fmt;

use open_agent_model::{RawJson, ToolSpec};
use serde::Deserializer as _;
use serde::de::{MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::ToolError;

/// How deep schemas are followed; what lies deeper stays as it is.
const MAX_DEPTH: usize = 32;
/// Characters of a value that an error shows.
const MAX_SHOWN: usize = 100;
/// Integers above this are not exact where they were written as floats.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// Reads the input of a call by the tool's schema and returns it as the tool expects it: borrowed if nothing had to be
/// corrected.
///
/// # Errors
///
/// Returns an error of kind [`BadInput`](crate::ToolErrorKind::BadInput) if a value has a type that the schema does not
/// allow and that is not clearly another way to write one that it does. The text names the value's path, what is
/// expected and what is there.
pub fn read_input<'a>(spec: &ToolSpec, input: &'a RawJson) -> Result<Cow<'a, RawJson>, ToolError> {
    let Ok(schema) = serde_json::from_str::<Value>(spec.input_schema.get()) else {
        return Ok(Cow::Borrowed(input));
    };
    let reader = Reader { root: &schema };
    match reader.read(&schema, input.get(), &Place::default()) {
        Ok(None) => Ok(Cow::Borrowed(input)),
        Ok(Some(text)) => RawJson::parse(text).map(Cow::Owned).map_err(ToolError::from),
        Err(mismatch) => {
            let schema = spec.input_schema.get();
            let text = format!("{} cannot read its input: {mismatch}. Its schema is {schema}", spec.name);
            Err(ToolError::bad_input(text))
        }
    }
}

/// A value that cannot be read.
struct Mismatch {
    path: String,
    expected: String,
    got: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "the input" } else { &self.path };
        write!(f, "{path} has to be {}, but is {}", self.expected, self.got)
    }
}

/// Where in the input a value stands.
#[derive(Clone, Default)]
struct Place {
    path: String,
    depth: usize,
}

impl Place {
    fn field(&self, name: &str) -> Self {
        let dot = if self.path.is_empty() { "" } else { "." };
        Self { path: format!("{}{dot}{name}", self.path), depth: self.depth + 1 }
    }

    fn item(&self, at: usize) -> Self {
        Self { path: format!("{}[{at}]", self.path), depth: self.depth + 1 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Null,
    Boolean,
    Integer,
    Number,
    String,
    Array,
    Object,
}

impl Type {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "null" => Self::Null,
            "boolean" => Self::Boolean,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "string" => Self::String,
            "array" => Self::Array,
            "object" => Self::Object,
            _ => return None,
        })
    }

    /// The type of a JSON text. A number counts as an integer if it is written as one.
    fn of(text: &str) -> Self {
        match text.as_bytes().first() {
            Some(b'n') => Self::Null,
            Some(b't' | b'f') => Self::Boolean,
            Some(b'"') => Self::String,
            Some(b'[') => Self::Array,
            Some(b'{') => Self::Object,
            _ if text.contains(['.', 'e', 'E']) => Self::Number,
            _ => Self::Integer,
        }
    }

    fn phrase(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "true or false",
            Self::Integer => "a whole number",
            Self::Number => "a number",
            Self::String => "a string",
            Self::Array => "a list",
            Self::Object => "an object",
        }
    }
}

/// What became of a value: `None` if it stays, else its new text.
type Corrected = Result<Option<String>, Mismatch>;

struct Reader<'a> {
    root: &'a Value,
}

impl Reader<'_> {
    fn read(&self, schema: &Value, text: &str, place: &Place) -> Corrected {
        let text = text.trim();
        if place.depth > MAX_DEPTH {
            return Ok(None);
        }
        let branches = self.branches(schema, 0);
        let allowed: Vec<(Type, &Value)> = branches.iter().flat_map(|branch| types(branch)).collect();
        if allowed.is_empty() || branches.iter().any(|branch| types(branch).is_empty()) {
            // A schema without a type allows everything.
            return Ok(None);
        }
        let actual = Type::of(text);
        let fits = |wanted: Type| wanted == actual || (wanted == Type::Number && actual == Type::Integer);
        let fitting: Vec<&Value> =
            allowed.iter().filter(|(t, _)| fits(*t)).map(|(_, branch)| *branch).collect();
        match fitting[..] {
            [] => self.convert(&allowed, text, actual, place),
            [branch] if actual == Type::Object => self.object(branch, text, place),
            [branch] if actual == Type::Array => self.array(branch, text, place),
            // Which of several objects is meant is the tool's to find out.
            _ => Ok(None),
        }
    }

    /// The alternatives that a schema allows, with references followed.
    fn branches<'s>(&'s self, schema: &'s Value, depth: usize) -> Vec<&'s Value> {
        if depth > 8 {
            return vec![schema];
        }
        if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
            let target = target.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
            return target.map_or(vec![&Value::Bool(true)], |target| self.branches(target, depth + 1));
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(Value::Array(any)) = schema.get(key) {
                return any.iter().flat_map(|branch| self.branches(branch, depth + 1)).collect();
            }
        }
        if let Some([only]) = schema.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
            return self.branches(only, depth + 1);
        }
        vec![schema]
    }

    fn object(&self, schema: &Value, text: &str, place: &Place) -> Corrected {
        let Some(fields) = fields(text) else { return Ok(None) };
        let required = |name: &str| {
            let list = schema.get("required").and_then(Value::as_array);
            list.is_some_and(|list| list.iter().any(|r| r == name))
        };
        let mut out: Vec<(String, Cow<'_, str>)> = Vec::with_capacity(fields.len());
        let mut is_changed = false;
        for (name, value) in fields {
            let property = schema.get("properties").and_then(|p| p.get(&name));
            let property = property.or_else(|| schema.get("additionalProperties").filter(|a| a.is_object()));
            let Some(property) = property else {
                out.push((name, Cow::Borrowed(value)));
                continue;
            };
            if value == "null" && !self.allows(property, Type::Null) {
                let place = place.field(&name);
                if required(&name) {
                    return Err(self.mismatch(property, value, &place));
                }
                // An optional field that is null is one that was left out.
                is_changed = true;
                continue;
            }
            let corrected = self.read(property, value, &place.field(&name))?;
            is_changed |= corrected.is_some();
            out.push((name, corrected.map_or(Cow::Borrowed(value), Cow::Owned)));
        }
        Ok(is_changed.then(|| {
            let fields: Vec<String> =
                out.iter().map(|(name, value)| format!("{}:{value}", Value::from(name.as_str()))).collect();
            format!("{{{}}}", fields.join(","))
        }))
    }

    fn array(&self, schema: &Value, text: &str, place: &Place) -> Corrected {
        let Some(items) = schema.get("items").filter(|items| items.is_object()) else { return Ok(None) };
        let Ok(values) = serde_json::from_str::<Vec<&RawValue>>(text) else { return Ok(None) };
        let mut out: Vec<Cow<'_, str>> = Vec::with_capacity(values.len());
        let mut is_changed = false;
        for (at, value) in values.into_iter().map(RawValue::get).enumerate() {
            // Schemas of ours do not say where an item may be null.
            let corrected = if value == "null" { None } else { self.read(items, value, &place.item(at))? };
            is_changed |= corrected.is_some();
            out.push(corrected.map_or(Cow::Borrowed(value), Cow::Owned));
        }
        Ok(is_changed.then(|| format!("[{}]", out.join(","))))
    }

    /// Reads a value whose type is not allowed as one whose type is. There has to be exactly one way.
    fn convert(&self, allowed: &[(Type, &Value)], text: &str, actual: Type, place: &Place) -> Corrected {
        let mut readings: Vec<String> = Vec::new();
        for (wanted, branch) in allowed {
            let reading = match actual {
                Type::Number if *wanted == Type::Integer => whole(text),
                Type::String => self.read_string(*wanted, branch, text, place),
                _ => None,
            };
            readings.extend(reading);
        }
        readings.sort();
        readings.dedup();
        match &mut readings[..] {
            [only] => Ok(Some(std::mem::take(only))),
            _ => Err(mismatch(allowed.iter().map(|(t, _)| *t), text, place)),
        }
    }

    /// What the string `text` means where `wanted` is expected.
    fn read_string(&self, wanted: Type, branch: &Value, text: &str, place: &Place) -> Option<String> {
        let said = serde_json::from_str::<String>(text).ok()?;
        let said = said.trim();
        match wanted {
            Type::Integer | Type::Number => {
                // Exactly what JSON calls a number: `007` or `1,000` may mean something else.
                let number = serde_json::from_str::<&RawValue>(said).ok()?.get();
                match Type::of(number) {
                    Type::Integer => Some(number.to_owned()),
                    Type::Number if wanted == Type::Number => Some(number.to_owned()),
                    Type::Number => whole(number),
                    _ => None,
                }
            }
            Type::Boolean => {
                ["true", "false"].into_iter().find(|b| said.eq_ignore_ascii_case(b)).map(str::to_owned)
            }
            Type::Object if said.starts_with('{') => self.inner(branch, said, place),
            Type::Array if said.starts_with('[') => self.inner(branch, said, place),
            Type::Array => {
                let items = branch.get("items")?;
                (!said.is_empty() && self.allows(items, Type::String)).then(|| format!("[{text}]"))
            }
            Type::Object | Type::String | Type::Null => None,
        }
    }

    /// A list or an object that was written into a string.
    fn inner(&self, branch: &Value, said: &str, place: &Place) -> Option<String> {
        let raw = serde_json::from_str::<&RawValue>(said).ok()?.get();
        let deeper = Place { path: place.path.clone(), depth: place.depth + 1 };
        let corrected = self.read(branch, raw, &deeper).ok()?;
        Some(corrected.unwrap_or_else(|| raw.to_owned()))
    }

    fn allows(&self, schema: &Value, wanted: Type) -> bool {
        let branches = self.branches(schema, 0);
        branches.iter().any(|branch| {
            let types = types(branch);
            types.is_empty() || types.iter().any(|(t, _)| *t == wanted)
        })
    }

    fn mismatch(&self, schema: &Value, text: &str, place: &Place) -> Mismatch {
        let branches = self.branches(schema, 0);
        mismatch(branches.iter().flat_map(|branch| types(branch)).map(|(t, _)| t), text, place)
    }
}

fn mismatch(allowed: impl Iterator<Item = Type>, text: &str, place: &Place) -> Mismatch {
    let mut expected: Vec<&str> = allowed.map(Type::phrase).collect();
    expected.dedup();
    let shown: String = text.chars().take(MAX_SHOWN).collect();
    let cut = if shown.len() < text.len() { "…" } else { "" };
    let what = match Type::of(text) {
        Type::Null => String::new(),
        actual => format!("{} ", actual.phrase()),
    };
    let what = if what.starts_with("true") { "" } else { what.as_str() };
    Mismatch { path: place.path.clone(), expected: expected.join(" or "), got: format!("{what}{shown}{cut}") }
}

/// The types that a schema without alternatives allows, each with the schema. None: it does not say.
fn types<'s>(schema: &'s Value) -> Vec<(Type, &'s Value)> {
    let named = |name: &'s Value| name.as_str().and_then(Type::named).map(|t| (t, schema));
    match schema.get("type") {
        Some(Value::Array(names)) => names.iter().filter_map(named).collect(),
        Some(name) => named(name).into_iter().collect(),
        None => Vec::new(),
    }
}

/// `5000.0` and `5e3` as `5000`; `None` for what is not whole or not exact.
fn whole(number: &str) -> Option<String> {
    let value: f64 = number.parse().ok()?;
    (value.fract() == 0.0 && value.abs() < MAX_EXACT).then(|| format!("{}", value as i64))
}

/// The fields of an object in their order, with the texts of their values.
fn fields(text: &str) -> Option<Vec<(String, &str)>> {
    struct Fields;
    impl<'de> Visitor<'de> for Fields {
        type Value = Vec<(String, &'de str)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut fields = Vec::new();
            while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
                fields.push((name, value.get()));
            }
            Ok(fields)
        }
    }
    serde_json::Deserializer::from_str(text).deserialize_map(Fields).ok()
}

#[cfg(test)]
mod tests;
