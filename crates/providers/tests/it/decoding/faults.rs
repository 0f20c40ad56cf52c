//! Answers that fail on the way, in the forms in which servers tell it, and answers that end in odd ways.

use super::replay::{play_body, play_chunks};

const TEXT: &str = r#"{"choices":[{"index":0,"delta":{"content":"half"}}]}"#;
const STOP: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
const START: &str = r#"{"type":"message_start","message":{"id":"1","model":"m"}}"#;
const BLOCK: &str = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"half"}}"#;
const END: &str = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#;

fn data(frames: &[&str]) -> String {
    frames.iter().map(|f| format!("data: {f}\n\n")).collect()
}

fn openai(frames: &[&str]) -> String {
    play_body("openai", &(data(frames) + "data: [DONE]\n\n"))
}

fn anthropic(frames: &[&str]) -> String {
    play_body("anthropic", &data(frames))
}

/// Frames that tell an error with the word "upstream".
const TOLD: &[&str] = &[
    r#"[{"error":{"message":"upstream"}}]"#,
    r#"{"detail":"upstream"}"#,
    r#"{"detail":[{"msg":"upstream"}]}"#,
    r#"{"code":500,"msg":"upstream"}"#,
    r#"{"code":"E1","msg":"upstream","data":null}"#,
    r#"{"base_resp":{"status_code":1004,"status_msg":"upstream"}}"#,
    r#"{"choices":null,"base_resp":{"status_code":1004,"status_msg":"upstream"}}"#,
    r#"{"choices":[{"index":0,"delta":{"content":""}}],"base_resp":{"status_code":1004,"status_msg":"upstream"}}"#,
    r#"{"errors":[{"message":"upstream"}]}"#,
    r#"{"errors":["upstream"]}"#,
    r#"{"error_code":17,"error_msg":"upstream"}"#,
    r#"{"message":"upstream","usage":{"prompt_tokens":1}}"#,
    "Error: upstream",
    "[ERROR] upstream",
];

/// The same where more than one line, or no `data` field at all, tells it.
const FRAMED: &[&str] = &[
    "event: error\ndata: upstream died\n\n",
    "event: error\ndata: {upstream\n\n",
    "error: {\"code\":500,\"message\":\"upstream\"}\n\n",
    "Error: upstream\n\n",
    "{\"error\":{\"message\":\"upstream\"}}\n\n",
    "{\"detail\":\"upstream\"}\n\n",
];

#[test]
fn h_str_09_an_error_in_any_form_is_told_with_its_words() {
    let framed: Vec<String> =
        TOLD.iter().map(|t| data(&[t])).chain(FRAMED.iter().map(|f| (*f).to_owned())).collect();
    for error in &framed {
        for end in ["", "data: [DONE]\n\n"] {
            let got = play_body("openai", &format!("{}{error}{end}", data(&[TEXT])));
            assert!(got.starts_with("error ") && got.contains("upstream"), "{error}{end}: {got}");
            assert!(
                got.contains("broke off its answer: ") && got.contains("Text(\"half\")"),
                "{error}: {got}"
            );
        }
        if error.contains("choices") {
            continue;
        }
        for end in ["", "data: {\"type\":\"message_stop\"}\n\n"] {
            let got = play_body("anthropic", &format!("{}{error}{end}", data(&[START, BLOCK])));
            assert!(got.starts_with("error ") && got.contains("upstream"), "{error}{end}: {got}");
            assert!(
                got.contains("broke off its answer: ") && got.contains("Text(\"half\")"),
                "{error}: {got}"
            );
        }
    }
    let bare = play_body("openai", &format!("{}event: error\ndata:\n\n", data(&[TEXT])));
    assert!(bare.contains("broke off its answer: no reason given"), "{bare}");
    // The last line may lack its end.
    let cut = play_body("openai", &format!("{}error: upstream", data(&[TEXT])));
    assert!(cut.contains("broke off its answer: upstream"), "{cut}");
    let cut = play_body("openai", &format!("{}data: x\n{{\"detail\":\"upstream\"}}", data(&[TEXT])));
    assert!(cut.contains("broke off its answer: upstream"), "{cut}");
}

