//! The machine alone: scripts of entries, and the step that has to follow. No IO, no clock, no `await`.

use std::sync::Arc;
use std::time::Duration;

use open_agent_model::{
    AgentId, Answer, AskId, AskSource, Block, CallId, Change, Cost, Decision, Effect, Layer, Message,
    MessageId, Outcome, PermissionMode, ProviderError, ProviderErrorKind, Question, QueueId, RawJson, Role,
    Ruling, RunId, RunStatus, Seq, Slot, StopReason, Timestamp, ToolUse, ToolUseId, Usage,
};
use open_agent_session::{
    Done, ModelDone, ModelFailed, ModelSettings, Opened, Origin, Owner, Queued, Retry, Ruled, RunLimits,
    RunStarted, SessionEntry, SessionStarted, Stored, ToolScheduling, UserMessage,
};

use super::*;
use crate::RetryConfig;

mod lost;
mod notices;
mod refused_media;

/// Applies entries and numbers them.
#[derive(Clone, Default)]
struct Script {
    machine: Machine,
    seq: u64,
}

impl Script {
    /// A session with a run that has its prompt.
    fn new(limits: RunLimits) -> Self {
        let mut script = Self::default();
        let started = SessionStarted {
            root: "/project".into(),
            agent: AgentId::main(),
            parent: None,
            forked_from: None,
            product: "test".into(),
        };
        script.push(SessionEntry::SessionStarted(started));
        script.open();
        script.run(limits);
        script.push(user("go"));
        script
    }

    fn push(&mut self, entry: SessionEntry) -> &mut Self {
        self.seq += 1;
        self.machine.apply(&Stored::new(Seq(self.seq), Timestamp(1_000), entry));
        self
    }

    /// A record that is missing.
    fn gap(&mut self) -> &mut Self {
        self.seq += 1;
        self
    }

    fn open(&mut self) -> &mut Self {
        self.push(SessionEntry::Opened(Opened { epoch: 1, owner: Owner("test".into()) }))
    }

    fn run(&mut self, limits: RunLimits) -> &mut Self {
        let settings = settings("m");
        let run = RunId::from_number(1);
        self.push(SessionEntry::RunStarted(RunStarted {
            run,
            settings,
            mode: PermissionMode::BypassPermissions,
            limits,
        }))
    }

    /// Does what the machine itself has decided, until it needs somebody.
    fn settle(&mut self) -> Step {
        for _ in 0..20 {
            match self.machine.next() {
                Step::Record(entries) => entries.into_iter().for_each(|entry| _ = self.push(entry)),
                step => return step,
            }
        }
        panic!("the machine writes for ever");
    }

    fn status(&self) -> RunStatus {
        self.machine.run().unwrap().ended.as_ref().unwrap().status
    }

    fn error(&self) -> String {
        self.machine.run().unwrap().ended.as_ref().unwrap().errors.join("; ")
    }
}

fn settings(model: &str) -> ModelSettings {
    ModelSettings { model: model.into(), thinking: None, effort: None }
}

fn message(id: u128, role: Role, content: Vec<Block>) -> Arc<Message> {
    Arc::new(Message { id: MessageId::from_number(id), role, content, model: None })
}

fn user(text: &str) -> SessionEntry {
    let message = message(7, Role::User, vec![Block::Text(text.into())]);
    SessionEntry::User(UserMessage { message, origin: Origin::Prompt.into() })
}

fn answer_with(turn: u32, stop: StopReason, content: Vec<Block>) -> SessionEntry {
    SessionEntry::ModelDone(ModelDone {
        turn,
        message: message(u128::from(turn) * 10 + 100, Role::Assistant, content),
        stop,
        stop_sequence: None,
        usage: Usage { input_tokens: 50, output_tokens: 5, ..Usage::default() },
        cost: Some(Cost(1)),
        cost_source: None,
        api_ms: 1,
        ttft_ms: None,
        vendor_id: None,
        answered_by: None,
    })
}

fn text(turn: u32, stop: StopReason) -> SessionEntry {
    answer_with(turn, stop, vec![Block::Text("words".into())])
}

