//! What is true of calls whose outcome is not known, and of their identities.

use super::*;

fn text_of(entry: &SessionEntry) -> String {
    let SessionEntry::Done(done) = entry else { panic!("{entry:?}") };
    assert_eq!(done.outcome, Outcome::Lost);
    let [open_agent_model::ResultBlock::Text { text }] = done.content.as_slice() else { panic!() };
    text.to_string()
}

#[test]
fn a_call_whose_answer_is_lost_keeps_its_turn() {
    let about_the_call = [
        allowed(id(3, 0), Effect::Unsafe),
        SessionEntry::Started { call: id(3, 0) },
        done(id(3, 0)),
        asked(id(3, 0)),
    ];
    for entry in about_the_call {
        let mut s = Script::new(RunLimits::default());
        s.gap().push(entry.clone());
        assert_eq!(s.machine.transcript().next_turn(), 4, "{entry:?}");
    }
}

#[test]
fn a_call_that_is_left_behind_is_not_told_as_the_end_of_its_process() {
    let mut s = Script::new(RunLimits::default());
    s.push(calls(1, 1))
        .push(allowed(id(1, 0), Effect::Unsafe))
        .push(SessionEntry::Started { call: id(1, 0) });
    let mut crashed = s.clone();
    s.push(SessionEntry::Interrupted {});
    let text = text_of(&recorded(s.machine.next())[0]);
    assert!(!text.contains("process ended") && text.contains("may still be running"), "{text}");
    crashed.open();
    let text = text_of(&recorded(crashed.machine.next())[0]);
    assert!(text.starts_with("The process ended while this call ran"), "{text}");
}

#[test]
fn a_call_that_had_begun_and_is_refused_afterwards_is_not_told_as_one_that_did_not_run() {
    let mut s = Script::new(RunLimits::default());
    s.push(calls(1, 1))
        .push(allowed(id(1, 0), Effect::Idempotent))
        .push(SessionEntry::Started { call: id(1, 0) });
    s.open().push(ruled(id(1, 0), Effect::Idempotent, Decision::Deny));
    let text = text_of(&recorded(s.machine.next())[0]);
    assert!(text.starts_with("It had begun before, and its outcome is unknown"), "{text}");
}

#[test]
fn a_call_that_may_run_twice_and_had_begun_is_not_told_as_not_run() {
    let mut s = Script::new(RunLimits::default());
    s.push(calls(1, 1))
        .push(allowed(id(1, 0), Effect::Idempotent))
        .push(SessionEntry::Started { call: id(1, 0) });
    s.open();
    let SessionEntry::Done(done) = &s.machine.give_up()[0] else { panic!("no result") };
    let [open_agent_model::ResultBlock::Text { text }] = done.content.as_slice() else { panic!() };
    assert!(text.starts_with("Not finished: it had begun"), "{text}");
}
