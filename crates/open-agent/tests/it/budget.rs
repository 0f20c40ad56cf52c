//! Budgets as a user of the library sees them: shared by many agents, limited for each, and what they cover.

use std::sync::{Arc, Mutex};

use open_agent::model::{BoxFuture, ModelInfo, ModelRequest, ModelStream, ProviderError};
use open_agent::testing::{Reply, Scripted};
use open_agent::{
    Agent, AgentBuilder, Budget, BudgetScope, ConfigError, Cost, Env, Provider, QueryResult, RunStatus,
    SessionId, read_only_tool_fn,
};

/// The output limit that requests ask for, unless they are told otherwise.
const MAX_TOKENS: u64 = 16_384;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

fn usd(text: &str) -> Cost {
    Cost::from_usd(text).unwrap()
}

/// Agents with one small tool, so that a request's input is a few tokens.
fn builder(provider: impl Provider + 'static) -> AgentBuilder {
    let look = read_only_tool_fn("look", "Looks.", |_: Nothing, _| async { Ok("nothing") });
    AgentBuilder::with_env(Env::default())
        .provider(provider)
        .tool(look)
        .tools(["look"])
        .system_prompt("Be brief.")
        .configure(|o| o.persist_session = false)
}

/// Calls the tool for ever, at 0.00399 dollars an answer, or less where the output limit says so. Whoever says "short"
/// gets one answer.
fn answer(request: &ModelRequest) -> Reply {
    let output = request.options.max_tokens.min(180);
    let is_short = request.messages[0].text().contains("short");
    let reply = if is_short { Reply::text("ok") } else { Reply::call("look", "{}") };
    reply.usage(430, output)
}

/// What one request found: its output limit, and what was left and reserved of the shared budget.
#[derive(Clone, Copy, Debug)]
struct Seen {
    max_tokens: u64,
    left: Cost,
    reserved: Cost,
}