fn tool_use(turn: u32, index: usize) -> ToolUse {
    let id = ToolUseId::new(format!("c{turn}_{index}"));
    ToolUse { id, name: "t".into(), input: RawJson::object(), broken: None }
}

fn calls(turn: u32, count: usize) -> SessionEntry {
    let uses = (0..count).map(|index| Block::ToolUse(tool_use(turn, index)));
    answer_with(turn, StopReason::ToolUse, uses.collect())
}

fn cut_call(turn: u32, raw: &str) -> SessionEntry {
    let broken = open_agent_model::BrokenInput { raw: raw.into(), error: "EOF".into(), cut: true };
    let call = ToolUse { broken: Some(broken), ..tool_use(turn, 0) };
    answer_with(turn, StopReason::MaxTokens, vec![Block::ToolUse(call)])
}

fn id(turn: u32, index: u16) -> CallId {
    CallId { turn, index }
}

fn ruled(call: CallId, effect: Effect, decision: Decision) -> SessionEntry {
    let layer = Layer::Mode.into();
    let ruling = Ruling { decision, layer, rule: None, reason: "because".into() };
    SessionEntry::Ruled(Ruled { call, input: None, access: Vec::new(), effect, ruling })
}

fn allowed(call: CallId, effect: Effect) -> SessionEntry {
    ruled(call, effect, Decision::Allow)
}

fn done(call: CallId) -> SessionEntry {
    SessionEntry::Done(Done::without_result(call, Outcome::Ok, "result"))
}

fn asked(call: CallId) -> SessionEntry {
    SessionEntry::Asked { ask: AskId::of_tool(call, 0), question: Question::text("well?") }
}

fn queued(n: u128, steer: bool) -> SessionEntry {
    let message = message(1_000 + n, Role::User, vec![Block::Text(format!("queued {n}"))]);
    SessionEntry::Queued(Queued {
        id: QueueId::from_number(n),
        message,
        origin: Origin::Prompt.into(),
        steer,
    })
}

fn closing(entries: &[SessionEntry]) -> Vec<(CallId, Outcome)> {
    let done = |entry: &SessionEntry| match entry {
        SessionEntry::Done(done) => Some((done.call, *done.outcome.known().unwrap())),
        _ => None,
    };
    entries.iter().filter_map(done).collect()
}

fn recorded(step: Step) -> Vec<SessionEntry> {
    match step {
        Step::Record(entries) => entries,
        other => panic!("{other:?}"),
    }
}

const CALL_MODEL: Step = Step::CallModel { not_before: None };

#[test]
fn a_turn_goes_from_request_over_ruling_and_running_to_the_next_request() {
    let mut s = Script::new(RunLimits::default());
    assert_eq!(s.machine.next(), CALL_MODEL);
    s.push(calls(0, 2));
    assert_eq!(s.machine.next(), Step::Rule(vec![id(0, 0), id(0, 1)]));
    s.push(allowed(id(0, 0), Effect::ReadOnly)).push(allowed(id(0, 1), Effect::ReadOnly));
    assert_eq!(s.machine.next(), Step::Run(vec![id(0, 0), id(0, 1)]), "what only reads runs together");
    s.push(done(id(0, 1)));
    assert_eq!(s.machine.next(), Step::Run(vec![id(0, 0)]));
    s.push(done(id(0, 0)));
    assert_eq!(s.machine.next(), CALL_MODEL);
    s.push(text(1, StopReason::EndTurn));
    assert_eq!(s.settle(), Step::Done);
    assert_eq!(s.status(), RunStatus::Success);
    assert_eq!(s.machine.transcript().messages().len(), 4);
}

#[test]
fn a_call_that_writes_holds_up_those_behind_it() {
    let mut s = Script::new(RunLimits::default());
    s.push(calls(0, 2)).push(allowed(id(0, 0), Effect::Unsafe));
    assert_eq!(s.machine.next(), Step::Run(vec![id(0, 0)]));
    s.push(done(id(0, 0)));
    assert_eq!(s.machine.next(), Step::Rule(vec![id(0, 1)]));
    let reads_first = RunLimits { scheduling: ToolScheduling::ReadsFirst, ..RunLimits::default() };
    let mut s = Script::new(reads_first);
    s.push(calls(0, 2)).push(allowed(id(0, 0), Effect::Unsafe));
    assert_eq!(s.machine.next(), Step::Rule(vec![id(0, 1)]));
}

