//! What servers do that no document says, frame by frame.

use super::replay::play_body;

const OPENAI: &[&str] = &[
    r#"{"id":"1","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":null},"finish_reason":null}]}"#,
    r#"{"id":"1","choices":[{"index":0,"delta":{"content":"Hel"}}]}"#,
    r#"{"id":"1","choices":[{"index":0,"delta":{"content":"lo"}}]}"#,
    r#"{"id":"1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"R","arguments":"{\"a\""}}]}}]}"#,
    r#"{"id":"1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]}}]}"#,
    r#"{"id":"1","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#,
    r#"{"id":"1","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4}}"#,
];

const ANTHROPIC: &[&str] = &[
    r#"{"type":"message_start","message":{"id":"1","model":"m","usage":{"input_tokens":9,"output_tokens":1}}}"#,
    r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
    r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}"#,
    r#"{"type":"content_block_stop","index":0}"#,
    r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"c","name":"R","input":{}}}"#,
    r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a\":1}"}}"#,
    r#"{"type":"content_block_stop","index":1}"#,
    r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":4}}"#,
    r#"{"type":"message_stop"}"#,
];

fn openai(frames: &[&str]) -> String {
    let data: String = frames.iter().map(|f| format!("data: {f}\n\n")).collect();
    play_body("openai", &(data + "data: [DONE]\n\n"))
}

fn anthropic(frames: &[&str]) -> String {
    let data: String = frames.iter().map(|f| format!("data: {f}\n\n")).collect();
    play_body("anthropic", &data)
}

fn with<'a>(frames: &[&'a str], at: usize, more: &'a str) -> Vec<&'a str> {
    let mut frames = frames.to_vec();
    frames.insert(at, more);
    frames
}

#[test]
fn h_str_07_nulls_anywhere_change_nothing() {
    let plain = openai(OPENAI);
    assert!(
        plain.contains("call c R {\"a\":1}") && plain.contains("Hello") && plain.contains("output_tokens: 4")
    );
    for noise in [
        r#"{"choices":null}"#,
        r#"{"choices":[]}"#,
        r#"{"id":"1","choices":[{"index":0,"delta":null,"finish_reason":null}],"usage":null}"#,
        r#"{"choices":[null]}"#,
        r#"{"choices":[{"index":0,"delta":{"content":null,"tool_calls":null,"reasoning_content":null}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"content":"","tool_calls":[]},"finish_reason":""}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":null,"function":null}]}}],"error":null}"#,
        r#"{"choices":[{"index":1,"delta":{"content":"of another choice"}}]}"#,
        "{}",
    ] {
        for at in 0..=OPENAI.len() {
            assert_eq!(openai(&with(OPENAI, at, noise)), plain, "{noise} at {at}");
        }
    }
    let plain = anthropic(ANTHROPIC);
    assert!(plain.contains("call c R {\"a\":1}") && plain.contains("Hello"), "{plain}");
    for noise in [
        r#"{"type":"content_block_delta","index":0,"delta":null}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":null}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":null},"usage":null}"#,
        r#"{"type":"content_block_start","index":7,"content_block":null}"#,
        r#"{"type":"ping"}"#,
        "{}",
    ] {
        for at in 0..ANTHROPIC.len() {
            // A new block would end the one that is open.
            if noise.contains("content_block_start") && (5..7).contains(&at) {
                continue;
            }
            assert_eq!(anthropic(&with(ANTHROPIC, at, noise)), plain, "{noise} at {at}");
        }
    }
}

#[test]
fn h_str_08_usage_counts_once_wherever_it_comes() {
    let plain = openai(OPENAI);
    let mut last_first: Vec<&str> = OPENAI.to_vec();
    last_first.swap(5, 6);
    assert_eq!(openai(&last_first), plain);
    let on_the_finish = r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":9,"completion_tokens":4}}"#;
    assert_eq!(openai(&[&OPENAI[..5], &[on_the_finish]].concat()), plain);
    // Said twice, and the finish said twice.
    assert_eq!(openai(&[OPENAI, &OPENAI[5..]].concat()), plain);
    let running = r#"{"choices":[{"delta":{}}],"usage":{"prompt_tokens":9,"completion_tokens":1}}"#;
    assert_eq!(openai(&with(OPENAI, 3, running)), plain);
    let hits =
        r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4,"prompt_cache_hit_tokens":5}}"#;
    let cached = openai(&[&OPENAI[..6], &[hits]].concat());
    assert!(cached.contains("input_tokens: 4,") && cached.contains("cache_read_input_tokens: 5"), "{cached}");
}

