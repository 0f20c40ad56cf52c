//! What people are told of requests and answers, and how often.

use super::*;

fn told(entries: &[SessionEntry]) -> Vec<NoticeKind> {
    let notice = |entry: &_| match entry {
        SessionEntry::Noticed(notice) => *notice.kind.known().unwrap(),
        other => panic!("{other:?}"),
    };
    entries.iter().map(notice).collect()
}

/// An answer to a request of about `sent` tokens, of which the provider counted `counted`.
fn facts<'a>(message: &'a Message, stop: &'a StopReason, (counted, sent): (u64, u64)) -> AnswerFacts<'a> {
    let usage = Usage { input_tokens: counted, ..Usage::default() };
    AnswerFacts { message, stop, usage, cost: Some(Cost(5)), sent }
}

#[test]
fn what_a_request_leaves_out_is_told_once_for_each_text_and_again_in_the_next_run() {
    let mut s = Script::new(RunLimits::default());
    let notes = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let first = s.machine.about_request(notes(&["no pictures", "less thinking"]));
    assert_eq!(told(&first), [NoticeKind::RequestFitted, NoticeKind::RequestFitted]);
    first.into_iter().for_each(|entry| _ = s.push(entry));
    assert_eq!(s.machine.about_request(notes(&["no pictures", "less thinking"])), []);
    let SessionEntry::Noticed(new) = &s.machine.about_request(notes(&["no pictures", "another"]))[0] else {
        panic!("no notice")
    };
    assert_eq!(new.text, "another");
    // A notice of another kind with the same words is another notice.
    let words = Notice { kind: NoticeKind::NoText.into(), text: "fewer tokens".into() };
    s.push(SessionEntry::Noticed(words));
    assert_eq!(s.machine.about_request(notes(&["fewer tokens"])).len(), 1);
    s.push(answer_with(1, StopReason::EndTurn, vec![Block::Text("done".into())]));
    s.settle();
    s.run(RunLimits::default());
    assert_eq!(s.machine.about_request(notes(&["no pictures"])).len(), 1, "people read the notices of a run");
}

#[test]
fn an_input_that_looks_cut_is_told_once_a_run() {
    let mut s = Script::new(RunLimits::default());
    let text = message(1, Role::Assistant, vec![Block::Text("words".into())]);
    let cut = |counted, sent| facts(&text, &StopReason::EndTurn, (counted, sent));
    for (counted, sent) in [(0, 9_000), (1_000, 4_000), (3_000, 9_000), (9_000, 9_000)] {
        let facts = AnswerFacts { cost: Some(Cost(0)), ..cut(counted, sent) };
        assert_eq!(s.machine.about_answer(facts), [], "{counted} of {sent}");
    }
    assert_eq!(told(&s.machine.about_answer(cut(1_000, 4_001))), [NoticeKind::InputTruncated]);
    let entries = s.machine.about_answer(cut(2_999, 9_000));
    assert_eq!(told(&entries), [NoticeKind::InputTruncated]);
    entries.into_iter().for_each(|entry| _ = s.push(entry));
    // The numbers are others, the news is not.
    assert_eq!(s.machine.about_answer(cut(1_000, 12_000)), []);
}

#[test]
fn a_cost_by_estimate_is_told_once_a_run() {
    let mut s = Script::new(RunLimits::default());
    let text = message(1, Role::Assistant, vec![Block::Text("words".into())]);
    let uncounted = facts(&text, &StopReason::EndTurn, (0, 10));
    for silent in [
        AnswerFacts { cost: None, ..uncounted },
        AnswerFacts { cost: Some(Cost(0)), ..uncounted },
        facts(&text, &StopReason::EndTurn, (10, 10)),
    ] {
        assert_eq!(s.machine.about_answer(silent), []);
    }
    let entries = s.machine.about_answer(uncounted);
    assert_eq!(told(&entries), [NoticeKind::UsageMissing]);
    entries.into_iter().for_each(|entry| _ = s.push(entry));
    assert_eq!(s.machine.about_answer(uncounted), []);
}

#[test]
fn each_answer_without_text_is_told_unless_its_stop_says_why() {
    let mut s = Script::new(RunLimits::default());
    let call = Block::ToolUse(tool_use(1, 0));
    let silent = message(1, Role::Assistant, vec![Block::Text(" \n".into())]);
    for _ in 0..2 {
        let entries = s.machine.about_answer(facts(&silent, &StopReason::EndTurn, (10, 10)));
        assert_eq!(told(&entries), [NoticeKind::NoText]);
        entries.into_iter().for_each(|entry| _ = s.push(entry));
    }
    for stop in [StopReason::StopSequence, StopReason::Other("eos".into())] {
        assert_eq!(told(&s.machine.about_answer(facts(&silent, &stop, (10, 10)))), [NoticeKind::NoText]);
    }
    for stop in [StopReason::MaxTokens, StopReason::Refusal, StopReason::PauseTurn] {
        assert_eq!(s.machine.about_answer(facts(&silent, &stop, (10, 10))), [], "{stop:?}");
    }
    let calls = message(1, Role::Assistant, vec![call]);
    assert_eq!(s.machine.about_answer(facts(&calls, &StopReason::EndTurn, (10, 10))), []);
}