#[test]
fn limits_end_the_run_before_the_request_that_would_break_them() {
    let turns = RunLimits { max_turns: Some(2), ..RunLimits::default() };
    let mut s = Script::new(turns);
    s.push(calls(0, 1)).push(allowed(id(0, 0), Effect::ReadOnly)).push(done(id(0, 0)));
    assert_eq!(s.machine.next(), CALL_MODEL, "one of two turns is used");
    s.push(calls(1, 1)).push(allowed(id(1, 0), Effect::ReadOnly)).push(done(id(1, 0)));
    assert_eq!(s.settle(), Step::Done);
    assert_eq!(
        (s.status(), s.error().as_str()),
        (RunStatus::ErrorMaxTurns, "the limit of 2 turns is reached")
    );

    let requests = RunLimits { max_turns: None, max_model_calls: 2, ..RunLimits::default() };
    let mut s = Script::new(requests);
    s.push(failed(Some(retry(1, "m"))));
    assert_eq!(s.machine.next(), Step::CallModel { not_before: Some(Timestamp(5_000)) });
    s.push(failed(Some(retry(2, "m"))));
    assert_eq!(s.settle(), Step::Done);
    assert_eq!(s.status(), RunStatus::ErrorMaxModelCalls, "failed requests count");
}

#[test]
fn an_answer_at_the_output_limit_is_continued_three_times() {
    let mut s = Script::new(RunLimits::default());
    for turn in 0..3 {
        s.push(text(turn, StopReason::MaxTokens));
        let entries = recorded(s.machine.next());
        assert!(
            matches!(&entries[..], [SessionEntry::User(u)] if u.origin == Origin::Continuation),
            "{entries:?}"
        );
        assert_eq!(s.settle(), CALL_MODEL);
    }
    let mut good = s.clone();
    s.push(text(3, StopReason::MaxTokens));
    s.settle();
    s.push(text(4, StopReason::MaxTokens));
    assert_eq!(s.settle(), Step::Done);
    assert!(s.error().contains("4 times in a row"), "{}", s.error());
    // A whole answer in between begins the count anew.
    good.push(calls(3, 1)).push(allowed(id(3, 0), Effect::ReadOnly)).push(done(id(3, 0)));
    good.push(text(4, StopReason::MaxTokens));
    assert_eq!(good.settle(), CALL_MODEL);
}

#[test]
fn two_answers_in_a_row_that_end_within_the_same_call_end_the_run() {
    let mut s = Script::new(RunLimits::default());
    s.push(cut_call(0, "{\"a\": "));
    let entries = recorded(s.machine.next());
    assert_eq!(closing(&entries), [(id(0, 0), Outcome::Error)], "a cut call does not run");
    assert_eq!(s.settle(), CALL_MODEL);
    s.push(cut_call(1, "{\"a\": "));
    assert_eq!(s.settle(), Step::Done);
    assert!(s.error().contains("within a tool call"), "{}", s.error());
}

#[test]
fn each_reason_to_stop_has_its_end() {
    for (stop, status, part) in [
        (StopReason::EndTurn, RunStatus::Success, ""),
        (StopReason::StopSequence, RunStatus::Success, ""),
        (StopReason::Other("odd".into()), RunStatus::Success, ""),
        (StopReason::Refusal, RunStatus::Refusal, "declined"),
        (StopReason::ContextWindowExceeded, RunStatus::ErrorDuringExecution, "context window"),
        (StopReason::ToolUse, RunStatus::ErrorDuringExecution, "no call came"),
    ] {
        let mut s = Script::new(RunLimits::default());
        s.push(text(0, stop.clone()));
        assert_eq!(s.settle(), Step::Done, "{stop:?}");
        assert_eq!(s.status(), status, "{stop:?}");
        assert!(s.error().contains(part), "{stop:?}: {}", s.error());
    }
}

