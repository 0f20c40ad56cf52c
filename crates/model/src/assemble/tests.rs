//! What servers do to tool calls, piece by piece.

use super::*;

fn fragment(slot: u32, id: &str, name: &str, input: &str) -> ModelEvent {
    let some = |t: &str| (!t.is_empty()).then(|| t.to_owned());
    ModelEvent::Tool(ToolFragment { slot, id: some(id), name: some(name), input: some(input) })
}

fn run(events: &[ModelEvent]) -> Result<Assembled, ProviderError> {
    let mut a = Assembler::new();
    for event in events {
        a.push(event);
    }
    a.finish()
}

fn calls(a: &Assembled) -> Vec<(String, String, String)> {
    let uses = a.content.iter().filter_map(|b| if let Block::ToolUse(u) = b { Some(u) } else { None });
    uses.map(|u| (u.id.as_str().to_owned(), u.name.clone(), u.input.get().to_owned())).collect()
}

fn call(id: &str, name: &str, input: &str) -> (String, String, String) {
    (id.into(), name.into(), input.into())
}

#[test]
fn h_str_02_empty_id_and_name_continue_the_call() {
    let a = run(&[
        fragment(0, "c1", "Read", "{\"a\""),
        ModelEvent::Tool(ToolFragment {
            slot: 0,
            id: Some(String::new()),
            name: Some(String::new()),
            input: Some(":1}".into()),
        }),
        ModelEvent::Stop(StopReason::ToolUse),
    ])
    .unwrap();
    assert_eq!(calls(&a), [call("c1", "Read", "{\"a\":1}")]);
}

#[test]
fn h_str_03_one_index_for_all_calls() {
    let a = run(&[
        fragment(0, "c1", "Read", "{\"a\":1}"),
        fragment(0, "c2", "Read", "{\"a\":2}"),
        ModelEvent::Stop(StopReason::ToolUse),
    ])
    .unwrap();
    assert_eq!(calls(&a), [call("c1", "Read", "{\"a\":1}"), call("c2", "Read", "{\"a\":2}")]);
    let no_ids =
        run(&[fragment(0, "", "Read", "{\"a\":1}"), fragment(0, "", "Glob", "{\"a\":2}"), ModelEvent::End])
            .unwrap();
    assert_eq!(calls(&no_ids), [call("", "Read", "{\"a\":1}"), call("", "Glob", "{\"a\":2}")]);
}

#[test]
fn h_str_04_a_name_may_come_late_but_must_come() {
    let a = run(&[fragment(0, "c1", "", "{"), fragment(0, "", "Read", "}"), ModelEvent::End]).unwrap();
    assert_eq!(calls(&a), [call("c1", "Read", "{}")]);
    let error = run(&[fragment(0, "c1", "", "{}"), ModelEvent::End]).unwrap_err();
    assert_eq!(error.kind, ProviderErrorKind::Protocol);
}

#[test]
fn h_str_05_no_arguments_are_an_empty_object() {
    for input in ["", " \n", "null"] {
        let a = run(&[fragment(0, "c1", "List", input), ModelEvent::Stop(StopReason::ToolUse)]).unwrap();
        assert_eq!(calls(&a), [call("c1", "List", "{}")], "{input:?}");
    }
}

#[test]
fn h_str_06_invalid_arguments_are_kept_and_marked() {
    let a = run(&[fragment(0, "c1", "Read", "{\"a\": tru"), ModelEvent::Stop(StopReason::ToolUse)]).unwrap();
    let Block::ToolUse(u) = &a.content[0] else { panic!() };
    let broken = u.broken.as_ref().unwrap();
    assert_eq!(broken.raw, "{\"a\": tru");
    assert!(broken.error.contains("column"), "{}", broken.error);
    assert_eq!(u.input.get(), "{}");
}

