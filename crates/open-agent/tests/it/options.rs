//! No dead option: the list of options comes from the struct, and each has a test that sees a difference when it is set.

use open_agent::testing::{Reply, Scripted, newest_results};
use open_agent::{AgentBuilder, AgentOptions, Env, provider_names};

/// Every option, and the test here that shows the difference it makes. The options are read off the struct, so one that
/// is added without a test fails.
#[test]
fn h_every_option_has_a_test() {
    const TESTED: [(&str, &str); 30] = [
        ("betas", "what_only_the_wire_shows"),
        ("context_window", "what_only_the_wire_shows"),
        ("model", "every_option_makes_a_difference"),
        ("fallback_model", "retries_and_fallback_are_as_told"),
        ("retry", "retries_and_fallback_are_as_told"),
        ("idle_timeout_ms", "a_server_that_says_nothing_is_given_up"),
        ("provider", "what_makes_no_agent_is_said"),
        ("base_url", "options_come_before_the_environment_and_that_before_defaults"),
        ("system_prompt", "every_option_makes_a_difference"),
        ("append_system_prompt", "every_option_makes_a_difference"),
        ("max_tokens", "every_option_makes_a_difference"),
        ("temperature", "every_option_makes_a_difference"),
        ("stop_sequences", "every_option_makes_a_difference"),
        ("thinking", "every_option_makes_a_difference"),
        ("effort", "every_option_makes_a_difference"),
        ("tool_choice", "a_tool_choice_holds_for_the_first_request"),
        ("max_turns", "limits_and_scheduling_are_kept"),
        ("max_model_calls", "limits_and_scheduling_are_kept"),
        ("max_budget_usd", "limits_and_scheduling_are_kept"),
        ("budget_scope", "budget_scope_decides_whether_earlier_spending_counts"),
        ("tools", "every_option_makes_a_difference"),
        ("disallowed_tools", "every_option_makes_a_difference"),
        ("allowed_tools", "permission_options_decide_what_runs"),
        ("permission_mode", "permission_options_decide_what_runs"),
        ("tool_scheduling", "limits_and_scheduling_are_kept"),
        ("wake_on_task_end", "the_end_of_background_work_starts_a_run_of_an_idle_agent"),
        ("cwd", "permission_options_decide_what_runs"),
        ("session_id", "sessions_lie_where_they_are_told_and_another_agent_goes_on"),
        ("persist_session", "sessions_are_kept_only_where_that_is_wanted"),
        ("sessions_dir", "sessions_lie_where_they_are_told_and_another_agent_goes_on"),
    ];
    let options = serde_json::to_value(AgentOptions::default()).unwrap();
    let mut there: Vec<&str> = options.as_object().unwrap().keys().map(String::as_str).collect();
    there.sort_unstable();
    let mut tested: Vec<&str> = TESTED.iter().map(|(name, _)| *name).collect();
    tested.sort_unstable();
    assert_eq!(there, tested);
    let source = concat!(
        include_str!("agent.rs"),
        include_str!("budget.rs"),
        include_str!("options.rs"),
        include_str!("silence.rs"),
        include_str!("wake.rs")
    );
    for (name, test) in TESTED {
        let body = source.split_once(&format!("fn {test}(")).map(|(_, rest)| rest.split("\n}\n").next());
        let body =
            body.flatten().unwrap_or_else(|| panic!("{name} names the test {test}, which is not there"));
        assert!(body.contains(name.trim_end_matches("_ms")), "{test} does not set {name}");
    }
}

#[tokio::test]
async fn sessions_are_kept_only_where_that_is_wanted() {
    for persist in [false, true] {
        let home = tempfile::tempdir().unwrap();
        let env = [("HOME".to_owned(), home.path().display().to_string())].into_iter().collect();
        let builder = AgentBuilder::with_env(env).provider(Scripted::new([Reply::text("ok")]));
        let agent = builder.configure(|o| o.persist_session = persist).build().unwrap();
        agent.prompt("Hello").await.unwrap();
        let sessions = home.path().join(".open-agent-sdk/sessions").join(agent.session_id().as_str());
        assert_eq!(sessions.join("transcript.jsonl").exists(), persist);
    }
}

#[tokio::test]
async fn h_log_02_no_profile_hands_its_key_to_commands() {
    let keys: Vec<&str> = provider_names()
        .flat_map(|name| open_agent_providers::Profile::by_name(name).unwrap().key_variables)
        .copied()
        .collect();
    let env = keys.iter().map(|name| ((*name).to_owned(), "k-canary".to_owned()));
    let path = ("PATH".to_owned(), std::env::var("PATH").unwrap());
    let model = Scripted::new([Reply::call("Bash", r#"{"command":"env"}"#), Reply::text("ok")]);
    let builder = AgentBuilder::with_env(env.chain([path]).collect()).provider(model.clone());
    let agent = builder.configure(|o| o.persist_session = false).allow_tool("Bash").build().unwrap();
    agent.prompt("Look").await.unwrap();
    let seen = newest_results(&model.requests()[1]).concat();
    assert!(seen.contains("PATH=") && !seen.contains("canary"), "{seen}");
    assert!(keys.len() > 5, "{keys:?}");
}

#[test]
fn a_tool_that_no_vendor_takes_makes_no_agent() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Nothing {}
    for name in ["my tool!", "", "ä", &"x".repeat(65)] {
        let tool = open_agent::tool_fn(name, "Does nothing.", |_: Nothing, _| async { Ok("") });
        let built = AgentBuilder::with_env(Env::default()).provider(Scripted::new([])).tool(tool).build();
        let error = built.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("no legal name: 1 to 64 letters"), "{error}");
    }
}