#[test]
fn a_refused_answers_calls_do_not_run() {
    let mut s = Script::new(RunLimits::default());
    s.push(answer_with(0, StopReason::Refusal, vec![Block::ToolUse(tool_use(0, 0))]));
    let entries = recorded(s.machine.next());
    assert_eq!(closing(&entries), [(id(0, 0), Outcome::Closed)]);
    assert_eq!(s.settle(), Step::Done);
    assert_eq!(s.status(), RunStatus::Refusal);
}

#[test]
fn a_paused_answer_is_sent_back_as_the_last_message() {
    let mut s = Script::new(RunLimits::default());
    s.push(text(0, StopReason::PauseTurn)).push(queued(1, true));
    assert_eq!(s.machine.next(), CALL_MODEL, "a message that waits would hide the paused answer");
    assert!(s.machine.resumes_pause());
    let mut limited = Script::new(RunLimits { max_turns: Some(1), ..RunLimits::default() });
    limited.push(text(0, StopReason::PauseTurn));
    assert_eq!(limited.settle(), Step::Done);
    assert_eq!(limited.status(), RunStatus::ErrorMaxTurns);
}

#[test]
fn an_interrupt_closes_what_is_open_in_each_phase_and_says_what_is_true() {
    let interrupted = |s: &mut Script| {
        s.push(SessionEntry::Interrupted {});
        let entries = recorded(s.machine.next());
        assert_eq!(s.settle(), Step::Done);
        assert_eq!(s.status(), RunStatus::Cancelled);
        closing(&entries).into_iter().map(|(_, outcome)| outcome).collect::<Vec<_>>()
    };
    let mut before = Script::new(RunLimits::default());
    assert_eq!(interrupted(&mut before), []);
    let mut s = Script::new(RunLimits::default());
    s.push(calls(0, 1));
    assert_eq!(interrupted(&mut s.clone()), [Outcome::Closed], "not begun");
    assert_eq!(interrupted(s.clone().push(allowed(id(0, 0), Effect::ReadOnly))), [Outcome::Interrupted]);
    s.push(allowed(id(0, 0), Effect::Unsafe));
    assert_eq!(interrupted(&mut s.clone()), [Outcome::Closed]);
    let mut asks = s.clone();
    s.push(SessionEntry::Started { call: id(0, 0) });
    assert_eq!(interrupted(&mut s), [Outcome::Lost], "it had begun, and nobody knows what it did");
    asks.push(SessionEntry::Started { call: id(0, 0) }).push(asked(id(0, 0)));
    assert_eq!(interrupted(&mut asks), [Outcome::Interrupted]);
}

#[test]
fn a_new_message_after_a_crash_never_calls_a_call_not_run_that_ran() {
    let mut s = Script::new(RunLimits::default());
    s.push(calls(0, 3)).push(allowed(id(0, 0), Effect::Unsafe));
    s.push(SessionEntry::Started { call: id(0, 0) }).open();
    let entries = s.machine.give_up();
    assert_eq!(
        closing(&entries),
        [(id(0, 0), Outcome::Lost), (id(0, 1), Outcome::Closed), (id(0, 2), Outcome::Closed)]
    );
    let text = |i: usize| match &entries[i] {
        SessionEntry::Done(done) => format!("{:?}", done.content),
        other => panic!("{other:?}"),
    };
    assert!(text(0).contains("Its outcome is unknown") && !text(0).contains("Not run"), "{}", text(0));
    assert!(text(1).contains("Not run: the user went on with a new message"), "{}", text(1));
}

#[test]
fn after_a_crash_only_unsafe_calls_are_lost() {
    for (effect, want) in [
        (Effect::ReadOnly, Step::Run(vec![id(0, 0)])),
        (Effect::Idempotent, Step::Run(vec![id(0, 0)])),
        (Effect::Unsafe, CALL_MODEL),
    ] {
        let mut s = Script::new(RunLimits::default());
        s.push(calls(0, 1)).push(allowed(id(0, 0), effect));
        s.push(SessionEntry::Started { call: id(0, 0) }).open();
        assert_eq!(s.settle(), want, "{effect:?}");
    }
    let mut not_begun = Script::new(RunLimits::default());
    not_begun.push(calls(0, 1)).push(allowed(id(0, 0), Effect::Unsafe)).open();
    assert_eq!(not_begun.machine.next(), Step::Run(vec![id(0, 0)]));
}