#[test]
fn h_str_09_the_words_of_an_error_are_found_in_each_form() {
    for told in TOLD.iter().filter(|t| t.starts_with(['{', '[']) && !t.contains("ERROR")) {
        let got = openai(&[TEXT, told]);
        let words = if told.contains("detail\":[") { r#"[{"msg":"upstream"}]"# } else { "upstream" };
        assert!(got.contains(&format!("broke off its answer: {words} |")), "{told}: {got}");
    }
    for (api, whole) in [
        ("openai", r#"{"code":500,"msg":"upstream"}"#),
        ("openai", r#"{"base_resp":{"status_code":1004,"status_msg":"upstream"}}"#),
        ("anthropic", r#"{"detail":"upstream"}"#),
        ("anthropic", r#"{"errors":[{"message":"upstream"}]}"#),
    ] {
        let got = play_body(api, whole);
        assert!(got.starts_with("error server") && got.contains("answer: upstream"), "{whole}: {got}");
    }
}

#[test]
fn h_str_09_a_stray_field_beside_content_is_no_error() {
    for stray in [
        r#""detail":"x""#,
        r#""code":500,"msg":"x""#,
        r#""message":"x""#,
        r#""errors":[{"message":"x"}]"#,
        r#""error_code":17,"error_msg":"x""#,
        r#""base_resp":{"status_code":1004,"status_msg":"x"}"#,
    ] {
        let text = TEXT.replacen('{', &format!("{{{stray},"), 1);
        let got = openai(&[&text, STOP]);
        assert!(got.starts_with("end_turn") && got.contains("Text(\"half\")"), "{stray}: {got}");
        for at in [START, BLOCK] {
            if stray.contains("message\":\"x\"") && at == START {
                continue;
            }
            let odd = at.replacen('{', &format!("{{{stray},"), 1);
            let frames = if at == START { [odd.as_str(), BLOCK, END] } else { [START, odd.as_str(), END] };
            let got = anthropic(&frames);
            assert!(got.starts_with("end_turn") && got.contains("Text(\"half\")"), "{stray}: {got}");
        }
    }
    for fine in [
        r#"{"choices":[],"base_resp":{"status_code":0,"status_msg":""}}"#,
        r#"{"base_resp":{"status_code":0,"status_msg":"success"}}"#,
        r#"{"code":0,"msg":"success"}"#,
        r#"{"code":200,"message":"OK"}"#,
        r#"{"error_code":0,"error_msg":""}"#,
        r#"{"errors":[],"detail":null,"message":null}"#,
        "errors are no more",
        "[]",
    ] {
        assert!(openai(&[TEXT, fine, STOP]).starts_with("end_turn"), "{fine}");
        assert!(anthropic(&[START, BLOCK, fine, END]).starts_with("end_turn"), "{fine}");
    }
    let quiet = format!("{}error: null\n\n{}", data(&[TEXT]), data(&[STOP]));
    assert!(play_body("openai", &quiet).starts_with("end_turn"));
}

#[test]
fn h_str_09_a_choice_that_failed_is_an_error_in_pieces_and_whole() {
    let choice = |more: &str| format!(r#"{{"id":"1","choices":[{{"index":0,{more}}}]}}"#);
    for (fields, want) in [
        (r#""error":{"message":"upstream","code":502},"finish_reason":"stop""#, "upstream"),
        (r#""error":{"message":"upstream","code":502},"finish_reason":"error""#, "upstream"),
        (r#""error":"upstream""#, "upstream"),
        (r#""finish_reason":"error","native_finish_reason":"upstream""#, "upstream"),
    ] {
        let piece = choice(&format!(r#""delta":{{"content":" more"}},{fields}"#));
        let got = openai(&[TEXT, &piece]);
        assert!(got.starts_with("error server") && got.contains(want), "{piece}: {got}");
        assert!(got.contains("partial [Text(\"half more\")]"), "{piece}: {got}");
        let whole = choice(&format!(r#""message":{{"content":"half"}},{fields}"#));
        let got = play_body("openai", &whole);
        assert!(got.starts_with("error server") && got.contains(want), "{whole}: {got}");
        assert!(got.contains("partial [Text(\"half\")]"), "{whole}: {got}");
    }
    let fine = choice(r#""delta":{"content":"x"},"error":null,"finish_reason":"stop""#);
    assert!(openai(&[&fine]).starts_with("end_turn"));
    assert!(play_body("openai", &fine.replace("delta", "message")).starts_with("end_turn"));
}

#[test]
fn h_str_03_calls_without_an_index_are_told_apart_by_their_ids() {
    let calls = |calls: &str| format!(r#"{{"choices":[{{"index":0,"delta":{{"tool_calls":[{calls}]}}}}]}}"#);
    let opened = calls(r#"{"id":"a","function":{"name":"R"}},{"id":"b","function":{"name":"G"}}"#);
    let second = calls(r#"{"id":"b","function":{"arguments":"{\"y\":2}"}}"#);
    let first = calls(r#"{"id":"a","function":{"arguments":"{\"x\":1}"}}"#);
    let got = openai(&[&opened, &second, &first, STOP]);
    assert!(got.contains("call a R {\"x\":1} None\n  call b G {\"y\":2} None"), "{got}");
}

#[test]
fn a_message_whose_content_is_a_text_is_delivered() {
    for content in [r#""Hi \"you\"""#, r#"{"type":"text","text":"Hi \"you\""}"#] {
        let whole = format!(r#"{{"type":"message","content":{content},"stop_reason":"end_turn"}}"#);
        let got = play_body("anthropic", &whole);
        assert!(got.starts_with("end_turn") && got.contains(r#"Text("Hi \"you\"")"#), "{got}");
    }
    let nothing = r#"{"type":"message","content":""}"#;
    assert!(play_body("anthropic", nothing).contains("an answer without a message"));
}

#[test]
fn content_at_the_start_of_a_message_counts_unless_blocks_follow() {
    let over = r#"{"type":"message_stop"}"#;
    for content in [r#"[{"type":"text","text":"early"}]"#, r#""early""#] {
        let start = format!(r#"{{"type":"message_start","message":{{"id":"1","content":{content}}}}}"#);
        for end in [&[END, over][..], &[END], &[over]] {
            let got = anthropic(&[&[start.as_str()], end].concat());
            assert!(got.starts_with("end_turn") && got.contains("  Text(\"early\")"), "{got}");
            let got = anthropic(&[&[start.as_str(), BLOCK], end].concat());
            assert!(got.contains("Text(\"half\")") && !got.contains("early"), "{got}");
        }
        let got = anthropic(&[&start]);
        assert!(got.starts_with("error connection") && got.contains("partial [Text(\"early\")]"), "{got}");
    }
}

#[test]
fn an_error_of_megabytes_is_cut_before_it_is_searched() {
    let of = |words: usize| {
        let words = "ab ".repeat(words);
        openai(&[&format!(r#"{{"error":{{"message":"upstream {words} please wait 20s"}}}}"#)])
    };
    let short = of(1000);
    assert!(short.contains("upstream ab ab") && short.contains("Some(20s)"), "{short}");
    let long = of(1 << 20);
    assert!(long.contains("upstream ab ab") && !long.contains("20s"), "{}", long.len());
    assert!(long.chars().count() < 700, "{}", long.len());
}

#[test]
fn a_whole_message_at_the_end_adds_only_what_is_new() {
    let piece = |text: &str| format!(r#"{{"choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]}}"#);
    let (a, b) = (piece("hello "), piece("world"));
    let last = |message: &str| {
        let whole = format!(r#"{{"choices":[{{"index":0,"message":{message},"finish_reason":"stop"}}]}}"#);
        openai(&[&a, &b, &whole])
    };
    for (message, want) in [
        (r#"{"content":"hello world"}"#, "hello world"),
        (r#"{"content":[{"type":"text","text":"hello "},{"type":"text","text":"world"}]}"#, "hello world"),
        (r#"{"content":"hello world, and more"}"#, "hello world, and more"),
        (r#"{"content":" and else"}"#, "hello world and else"),
        (r#"{"content":null}"#, "hello world"),
    ] {
        let got = last(message);
        assert!(got.starts_with("end_turn") && got.contains(&format!("Text({want:?})")), "{message}: {got}");
    }
    let thought = r#"{"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}"#;
    let call = r#"{"id":"c","function":{"name":"R","arguments":"{\"x\":1}"}}"#;
    let nameless = r#"{"function":{"name":"G","arguments":"{\"y\":2}"}}"#;
    let calls = format!(
        r#"{{"choices":[{{"index":0,"delta":{{"content":"a","tool_calls":[{call},{nameless}]}}}}]}}"#
    );
    let whole = format!(
        r#"{{"choices":[{{"index":0,"delta":{{}},"message":{{"content":"a","reasoning_content":"hm","tool_calls":[{call},{nameless}]}},"finish_reason":"tool_calls"}}]}}"#
    );
    let got = openai(&[thought, &calls, &whole]);
    assert_eq!(
        got,
        openai(&[thought, &calls, r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#])
    );
    assert_eq!(got.matches("call ").count(), 2, "{got}");
    // Some send all pieces as messages: equal ones are two.
    let pieces = piece("ha").replace("delta", "message");
    assert!(openai(&[&pieces, &pieces, STOP]).contains("Text(\"haha\")"));
    // Only an empty delta beside it: then the message is the answer.
    let only = openai(&[&whole]);
    assert!(only.contains("Text(\"a\")") && only.matches("call ").count() == 2, "{only}");
}

#[test]
fn usage_counts_under_the_names_of_either_api() {
    let of = |usage: &str| openai(&[TEXT, STOP, &format!(r#"{{"choices":[],"usage":{usage}}}"#)]);
    let got = of(r#"{"input_tokens":9,"output_tokens":4}"#);
    assert!(got.contains("input_tokens: 9, output_tokens: 4"), "{got}");
    let both = of(r#"{"input_tokens":1,"output_tokens":1,"prompt_tokens":9,"completion_tokens":4}"#);
    assert_eq!(both, got);
}

#[test]
fn an_event_that_is_too_big_is_told_in_a_sentence() {
    let got = openai(&[TEXT, &"a".repeat(33 << 20)]);
    assert!(
        got.contains("server sent too much at once: a server-sent event has more than 33554432 bytes"),
        "{got}"
    );
}

#[test]
fn a_success_that_is_no_answer_is_shown_in_its_own_words() {
    for api in ["openai", "anthropic"] {
        let got = play_body(api, "Service temporarily overloaded,\ntry later");
        let want = "sent what is no answer: Service temporarily overloaded, try later";
        assert!(got.starts_with("error protocol") && got.contains(want), "{got}");
        let got = play_body(api, "data: Please come back\n\n");
        assert!(got.starts_with("error protocol") && got.contains("no answer: Please come back"), "{got}");
        let got = play_body(api, "data: <html>Please log in</html>\n\n");
        assert!(got.starts_with("error configuration") && got.contains("web page"), "{got}");
        let got = play_chunks(api, &[&[0x78, 0x9c, 0xcb, 0x48, 0x01, 0x02]]);
        assert!(got.starts_with("error protocol") && got.contains("bytes that are no text"), "{got}");
        // What was to be a stream was cut.
        for cut in [": hi\n\n", "data", "event: x\ndata: {\"a", "id: 1\nretry: 5\n\n", ""] {
            let got = play_body(api, cut);
            assert!(got.contains("before its answer was finished"), "{cut}: {got}");
        }
        let frames = if api == "openai" { [TEXT, TEXT] } else { [START, BLOCK] };
        let half = format!("{}some words", data(&frames));
        let got = play_body(api, &half);
        assert!(got.contains("before its answer was finished"), "{got}");
    }
}