#[test]
fn arguments_that_others_cannot_read_are_broken() {
    let deep = format!("{{\"x\":{}{}}}", "[".repeat(200), "]".repeat(200));
    for (input, why) in [
        (r#"{"a":"\ud83d"}"#, "half of a character"),
        (r#"{"a":"\ude00"}"#, "half of a character"),
        (r#"{"a":"\ud83dx"}"#, "half of a character"),
        (&deep, "nested deeper"),
    ] {
        let a = run(&[fragment(0, "c", "Read", input), ModelEvent::End]).unwrap();
        let Block::ToolUse(u) = &a.content[0] else { panic!() };
        let error = &u.broken.as_ref().unwrap_or_else(|| panic!("{input}")).error;
        assert!(error.contains(why), "{error}");
    }
    for fine in [r#"{"a":"\ud83d\ude00 \\ud83d \u0041"}"#, r#"{"a":"[[[{{{","b":[[1]]}"#] {
        let a = run(&[fragment(0, "c", "Read", fine), ModelEvent::End]).unwrap();
        assert_eq!(calls(&a), [call("c", "Read", fine)]);
    }
}

#[test]
fn pieces_of_a_call_may_each_have_another_id() {
    let events =
        [fragment(0, "c1", "Read", ""), fragment(0, "c2", "", "{\"a\""), fragment(0, "c3", "", ":1}")];
    let a = run(&[events.as_slice(), &[ModelEvent::End]].concat()).unwrap();
    assert_eq!(calls(&a), [call("c1", "Read", "{\"a\":1}")]);
}

#[test]
fn signed_blocks_under_one_number_stay_apart() {
    let thinking = |text: &str| ModelEvent::Thinking { slot: 0, text: text.into() };
    let signature = |s: &str| ModelEvent::Signature { slot: 0, signature: s.into() };
    let a =
        run(&[thinking("a"), signature("s"), signature("s"), thinking("b"), signature("t"), ModelEvent::End])
            .unwrap();
    let block = |text: &str, s: &str| {
        Block::Thinking(Thinking { text: text.into(), signature: Some(s.into()), details: None })
    };
    assert_eq!(a.content, [block("a", "s"), block("b", "t")]);
}

#[test]
fn arguments_sent_as_a_string_are_unwrapped_once() {
    let a = run(&[fragment(0, "c", "Read", r#""{\"a\":1}""#), ModelEvent::End]).unwrap();
    assert_eq!(calls(&a), [call("c", "Read", "{\"a\":1}")]);
}

#[test]
fn a_stream_without_an_end_is_an_error_and_keeps_its_text() {
    let mut a = Assembler::new();
    a.push(&ModelEvent::Text { slot: 0, text: "half".into() });
    a.push(&fragment(1, "c", "Read", "{"));
    assert_eq!(a.partial(), [Block::Text("half".into())]);
    assert_eq!(a.finish().unwrap_err().kind, ProviderErrorKind::Protocol);
}

#[test]
fn signed_thinking_is_whole() {
    let a = run(&[
        ModelEvent::Thinking { slot: 0, text: "a".into() },
        ModelEvent::Thinking { slot: 0, text: "b".into() },
        ModelEvent::Signature { slot: 0, signature: "s".into() },
        ModelEvent::Text { slot: 1, text: "c".into() },
        ModelEvent::End,
    ])
    .unwrap();
    let thinking = Thinking { text: "ab".into(), signature: Some("s".into()), details: None };
    assert_eq!(a.content, [Block::Thinking(thinking), Block::Text("c".into())]);
    assert_eq!(a.stop, StopReason::EndTurn);
}

#[test]
fn a_call_that_is_sent_twice_is_one() {
    let (a, b) = ("{\"a\"", ":1}");
    let whole = "{\"a\":1}";
    let once = call("c1", "Read", whole);
    for pieces in [
        // The whole call again.
        vec![("c1", "Read", whole), ("c1", "Read", whole)],
        vec![("c1", "Read", a), ("", "", b), ("c1", "Read", whole)],
        vec![("c1", "Read", a), ("", "", b), ("c1", "", whole), ("c1", "", whole)],
        vec![("c1", "Read", a), ("", "", b), ("c1", "Read", a), ("", "", b)],
        // Each piece holds all that came before it.
        vec![("c1", "Read", "{"), ("c1", "Read", a), ("c1", "Read", whole)],
        vec![("c1", "Read", ""), ("c1", "", a), ("", "", "{\"a\":"), ("", "", whole), ("", "", whole)],
    ] {
        let mut events: Vec<ModelEvent> =
            pieces.iter().map(|(id, name, input)| fragment(0, id, name, input)).collect();
        events.push(ModelEvent::End);
        assert_eq!(calls(&run(&events).unwrap()), std::slice::from_ref(&once), "{pieces:?}");
    }
    // Under another index.
    let twice = [fragment(0, "c1", "Read", whole), fragment(1, "c1", "Read", whole), ModelEvent::End];
    assert_eq!(calls(&run(&twice).unwrap()), [once]);
}

#[test]
fn what_only_looks_repeated_is_kept() {
    let nested = [fragment(0, "c", "Read", "{\"a\":"), fragment(0, "", "", "{\"a\":1}}"), ModelEvent::End];
    assert_eq!(calls(&run(&nested).unwrap()), [call("c", "Read", "{\"a\":{\"a\":1}}")]);
    let others = [
        fragment(0, "c", "Read", "{\"a\":1}"),
        fragment(1, "c", "Read", "{\"a\":2}"),
        fragment(2, "d", "Read", "{\"a\":1}"),
        fragment(3, "", "Read", "{}"),
        fragment(4, "", "Read", "{}"),
        ModelEvent::End,
    ];
    assert_eq!(calls(&run(&others).unwrap()).len(), 5);
    let one_id = [
        fragment(0, "c", "Read", "{\"a\":1}"),
        fragment(0, "c", "Read", "{\"a\""),
        fragment(0, "", "", ":2}"),
        ModelEvent::End,
    ];
    let want = [call("c", "Read", "{\"a\":1}"), call("c", "Read", "{\"a\":2}")];
    assert_eq!(calls(&run(&one_id).unwrap()), want);
    let differs = [fragment(0, "c", "Read", "{\"a\":1}"), fragment(0, "c", "", "{\"a\":2}"), ModelEvent::End];
    let Block::ToolUse(u) = run(&differs).unwrap().content.remove(0) else { panic!() };
    assert_eq!(u.broken.unwrap().raw, "{\"a\":1}{\"a\":2}");
}

#[test]
fn an_empty_object_before_the_arguments_stands_for_them() {
    for name in ["Read", ""] {
        let events = [
            fragment(0, "c", "Read", "{}"),
            fragment(0, "c", name, "{\"a\""),
            fragment(0, "", "", ":1}"),
            ModelEvent::End,
        ];
        assert_eq!(calls(&run(&events).unwrap()), [call("c", "Read", "{\"a\":1}")]);
    }
}

#[test]
fn a_repeated_piece_is_not_shown_again() {
    let mut a = Assembler::new();
    assert!(a.push(&fragment(0, "c", "Read", "{\"a\":1}")).is_some_and(|l| l.opened));
    assert_eq!(a.push(&fragment(0, "c", "Read", "{\"a\":1}")), None);
}

#[test]
fn h_str_03_a_known_id_says_more_than_the_index() {
    let done = |mut events: Vec<ModelEvent>| {
        events.push(ModelEvent::Stop(StopReason::ToolUse));
        calls(&run(&events).unwrap())
    };
    let (a, b) = (call("a", "Read", "{\"x\":1}"), call("b", "Glob", "{\"y\":2}"));
    let want = [a, b];
    let open = [fragment(0, "a", "Read", ""), fragment(0, "b", "Glob", "")];
    for more in [
        vec![fragment(0, "a", "", "{\"x\":1}"), fragment(0, "b", "", "{\"y\":2}")],
        vec![fragment(0, "b", "", "{\"y\":2}"), fragment(0, "a", "", "{\"x\":1}")],
        // Without an id they go on where the last piece was.
        vec![
            fragment(0, "a", "", "{\"x\""),
            fragment(0, "", "", ":1}"),
            fragment(0, "b", "", "{\"y\""),
            fragment(0, "", "", ":2}"),
        ],
        vec![fragment(0, "a", "Read", "{\"x\":1}"), fragment(0, "b", "Glob", "{\"y\":2}")],
        vec![
            fragment(0, "a", "", "{\"x\""),
            fragment(0, "b", "", "{\"y\":"),
            fragment(0, "a", "", ":1}"),
            fragment(0, "b", "", "2}"),
        ],
    ] {
        assert_eq!(done([&open[..], &more].concat()), want, "{more:?}");
    }
    // No index at all: the decoder counts within one frame.
    let places = [fragment(0, "a", "Read", ""), fragment(1, "b", "Glob", "")];
    let more = [fragment(0, "b", "", "{\"y\":2}"), fragment(0, "a", "", "{\"x\":1}")];
    assert_eq!(done([&places[..], &more].concat()), want);
    // One id for all calls: then the index tells them apart.
    let same = done(vec![
        fragment(0, "a", "Read", ""),
        fragment(1, "a", "Glob", ""),
        fragment(0, "a", "", "{\"x\":1}"),
        fragment(1, "a", "", "{\"y\":2}"),
    ]);
    assert_eq!(same, [call("a", "Read", "{\"x\":1}"), call("a", "Glob", "{\"y\":2}")]);
}