#[test]
fn a_missing_record_makes_an_unsafe_call_lost() {
    // The record that is missing may be the one that said that the call begins.
    let mut s = Script::new(RunLimits::default());
    s.push(calls(0, 1)).push(allowed(id(0, 0), Effect::Unsafe)).gap().open();
    assert_eq!(closing(&recorded(s.machine.next())), [(id(0, 0), Outcome::Lost)]);
    let mut reads = Script::new(RunLimits::default());
    reads.push(calls(0, 1)).push(allowed(id(0, 0), Effect::ReadOnly)).gap().open();
    assert_eq!(reads.machine.next(), Step::Run(vec![id(0, 0)]));
    // The answer to a question and the beginning that followed may both be missing.
    let mut waits = Script::new(RunLimits::default());
    waits.push(calls(0, 1)).push(allowed(id(0, 0), Effect::Unsafe)).push(asked(id(0, 0)));
    let mut known = waits.clone();
    assert_eq!(closing(&recorded(waits.gap().open().machine.next())), [(id(0, 0), Outcome::Lost)]);
    known.open();
    assert_eq!(known.machine.next(), Step::Wait(vec![AskId::of_tool(id(0, 0), 0)]), "nothing is missing");
    // What a later record says of the call is certain again.
    let mut ruled_after = Script::new(RunLimits::default());
    ruled_after.push(calls(0, 1)).gap().push(allowed(id(0, 0), Effect::Unsafe)).open();
    assert_eq!(ruled_after.machine.next(), Step::Run(vec![id(0, 0)]));
    // Ruling and beginning may both be missing.
    let mut unruled = Script::new(RunLimits::default());
    unruled.push(calls(0, 1)).gap().open();
    assert_eq!(closing(&recorded(unruled.machine.next())), [(id(0, 0), Outcome::Lost)]);
    // A result that is missing: the next answer closes the call, and the request stays valid.
    let mut resultless = Script::new(RunLimits::default());
    resultless.push(calls(0, 1)).push(allowed(id(0, 0), Effect::Unsafe)).gap();
    resultless.push(calls(1, 1)).push(allowed(id(1, 0), Effect::ReadOnly)).push(done(id(1, 0)));
    assert_eq!(resultless.machine.next(), CALL_MODEL);
    let messages = resultless.machine.transcript().messages();
    let lost = format!("{:?}", messages[2]);
    assert!(lost.contains("result is lost") && messages.len() == 5, "{messages:?}");
}

#[test]
fn a_question_waits_and_its_answer_lets_the_call_run_again() {
    let mut s = Script::new(RunLimits::default());
    s.push(calls(0, 2)).push(allowed(id(0, 0), Effect::ReadOnly)).push(allowed(id(0, 1), Effect::ReadOnly));
    s.push(asked(id(0, 0)));
    assert_eq!(s.machine.next(), Step::Run(vec![id(0, 1)]), "others go on meanwhile");
    s.push(done(id(0, 1)));
    let ask = AskId::of_tool(id(0, 0), 0);
    assert_eq!(s.machine.next(), Step::Wait(vec![ask]));
    s.push(SessionEntry::Answered { ask: AskId { n: 1, ..ask }, answer: Answer::text("other") });
    assert_eq!(s.machine.next(), Step::Wait(vec![ask]), "an answer to another question");
    s.push(SessionEntry::Answered { ask, answer: Answer::text("yes") });
    assert_eq!(s.machine.next(), Step::Run(vec![id(0, 0)]));
    assert_eq!(s.machine.call(id(0, 0)).unwrap().answers, [Answer::text("yes")]);
}

#[test]
fn a_permissions_answer_is_not_the_tools() {
    let mut s = Script::new(RunLimits::default());
    s.push(calls(0, 1)).push(allowed(id(0, 0), Effect::ReadOnly));
    let ask = AskId { source: AskSource::Permission, call: Some(id(0, 0)), n: 0 };
    s.push(SessionEntry::Asked { ask, question: Question::text("may it?") });
    s.push(SessionEntry::Answered { ask: AskId::of_tool(id(0, 0), 0), answer: Answer::text("x") });
    assert_eq!(s.machine.next(), Step::Wait(vec![ask]), "the sources differ");
    s.push(SessionEntry::Answered { ask, answer: Answer::text("yes") });
    assert_eq!(s.machine.next(), Step::Run(vec![id(0, 0)]));
    assert!(s.machine.call(id(0, 0)).unwrap().answers.is_empty());
}

