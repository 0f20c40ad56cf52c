//! What is read leniently, what stays as it is, and what is refused.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use super::*;
use crate::{ToolErrorKind, schema_of};

fn spec(schema: &str) -> ToolSpec {
    ToolSpec {
        name: "Tool".into(),
        description: String::new(),
        input_schema: RawJson::parse(schema.to_owned()).unwrap(),
    }
}

const SCHEMA: &str = r##"{
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "x": {"type": "number"},
        "b": {"type": "boolean"},
        "s": {"type": "string"},
        "list": {"type": "array", "items": {"type": "string"}},
        "numbers": {"type": "array", "items": {"type": "integer"}},
        "o": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        "either": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]},
        "text_or_n": {"type": ["string", "integer"]},
        "list_or_o": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "object"}]},
        "nullable": {"type": ["integer", "null"]},
        "known": {"$ref": "#/$defs/N"},
        "any": {},
        "needed": {"type": "boolean"}
    },
    "additionalProperties": {"type": "integer"},
    "$defs": {"N": {"type": "integer"}}
}"##;

/// The corrected input, or `None` if it stays.
fn read(input: &str) -> Result<Option<String>, String> {
    let input = RawJson::parse(input.to_owned()).unwrap();
    match read_input(&spec(SCHEMA), &input) {
        Ok(Cow::Borrowed(_)) => Ok(None),
        Ok(Cow::Owned(corrected)) => Ok(Some(corrected.get().to_owned())),
        Err(error) => {
            assert_eq!(error.kind(), ToolErrorKind::BadInput);
            Err(error.text().to_owned())
        }
    }
}

