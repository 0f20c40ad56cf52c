//! Answers with something odd in them: what is odd costs itself and nothing else, and what is no answer is no success.

use serde_json::Value;

use super::replay::{play_body, play_chunks};

const ODD: &[&str] =
    &["null", "\"n/a\"", "true", "[1]", "[[{}]]", "{\"x\":[]}", "-3", "2.5e-1", "1e999", "\"\\n\""];

fn stream(frames: &[&str]) -> String {
    frames.iter().map(|f| format!("data: {f}\n\n")).collect()
}

fn openai(frames: &[&str]) -> String {
    play_body("openai", &(stream(frames) + "data: [DONE]\n\n"))
}

fn anthropic(frames: &[&str]) -> String {
    play_body("anthropic", &stream(frames))
}

/// The pointers of all parts of `value`.
fn parts(value: &Value, at: &str, out: &mut Vec<String>) {
    let mut part = |key: &str, value: &Value| {
        let at = format!("{at}/{key}");
        parts(value, &at, out);
        out.push(at);
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| part(key, value)),
        Value::Array(list) => list.iter().enumerate().for_each(|(i, value)| part(&i.to_string(), value)),
        _ => {}
    }
}

/// Puts each odd value in the place of each part of `frame`; what `marks` says of other parts must still come out.
fn each_part_odd(frame: &str, marks: &[(&str, &str)], skip: &[&str], play: impl Fn(&str) -> String) {
    let whole: Value = serde_json::from_str(frame).unwrap();
    let mut all = Vec::new();
    parts(&whole, "", &mut all);
    for (pointer, mark) in marks {
        assert!(whole.pointer(pointer).is_some(), "{pointer}");
        assert!(play(frame).contains(mark), "{mark} of {frame}: {}", play(frame));
    }
    for part in all.iter().filter(|p| !skip.contains(&p.as_str())) {
        for odd in ODD {
            let mut changed = whole.clone();
            *changed.pointer_mut(part).unwrap() = Value::from("<odd>");
            let changed = changed.to_string().replace("\"<odd>\"", odd);
            let got = play(&changed);
            let within = |a: &str, b: &str| format!("{a}/").starts_with(&format!("{b}/"));
            for (pointer, mark) in marks.iter().filter(|(p, _)| !within(p, part) && !within(part, p)) {
                assert!(got.contains(mark), "{pointer} is lost of {changed}: {got}");
            }
        }
    }
}

#[test]
fn one_odd_field_costs_only_itself_in_chat_completions() {
    let delta = r#"{"role":"assistant","content":"Hello","reasoning_content":"hm","tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"R","arguments":"{\"a\":1}"}}]}"#;
    let usage = r#"{"prompt_tokens":9,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":5},"total_tokens":13}"#;
    let marks = |delta: &str| {
        [
            ("/model".to_owned(), "Some(\"m\")"),
            (format!("{delta}/content"), "Hello"),
            (format!("{delta}/reasoning_content"), "text: \"hm\""),
            (format!("{delta}/tool_calls/0/id"), "call c"),
            (format!("{delta}/tool_calls/0/function/name"), " R "),
            (format!("{delta}/tool_calls/0/function/arguments"), "{\"a\":1}"),
            ("/usage/completion_tokens".to_owned(), "output_tokens: 4"),
            ("/usage/prompt_tokens_details/cached_tokens".to_owned(), "cache_read_input_tokens: 5"),
        ]
    };
    let check = |kind: &str, play: &dyn Fn(&str) -> String| {
        let frame = format!(
            r#"{{"id":"1","object":"x","created":1,"model":"m","choices":[{{"index":0,"{kind}":{delta},"finish_reason":"tool_calls"}}],"usage":{usage}}}"#
        );
        let delta = format!("/choices/0/{kind}");
        let marks = marks(&delta);
        let marks: Vec<(&str, &str)> = marks.iter().map(|(p, m)| (p.as_str(), *m)).collect();
        let nameless =
            [format!("{delta}/tool_calls/0/function"), format!("{delta}/tool_calls/0/function/name")];
        let mut skip: Vec<&str> = nameless.iter().map(String::as_str).collect();
        // An answer of another number, or none at all.
        skip.extend(["/choices", "/choices/0", "/choices/0/index", "/choices/0/message"]);
        each_part_odd(&frame, &marks, &skip, play);
    };
    let tail = r#"{"choices":[{"delta":{"content":"!"},"finish_reason":"stop"}]}"#;
    check("delta", &|frame| openai(&[frame, tail]));
    check("message", &|frame| play_body("openai", frame));
    for lost in [
        r#"{"choices":"x","model":"m","usage":{"completion_tokens":4}}"#,
        r#"{"choices":[7],"model":"m","usage":{"completion_tokens":4}}"#,
        r#"{"choices":[{"delta":"plain text"}],"model":"m","usage":{"completion_tokens":4}}"#,
    ] {
        let got = openai(&[lost, tail]);
        assert!(got.contains("Some(\"m\")") && got.contains("output_tokens: 4"), "{lost}: {got}");
    }
    let alone = r#"{"choices":{"delta":{"content":"a","tool_calls":{"id":"c","function":{"name":"R"}}}}}"#;
    assert!(
        openai(&[alone, tail]).contains("Text(\"a!\")") && openai(&[alone, tail]).contains("call c R {}")
    );
}