#[test]
fn a_refused_call_has_a_result_and_counts_as_a_denial_unless_it_was_impossible() {
    let mut s = Script::new(RunLimits::default());
    s.push(calls(0, 2)).push(ruled(id(0, 0), Effect::Unsafe, Decision::Deny));
    let mut impossible = ruled(id(0, 1), Effect::ReadOnly, Decision::Deny);
    if let SessionEntry::Ruled(ruled) = &mut impossible {
        ruled.ruling.layer = Layer::Call.into();
    }
    s.push(impossible);
    let entries = recorded(s.machine.next());
    assert_eq!(closing(&entries), [(id(0, 0), Outcome::Refused), (id(0, 1), Outcome::Error)]);
    assert_eq!(s.settle(), CALL_MODEL);
    let denials = &s.machine.run().unwrap().summary.denials;
    assert_eq!((denials.len(), denials[0].reason.as_str()), (1, "because"));
}

#[test]
fn messages_that_come_while_calls_are_open_follow_the_results() {
    let mut s = Script::new(RunLimits::default());
    s.push(calls(0, 1)).push(allowed(id(0, 0), Effect::ReadOnly)).push(user("meanwhile"));
    assert_eq!(s.machine.next(), Step::Run(vec![id(0, 0)]), "it ends no call");
    s.push(done(id(0, 0)));
    assert_eq!(s.machine.next(), CALL_MODEL);
    let last = s.machine.transcript().messages().last().unwrap().clone();
    assert!(
        matches!(&last.content[..], [Block::ToolResult(_), Block::Text(t)] if t == "meanwhile"),
        "{last:?}"
    );
}

#[test]
fn steering_is_delivered_with_the_next_request_and_the_rest_starts_the_next_run() {
    let mut s = Script::new(RunLimits::default());
    s.push(calls(0, 1)).push(allowed(id(0, 0), Effect::ReadOnly));
    s.push(queued(1, true)).push(queued(2, false)).push(queued(3, true)).push(queued(4, true));
    s.push(SessionEntry::Unqueued { id: QueueId::from_number(4) });
    assert_eq!(s.machine.next(), Step::Run(vec![id(0, 0)]), "not before the results are there");
    s.push(done(id(0, 0)));
    let ids = vec![QueueId::from_number(1), QueueId::from_number(3)];
    assert_eq!(s.machine.next(), Step::Record(vec![SessionEntry::Delivered { ids }]));
    assert_eq!(s.settle(), CALL_MODEL);
    let last = format!("{:?}", s.machine.transcript().messages().last());
    let order = ["ToolResult", "queued 1", "queued 3"].map(|part| last.find(part).unwrap());
    assert!(order.is_sorted() && !last.contains("queued 4"), "{last}");
    assert!(!s.machine.has_next_run(), "while a run goes on, none is due");
    s.push(text(1, StopReason::EndTurn));
    assert_eq!(s.settle(), Step::Done);
    assert!(s.machine.has_next_run());
    assert_eq!(s.machine.queue().len(), 1);
}

#[test]
fn after_an_interrupt_or_the_end_of_the_budget_the_queue_waits() {
    let mut interrupted = Script::new(RunLimits::default());
    interrupted.push(queued(1, false)).push(SessionEntry::Interrupted {});
    interrupted.settle();
    assert!(!interrupted.machine.has_next_run());
    let mut spent = Script::new(RunLimits::default());
    spent.push(queued(1, false));
    let entries = spent.machine.over_budget("the budget is spent".into());
    entries.into_iter().for_each(|entry| _ = spent.push(entry));
    assert_eq!(spent.status(), RunStatus::ErrorMaxBudgetUsd);
    assert!(!spent.machine.has_next_run());
    assert_eq!(spent.machine.queue().len(), 1);
}