#[test]
fn h_str_12_unknown_fields_events_and_parts_are_skipped() {
    let mut body = String::new();
    for frame in OPENAI {
        body.push_str("id:1\nretry: 5\nevent: chunk\n: comment\ndata: ");
        body.push_str(frame);
        body.push_str("\n\nevent: news\ndata: hello\n\nid:1\n\ndata: {\"news\":[1]}\n\ndata:\n\n");
    }
    assert_eq!(play_body("openai", &(body + "data: [DONE]\n\n")), openai(OPENAI));
    let mut body = String::new();
    for frame in ANTHROPIC {
        body.push_str("id:1\ndata: ");
        body.push_str(frame);
        body.push_str("\n\nevent: news\ndata: {\"type\":\"news\",\"index\":[]}\n\n");
        body.push_str(
            "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"news\",\"x\":1}}\n\n",
        );
    }
    assert_eq!(play_body("anthropic", &body), anthropic(ANTHROPIC));
    let parts = r#"{"choices":[{"delta":{"content":[{"type":"text","text":"a"},{"type":"news","text":"no"},{"type":"text","text":"b"}]},"finish_reason":"stop"}]}"#;
    assert!(openai(&[parts]).contains(r#"Text("ab")"#));
}

#[test]
fn h_str_09_an_error_in_the_stream_is_never_a_success() {
    for error in [
        r#"{"error":{"message":"upstream","code":502}}"#,
        r#"{"error":"upstream"}"#,
        r#"{"message":"upstream","code":502,"type":"server_error"}"#,
        r#"{"object":"error","message":"upstream","code":502}"#,
    ] {
        for at in 0..5 {
            let got = openai(&with(OPENAI, at, error));
            assert!(got.starts_with("error server") && got.contains("upstream"), "{error}: {got}");
        }
    }
    let got = openai(&with(OPENAI, 3, r#"{"error":{"message":"upstream"}}"#));
    assert!(got.contains(r#"partial [Text("Hello")]"#), "{got}");
    for error in [
        r#"{"type":"error","error":{"type":"api_error","message":"upstream"}}"#,
        r#"{"error":{"message":"upstream"}}"#,
    ] {
        for at in 0..ANTHROPIC.len() {
            let got = anthropic(&with(ANTHROPIC, at, error));
            assert!(got.starts_with("error server") && got.contains("upstream"), "{error}: {got}");
        }
    }
    let whole = play_body("openai", r#"{"error":{"message":"upstream","code":"rate_limit_exceeded"}}"#);
    assert!(whole.starts_with("error rate_limited"), "{whole}");
}

#[test]
fn h_str_10_a_stream_without_its_end_is_an_error() {
    let data = |frames: &[&str]| frames.iter().map(|f| format!("data: {f}\n\n")).collect::<String>();
    for end in 0..5 {
        let got = play_body("openai", &data(&OPENAI[..end]));
        assert!(got.starts_with("error connection"), "{end}: {got}");
    }
    // Servers that leave out the end mark have still said why they stopped.
    assert_eq!(play_body("openai", &data(OPENAI)), openai(OPENAI));
    for end in 0..7 {
        let got = play_body("anthropic", &data(&ANTHROPIC[..end]));
        assert!(got.starts_with("error connection"), "{end}: {got}");
    }
    assert_eq!(play_body("anthropic", &data(&ANTHROPIC[..8])), anthropic(ANTHROPIC));
}

#[test]
fn calls_in_all_the_forms_that_servers_send() {
    let end = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
    let calls = |deltas: &[&str]| {
        let frames: Vec<String> =
            deltas.iter().map(|d| format!(r#"{{"choices":[{{"delta":{{"tool_calls":{d}}}}}]}}"#)).collect();
        let mut frames: Vec<&str> = frames.iter().map(String::as_str).collect();
        frames.push(end);
        let shown = openai(&frames);
        shown.lines().skip(1).map(str::trim).collect::<Vec<_>>().join("; ")
    };
    // Arguments as an object, no index, one index for all, an empty id later on, all calls in one frame.
    let object = r#"[{"id":"a","function":{"name":"R","arguments":{"x": 1}}}]"#;
    assert_eq!(calls(&[object]), r#"call a R {"x": 1} None"#);
    let both = r#"[{"id":"a","function":{"name":"R","arguments":"{}"}},{"id":"b","function":{"name":"G","arguments":"{}"}}]"#;
    assert_eq!(calls(&[both]), "call a R {} None; call b G {} None");
    let same = [
        r#"[{"index":0,"id":"a","function":{"name":"R","arguments":"{}"}}]"#,
        r#"[{"index":0,"id":"b","function":{"name":"R","arguments":"{}"}}]"#,
    ];
    assert_eq!(calls(&same), "call a R {} None; call b R {} None");
    let empty = [
        r#"[{"index":0,"id":"a","function":{"name":"R","arguments":"{\"x\""}}]"#,
        r#"[{"index":0,"id":"","function":{"name":"","arguments":":1}"}}]"#,
    ];
    assert_eq!(calls(&empty), r#"call a R {"x":1} None"#);
}

#[test]
fn a_refusal_in_words_is_one() {
    let words = r#"{"choices":[{"delta":{"refusal":"I will not."}}]}"#;
    let got = openai(&[words, r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#]);
    assert!(got.starts_with("refusal") && got.contains("I will not."), "{got}");
}

#[test]
fn thinking_under_any_of_its_names() {
    for delta in [
        r#"{"reasoning_content":"t"}"#,
        r#"{"reasoning":"t"}"#,
        r#"{"reasoning_content":"t","reasoning":"t"}"#,
    ] {
        let frame = format!(r#"{{"choices":[{{"delta":{delta}}}]}}"#);
        let got = openai(&[&frame, r#"{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}"#]);
        assert!(got.contains(r#"Thinking { text: "t", signature: None, details: None }"#), "{got}");
    }
    let details = r#"{"choices":[{"delta":{"reasoning":"t","reasoning_details":[{"type":"reasoning.text","text":"t","index":0}]}}]}"#;
    let got = openai(&[details, r#"{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}"#]);
    assert!(got.contains(r#"details: Some([{"type":"reasoning.text","text":"t","index":0}])"#), "{got}");
}

#[test]
fn unknown_blocks_are_kept_with_what_is_added_to_them() {
    let block = r#"{"type":"server_tool_use", "id":"s", "name":"web_search", "input":{}}"#;
    let result = r#"{"type":"web_search_tool_result","tool_use_id":"s","content":[{"n": 1.0e2}]}"#;
    let start = |index: u8, block: &str| {
        format!(r#"{{"type":"content_block_start","index":{index},"content_block":{block}}}"#)
    };
    let (first, second) = (start(0, block), start(1, result));
    let got = anthropic(&[
        &first,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"q\":"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"1}"}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        &second,
        r#"{"type":"content_block_stop","index":1}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"pause_turn"}}"#,
        r#"{"type":"message_stop"}"#,
    ]);
    assert!(got.starts_with("pause_turn"), "{got}");
    assert!(
        got.contains(r#"{"type":"server_tool_use","id":"s","name":"web_search","input":{"q":1}}"#),
        "{got}"
    );
    assert!(got.contains(result), "{got}");
}

#[test]
fn cache_writes_are_split_by_their_time_to_live() {
    let usage = |text: &str| {
        let frame = format!(r#"{{"type":"message_start","message":{{"id":"1","usage":{text}}}}}"#);
        anthropic(&[&frame, r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#])
    };
    let split = usage(
        r#"{"input_tokens":1,"cache_creation_input_tokens":7,"cache_creation":{"ephemeral_5m_input_tokens":3,"ephemeral_1h_input_tokens":4}}"#,
    );
    assert!(split.contains("cache_write_5m_input_tokens: 3, cache_write_1h_input_tokens: 4"), "{split}");
    let whole = usage(r#"{"input_tokens":1,"cache_creation_input_tokens":7}"#);
    assert!(whole.contains("cache_write_5m_input_tokens: 7, cache_write_1h_input_tokens: 0"), "{whole}");
}

#[test]
fn arguments_at_the_start_of_a_block_count_unless_more_follow() {
    let start = r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c","name":"R","input":{"a":1}}}"#;
    let end = r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#;
    let stop = r#"{"type":"content_block_stop","index":0}"#;
    assert!(anthropic(&[start, stop, end]).contains(r#"call c R {"a":1} None"#));
    let delta = r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"a\":2}"}}"#;
    assert!(anthropic(&[start, delta, stop, end]).contains(r#"call c R {"a":2} None"#));
}
