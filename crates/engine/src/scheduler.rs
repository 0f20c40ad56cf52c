//! Which calls of an answer may go on. One pure function; owns the limit of concurrent calls and both orders.

use open_agent_session::ToolScheduling;

/// The most calls that run at once.
pub const MAX_CONCURRENT: usize = 10;

/// How far a call is, as far as scheduling cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallPhase {
    /// It has to be ruled.
    New,
    /// It may run, or runs.
    Runnable,
    /// It waits for an answer.
    Waiting,
    /// It has its result.
    Finished,
}

/// A call, as far as scheduling cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallView {
    /// How far it is.
    pub phase: CallPhase,
    /// It only reads. Not known, and `false`, before it is ruled.
    pub read_only: bool,
}

/// What may go on, as places in the list of calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// To be ruled in this order, up to the first that turns out to do more than read.
    pub rule: Vec<usize>,
    /// To be running.
    pub run: Vec<usize>,
}

/// Which calls may go on. In order: nothing moves across a call that does more than read, and a call is ruled only when
/// all before it are finished or only read, for the others may change the folder, the mode or the tools.
#[must_use]
pub fn ready(calls: &[CallView], scheduling: ToolScheduling) -> Ready {
    match scheduling {
        ToolScheduling::Ordered => ordered(calls),
        ToolScheduling::ReadsFirst => reads_first(calls),
    }
}

fn ordered(calls: &[CallView]) -> Ready {
    let mut ready = Ready::default();
    let mut first = true;
    for (at, call) in calls.iter().enumerate() {
        match call.phase {
            CallPhase::Finished => continue,
            CallPhase::New => {
                ready.rule = (at..calls.len()).take_while(|i| calls[*i].phase == CallPhase::New).collect();
                break;
            }
            // A call that writes runs alone: only if it is the first that is not finished.
            CallPhase::Runnable if call.read_only || first => ready.run.push(at),
            CallPhase::Runnable | CallPhase::Waiting => {}
        }
        if !call.read_only {
            break;
        }
        first = false;
    }
    ready.run.truncate(MAX_CONCURRENT);
    ready
}

fn reads_first(calls: &[CallView]) -> Ready {
    let places = |want: fn(&CallView) -> bool| -> Vec<usize> {
        calls.iter().enumerate().filter(|(_, c)| want(c)).map(|(i, _)| i).collect()
    };
    // What reads is known only once all are ruled. A call that writes stops a batch of rulings; the next step goes on.
    let rule = places(|c| c.phase == CallPhase::New);
    if !rule.is_empty() {
        return Ready { rule, run: Vec::new() };
    }
    let mut run = places(|c| c.phase == CallPhase::Runnable && c.read_only);
    let reads_over = places(|c| c.phase != CallPhase::Finished && c.read_only).is_empty();
    if reads_over {
        let first = calls.iter().position(|c| c.phase != CallPhase::Finished);
        run = first.filter(|i| calls[*i].phase == CallPhase::Runnable).into_iter().collect();
    }
    run.truncate(MAX_CONCURRENT);
    Ready { rule: Vec::new(), run }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_call() -> impl Strategy<Value = CallView> {
        let phase = prop_oneof![
            Just(CallPhase::New),
            Just(CallPhase::Runnable),
            Just(CallPhase::Waiting),
            Just(CallPhase::Finished)
        ];
        (phase, any::<bool>())
            .prop_map(|(phase, reads)| CallView { phase, read_only: reads && phase != CallPhase::New })
    }

    fn any_calls() -> impl Strategy<Value = Vec<CallView>> {
        proptest::collection::vec(any_call(), 0..30)
    }

    proptest! {
        #[test]
        fn a_writing_call_runs_alone(calls in any_calls(), reads_first: bool) {
            let order = if reads_first { ToolScheduling::ReadsFirst } else { ToolScheduling::Ordered };
            let run = ready(&calls, order).run;
            prop_assert!(run.len() <= MAX_CONCURRENT);
            if run.iter().any(|i| !calls[*i].read_only) {
                prop_assert_eq!(run.len(), 1);
            }
        }

        #[test]
        fn in_order_nothing_moves_across_a_writing_call(calls in any_calls()) {
            let ready = ready(&calls, ToolScheduling::Ordered);
            for at in ready.run.iter().chain(ready.rule.first()) {
                let before = &calls[..*at];
                prop_assert!(before.iter().all(|c| c.phase == CallPhase::Finished || c.read_only));
            }
        }

        #[test]
        fn something_goes_on_unless_all_wait_or_are_done(calls in any_calls(), reads_first: bool) {
            let order = if reads_first { ToolScheduling::ReadsFirst } else { ToolScheduling::Ordered };
            let ready = ready(&calls, order);
            let open: Vec<_> = calls.iter().filter(|c| c.phase != CallPhase::Finished).collect();
            let waits = open.iter().any(|c| c.phase == CallPhase::Waiting);
            prop_assert!(open.is_empty() || waits || !ready.rule.is_empty() || !ready.run.is_empty());
        }
    }

    #[test]
    fn h_sub_05_reads_run_together_and_a_write_between_them_alone() {
        let call = |read_only| CallView { phase: CallPhase::Runnable, read_only };
        let mut calls = vec![call(true), call(true), call(false), call(true)];
        assert_eq!(ready(&calls, ToolScheduling::Ordered).run, [0, 1]);
        assert_eq!(ready(&calls, ToolScheduling::ReadsFirst).run, [0, 1, 3]);
        calls[0].phase = CallPhase::Finished;
        assert_eq!(ready(&calls, ToolScheduling::Ordered).run, [1]);
        calls[1].phase = CallPhase::Finished;
        assert_eq!(ready(&calls, ToolScheduling::Ordered).run, [2]);
        calls[2].phase = CallPhase::Finished;
        assert_eq!(ready(&calls, ToolScheduling::Ordered).run, [3]);
    }
}
