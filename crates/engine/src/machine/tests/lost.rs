//! What is true of calls whose outcome is not known, and what a machine makes of records that are lost or come twice.

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

#[test]
fn a_record_of_a_queued_message_that_comes_twice_is_one_message() {
    let mut s = Script::new(RunLimits::default());
    s.push(queued(1, false)).push(queued(1, false)).push(queued(2, false));
    assert_eq!(s.machine.queue().len(), 2);
}

#[test]
fn the_end_of_background_work_is_told_once() {
    let mut s = Script::new(RunLimits::default());
    let work = BackgroundWork {
        id: BackgroundId("bash_1_0".into()),
        kind: open_agent_model::BackgroundKind::Bash.into(),
        description: "work".into(),
        call: id(1, 0),
        output: None,
        started: Timestamp(1_000),
    };
    s.push(SessionEntry::BackgroundStarted(work.clone()));
    assert_eq!(s.machine.open_background().collect::<Vec<_>>(), [&work]);
    let end = open_agent_model::BackgroundEnd::of(open_agent_model::BackgroundOutcome::Completed);
    s.push(background_ended(&work, end, MessageId::from_number(9), None));
    assert_eq!(s.machine.open_background().count(), 0);
    assert_eq!(s.machine.background_work(&work.id), Some(&work), "its name is still taken");
}