/// Answers late, so that requests overlap.
struct Slow {
    model: Scripted,
    budget: Arc<Budget>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Provider for Slow {
    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ProviderError>> {
        let max_tokens = request.options.max_tokens;
        let (left, reserved) = (self.budget.left().unwrap(), self.budget.reserved());
        self.seen.lock().unwrap().push(Seen { max_tokens, left, reserved });
        Box::pin(async move {
            for _ in 0..9 {
                tokio::task::yield_now().await;
            }
            self.model.stream(request).await
        })
    }

    fn capabilities(&self, model: &ModelInfo) -> ModelInfo {
        self.model.capabilities(model)
    }
}

/// Runs 50 agents on one budget. A fifth of them needs one answer, the others would go on for ever.
async fn fifty_agents(limit: Cost, max_tokens: u64) -> (Arc<Budget>, Vec<QueryResult>, Vec<Seen>) {
    let (budget, seen) = (Arc::new(Budget::new(limit)), Arc::default());
    let provider =
        Slow { model: Scripted::responding(answer), budget: Arc::clone(&budget), seen: Arc::clone(&seen) };
    let builder = builder(provider).budget(Arc::clone(&budget)).configure(|o| {
        o.max_tokens = Some(max_tokens);
        // Far more than the money pays for, so that a budget that does not hold is seen as that.
        o.max_turns = Some(50);
    });
    let agents: Vec<Agent> = (0..50).map(|_| builder.clone().build().unwrap()).collect();
    let runs: Vec<_> = agents
        .iter()
        .enumerate()
        .map(|(i, agent)| {
            let (agent, prompt) = (agent.clone(), if i % 5 == 0 { "short" } else { "long" });
            tokio::spawn(async move { agent.prompt(prompt).await.unwrap() })
        })
        .collect();
    let mut results = Vec::new();
    for run in runs {
        results.push(run.await.unwrap());
    }
    let parts = agents.iter().map(|agent| agent.budget().spent()).fold(Cost(0), Cost::plus);
    assert_eq!(parts, budget.spent());
    let seen = seen.lock().unwrap().clone();
    (budget, results, seen)
}

fn check_fifty(limit: Cost, (budget, results, seen): (Arc<Budget>, Vec<QueryResult>, Vec<Seen>)) -> u64 {
    let spent = budget.spent();
    assert!(spent <= limit, "{spent} of {limit}");
    assert!(spent.0 * 10 >= limit.0 * 9, "only {spent} of {limit} were used");
    assert_eq!(results.iter().filter_map(|r| r.cost).fold(Cost(0), Cost::plus), spent);
    assert_eq!(budget.reserved(), Cost(0));
    for (i, result) in results.iter().enumerate() {
        let want = if i % 5 == 0 { RunStatus::Success } else { RunStatus::ErrorMaxBudgetUsd };
        assert_eq!(result.status, want, "{:?}", result.errors);
        if want == RunStatus::ErrorMaxBudgetUsd {
            assert!(
                result.errors[0].contains("the shared budget of $0.500000 is spent"),
                "{:?}",
                result.errors
            );
        }
    }
    let most = seen.iter().map(|s| s.max_tokens).max().unwrap();
    let token = Cost(15_000);
    for s in seen.iter().filter(|s| s.max_tokens < most) {
        assert!(s.left < token, "lowered while money was free: {s:?}");
        let others = s.reserved.0 - s.max_tokens * token.0;
        assert!(others < usd("0.02").0, "lowered while another reservation was open: {s:?}");
    }
    most
}

/// A reservation is a quarter of a dollar, so two requests run at once, and later one.
#[tokio::test]
async fn fifty_agents_use_up_one_budget_and_none_is_cut_while_money_is_free() {
    let limit = usd("0.50");
    let (budget, results, seen) = fifty_agents(limit, MAX_TOKENS).await;
    assert!(seen.iter().any(|s| s.reserved > usd("0.40")), "two at once, while the money pays for both");
    let uncut = seen.iter().filter(|s| s.max_tokens == MAX_TOKENS).count();
    assert!(uncut > 55, "{uncut} requests fit before less than one reservation was left");
    assert_eq!(check_fifty(limit, (budget, results, seen)), MAX_TOKENS);
}

#[tokio::test]
async fn with_a_low_output_limit_many_of_fifty_agents_run_at_once() {
    let limit = usd("0.50");
    let (budget, results, seen) = fifty_agents(limit, 500).await;
    assert!(seen.iter().any(|s| s.reserved > usd("0.30")), "more than thirty at once");
    assert_eq!(check_fifty(limit, (budget, results, seen)), 500);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_agents_on_several_threads_stay_within_one_budget() {
    let limit = usd("0.50");
    assert_eq!(check_fifty(limit, fifty_agents(limit, 4_000).await), 4_000);
}

/// A first agent whose request never ends and has reserved nearly all, and a second whose request waits for that.
async fn one_waits() -> (Arc<Budget>, Agent, Agent, tokio::task::JoinHandle<QueryResult>) {
    let budget = Arc::new(Budget::new(usd("0.30")));
    let stalls = Scripted::responding(|_| Reply::text("so").then_stalls());
    let first = builder(stalls.clone()).budget(Arc::clone(&budget)).build().unwrap();
    let second = builder(Scripted::responding(|_| Reply::text("ok").usage(10, 10)));
    let second = second.budget(Arc::clone(&budget)).build().unwrap();
    let running = first.clone();
    let run = tokio::spawn(async move { running.prompt("go").await.unwrap() });
    while stalls.requests().is_empty() {
        tokio::task::yield_now().await;
    }
    (budget, first, second, run)
}

async fn a_while() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_request_that_waits_goes_on_when_another_run_is_interrupted() {
    let (budget, first, second, run) = one_waits().await;
    let waiting = second.clone();
    let waiting = tokio::spawn(async move { waiting.prompt("go").await.unwrap() });
    a_while().await;
    assert!(!waiting.is_finished());
    assert!(first.interrupt());
    assert_eq!(run.await.unwrap().status, RunStatus::Cancelled);
    let result = waiting.await.unwrap();
    assert_eq!((result.status, second.budget().spent()), (RunStatus::Success, usd("0.00018")));
    assert_eq!(budget.reserved(), Cost(0));
}

#[tokio::test]
async fn a_run_that_waits_can_be_interrupted_closed_and_dropped() {
    for end in ["interrupt", "close", "drop"] {
        let (budget, first, second, run) = one_waits().await;
        let waiting = second.clone();
        let waiting = tokio::spawn(async move { waiting.prompt("go").await.unwrap() });
        a_while().await;
        assert!(!waiting.is_finished());
        match end {
            "interrupt" => assert!(second.interrupt()),
            "close" => second.close().await,
            _ => waiting.abort(),
        }
        match waiting.await {
            Ok(result) => assert_eq!((result.status, result.model_calls), (RunStatus::Cancelled, 0), "{end}"),
            Err(aborted) => assert!(aborted.is_cancelled() && end == "drop"),
        }
        a_while().await;
        first.close().await;
        assert_eq!(run.await.unwrap().status, RunStatus::Cancelled);
        assert_eq!(budget.reserved(), Cost(0), "{end}: what nobody waits for any more was granted");
        assert_eq!(second.budget().spent(), Cost(0));
    }
}

#[tokio::test]
async fn an_agents_own_limit_holds_within_a_shared_one() {
    let shared = Arc::new(Budget::new(usd("1")));
    let builder = builder(Scripted::responding(answer)).configure(|o| o.max_turns = None);
    let builder = builder.budget(Arc::clone(&shared)).max_budget_usd(usd("0.02"));
    let [first, second] = [builder.clone().build().unwrap(), builder.build().unwrap()];
    for agent in [&first, &second] {
        let result = agent.prompt("long").await.unwrap();
        assert_eq!(result.status, RunStatus::ErrorMaxBudgetUsd);
        assert!(result.errors[0].contains("the budget of $0.020000 is spent"), "{:?}", result.errors);
        assert!(Arc::ptr_eq(agent.budget().parent().unwrap(), &shared));
        assert!((usd("0.018")..=usd("0.02")).contains(&agent.budget().spent()), "each has its own");
    }
    assert_eq!(shared.spent(), first.budget().spent().plus(second.budget().spent()));
}

/// All prompts of an agent's life count, failed and interrupted requests too.
#[tokio::test]
async fn an_agents_limit_covers_all_its_prompts() {
    let agent = builder(Scripted::responding(answer)).max_budget_usd(usd("0.02")).build().unwrap();
    let mut results = Vec::new();
    for _ in 0..9 {
        results.push(agent.clone().prompt("short").await.unwrap());
    }
    let paid = results.iter().filter(|r| r.is_success()).count();
    assert!((4..=5).contains(&paid), "{paid} of 0.00399 dollars each");
    assert_eq!(results[8].status, RunStatus::ErrorMaxBudgetUsd);
    assert!(results.iter().all(|r| r.spent_before == Cost(0)), "it is the agent's own");
}

#[tokio::test]
async fn budget_scope_decides_whether_earlier_spending_counts() {
    let home = tempfile::tempdir().unwrap();
    let agent = |model: &Scripted, scope: Option<BudgetScope>| {
        let builder = builder(model.clone()).configure(|o| {
            o.persist_session = true;
            o.sessions_dir = Some(home.path().to_owned());
            o.session_id = Some(SessionId::new("mine").unwrap());
        });
        let builder = match scope {
            Some(scope) => builder.max_budget_usd(usd("0.5")).budget_scope(scope),
            None => builder,
        };
        builder.build().unwrap()
    };
    let ok = |input| Scripted::responding(move |_| Reply::text("ok").usage(input, 0));
    let first = agent(&ok(100_000), None).prompt("one").await.unwrap();
    assert_eq!((first.cost, first.spent_before), (Some(usd("0.3")), Cost(0)));

    // The next request has at least the 100,000 tokens that the last one had, 0.375 dollars if they are written to the cache.
    let session = agent(&ok(10), Some(BudgetScope::Session)).prompt("two").await.unwrap();
    assert_eq!((session.status, session.model_calls), (RunStatus::ErrorMaxBudgetUsd, 0));
    assert_eq!(session.spent_before, usd("0.3"));
    let says = "$0.300000 so far in this session ($0.300000 of it by earlier agents)";
    assert!(session.errors[0].contains(says), "{:?}", session.errors);

    let own = agent(&ok(130_000), Some(BudgetScope::Agent));
    let result = own.prompt("three").await.unwrap();
    assert_eq!((result.status, result.spent_before), (RunStatus::Success, usd("0.3")));
    let result = own.prompt("four").await.unwrap();
    assert_eq!((result.status, result.spent_before), (RunStatus::ErrorMaxBudgetUsd, usd("0.3")));
    let says = "(the session had cost $0.300000 before this agent opened it, which is not counted)";
    assert!(result.errors[0].contains(says), "{:?}", result.errors);
}

#[test]
fn a_session_scope_needs_a_limit_of_the_agents_own() {
    let scope = |builder: AgentBuilder| builder.budget_scope(BudgetScope::Session).build().err();
    let error = scope(builder(Scripted::new([]))).unwrap();
    assert!(
        error.to_string().contains("there is no limit that it applies to: set `max_budget_usd`"),
        "{error}"
    );
    let shared = Arc::new(Budget::new(usd("1")));
    assert!(matches!(
        scope(builder(Scripted::new([])).budget(shared)),
        Some(ConfigError::ScopeWithoutBudget)
    ));
    assert!(scope(builder(Scripted::new([])).max_budget_usd(usd("1"))).is_none());
}

#[test]
fn a_shared_limit_needs_the_prices_of_all_models() {
    let with = |budget: &Arc<Budget>| builder(Scripted::new([])).budget(Arc::clone(budget));
    let unpriced = |built: Result<Agent, ConfigError>| matches!(built, Err(ConfigError::NoPrice { .. }));
    let root = Arc::new(Budget::new(usd("1")));
    let limited = Arc::new(Budget::child_of(&root, None));
    assert!(unpriced(with(&limited).model("nobody-knows-me").build()), "an ancestor has the limit");
    assert!(unpriced(with(&limited).configure(|o| o.fallback_model = Some("nor-me".into())).build()));
    let agent = with(&limited).build().unwrap();
    assert!(matches!(agent.switch_model("nobody-knows-me"), Err(ConfigError::NoPrice { .. })));
    agent.switch_model("haiku").unwrap();

    let counting = Arc::new(Budget::new(None));
    let agent = with(&counting).model("nobody-knows-me").build().unwrap();
    agent.switch_model("nor-me").unwrap();
}