#[test]
fn one_odd_field_costs_only_itself_in_messages() {
    let start = r#"{"type":"message_start","message":{"id":"1","model":"m","content":[],"usage":{"input_tokens":9,"cache_read_input_tokens":5,"cache_creation":{"ephemeral_5m_input_tokens":3}}}}"#;
    let tool = r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c","name":"R","input":{"a":1},"more":1}}"#;
    let stop = r#"{"type":"content_block_stop","index":0}"#;
    let text =
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Hello","more":1}}"#;
    let end = r#"{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":4,"more":1}}"#;
    let over = r#"{"type":"message_stop"}"#;
    each_part_odd(
        start,
        &[
            ("/message/model", "Some(\"m\")"),
            ("/message/usage/input_tokens", "input_tokens: 9"),
            ("/message/usage/cache_read_input_tokens", "cache_read_input_tokens: 5"),
            ("/message/usage/cache_creation/ephemeral_5m_input_tokens", "cache_write_5m_input_tokens: 3"),
        ],
        &["/type"],
        |frame| anthropic(&[frame, tool, stop, text, end, over]),
    );
    each_part_odd(
        tool,
        &[
            ("/content_block/id", "call c"),
            ("/content_block/name", " R "),
            ("/content_block/input", "{\"a\":1}"),
        ],
        &["/type", "/index", "/content_block/type", "/content_block/name"],
        |frame| anthropic(&[start, frame, stop, text, end, over]),
    );
    each_part_odd(text, &[("/delta/text", "Hello")], &["/type", "/delta/type"], |frame| {
        anthropic(&[start, tool, stop, frame, end, over])
    });
    each_part_odd(
        end,
        &[("/delta/stop_reason", "tool_use"), ("/usage/output_tokens", "output_tokens: 4")],
        &["/type"],
        |frame| anthropic(&[start, tool, stop, text, frame, over]),
    );
    let whole = r#"{"type":"message","id":"1","model":"m","content":[{"type":"text","text":"Hello"}],"stop_reason":"end_turn","usage":{"input_tokens":9,"output_tokens":4}}"#;
    each_part_odd(
        whole,
        &[
            ("/model", "Some(\"m\")"),
            ("/content/0/text", "Hello"),
            ("/usage/output_tokens", "output_tokens: 4"),
        ],
        &["/content/0/type"],
        |frame| play_body("anthropic", frame),
    );
}

#[test]
fn a_key_given_twice_counts_once() {
    let twice = r#"{"model":"n","model":"m","choices":[{"delta":{"role":"a","content":"x","content":"Hello"},"finish_reason":"stop"}]}"#;
    let got = openai(&[twice]);
    assert!(got.contains("Text(\"Hello\")") && got.contains("Some(\"m\")"), "{got}");
    let block = r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"no","text":"Hello"}}"#;
    let end = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#;
    assert!(anthropic(&[block, end]).contains("Text(\"Hello\")"));
}

#[test]
fn damaged_bytes_in_a_whole_answer_cost_only_themselves() {
    let mut body = br#"{"choices":[{"message":{"content":"a?b"},"finish_reason":"stop"}]}"#.to_vec();
    let at = body.iter().position(|b| *b == b'?').unwrap();
    body[at] = 0xff;
    let got = play_chunks("openai", &[&body]);
    assert!(got.contains("Text(\"a\u{fffd}b\")"), "{got}");
}