#[test]
fn h_tol_01_what_is_clear_is_read_as_it_is_meant() {
    for (said, meant) in [
        (r#"{"n":"5000"}"#, r#"{"n":5000}"#),
        (r#"{"n":" 5000 "}"#, r#"{"n":5000}"#),
        (r#"{"n":5000.0}"#, r#"{"n":5000}"#),
        (r#"{"n":"-3.0"}"#, r#"{"n":-3}"#),
        (r#"{"n":"12345678901234567890"}"#, r#"{"n":12345678901234567890}"#),
        (r#"{"x":"2.5"}"#, r#"{"x":2.5}"#),
        (r#"{"x":"2"}"#, r#"{"x":2}"#),
        (r#"{"b":"True"}"#, r#"{"b":true}"#),
        (r#"{"b":"false"}"#, r#"{"b":false}"#),
        (r#"{"n":null,"s":"a"}"#, r#"{"s":"a"}"#),
        (r#"{"list":"a b"}"#, r#"{"list":["a b"]}"#),
        (r#"{"list":"[\"a\",\"b\"]"}"#, r#"{"list":["a","b"]}"#),
        (r#"{"numbers":"[1,\"2\"]"}"#, r#"{"numbers":[1,2]}"#),
        (r#"{"numbers":["1",2.0]}"#, r#"{"numbers":[1,2]}"#),
        (r#"{"o":"{\"n\":\"1\"}"}"#, r#"{"o":{"n":1}}"#),
        (r#"{"o":{"n":"1","more":7}}"#, r#"{"o":{"n":1,"more":7}}"#),
        (r#"{"either":"7"}"#, r#"{"either":7}"#),
        (r#"{"either":"true"}"#, r#"{"either":true}"#),
        (r#"{"known":"7"}"#, r#"{"known":7}"#),
        (r#"{"unnamed":"7"}"#, r#"{"unnamed":7}"#),
        (r#""{\"n\":\"1\"}""#, r#"{"n":1}"#),
    ] {
        assert_eq!(read(said), Ok(Some(meant.to_owned())), "{said}");
    }
}

#[test]
fn h_tol_01_what_the_schema_allows_is_never_touched() {
    for said in [
        r#"{"s":"5000"}"#,
        r#"{"s":"true"}"#,
        r#"{"s":"[\"a\"]"}"#,
        r#"{"s":"null"}"#,
        r#"{"text_or_n":"5"}"#,
        r#"{"list":["[1]"]}"#,
        r#"{"nullable":null}"#,
        r#"{"any":"5"}"#,
        r#"{"x":5}"#,
        r#"{ "n" : 1 }"#,
        r#"{"n":1,"n":2}"#,
        r#"{}"#,
    ] {
        assert_eq!(read(said), Ok(None), "{said}");
    }
}

#[test]
fn what_is_beside_a_corrected_value_keeps_its_text() {
    let said = r#"{"n":"1","any":1234567890123456789012345678901234567890.10,"s":"\u00e9"}"#;
    let meant = r#"{"n":1,"any":1234567890123456789012345678901234567890.10,"s":"\u00e9"}"#;
    assert_eq!(read(said), Ok(Some(meant.to_owned())));
}

#[test]
fn h_tol_01_what_is_not_clear_is_refused_with_path_expected_and_got() {
    for (said, told) in [
        (r#"{"n":"five"}"#, r#"n has to be a whole number, but is a string "five""#),
        (r#"{"n":"007"}"#, "n has to be"),
        (r#"{"n":"1,000"}"#, "n has to be"),
        (r#"{"n":"2.5"}"#, "n has to be"),
        (r#"{"n":2.5}"#, "n has to be a whole number, but is a number 2.5"),
        (r#"{"n":""}"#, "n has to be"),
        (r#"{"n":"null"}"#, "n has to be"),
        (r#"{"n":true}"#, "n has to be a whole number, but is true"),
        (r#"{"x":"NaN"}"#, "x has to be"),
        (r#"{"b":"yes"}"#, "b has to be true or false"),
        (r#"{"b":1}"#, "b has to be true or false, but is a whole number 1"),
        (r#"{"s":5}"#, "s has to be a string, but is a whole number 5"),
        (r#"{"list":"[ab]*.txt"}"#, "list has to be a list"),
        (r#"{"list":"[1]"}"#, "list has to be a list"),
        (r#"{"list":[1]}"#, "list[0] has to be a string"),
        (r#"{"numbers":"1"}"#, "numbers has to be a list"),
        (r#"{"o":{"n":null}}"#, "o.n has to be a whole number, but is null"),
        (r#"{"o":"{\"n\":}"}"#, "o has to be an object"),
        (r#"{"either":"maybe"}"#, "either has to be a whole number or true or false"),
        (r#"["a"]"#, "the input has to be an object, but is a list"),
    ] {
        let error = read(said).unwrap_err();
        assert!(error.contains(told), "{said}: {error}");
        assert!(error.starts_with("Tool cannot read its input: "), "{error}");
    }
}

#[test]
fn two_readings_are_none() {
    let schema = r#"{"type":"object","properties":{"v":{"anyOf":[
        {"type":"array","items":{"type":"string"}}, {"type":"integer"}]}}}"#;
    let input = RawJson::parse(r#"{"v":"5"}"#.to_owned()).unwrap();
    let error = read_input(&spec(schema), &input).unwrap_err();
    assert!(
        error.text().contains(r#"v has to be a list or a whole number, but is a string "5""#),
        "{error:?}"
    );
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
struct Input {
    limit: Option<u64>,
    #[serde(default)]
    all: bool,
    #[serde(default)]
    names: Vec<String>,
}

#[test]
fn typed_tools_get_it_too_however_they_are_called() {
    let tool = crate::tool_fn("typed", "", |input: Input, _| async move { Ok(format!("{input:?}")) });
    let spec = tool.spec().clone();
    assert_eq!(spec.input_schema.get(), schema_of::<Input>().get());
    let cx = crate::ToolCx::new(crate::CxParts {
        call: open_agent_model::CallId { turn: 0, index: 0 },
        session: open_agent_model::SessionId::from_number(1),
        run: None,
        agent: open_agent_model::AgentId::main(),
        parent: None,
        root: "/".into(),
        state: Arc::default(),
        answers: Vec::new(),
        cancel: tokio_util::sync::CancellationToken::new(),
        progress: Arc::new(|_, _| {}),
        blobs: Arc::new(crate::Absent),
        ports: crate::Ports {
            files: Arc::new(crate::Absent),
            runner: Arc::new(crate::Absent),
            background: Arc::new(crate::Absent),
            clock: Arc::new(NoTime),
        },
    });
    let prepare =
        |input: &str| Arc::clone(&tool).prepare(&RawJson::parse(input.to_owned()).unwrap(), &cx).map(|_| ());
    prepare(r#"{"limit":"7","all":null,"names":"a"}"#).unwrap();
    let error = prepare(r#"{"limit":"seven"}"#).unwrap_err();
    assert!(error.text().contains("limit has to be a whole number"), "{error:?}");
}

struct NoTime;

impl crate::Clock for NoTime {
    fn now(&self) -> open_agent_model::Timestamp {
        open_agent_model::Timestamp(0)
    }
    fn new_id(&self) -> u128 {
        0
    }
}
