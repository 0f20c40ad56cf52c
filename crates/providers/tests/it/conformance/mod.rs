//! What every provider has to do, as named scenarios. Each profile runs all of them; a scenario that says nothing about
//! a profile is skipped by name and with a reason, and the number of skips is fixed here.

mod answers;
mod faults;
mod requests;

use open_agent_model::BoxFuture;
use open_agent_providers::{Api, Profile};

use crate::support::profile;

/// One thing that has to hold. It panics where it does not.
struct Scenario {
    name: &'static str,
    run: fn(&'static Profile) -> BoxFuture<'static, ()>,
    skip: fn(&'static Profile) -> Option<&'static str>,
}

macro_rules! scenarios {
    ($($module:ident::$name:ident $(, skip $skip:expr)?;)*) => {
        &[$(Scenario {
            name: stringify!($name),
            run: |profile| Box::pin($module::$name(profile)),
            skip: scenarios!(@skip $($skip)?),
        }),*]
    };
    (@skip) => { |_| None };
    (@skip $skip:expr) => { $skip };
}

static SCENARIOS: &[Scenario] = scenarios! {
    answers::text_comes_in_order_and_whole;
    answers::long_characters_survive_any_pieces;
    answers::one_call;
    answers::parallel_calls_keep_their_order;
    answers::a_call_without_arguments_has_an_empty_object;
    answers::text_and_calls_together;
    answers::thinking_is_kept;
    answers::usage_is_normalised;
    answers::stop_reasons_are_mapped;
    answers::an_unknown_stop_reason_is_kept;
    answers::a_cut_call_is_marked;
    answers::a_whole_answer_instead_of_a_stream;
    answers::blocks_end_before_the_answer_does;
    answers::damaged_bytes_cost_only_themselves;
    answers::comments_and_unknown_events_are_skipped;
    answers::a_stream_without_a_content_type_is_read;
    answers::an_odd_field_costs_only_itself;
    requests::everything_is_accepted_by_a_strict_server;
    requests::a_tool_round_trip;
    requests::own_thinking_goes_back, skip |p| never_back(p);
    requests::thinking_of_another_model_stays_here;
    requests::broken_arguments_go_back_as_an_empty_object;
    requests::a_made_up_name_goes_back_as_one_that_is_accepted;
    requests::tool_choice_is_observed, skip |p| (!p.tool_choice).then_some("the server knows `auto` only");
    requests::no_tools_where_none_may_be_called, skip |p| p.tool_choice.then_some("the server can be told");
    requests::sampling_options_are_observed;
    requests::max_tokens_is_observed;
    requests::effort_is_observed;
    requests::disabled_thinking_is_observed, skip |p| no_off_switch(p);
    requests::the_window_is_observed, skip |p| (!p.context_option).then_some("the server cannot be told its window");
    requests::betas_are_sent, skip |p| only_messages(p);
    requests::prompt_cache_is_observed, skip |p| only_messages(p);
    requests::tokens_are_counted, skip |p| only_messages(p);
    requests::extra_headers_and_the_key_are_sent;
    requests::the_same_request_has_the_same_bytes;
    requests::a_long_conversation_has_the_same_bytes_warm_and_cold;
    requests::usage_is_asked_for, skip |p| (p.api != Api::OpenAi).then_some("usage comes without being asked for");
    requests::opaque_blocks_go_back_byte_for_byte, skip |p| only_messages(p);
    faults::overload_and_rate_limits_are_typed;
    faults::a_refused_key_names_where_it_comes_from;
    faults::an_unknown_model_names_what_was_asked;
    faults::a_model_without_tools_is_explained;
    faults::context_overflow_is_recognised;
    faults::an_error_inside_the_stream;
    faults::an_error_status_cut_at_every_byte_is_the_same;
    faults::a_broken_connection;
    faults::a_stream_that_just_ends;
    faults::broken_json_in_the_stream;
    faults::silence;
    faults::an_error_body_that_stalls;
    faults::an_empty_answer;
    faults::another_api_inside_a_success;
    faults::nobody_at_the_address;
    faults::a_web_page;
    faults::a_redirect_is_not_followed;
    faults::no_key_in_any_error;
    faults::a_dropped_stream_closes_its_socket;
};

fn only_messages(p: &Profile) -> Option<&'static str> {
    (p.api != Api::Anthropic).then_some("only the Messages API has that")
}

fn never_back(p: &Profile) -> Option<&'static str> {
    (p.reasoning_back == open_agent_providers::ReasoningBack::Never)
        .then_some("the server takes no thinking back")
}

fn no_off_switch(p: &Profile) -> Option<&'static str> {
    use open_agent_providers::ThinkingStyle::Effort;
    matches!(p.thinking, Effort { off: None }).then_some("no value turns thinking off")
}

#[expect(clippy::print_stdout, reason = "`cargo xtask wire` shows it")]
async fn run(name: &str, skips: usize) {
    let profile = profile(name);
    let (mut skipped, mut failed) = (Vec::new(), Vec::new());
    for scenario in SCENARIOS {
        if let Some(reason) = (scenario.skip)(profile) {
            assert!(!reason.is_empty());
            println!("{name}: skips {}: {reason}", scenario.name);
            skipped.push(scenario.name);
        } else if tokio::spawn((scenario.run)(profile)).await.is_err() {
            failed.push(scenario.name);
        }
    }
    let held = SCENARIOS.len() - skipped.len() - failed.len();
    println!("{name}: {held} scenarios hold, {} are skipped, {} fail", skipped.len(), failed.len());
    assert!(failed.is_empty(), "{name} fails {failed:?}");
    assert_eq!(skipped.len(), skips, "{name} skips {skipped:?}");
}

macro_rules! profiles {
    ($($test:ident: $name:literal skips $skips:literal;)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            run($name, $skips).await;
        })*

        #[test]
        fn every_profile_runs_them() {
            let tested = [$($name),*];
            assert_eq!(Profile::names().collect::<Vec<_>>(), tested);
        }
    };
}

profiles! {
    anthropic: "anthropic" skips 3;
    openai: "openai" skips 8;
    deepseek: "deepseek" skips 6;
    glm: "glm" skips 6;
    ollama: "ollama" skips 5;
    openrouter: "openrouter" skips 6;
    vllm: "vllm" skips 6;
    llama_cpp: "llama.cpp" skips 6;
    generic: "generic" skips 7;
}