#[test]
fn a_count_that_makes_no_sense_is_not_told() {
    for count in ["1e30", "-7", "[1,2]", "\"many\"", "18446744073709551615"] {
        let usage = format!(
            r#"{{"choices":[{{"delta":{{"content":"x"}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":{count},"completion_tokens":"4"}}}}"#
        );
        let got = openai(&[&usage]);
        assert!(got.contains("input_tokens: 0, output_tokens: 4"), "{count}: {got}");
    }
    let got = openai(&[r#"{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}],"usage":[1,2]}"#]);
    assert!(got.contains("Text(\"x\")") && got.contains("output_tokens: 0"), "{got}");
}

#[test]
fn an_answer_without_anything_is_no_success() {
    let role = r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#;
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":9}}"#;
    for frames in [&[][..], &[usage], &[role], &[role, usage]] {
        let got = openai(frames);
        assert!(got.starts_with("error connection") && got.contains("the answer was empty"), "{got}");
        let got = play_body("openai", &(stream(frames) + ": end\n\n"));
        assert!(
            got.starts_with("error connection") && got.contains("before its answer was finished"),
            "{got}"
        );
    }
    let start = r#"{"type":"message_start","message":{"id":"1"}}"#;
    let got = anthropic(&[start, r#"{"type":"message_stop"}"#]);
    assert!(got.starts_with("error connection") && got.contains("the answer was empty"), "{got}");
    for body in [r#"{"choices":[]}"#, r#"{"choices":[{"message":null}]}"#, r#"{"choices":[{"message":{}}]}"#]
    {
        let got = play_body("openai", body);
        assert!(got.starts_with("error protocol") && got.contains("an answer without a message"), "{got}");
    }
    // Who says why it stopped has answered.
    let got = openai(&[r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#]);
    assert!(got.starts_with("end_turn"), "{got}");
    let got = anthropic(&[start, r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#]);
    assert!(got.starts_with("end_turn"), "{got}");
}

#[test]
fn an_answer_that_is_not_number_0_is_taken_if_no_other_comes() {
    let other = [
        r#"{"choices":[{"index":1,"delta":{"content":"o"}},{"index":2,"delta":{"content":"third"}}]}"#,
        r#"{"choices":[{"index":1,"delta":{"content":"ther"},"finish_reason":"length"}]}"#,
    ];
    for got in [openai(&other), play_body("openai", &stream(&other))] {
        assert!(got.starts_with("max_tokens") && got.contains("Text(\"other\")"), "{got}");
        assert!(!got.contains("third"), "{got}");
    }
    let own = r#"{"choices":[{"index":0,"delta":{"content":"own"},"finish_reason":"stop"}]}"#;
    for frames in [[own, other[0], other[1]], [other[0], own, other[1]], [other[0], other[1], own]] {
        let got = openai(&frames);
        assert!(got.starts_with("end_turn") && got.contains("Text(\"own\")"), "{got}");
    }
    let whole = r#"{"choices":[{"index":1,"message":{"content":"other"},"finish_reason":"stop"}]}"#;
    assert!(play_body("openai", whole).contains("Text(\"other\")"));
}

#[test]
fn a_call_in_the_old_form_is_one() {
    let got = openai(&[
        r#"{"choices":[{"delta":{"content":null,"function_call":{"name":"R","arguments":"{\"a\""}}}]}"#,
        r#"{"choices":[{"delta":{"function_call":{"arguments":":1}"}}}]}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"function_call"}]}"#,
    ]);
    assert!(got.starts_with("tool_use") && got.contains("call  R {\"a\":1} None"), "{got}");
    let whole = r#"{"choices":[{"message":{"content":null,"function_call":{"name":"R","arguments":"{\"a\":1}"}},"finish_reason":"function_call"}]}"#;
    assert!(play_body("openai", whole).contains("call  R {\"a\":1} None"));
    let both = r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"R","arguments":"{}"}}],"function_call":{"name":"R","arguments":"{}"}},"finish_reason":"stop"}]}"#;
    let got = openai(&[both]);
    assert_eq!(got.matches("call ").count(), 1, "{got}");
}

#[test]
fn what_comes_after_an_early_end_mark_is_not_lost() {
    let call = r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"R","arguments":"{}"}}]}}]}"#;
    let stop = r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#;
    for (before, after) in [("", stream(&[call, stop])), (stop, stream(&[call]))] {
        let before = if before.is_empty() { String::new() } else { stream(&[before]) };
        let body = format!("{before}data: [DONE]\n\n{after}data: [DONE]\n\n");
        for cut in [0, body.len() / 2, body.len() - 3] {
            let (a, b) = body.as_bytes().split_at(cut);
            let got = play_chunks("openai", &[a, b]);
            assert!(got.starts_with("tool_use") && got.contains("call c R {} None"), "{cut}: {got}");
        }
    }
    // An answer that is whole is not failed by what follows it.
    let text = r#"{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}"#;
    for noise in ["{\"error\":\"late\"}", "{broken", "<html>"] {
        let got = play_body("openai", &format!("{}data: [DONE]\n\ndata: {noise}\n\n", stream(&[text])));
        assert!(got.starts_with("end_turn") && got.contains("Text(\"x\")"), "{noise}: {got}");
    }
    let got = play_body("openai", "data: [DONE]\n\ndata: {\"error\":\"late\"}\n\n");
    assert!(got.starts_with("error server") && got.contains("late"), "{got}");
}

