//! Money: limits that strike before it is spent, and costs that are known, estimated or not known.

use std::sync::Arc;
use std::time::Duration;

use open_agent_engine::{AgentBudget, Budget, BudgetScope, Command, RetryConfig, logged_cost, mailbox};
use open_agent_model::scripted::{Reply, Scripted};
use open_agent_model::{Cost, Price, ProviderErrorKind, RunStatus, Seq};
use open_agent_session::{MemoryStore, NoticeKind, RunLimits, SessionEntry, SessionStore};
use tokio_util::sync::CancellationToken;

use crate::world::{Options, World, finish, session, settings, spec, status};

fn usd(text: &str) -> Cost {
    Cost::from_usd(text).unwrap()
}

fn limited(limit: &str) -> AgentBudget {
    AgentBudget::new(None, Some(usd(limit)), BudgetScope::Agent)
}

#[tokio::test]
async fn the_budget_strikes_before_the_request_that_would_pass_it() {
    let endless = Scripted::responding(|_| Reply::call("read", r#"{"n":1}"#).usage(100_000, 1_000));
    // A request costs 0.3 + 0.015 dollars.
    let options = Options { budget: limited("0.9"), ..Options::default() };
    let world = World::with(endless, options);
    let limits = RunLimits { max_turns: None, ..RunLimits::default() };
    let (driver, _) = world.run(limits).await;
    let run = driver.machine().run().unwrap();
    assert_eq!(status(run), RunStatus::ErrorMaxBudgetUsd);
    assert!(run.ended.as_ref().unwrap().errors[0].contains("the budget of $0.900000 is spent: $0.630"));
    assert_eq!(world.model.requests().len(), 2, "the third would cost at least 0.303 dollars");
}

#[tokio::test]
async fn a_provider_that_counts_nothing_does_not_blind_the_budget() {
    let endless = Scripted::responding(|_| Reply::call("read", r#"{"n":1}"#));
    // About 300 tokens of tools and instructions a request, at 3 dollars for a million.
    let options = Options { budget: limited("0.01"), ..Options::default() };
    let world = World::with(endless, options);
    let (driver, _) = world.run(RunLimits { max_turns: None, ..RunLimits::default() }).await;
    assert_eq!(status(driver.machine().run().unwrap()), RunStatus::ErrorMaxBudgetUsd);
    assert!(world.model.requests().len() < 100, "{}", world.model.requests().len());
    let run = driver.machine().run().unwrap();
    assert!(
        run.summary.totals.cost.unwrap() > Cost::from_usd("0.005").unwrap(),
        "an estimate, not 0: {:?}",
        run.summary.totals.cost
    );
    assert_eq!(run.notices.iter().filter(|n| n.kind == NoticeKind::UsageMissing).count(), 1);
}

#[tokio::test]
async fn what_a_broken_attempt_counted_holds_for_the_next_one() {
    let breaks = || Reply::text("half").usage(900_000, 1).then_fails(ProviderErrorKind::Overloaded, "busy");
    let retry = RetryConfig { max_retries: 3, base_delay: Duration::ZERO, ..RetryConfig::default() };
    let budget = limited("4.5");
    let world =
        World::with(Scripted::responding(move |_| breaks()), Options { budget, retry, ..Options::default() });
    let (driver, _) = world.run(RunLimits::default()).await;
    assert_eq!(status(driver.machine().run().unwrap()), RunStatus::ErrorMaxBudgetUsd);
    assert_eq!(world.model.requests().len(), 1, "one costs 2.7 dollars, and so would the second");
}

#[tokio::test]
async fn what_came_before_a_break_is_paid_for_though_the_count_comes_last() {
    let breaks = Reply::text(&"word ".repeat(600)).then_fails(ProviderErrorKind::Server, "gone");
    let world = World::new(Scripted::new([breaks]));
    let (driver, _) = world.run(RunLimits::default()).await;
    let cost = driver.machine().run().unwrap().summary.totals.cost;
    assert!(cost > Cost::from_usd("0.015"), "1,000 tokens at 15 dollars for a million: {cost:?}");
}

#[tokio::test]
async fn h_cst_02_without_price_and_count_the_cost_is_not_known() {
    let world = World::new(Scripted::new([Reply::text("ok")]));
    let mut driver = world.open().await;
    let spec = spec("go", RunLimits::default());
    driver.begin(open_agent_engine::RunSpec { settings: settings("nobody-knows-me"), ..spec }).await.unwrap();
    finish(&mut driver).await;
    assert_eq!(driver.machine().run().unwrap().summary.totals.cost, None);
}

#[tokio::test]
async fn the_rest_of_the_budget_lowers_the_output_limit() {
    let options = Options { budget: limited("0.015"), ..Options::default() };
    let world = World::with(Scripted::new([Reply::text("ok")]), options);
    world.run(RunLimits::default()).await;
    let asked = world.model.requests()[0].options.max_tokens;
    assert!((900..1_000).contains(&asked), "{asked}: 1,000 tokens cost the whole budget");
}

/// A request costs 0.315 dollars.
fn endless() -> Scripted {
    Scripted::responding(|_| Reply::call("read", r#"{"n":1}"#).usage(100_000, 1_000))
}

async fn error(world: &World) -> String {
    let mut driver = world.open().await;
    finish(&mut driver).await;
    let run = driver.machine().run().unwrap();
    assert_eq!(status(run), RunStatus::ErrorMaxBudgetUsd);
    run.ended.as_ref().unwrap().errors[0].clone()
}

/// Two requests fit into 0.9 dollars. The first process makes one and is gone.
#[tokio::test]
async fn a_resumed_run_goes_on_with_the_rest_of_a_session_budget_and_a_new_agent_budget() {
    for (scope, requests) in [(BudgetScope::Agent, 2), (BudgetScope::Session, 1)] {
        let store: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
        let world = || {
            let budget = AgentBudget::new(None, Some(usd("0.9")), scope);
            World::with(endless(), Options { store: Arc::clone(&store), budget, ..Options::default() })
        };
        let first = world();
        let mut driver = first.open().await;
        driver.begin(spec("go", RunLimits::default())).await.unwrap();
        while first.model.requests().is_empty() {
            driver.advance().await.unwrap();
        }
        assert_eq!(driver.spent_before(), Cost(0));
        drop(driver);
        let second = world();
        let error = error(&second).await;
        assert_eq!(second.model.requests().len(), requests, "{scope}");
        assert_eq!(second.host.budget.spent_before(), usd("0.315"));
        let says = match scope {
            BudgetScope::Agent => "(the session had cost $0.315000 before this agent opened it",
            BudgetScope::Session => "$0.630000 so far in this session ($0.315000 of it by earlier agents)",
        };
        assert!(error.contains(says), "{error}");
    }
}

/// Earlier runs count as much as the unfinished one, and so do requests that failed.
#[tokio::test]
async fn the_earlier_cost_of_a_session_is_that_of_all_requests_in_its_log() {
    let store: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
    let options = || Options { store: Arc::clone(&store), ..Options::default() };
    let breaks = Reply::text("half").usage(200_000, 1).then_fails(ProviderErrorKind::Overloaded, "busy");
    let model = Scripted::new([Reply::text("ok").usage(100_000, 1_000), breaks]);
    let first = World::with(model, options());
    for prompt in ["one", "two"] {
        let mut driver = first.open().await;
        driver.begin(spec(prompt, RunLimits::default())).await.unwrap();
        finish(&mut driver).await;
    }
    let second = World::with(Scripted::new([]), options());
    let driver = second.open().await;
    assert_eq!(driver.spent_before(), usd("0.915015"));
    drop(driver);
    assert_eq!(
        first.open().await.spent_before(),
        Cost(0),
        "its own requests do not count, also when it opens again"
    );
}

#[tokio::test]
async fn an_agent_that_opens_its_session_again_counts_what_others_spent_meanwhile() {
    let store: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
    let world = || {
        let budget = AgentBudget::new(None, Some(usd("10")), BudgetScope::Session);
        let model = Scripted::responding(|_| Reply::text("ok").usage(100_000, 1_000));
        World::with(model, Options { store: Arc::clone(&store), budget, ..Options::default() })
    };
    let [first, second] = [world(), world()];
    for (world, before, spent) in [
        (&first, "0", "0.315"),
        (&first, "0", "0.63"),
        (&second, "0.63", "0.945"),
        (&first, "0.315", "1.26"),
        (&second, "0.945", "1.575"),
    ] {
        let mut driver = world.open().await;
        assert_eq!(driver.spent_before(), usd(before));
        driver.begin(spec("go", RunLimits::default())).await.unwrap();
        finish(&mut driver).await;
        assert_eq!(world.host.budget.node().spent(), usd(spent));
    }
}

#[tokio::test]
async fn requests_whose_price_was_not_known_count_at_the_price_that_is_known_now() {
    let world = World::new(Scripted::new([Reply::text("ok").usage(1_000_000, 0)]));
    let mut driver = world.open().await;
    let spec = spec("go", RunLimits::default());
    driver.begin(open_agent_engine::RunSpec { settings: settings("nobody-knows-me"), ..spec }).await.unwrap();
    finish(&mut driver).await;
    let records = world.host.store.read(&session(), Seq(0), usize::MAX).await.unwrap();
    let entries: Vec<SessionEntry> = records.into_iter().map(|r| r.entry).collect();
    assert_eq!(logged_cost(&entries, |_| None), Cost(0));
    let price = |model: &str| (model == "nobody-knows-me").then(|| Price::new(usd("3"), usd("15")));
    assert_eq!(logged_cost(&entries, price), usd("3"));
}

#[tokio::test]
async fn a_shared_budget_does_not_count_what_a_session_had_cost() {
    let shared = Arc::new(Budget::new(usd("1")));
    let budget = AgentBudget::new(Some(&shared), Some(usd("2")), BudgetScope::Session);
    budget.open_session(usd("0.9"));
    assert_eq!((budget.node().spent(), shared.spent()), (usd("0.9"), Cost(0)));
    let price = Price::new(usd("3"), usd("15"));
    let too_much = budget.reserve(Some(&price), 350_000, 10).await.unwrap_err().to_string();
    assert!(
        too_much.contains("the shared budget of $1.000000 is spent: $0.000000 so far, and"),
        "{too_much}"
    );
    assert!(too_much.contains("had cost $0.900000 before"), "{too_much}");
    drop(budget.reserve(Some(&price), 100_000, 10).await.unwrap());
    assert_eq!((budget.node().reserved(), shared.reserved()), (Cost(0), Cost(0)));
}

#[tokio::test]
async fn a_run_under_a_budget_ends_before_a_request_without_a_price() {
    let world = World::with(endless(), Options { budget: limited("1"), ..Options::default() });
    let mut driver = world.open().await;
    let spec = spec("go", RunLimits::default());
    driver.begin(open_agent_engine::RunSpec { settings: settings("nobody-knows-me"), ..spec }).await.unwrap();
    finish(&mut driver).await;
    let run = driver.machine().run().unwrap();
    assert_eq!(status(run), RunStatus::ErrorMaxBudgetUsd);
    assert!(run.ended.as_ref().unwrap().errors[0].contains("the price of the model is not known"));
    assert!(world.model.requests().is_empty());
}

/// A driver whose next request waits, since all of the shared budget is reserved by another.
async fn waiting_world() -> (World, Arc<Budget>, open_agent_engine::Reservation) {
    let shared = Arc::new(Budget::new(usd("0.4")));
    let price = Price::new(usd("3"), usd("15"));
    let other = shared.reserve(Some(&price), 100, 20_000).await.unwrap();
    let budget = AgentBudget::new(Some(&shared), None, BudgetScope::Agent);
    let world = World::with(Scripted::new([Reply::text("ok")]), Options { budget, ..Options::default() });
    (world, shared, other)
}

/// The output of a future that ends, or `None` of one that waits for somebody else. Nothing here needs a thread or a clock,
/// so a few polls are enough.
async fn now<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    tokio::select! {
        biased;
        output = future => Some(output),
        () = async { for _ in 0..100 { tokio::task::yield_now().await } } => None,
    }
}

async fn until_it_waits<F: Future>(future: std::pin::Pin<&mut F>) {
    assert!(now(future).await.is_none(), "it does not wait");
}

#[tokio::test]
async fn a_request_waits_for_its_turn_and_is_not_cut() {
    let (world, shared, other) = waiting_world().await;
    let mut driver = world.open().await;
    driver.begin(spec("go", RunLimits::default())).await.unwrap();
    {
        let mut run = std::pin::pin!(driver.run());
        until_it_waits(run.as_mut()).await;
        assert!(world.model.requests().is_empty());
        other.settle(Some(usd("0.05")));
        now(run.as_mut()).await.expect("it still waits").unwrap();
    }
    assert_eq!(status(driver.machine().run().unwrap()), RunStatus::Success);
    assert_eq!(world.model.requests()[0].options.max_tokens, 16_384);
    assert_eq!(shared.reserved(), Cost(0));
    assert!(shared.spent() > usd("0.05"));
}

#[tokio::test]
async fn an_interrupt_ends_the_wait_and_makes_no_request() {
    let (world, shared, other) = waiting_world().await;
    let mut driver = world.open().await;
    let cancel = CancellationToken::new();
    driver.set_cancel(cancel.clone());
    driver.begin(spec("go", RunLimits::default())).await.unwrap();
    {
        let mut run = std::pin::pin!(driver.run());
        until_it_waits(run.as_mut()).await;
        cancel.cancel();
        now(run.as_mut()).await.expect("it still waits").unwrap();
    }
    let run = driver.machine().run().unwrap();
    assert_eq!((status(run), run.summary.totals.requests), (RunStatus::Cancelled, 0));
    drop(other);
    assert_eq!(shared.left(), Some(usd("0.4")), "nothing is left in the queue that could be granted");
}

#[tokio::test]
async fn dropping_a_run_that_waits_leaves_the_queue() {
    let (world, shared, other) = waiting_world().await;
    let mut driver = world.open().await;
    driver.begin(spec("go", RunLimits::default())).await.unwrap();
    {
        let mut run = Box::pin(driver.run());
        until_it_waits(run.as_mut()).await;
    }
    drop(other);
    assert_eq!(shared.left(), Some(usd("0.4")));
}

#[tokio::test]
async fn a_cheaper_model_that_is_switched_to_while_the_request_waits_is_asked_at_once() {
    let (world, _shared, _other) = waiting_world().await;
    let mut driver = world.open().await;
    let (mailbox, inbox) = mailbox();
    driver.set_inbox(inbox);
    driver.begin(spec("go", RunLimits::default())).await.unwrap();
    {
        let mut run = std::pin::pin!(driver.run());
        until_it_waits(run.as_mut()).await;
        // The same settings again are no reason to give up the place in the queue.
        assert!(mailbox.post(Command::Configure(settings("claude-sonnet-4-6"))));
        until_it_waits(run.as_mut()).await;
        assert!(mailbox.post(Command::Configure(settings("claude-haiku-4-5"))));
        now(run.as_mut()).await.expect("it still waits").unwrap();
    }
    assert_eq!(&*world.model.requests()[0].model, "claude-haiku-4-5");
}