fn retry(attempt: u32, model: &str) -> Retry {
    let model = model.into();
    Retry { at: Timestamp(5_000), delay_ms: 4_000, attempt, max_retries: 3, model }
}

fn failed(retry: Option<Retry>) -> SessionEntry {
    let error = ProviderError::new(ProviderErrorKind::Overloaded, "busy");
    let failure = open_agent_session::Failure {
        kind: error.kind.into(),
        message: error.message,
        status: None,
        request_id: None,
    };
    SessionEntry::ModelFailed(ModelFailed {
        model: "m".into(),
        error: Some(failure),
        partial: None,
        usage: Usage::default(),
        cost: Some(Cost(0)),
        cost_source: None,
        api_ms: 1,
        retry,
    })
}

fn after(script: &Script, kind: ProviderErrorKind, fallback: Option<&str>) -> Failed {
    let config = RetryConfig { max_retries: 2, base_delay: Duration::from_secs(2), ..RetryConfig::default() };
    let model: Arc<str> = Arc::clone(&script.machine.run().unwrap().model);
    let fallback = fallback.map(Arc::from);
    script.machine.after_failure(FailureFacts {
        model: &model,
        error: &ProviderError::new(kind, "busy"),
        config: &config,
        fallback: fallback.as_ref(),
        sent_media: false,
        now: Timestamp(1_000),
        chance: 0.5,
    })
}

#[test]
fn failures_are_retried_then_the_fallback_is_asked_then_the_run_ends() {
    let mut s = Script::new(RunLimits::default());
    let first = after(&s, ProviderErrorKind::Overloaded, Some("other")).retry.unwrap();
    assert_eq!((first.attempt, first.delay_ms, first.at, &*first.model), (1, 2_000, Timestamp(3_000), "m"));
    s.push(failed(Some(retry(1, "m")))).push(failed(Some(retry(2, "m"))));
    assert_eq!(s.machine.next(), Step::CallModel { not_before: Some(Timestamp(5_000)) });
    let other = after(&s, ProviderErrorKind::Overloaded, Some("other")).retry.unwrap();
    assert_eq!((other.attempt, other.delay_ms, &*other.model), (0, 0, "other"), "with all its attempts");
    let last = after(&s, ProviderErrorKind::Overloaded, None);
    assert!(last.retry.is_none() && last.failure.message.ends_with("(after 3 attempts)"), "{last:?}");
    let hopeless = after(&s, ProviderErrorKind::Authentication, Some("other"));
    assert!(hopeless.retry.is_none(), "a wrong key is wrong for each model");
    s.push(failed(Some(Retry { model: "other".into(), ..retry(0, "other") })));
    assert_eq!(&*s.machine.run().unwrap().model, "other");
    s.push(failed(None));
    assert_eq!(s.settle(), Step::Done);
    assert_eq!((s.status(), s.error().as_str()), (RunStatus::ErrorDuringExecution, "busy"));
}

#[test]
fn a_good_answer_and_another_model_forget_the_failures() {
    let mut s = Script::new(RunLimits::default());
    s.push(failed(Some(retry(2, "m"))));
    let mut switched = s.clone();
    s.push(text(0, StopReason::MaxTokens));
    assert_eq!(s.machine.run().unwrap().failures, 0);
    assert_eq!(s.settle(), CALL_MODEL);
    switched.push(SessionEntry::Configured(settings("n")));
    assert_eq!((switched.machine.run().unwrap().failures, switched.machine.next()), (0, CALL_MODEL));
    // Another effort alone does not undo the fallback.
    let mut fallen = Script::new(RunLimits::default());
    fallen.push(failed(Some(retry(0, "other"))));
    let effort = Some(open_agent_model::Effort::Low);
    fallen.push(SessionEntry::Configured(ModelSettings { effort, ..settings("m") }));
    assert_eq!(&*fallen.machine.run().unwrap().model, "other");
}

#[test]
fn of_parallel_calls_the_later_one_counts_whichever_finishes_first() {
    let put = |call, n: u32| {
        let value = RawJson::of(&n).unwrap();
        let changes = vec![Change::Put { slot: Slot("s".into()), value }];
        SessionEntry::Done(Done { changes, ..Done::without_result(call, Outcome::Ok, "") })
    };
    for order in [[0, 1], [1, 0]] {
        let mut s = Script::new(RunLimits::default());
        s.push(calls(0, 2));
        for index in order {
            s.push(put(id(0, index), u32::from(index)));
        }
        assert_eq!(s.machine.state().slots[&Slot("s".into())].get(), "1", "{order:?}");
    }
}