const RESPONSES: &str =
    r#"{"type":"response.created","response":{"id":"r","object":"response","status":"in_progress"}}"#;
const OLLAMA: &str =
    r#"{"model":"m","created_at":"t","message":{"role":"assistant","content":"Hi"},"done":false}"#;
const GEMINI: &str =
    r#"{"candidates":[{"content":{"parts":[{"text":"Hi"}],"role":"model"}}],"modelVersion":"m"}"#;
const MESSAGE: &str = r#"{"type":"message","role":"assistant","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn"}"#;
const COMPLETION: &str = r#"{"id":"1","object":"chat.completion","choices":[{"index":0,"message":{"content":"Hi"},"finish_reason":"stop"}]}"#;

#[test]
fn h_prv_05_another_api_inside_a_success_is_named() {
    let message_events = stream(&[
        r#"{"type":"message_start","message":{"id":"1"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}"#,
    ]);
    let chunk = r#"{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Hi"}}]}"#;
    let text = r#"{"object":"text_completion","choices":[{"index":0,"text":"Hi","finish_reason":null}]}"#;
    let responses = r#"{"id":"r","object":"response","output":[{"type":"message","content":[]}]}"#;
    let elsewhere = [
        (stream(&[RESPONSES]), "OpenAI Responses API"),
        (format!("event: response.created\n{}", stream(&[RESPONSES])), "OpenAI Responses API"),
        (responses.to_owned(), "OpenAI Responses API"),
        (format!("{OLLAMA}\n{OLLAMA}\n"), "native Ollama API"),
        (OLLAMA.to_owned(), "native Ollama API"),
        (r#"{"model":"m","response":"Hi","done":true}"#.to_owned(), "native Ollama API"),
        (stream(&[GEMINI]), "native Gemini API"),
        (GEMINI.to_owned(), "native Gemini API"),
        (format!("[{GEMINI}\n,\n{GEMINI}]"), "native Gemini API"),
        (format!("[{GEMINI}]"), "native Gemini API"),
        (stream(&[text]), "OpenAI text completions API"),
    ];
    let messages = [message_events, MESSAGE.to_owned()].map(|body| (body, "Anthropic Messages API"));
    let completions =
        [stream(&[chunk]), COMPLETION.to_owned()].map(|body| (body, "OpenAI chat completions API"));
    let routes = [
        ("openai", "OpenAI chat completions API", [&elsewhere[..], &messages].concat()),
        ("anthropic", "Anthropic Messages API", [&elsewhere[..], &completions].concat()),
    ];
    for (api, wanted, bodies) in routes {
        for (body, came) in bodies {
            let got = play_body(api, &body);
            assert!(got.starts_with("error configuration"), "{api}: {body}: {got}");
            for word in ["server at http://h/v1", came, wanted, "ChangeProvider { provider: "] {
                assert!(got.contains(word), "{word} of {body}: {got}");
            }
        }
    }
}

#[test]
fn events_of_another_api_in_a_good_answer_are_noise() {
    let text = r#"{"choices":[{"delta":{"content":"x"}}]}"#;
    let stop = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
    for noise in [RESPONSES, OLLAMA, GEMINI, MESSAGE, r#"{"type":"message_stop"}"#] {
        let got = openai(&[text, noise, stop]);
        assert!(got.starts_with("end_turn") && got.contains("Text(\"x\")"), "{noise}: {got}");
    }
    let start = r#"{"type":"message_start","message":{"id":"1"}}"#;
    let end = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#;
    for noise in [RESPONSES, OLLAMA, GEMINI, COMPLETION] {
        let got = anthropic(&[start, noise, end]);
        assert!(got.starts_with("end_turn"), "{noise}: {got}");
    }
}

#[test]
fn chunks_as_lines_without_framing_are_read() {
    let chunks = [
        r#"{"choices":[{"delta":{"content":"Hel"}}]}"#,
        r#"{"choices":[{"delta":{"content":"lo"}}]}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
    ];
    for body in [chunks.join("\n"), chunks.join("\r\n") + "\r\n[DONE]\n"] {
        let got = play_body("openai", &body);
        assert!(got.starts_with("end_turn") && got.contains("Text(\"Hello\")"), "{got}");
    }
    let cut = format!("{}\n{{\"choi", chunks[..2].join("\n"));
    let got = play_body("openai", &cut);
    assert!(got.starts_with("error connection") && got.contains("partial [Text(\"Hello\")]"), "{got}");
}

#[test]
fn h_str_09_an_error_that_says_nothing_is_none() {
    for error in ["{}", "false", "\"\"", "null", "[]", "0", r#"{"code":null,"message":""}"#] {
        let frame = format!(
            r#"{{"choices":[{{"delta":{{"content":"x"}},"finish_reason":"stop"}}],"error":{error}}}"#
        );
        assert!(openai(&[&frame]).contains("Text(\"x\")"), "{error}");
        assert!(play_body("openai", &frame.replace("delta", "message")).contains("Text(\"x\")"), "{error}");
        let text = format!(
            r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"x"}},"error":{error}}}"#
        );
        let end = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#;
        assert!(anthropic(&[&text, end]).contains("Text(\"x\")"), "{error}");
        let whole = MESSAGE.replacen('{', &format!("{{\"error\":{error},"), 1);
        assert!(play_body("anthropic", &whole).contains("Text(\"Hi\")"), "{error}");
    }
    for error in ["true", "\"upstream\"", r#"{"message":"upstream"}"#, "[\"upstream\"]", r#"{"code":502}"#] {
        let frame = format!(
            r#"{{"choices":[{{"delta":{{"content":"x"}},"finish_reason":"stop"}}],"error":{error}}}"#
        );
        assert!(openai(&[&frame]).starts_with("error "), "{error}: {}", openai(&[&frame]));
    }
    // An error's own event needs no words.
    let got = play_body("anthropic", "event: error\ndata: {\"error\":{}}\n\n");
    assert!(got.starts_with("error server"), "{got}");
}

