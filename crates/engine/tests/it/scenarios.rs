//! Single runs, one rule of the loop each.

use std::sync::Arc;
use std::time::Duration;

use open_agent_engine::{AgentEvent, DeltaKind, EventSink, Progress, RetryConfig, replay};
use open_agent_model::scripted::{Reply, Scripted, newest_results};
use open_agent_model::{
    Answer, Block, Cost, Decision, PermissionMode, ProviderErrorKind, RequestOptions, Role, RunStatus, Seq,
    StopReason, Timestamp,
};
use open_agent_policy::Policy;
use open_agent_session::{RunLimits, SessionEntry, ToolScheduling};
use open_agent_tool::Clock;
use tokio_util::sync::CancellationToken;

use crate::world::{Options, PausedClock, World, collect, finish, session, spec, status};

async fn results_of(calls: Reply, limits: RunLimits) -> (World, Vec<String>) {
    let world = World::new(Scripted::new([calls, Reply::text("done")]));
    world.run(limits).await;
    let results = newest_results(world.model.requests().last().unwrap());
    (world, results)
}

#[tokio::test]
async fn a_prompt_runs_tools_until_the_model_is_done() {
    let script = [Reply::call("read", r#"{"n":1}"#).usage(100, 10), Reply::text("It says 1.").usage(150, 5)];
    let world = World::new(Scripted::new(script));
    let (driver, _) = world.run(RunLimits::default()).await;
    let run = driver.machine().run().unwrap();
    assert_eq!(status(run), RunStatus::Success);
    assert_eq!(
        (run.summary.turns, run.summary.totals.requests, run.summary.words.text()),
        (2, 2, "It says 1.")
    );
    assert_eq!((run.summary.totals.usage.input_tokens, run.summary.totals.usage.output_tokens), (250, 15));
    // 250 × 3 + 15 × 15 dollars for a million.
    assert_eq!(run.summary.totals.cost, Cost::from_usd("0.000975"));
    assert_eq!(newest_results(&world.model.requests()[1]), ["read 1"]);
    assert_eq!(driver.machine().transcript().messages().len(), 4);
}

#[tokio::test]
async fn a_conversation_goes_on_over_prompts_with_the_same_prefix() {
    let world = World::new(Scripted::new([Reply::text("one"), Reply::text("two")]));
    let (mut driver, _) = world.run(RunLimits::default()).await;
    driver.begin(spec("more", RunLimits::default())).await.unwrap();
    assert_eq!(finish(&mut driver).await, Progress::Done);
    let requests = world.model.requests();
    assert_eq!(requests[1].messages.len(), 3);
    assert!(Arc::ptr_eq(&requests[0].prefix, &requests[1].prefix), "written down once");
}

#[tokio::test]
async fn h_sub_05_27_calls_of_which_one_fails() {
    let mut reply = Reply::default();
    for n in 0..27 {
        reply = reply.and_call(if n == 13 { "fail" } else { "read" }, &format!(r#"{{"n":{n}}}"#));
    }
    let (_, results) = results_of(reply, RunLimits::default()).await;
    let want: Vec<String> =
        (0..27).map(|n| if n == 13 { "no luck".into() } else { format!("read {n}") }).collect();
    assert_eq!(results, want);
}

#[tokio::test]
async fn calls_that_write_run_in_order_and_see_each_other() {
    let reply = Reply::call("write", r#"{"n":1}"#)
        .and_call("read", r#"{"n":3}"#)
        .and_call("write", r#"{"n":5}"#)
        .and_call("write", r#"{"n":7}"#);
    let (_, results) = results_of(reply.clone(), RunLimits::default()).await;
    assert_eq!(results, ["sum 1", "read 3", "sum 6", "sum 13"]);
    let reads_first = RunLimits { scheduling: ToolScheduling::ReadsFirst, ..RunLimits::default() };
    let (_, results) = results_of(reply, reads_first).await;
    assert_eq!(results, ["sum 1", "read 3", "sum 6", "sum 13"], "reported in the model's order all the same");
}

#[tokio::test]
async fn h_prv_06_h_prv_07_no_failure_of_a_call_ends_the_run() {
    let reply = Reply::call("reed_file!", "{}")
        .and_call("read", r#"{"n":"one"}"#)
        .and_call("panic", r#"{"n":3}"#)
        .and_call("read", r#"{"n": 4"#)
        .and_call("fail", "{}");
    let (world, results) = results_of(reply, RunLimits::default()).await;
    assert!(results[0].contains("There is no tool \"reed_file!\". Did you mean read"), "{}", results[0]);
    assert!(results[1].contains("n has to be a whole number, but is a string \"one\""), "{}", results[1]);
    assert_eq!(results[2], "The tool panicked: boom 3");
    assert!(results[3].contains("not valid JSON (EOF while parsing"), "{}", results[3]);
    assert_eq!(results[4], "no luck");
    assert!(world.effects.take().is_empty(), "nothing was run with broken input");
}

#[tokio::test]
async fn limits_strike_before_the_next_request_and_keep_what_exists() {
    let endless = || Scripted::responding(|_| Reply::text("step ").and_call("read", r#"{"n":1}"#));
    let world = World::new(endless());
    let (driver, _) = world.run(RunLimits { max_turns: Some(3), ..RunLimits::default() }).await;
    let run = driver.machine().run().unwrap();
    assert_eq!(
        (status(run), run.summary.turns, run.summary.words.text()),
        (RunStatus::ErrorMaxTurns, 3, "step ")
    );
    assert_eq!(world.model.requests().len(), 3);

    let world = World::new(endless());
    let limits = RunLimits { max_turns: None, max_model_calls: 5, ..RunLimits::default() };
    let (driver, _) = world.run(limits).await;
    assert_eq!(status(driver.machine().run().unwrap()), RunStatus::ErrorMaxModelCalls);
    assert_eq!(world.model.requests().len(), 5);
}

#[tokio::test]
async fn h_out_02_a_stop_for_a_tool_without_a_call_is_no_success() {
    let world = World::new(Scripted::new([Reply::text("Let me see.").stop(StopReason::ToolUse)]));
    let (driver, _) = world.run(RunLimits::default()).await;
    let ended = driver.machine().run().unwrap().ended.clone().unwrap();
    assert_eq!(ended.status, RunStatus::ErrorDuringExecution);
    assert!(ended.errors[0].contains("no call came"), "{:?}", ended.errors);
}

#[tokio::test]
async fn each_answer_without_text_is_noticed() {
    let spoken = Reply::text("ok");
    let called = Reply::call("read", "{}").and_thinking("hm");
    for (replies, want) in [
        (vec![Reply::default().and_thinking("hm").stop(StopReason::EndTurn)], 1),
        (vec![Reply::default().stop(StopReason::Other("eos".into()))], 1),
        (vec![called, Reply::default().stop(StopReason::EndTurn)], 1),
        (vec![Reply::default().stop(StopReason::Refusal)], 0),
        (vec![Reply::default().stop(StopReason::ToolUse)], 0),
        (vec![spoken], 0),
    ] {
        let shown = format!("{replies:?}");
        let world = World::new(Scripted::new(replies));
        let (driver, _) = world.run(RunLimits::default()).await;
        let notices = &driver.machine().run().unwrap().notices;
        let silent = notices.iter().filter(|n| n.text == "the model answered without any text");
        assert_eq!(silent.count(), want, "{shown}: {notices:?}");
    }
}

#[tokio::test]
async fn an_answer_at_the_output_limit_is_continued_three_times() {
    let cut = || Reply::text("part ").stop(StopReason::MaxTokens);
    let world = World::new(Scripted::new([cut(), cut(), cut(), Reply::text("end")]));
    let (driver, _) = world.run(RunLimits::default()).await;
    assert_eq!(status(driver.machine().run().unwrap()), RunStatus::Success);
    assert_eq!(world.model.requests()[3].messages.len(), 7);

    let world = World::new(Scripted::responding(move |_| cut()));
    let (driver, _) = world.run(RunLimits { max_turns: None, ..RunLimits::default() }).await;
    let ended = driver.machine().run().unwrap().ended.clone().unwrap();
    assert_eq!(ended.status, RunStatus::ErrorDuringExecution);
    assert_eq!(ended.errors, ["the answer was cut at the output limit 4 times in a row"]);
    assert_eq!(world.model.requests().len(), 4);
}

#[tokio::test]
async fn h_str_13_a_call_cut_by_the_limit_is_not_run_and_the_second_cut_ends_the_run() {
    let cut = || Reply::call("write", r#"{"n": 1"#).stop(StopReason::MaxTokens);
    let world = World::new(Scripted::new([cut(), cut(), Reply::text("never asked")]));
    let (driver, _) = world.run(RunLimits::default()).await;
    let ended = driver.machine().run().unwrap().ended.clone().unwrap();
    assert!(ended.errors[0].contains("2 answers in a row ended within a tool call"), "{:?}", ended.errors);
    assert!(newest_results(&world.model.requests()[1])[0].contains("Split the work"));
    assert!(world.effects.take().is_empty());
}

#[tokio::test]
async fn h_str_13_servers_that_call_a_cut_call_finished_do_not_run_away() {
    let cut = |json: &str| Reply::call("write", json).stop(StopReason::ToolUse);
    let world = World::new(Scripted::responding(move |_| cut(r#"{"n": 1"#)));
    let (driver, _) = world.run(RunLimits { max_turns: None, ..RunLimits::default() }).await;
    let ended = driver.machine().run().unwrap().ended.clone().unwrap();
    assert!(ended.errors[0].contains("ended within a tool call"), "{:?}", ended.errors);
    assert_eq!(world.model.requests().len(), 2);
    assert!(newest_results(&world.model.requests()[1])[0].contains("Split the work"));

    let slips = [cut(r#"{"n": 1"#), cut(r#"{"n": 2"#), cut(r#"{"n": 3"#), Reply::text("ok")];
    let (driver, _) = World::new(Scripted::new(slips)).run(RunLimits::default()).await;
    assert_eq!(status(driver.machine().run().unwrap()), RunStatus::Success, "slips of the pen are none");
}

#[tokio::test]
async fn h_prv_01_at_the_limit_the_last_call_is_not_run_even_if_its_json_is_whole() {
    let calls =
        Reply::call("write", r#"{"n":1}"#).and_call("write", r#"{"n":2}"#).stop(StopReason::MaxTokens);
    let (world, results) = results_of(calls, RunLimits::default()).await;
    assert_eq!(results[0], "sum 1");
    assert!(results[1].contains("it may not be whole"), "{results:?}");
    assert_eq!(world.effects.take().len(), 1);
}

#[tokio::test]
async fn an_answer_that_goes_on_is_one_answer() {
    let part = |text| Reply::text(text).stop(StopReason::MaxTokens);
    let breaks = Reply::text("sec").then_fails(ProviderErrorKind::Overloaded, "busy");
    let script = [
        part("first, "),
        breaks,
        part("second, "),
        Reply::text("third").stop(StopReason::PauseTurn),
        Reply::text("."),
    ];
    let options = Options {
        retry: RetryConfig { max_retries: 1, base_delay: Duration::ZERO, ..RetryConfig::default() },
        ..Options::default()
    };
    let (driver, _) = World::with(Scripted::new(script), options).run(RunLimits::default()).await;
    assert_eq!(driver.machine().run().unwrap().summary.words.text(), "first, second, third.");
}

#[tokio::test]
async fn h_prv_01_h_prv_02_finish_reasons() {
    let calls_but_stop = Reply::call("read", r#"{"n":1}"#).stop(StopReason::EndTurn);
    let world = World::new(Scripted::new([calls_but_stop, Reply::text("done")]));
    world.run(RunLimits::default()).await;
    assert_eq!(world.model.requests().len(), 2, "calls are run whatever the reason says");

    let filtered = Reply::call("write", r#"{"n":1}"#).stop(StopReason::Refusal);
    let world = World::new(Scripted::new([filtered]));
    let (driver, _) = world.run(RunLimits::default()).await;
    assert_eq!(status(driver.machine().run().unwrap()), RunStatus::Refusal);
    assert!(world.effects.take().is_empty(), "what a filter cut is not run");

    let odd = Reply::text("hm").stop(StopReason::Other("vibes".into()));
    let world = World::new(Scripted::new([odd]));
    let (driver, _) = world.run(RunLimits::default()).await;
    let run = driver.machine().run().unwrap();
    assert_eq!(run.summary.stop, Some(StopReason::Other("vibes".into())));
    assert_eq!(world.model.requests().len(), 1);
}

#[tokio::test]
async fn refusals_pauses_and_full_windows() {
    let ended = async |replies: Vec<Reply>| {
        let world = World::new(Scripted::new(replies));
        let (driver, _) = world.run(RunLimits::default()).await;
        (status(driver.machine().run().unwrap()), world.model.requests())
    };
    let (refused, _) = ended(vec![Reply::text("no").stop(StopReason::Refusal)]).await;
    assert_eq!(refused, RunStatus::Refusal);
    let (full, _) = ended(vec![Reply::text("x").stop(StopReason::ContextWindowExceeded)]).await;
    assert_eq!(full, RunStatus::ErrorDuringExecution);
    let pause = Reply::text("searching").stop(StopReason::PauseTurn);
    let (paused, requests) = ended(vec![pause, Reply::text("found")]).await;
    assert_eq!(paused, RunStatus::Success);
    assert!(requests[1].options.resumes_pause);
    assert_eq!(requests[1].messages.last().unwrap().role, Role::Assistant);
}

#[tokio::test]
async fn a_failed_request_ends_the_run_and_the_next_prompt_works() {
    let broken = Reply::text("half an ").then_fails(ProviderErrorKind::Server, "it broke");
    let world = World::new(Scripted::new([broken, Reply::text("fine")]));
    let (mut driver, _) = world.run(RunLimits::default()).await;
    let run = driver.machine().run().unwrap();
    assert_eq!((status(run), run.summary.words.text()), (RunStatus::ErrorDuringExecution, "half an "));
    assert_eq!(run.ended.as_ref().unwrap().errors, ["it broke"]);
    driver.begin(spec("again", RunLimits::default())).await.unwrap();
    finish(&mut driver).await;
    assert_eq!(status(driver.machine().run().unwrap()), RunStatus::Success);
    assert_eq!(world.model.requests()[1].messages[1].text(), "half an ", "the model knows what was seen");
}

#[tokio::test]
async fn an_illegal_history_is_never_sent() {
    let request = RequestOptions { max_tokens: 0, ..RequestOptions::default() };
    let world = World::with(Scripted::new([Reply::text("x")]), Options { request, ..Options::default() });
    let (driver, _) = world.run(RunLimits::default()).await;
    let ended = driver.machine().run().unwrap().ended.clone().unwrap();
    assert!(ended.errors[0].contains("max_tokens is 0"), "{:?}", ended.errors);
    assert!(world.model.requests().is_empty());
}

#[tokio::test]
async fn a_refused_call_is_told_to_the_model_with_the_reason_and_without_a_way_around_it() {
    let model = Scripted::new([Reply::call("write", r#"{"n":1}"#), Reply::text("ok")]);
    let world = World::with(model, Options { policy: Policy::default(), ..Options::default() });
    let (_, events) = world.run(RunLimits::default()).await;
    let ruling = events.iter().find_map(|e| match &e.event {
        AgentEvent::ToolRuled(r) => Some(r.ruling.clone()),
        _ => None,
    });
    assert_eq!(ruling.unwrap().decision, Decision::Deny);
    let told = newest_results(&world.model.requests()[1]).remove(0);
    assert!(told.starts_with("write was refused, because it does more than read"), "{told}");
    assert!(!told.contains("--") && !told.contains("bypassPermissions"), "{told}");
    assert!(world.effects.take().is_empty());
    assert_eq!(PermissionMode::default(), PermissionMode::Default);
}

#[tokio::test(start_paused = true)]
async fn h_int_01_a_stalled_request_is_interrupted_at_once_and_its_text_kept() {
    let world = World::new(Scripted::new([Reply::text("so far").then_stalls(), Reply::text("next")]));
    let mut driver = world.open().await;
    let cancel = CancellationToken::new();
    driver.set_cancel(cancel.clone());
    driver.begin(spec("go", RunLimits::default())).await.unwrap();
    let began = tokio::time::Instant::now();
    tokio::join!(finish_run(&mut driver), async {
        tokio::task::yield_now().await;
        cancel.cancel();
    });
    assert!(began.elapsed().as_millis() < 500);
    let run = driver.machine().run().unwrap();
    assert_eq!((status(run), run.summary.words.text()), (RunStatus::Cancelled, "so far"));
    assert!(run.ended.as_ref().unwrap().errors.is_empty(), "an interrupt is no error");
    driver.begin(spec("again", RunLimits::default())).await.unwrap();
    finish(&mut driver).await;
    assert_eq!(status(driver.machine().run().unwrap()), RunStatus::Success);
}

async fn finish_run(driver: &mut open_agent_engine::Driver) {
    finish(driver).await;
}

#[tokio::test(start_paused = true)]
async fn h_int_02_an_interrupted_call_has_a_result_and_the_rest_is_closed() {
    let calls = Reply::call("forever", "{}").and_call("read", "{}");
    let world = World::new(Scripted::new([calls, Reply::text("next")]));
    let mut driver = world.open().await;
    let cancel = CancellationToken::new();
    driver.set_cancel(cancel.clone());
    driver.begin(spec("go", RunLimits::default())).await.unwrap();
    tokio::join!(finish_run(&mut driver), async {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        cancel.cancel();
    });
    assert_eq!(status(driver.machine().run().unwrap()), RunStatus::Cancelled);
    driver.begin(spec("again", RunLimits::default())).await.unwrap();
    finish(&mut driver).await;
    let request = world.model.requests().pop().unwrap();
    assert_eq!(newest_results(&request), ["stopped in time", "Not run: the user interrupted the run."]);
    assert_eq!(request.messages.last().unwrap().content.last(), Some(&Block::Text("again".into())));
}

#[tokio::test]
async fn a_question_waits_for_days_and_the_call_runs_once() {
    let model =
        Scripted::new([Reply::call("ask", "{}").and_call("read", r#"{"n":2}"#), Reply::text("thanks")]);
    let world = World::new(model);
    let (driver, _) = world.run(RunLimits::default()).await;
    let waiting = driver.machine().questions();
    assert_eq!(waiting[0].1.to_text(), "first?");
    drop(driver);
    // Another process, later.
    let mut driver = world.open().await;
    let answer = |text: &str| Answer::text(text);
    driver.answer(waiting[0].0, answer("yes")).await.unwrap();
    let Progress::Waiting(asks) = finish(&mut driver).await else { panic!("the second question waits") };
    drop(driver);
    let mut driver = world.open().await;
    assert!(driver.answer(waiting[0].0, answer("again")).await.is_err(), "a question is answered once");
    driver.answer(asks[0], answer("no")).await.unwrap();
    assert_eq!(finish(&mut driver).await, Progress::Done);
    assert_eq!(newest_results(world.model.requests().last().unwrap()), ["yes and no", "read 2"]);
    assert!(world.effects.take().values().all(|n| *n == 1));
}

#[tokio::test]
async fn a_new_message_closes_what_waits() {
    let model = Scripted::new([Reply::call("ask", "{}"), Reply::text("fine")]);
    let world = World::new(model);
    let (mut driver, _) = world.run(RunLimits::default()).await;
    driver.begin(spec("never mind", RunLimits::default())).await.unwrap();
    assert_eq!(finish(&mut driver).await, Progress::Done);
    let request = world.model.requests().pop().unwrap();
    assert_eq!(
        newest_results(&request),
        ["Not finished: it waited for an answer to its question, and the user went on with a new message."]
    );
    assert_eq!(status(driver.machine().run().unwrap()), RunStatus::Success);
}

#[tokio::test]
async fn a_replayed_log_gives_the_durable_events() {
    let script = [
        Reply::text("look").and_call("read", r#"{"n":1}"#).and_call("nope", "{}").and_call("read", "{"),
        Reply::text("all done"),
    ];
    let world = World::new(Scripted::new(script));
    let (driver, events) = world.run(RunLimits::default()).await;
    let durable: Vec<_> = events.iter().filter(|e| e.seq.is_some()).cloned().collect();
    let records = world.host.store.read(driver.id(), Seq(0), usize::MAX).await.unwrap();
    assert_eq!(replay(&session(), &records), durable);
    let text: String = events
        .iter()
        .filter_map(|e| match &e.event {
            AgentEvent::BlockDelta(d) if d.kind == DeltaKind::Text => Some(d.text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(text, "lookall done");
}

#[tokio::test(start_paused = true)]
async fn h_ses_07_a_reader_that_leaves_changes_nothing() {
    // Far more events than wait for a reader: were it still waited for, the run would not end.
    let calls = || (0..600).fold(Reply::default(), |reply, _| reply.and_call("read", r#"{"n":0}"#));
    let script = || Scripted::new([calls(), Reply::text("done")]);
    let entries = async |leaves: bool| {
        let options = Options { clock: Arc::new(PausedClock::new()), ..Options::default() };
        let world = World::with(script(), options);
        let mut driver = world.open().await;
        let (sink, stream) = EventSink::live();
        driver.set_sink(sink.clone());
        let reader = if leaves {
            drop(stream);
            None
        } else {
            Some(tokio::spawn(collect(stream)))
        };
        driver.begin(spec("go", RunLimits::default())).await.unwrap();
        finish(&mut driver).await;
        sink.finish();
        if let Some(reader) = reader {
            assert!(reader.await.unwrap().len() > 1_200);
        }
        world.host.store.read(driver.id(), Seq(0), usize::MAX).await.unwrap()
    };
    assert_eq!(entries(true).await, entries(false).await);
}

#[tokio::test]
async fn vendor_ids_are_made_legal_and_unique() {
    // The scripted model gives no ids at all; two turns with two calls each need four different ones.
    let two = || Reply::call("read", "{}").and_call("read", "{}");
    let world = World::new(Scripted::new([two(), two(), Reply::text("x")]));
    let (driver, _) = world.run(RunLimits::default()).await;
    assert_eq!(status(driver.machine().run().unwrap()), RunStatus::Success);
    let records = world.host.store.read(driver.id(), Seq(0), usize::MAX).await.unwrap();
    let ids: Vec<String> = records
        .iter()
        .filter_map(|r| if let SessionEntry::ModelDone(d) = &r.entry { Some(d) } else { None })
        .flat_map(|d| d.message.tool_uses().map(|u| u.id.as_str().to_owned()))
        .collect();
    assert_eq!(ids, ["call_0_0", "call_0_1", "call_1_0", "call_1_1"]);
}

#[tokio::test]
async fn an_empty_prompt_is_refused() {
    let world = World::new(Scripted::new([]));
    let mut driver = world.open().await;
    let error = driver.begin(spec(" \n", RunLimits::default())).await.unwrap_err();
    assert_eq!(error.to_string(), "the prompt is empty");
}

fn retrying(max_retries: u32) -> Options {
    Options {
        retry: RetryConfig { max_retries, ..RetryConfig::default() },
        clock: Arc::new(PausedClock::new()),
        ..Options::default()
    }
}

#[tokio::test(start_paused = true)]
async fn h_ret_01_twelve_overloads_then_success_and_each_wait_is_an_event() {
    let mut left = 12;
    let model = Scripted::responding(move |_| {
        left -= 1;
        if left >= 0 {
            Reply::text("half ").then_fails(ProviderErrorKind::Overloaded, "overloaded")
        } else {
            Reply::text("whole")
        }
    });
    let world = World::with(model, retrying(12));
    let (driver, events) = world.run(RunLimits::default()).await;
    let run = driver.machine().run().unwrap();
    assert_eq!(
        (status(run), run.summary.words.text(), run.summary.totals.requests),
        (RunStatus::Success, "whole", 13)
    );
    let waits: Vec<u64> = events
        .iter()
        .filter_map(|e| match &e.event {
            AgentEvent::ModelFailed(f) => f.retry.as_ref().map(|r| r.delay_ms / 1_000),
            _ => None,
        })
        .collect();
    assert_eq!(
        waits,
        [1, 3, 7, 15, 29, 29, 29, 29, 29, 29, 29, 29],
        "a hair below the middle of the chances"
    );
    let messages = driver.machine().transcript().messages();
    assert_eq!(messages.len(), 2, "halves of answers that were made again are not kept: {messages:?}");
}

#[tokio::test(start_paused = true)]
async fn h_str_10_retries_end_and_so_does_the_run() {
    let model = Scripted::responding(|_| Reply::failure(ProviderErrorKind::Timeout, "nothing came"));
    let world = World::with(model, retrying(3));
    let (driver, _) = world.run(RunLimits::default()).await;
    let run = driver.machine().run().unwrap();
    assert_eq!(run.ended.as_ref().unwrap().errors, ["nothing came (after 4 attempts)"]);
    assert_eq!(world.model.requests().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn the_fallback_model_answers_for_the_rest_of_the_run_and_its_calls_run() {
    let model = Scripted::responding(|r| match (&*r.model, r.messages.len()) {
        ("claude-haiku-4-5", 1) => Reply::call("write", r#"{"n":1}"#),
        ("claude-haiku-4-5", _) => Reply::text("done"),
        _ => Reply::failure(ProviderErrorKind::Overloaded, "overloaded"),
    });
    let options = Options { fallback_model: Some("claude-haiku-4-5".into()), ..retrying(1) };
    let world = World::with(model, options);
    let (mut driver, _) = world.run(RunLimits::default()).await;
    assert_eq!(status(driver.machine().run().unwrap()), RunStatus::Success);
    assert_eq!(world.effects.take().len(), 1);
    let asked = |world: &World| -> Vec<String> {
        world.model.requests().iter().map(|r| r.model.to_string()).collect()
    };
    let sonnet = "claude-sonnet-4-6".to_owned();
    let haiku = "claude-haiku-4-5".to_owned();
    assert_eq!(asked(&world), [sonnet.clone(), sonnet.clone(), haiku.clone(), haiku]);
    driver.begin(spec("again", RunLimits::default())).await.unwrap();
    finish(&mut driver).await;
    assert_eq!(asked(&world)[4], sonnet, "the first model is tried again at the next prompt");
}

#[tokio::test(start_paused = true)]
async fn h_int_03_an_interrupt_wakes_a_retry_sleep() {
    let model = Scripted::responding(|_| Reply::failure(ProviderErrorKind::Overloaded, "overloaded"));
    let world = World::with(model, retrying(3));
    let mut driver = world.open().await;
    let cancel = CancellationToken::new();
    driver.set_cancel(cancel.clone());
    driver.begin(spec("go", RunLimits::default())).await.unwrap();
    let began = tokio::time::Instant::now();
    tokio::join!(finish_run(&mut driver), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        cancel.cancel();
    });
    assert!(began.elapsed().as_millis() < 500, "{:?}", began.elapsed());
    assert_eq!(status(driver.machine().run().unwrap()), RunStatus::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_dies_while_it_waits_is_followed_by_one_that_waits_on() {
    let mut failed = false;
    let model = Scripted::responding(move |_| {
        if std::mem::replace(&mut failed, true) {
            Reply::text("ok")
        } else {
            Reply::failure(ProviderErrorKind::Overloaded, "overloaded")
        }
    });
    let world = World::with(model, retrying(3));
    let mut driver = world.open().await;
    driver.begin(spec("go", RunLimits::default())).await.unwrap();
    let until = loop {
        match driver.advance().await.unwrap() {
            Progress::Sleeping(until) => break until,
            Progress::Stepped => {}
            other => panic!("{other:?}"),
        }
    };
    drop(driver);
    let mut driver = world.open().await;
    assert_eq!(driver.advance().await.unwrap(), Progress::Sleeping(until), "the log remembers how long");
    finish(&mut driver).await;
    assert_eq!(status(driver.machine().run().unwrap()), RunStatus::Success);
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_is_set_back_makes_no_wait_longer() {
    struct SetBack(PausedClock, tokio::time::Instant);
    impl Clock for SetBack {
        fn now(&self) -> Timestamp {
            let hour = if self.1.elapsed() < Duration::from_secs(1) { 0 } else { 3_600_000 };
            Timestamp(10 * 3_600_000 + self.0.now().0 - hour)
        }
        fn new_id(&self) -> u128 {
            self.0.new_id()
        }
    }
    let began = tokio::time::Instant::now();
    let clock = Arc::new(SetBack(PausedClock::new(), began));
    let model =
        Scripted::new([Reply::failure(ProviderErrorKind::Overloaded, "overloaded"), Reply::text("ok")]);
    let world = World::with(model, Options { clock, ..retrying(3) });
    let mut driver = world.open().await;
    driver.begin(spec("go", RunLimits::default())).await.unwrap();
    while !matches!(driver.advance().await.unwrap(), Progress::Sleeping(_)) {}
    tokio::time::advance(Duration::from_millis(1_100)).await;
    finish(&mut driver).await;
    assert_eq!(status(driver.machine().run().unwrap()), RunStatus::Success);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[tokio::test]
async fn h_prv_04_a_provider_that_cut_the_input_is_noticed_once() {
    let model = || {
        Scripted::responding(|r| match r.messages.len() {
            1..4 => Reply::call("read", r#"{"n":1}"#).usage(1_900, 5),
            _ => Reply::text("what?").usage(1_950, 5),
        })
    };
    let notices = async |prompt: String| {
        let world = World::new(model());
        let mut driver = world.open().await;
        driver.begin(spec(&prompt, RunLimits::default())).await.unwrap();
        finish(&mut driver).await;
        driver.machine().run().unwrap().notices.clone()
    };
    let cut = notices("word ".repeat(8_000)).await;
    assert_eq!(cut.len(), 1, "{cut:?}");
    assert!(cut[0].text.contains("counted 1900 input tokens where about 13"), "{}", cut[0].text);
    assert_eq!(notices("word ".repeat(1_000)).await, []);
}

#[tokio::test(start_paused = true)]
async fn another_model_does_not_wait_for_the_failures_of_the_last_one() {
    let model = Scripted::responding(|r| match &*r.model {
        "claude-haiku-4-5" => Reply::text("ok"),
        _ => Reply::failure(ProviderErrorKind::Overloaded, "overloaded"),
    });
    let world = World::with(model, retrying(3));
    let mut driver = world.open().await;
    let (mailbox, inbox) = open_agent_engine::mailbox();
    driver.set_inbox(inbox);
    driver.begin(spec("go", RunLimits::default())).await.unwrap();
    let began = tokio::time::Instant::now();
    tokio::join!(finish_run(&mut driver), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let settings = crate::world::settings("claude-haiku-4-5");
        mailbox.send(open_agent_engine::Command::Configure(settings)).await.unwrap();
    });
    assert_eq!(status(driver.machine().run().unwrap()), RunStatus::Success);
    assert!(began.elapsed().as_millis() < 500, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_call_that_was_ruled_in_another_folder_is_ruled_again() {
    let go = open_agent_tool::tool_fn("go", "Changes the folder.", |_: crate::world::Input, _| async {
        let output = open_agent_tool::ToolOutput::text("gone");
        Ok(output.with_change(open_agent_model::Change::Cwd("/elsewhere".into())))
    });
    let tools: Arc<dyn open_agent_tool::ToolSource> =
        Arc::new(Arc::new(open_agent_tool::ToolSet::new([go, open_agent_tool::erase(Here)])));
    let model = Scripted::new([Reply::call("go", "{}").and_call("here", "{}"), Reply::text("ok")]);
    let world = World::with(model, Options { extra: vec![tools], ..Options::default() });
    let reads_first = RunLimits { scheduling: ToolScheduling::ReadsFirst, ..RunLimits::default() };
    let (driver, _) = world.run(reads_first).await;
    let records = world.host.store.read(driver.id(), Seq(0), usize::MAX).await.unwrap();
    let ruled: Vec<String> = records
        .iter()
        .filter_map(|r| match &r.entry {
            SessionEntry::Ruled(ruled) if ruled.call.index == 1 => Some(format!("{:?}", ruled.access)),
            _ => None,
        })
        .collect();
    assert_eq!(ruled, [r#"[Write("/project/x")]"#, r#"[Write("/elsewhere/x")]"#]);
}

/// Writes a file in the working folder, or says so.
struct Here;

impl open_agent_tool::Tool for Here {
    const NAME: &'static str = "here";
    type Input = crate::world::Input;
    fn description(&self) -> String {
        "Writes here.".into()
    }
    fn access(&self, _: &Self::Input, cx: &open_agent_tool::ToolCx) -> Vec<open_agent_model::Access> {
        vec![open_agent_model::Access::Write(cx.cwd().join("x"))]
    }
    async fn call(
        &self,
        _: Self::Input,
        _: &open_agent_tool::ToolCx,
    ) -> Result<open_agent_tool::ToolOutput, open_agent_tool::ToolError> {
        Ok("written".into())
    }
}