#[test]
fn turns_are_stored_and_never_counted() {
    let mut s = Script::new(RunLimits::default());
    // The answer of turn 0 is missing; turn 1 keeps its number, and so do its results.
    s.gap().push(calls(1, 1)).push(allowed(id(1, 0), Effect::ReadOnly)).push(done(id(1, 0)));
    assert_eq!(s.machine.next(), CALL_MODEL);
    assert_eq!(s.machine.transcript().next_turn(), 2);
    let last = format!("{:?}", s.machine.transcript().messages().last());
    assert!(last.contains("result"), "{last}");
}

#[test]
fn a_run_without_a_message_ends_and_an_idle_machine_does_nothing() {
    let mut s = Script::default();
    assert_eq!(s.machine.next(), Step::Done);
    assert!(s.machine.give_up().is_empty());
    s.run(RunLimits::default());
    assert_eq!(s.settle(), Step::Done);
    assert!(s.error().contains("no message"), "{}", s.error());
}

#[test]
fn calls_of_a_run_whose_beginning_is_missing_are_closed_before_the_next() {
    let mut s = Script::default();
    s.gap().push(calls(0, 1)).push(allowed(id(0, 0), Effect::Unsafe));
    assert_eq!(s.machine.next(), Step::Done);
    assert_eq!(closing(&s.machine.give_up()), [(id(0, 0), Outcome::Closed)]);
}

fn repeated(script: &Script) -> (u32, usize) {
    let run = script.machine.run().unwrap();
    (run.repeated, run.notices.iter().filter(|n| n.kind == NoticeKind::RequestRepeated).count())
}

#[test]
fn a_request_that_may_have_been_made_before_a_crash_is_told_once() {
    let mut s = Script::new(RunLimits::default());
    s.open();
    assert_eq!(s.settle(), Step::CallModel { not_before: None });
    assert_eq!(repeated(&s), (1, 1));
    s.open();
    assert_eq!(repeated(&s), (2, 1));
    let told = s.machine.give_up();
    assert!(matches!(told.first(), Some(SessionEntry::Noticed(_))), "a prompt tells it, too: {told:?}");
    s.settle();
    s.push(text(0, StopReason::PauseTurn)).open();
    s.settle();
    assert_eq!(repeated(&s), (3, 3), "so may be one that goes on with a pause");
    // Calls run, or nothing is due: no request can be under way.
    s.push(calls(1, 1)).open();
    s.push(SessionEntry::Interrupted {}).open();
    s.settle();
    s.open();
    assert_eq!(repeated(&s), (3, 3));
}

#[test]
fn what_forbids_a_request_rules_out_that_it_was_made() {
    let mut s = Script::new(RunLimits { max_turns: Some(1), ..RunLimits::default() });
    s.push(calls(0, 1)).push(done(id(0, 0))).open();
    assert_eq!(repeated(&s), (0, 0), "a limit");
    for (at, expected) in [(999, 1), (1_000, 1), (1_001, 0)] {
        let mut s = Script::new(RunLimits::default());
        s.push(failed(Some(Retry { at: Timestamp(at), ..retry(1, "m") }))).open();
        assert_eq!(repeated(&s).0, expected, "a retry that is to wait until {at}");
    }
}

#[test]
fn only_the_first_result_of_a_call_is_told() {
    let mut s = Script::new(RunLimits::default());
    // The second call keeps the turn open.
    s.push(calls(0, 2));
    let done = SessionEntry::Done(Done::without_result(id(0, 0), Outcome::Ok, "once"));
    let told = |s: &Script| {
        let record = Stored::new(Seq(s.seq + 1), Timestamp(1_000), done.clone());
        crate::event::event_of(&record, &s.machine)
    };
    assert!(matches!(told(&s), Some(crate::AgentEvent::ToolFinished(_))));
    s.push(done.clone());
    assert_eq!(told(&s), None);
}