fn block(index: u8, block: &str) -> String {
    format!(r#"{{"type":"content_block_start","index":{index},"content_block":{block}}}"#)
}

fn pieces(index: u8, more: &str) -> String {
    let more = Value::from(more);
    format!(
        r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"input_json_delta","partial_json":{more}}}}}"#
    )
}

fn stops(index: u8) -> String {
    format!(r#"{{"type":"content_block_stop","index":{index}}}"#)
}

#[test]
fn two_calls_open_at_once_come_out_right() {
    let tool =
        |id: &str, input: &str| format!(r#"{{"type":"tool_use","id":"{id}","name":"R","input":{input}}}"#);
    let end = r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#.to_owned();
    let frames = [
        block(0, &tool("a", "{}")),
        block(1, &tool("b", "{}")),
        pieces(0, "{\"x\""),
        pieces(1, "{\"y\""),
        pieces(0, ":1}"),
        pieces(1, ":2}"),
        stops(0),
        stops(1),
        end.clone(),
    ];
    let got = anthropic(&frames.each_ref().map(String::as_str));
    assert!(got.contains("call a R {\"x\":1} None\n  call b R {\"y\":2} None"), "{got}");
    // Arguments at the start of both, of which the pieces take the place, and no block is ever ended.
    let frames =
        [block(0, &tool("a", "{\"x\":0}")), block(1, &tool("b", "{\"y\":2}")), pieces(0, "{\"x\":1}"), end];
    let got = anthropic(&frames.each_ref().map(String::as_str));
    assert!(got.contains("call a R {\"x\":1} None\n  call b R {\"y\":2} None"), "{got}");
}

#[test]
fn unknown_blocks_open_at_once_keep_their_order_and_input() {
    let server = |id: &str| format!(r#"{{"type":"server_tool_use","id":"{id}","name":"s","input":{{}}}}"#);
    let text =
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"x"}}"#.to_owned();
    let end = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#.to_owned();
    let frames = [
        block(0, &server("a")),
        block(1, &server("b")),
        pieces(1, "{\"y\""),
        text,
        pieces(0, "{\"x\":1}"),
        pieces(1, ":2}"),
    ];
    for stop in [vec![stops(1), stops(0)], vec![stops(0), stops(1)], vec![]] {
        let frames = [&frames[..], &stop, std::slice::from_ref(&end)].concat();
        let got = anthropic(&frames.iter().map(String::as_str).collect::<Vec<_>>());
        let place = |word: &str| got.find(word).unwrap_or_else(|| panic!("{word}: {got}"));
        assert!(place("\"input\":{\"x\":1}") < place("\"input\":{\"y\":2}"), "{got}");
        assert!(place("\"input\":{\"y\":2}") < place("Text(\"x\")"), "{got}");
    }
}
