//! Money: limits that strike before it is spent, and costs that are known, estimated or not known.

use std::sync::Arc;
use std::time::Duration;

use open_agent_engine::{Budget, RetryConfig};
use open_agent_model::scripted::{Reply, Scripted};
use open_agent_model::{Cost, ProviderErrorKind, RunStatus};
use open_agent_session::{MemoryStore, NoticeKind, RunLimits, SessionStore};

use crate::world::{Options, World, finish, settings, spec, status};

#[tokio::test]
async fn the_budget_strikes_before_the_request_that_would_pass_it() {
    let endless = Scripted::responding(|_| Reply::call("read", r#"{"n":1}"#).usage(100_000, 1_000));
    // A request costs 0.3 + 0.015 dollars.
    let options = Options { budget: Budget::new(Cost::from_usd("0.9")), ..Options::default() };
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
    let options = Options { budget: Budget::new(Cost::from_usd("0.01")), ..Options::default() };
    let world = World::with(endless, options);
    let (driver, _) = world.run(RunLimits { max_turns: None, ..RunLimits::default() }).await;
    assert_eq!(status(driver.machine().run().unwrap()), RunStatus::ErrorMaxBudgetUsd);
    assert!(world.model.requests().len() < 100, "{}", world.model.requests().len());
    let run = driver.machine().run().unwrap();
    assert!(
        run.totals.cost.unwrap() > Cost::from_usd("0.005").unwrap(),
        "an estimate, not 0: {:?}",
        run.totals.cost
    );
    assert_eq!(run.notices.iter().filter(|n| n.kind == NoticeKind::UsageMissing).count(), 1);
}

#[tokio::test]
async fn what_a_broken_attempt_counted_holds_for_the_next_one() {
    let breaks = || Reply::text("half").usage(900_000, 1).then_fails(ProviderErrorKind::Overloaded, "busy");
    let retry = RetryConfig { max_retries: 3, base_delay: Duration::ZERO, ..RetryConfig::default() };
    let budget = Budget::new(Cost::from_usd("4.5"));
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
    let cost = driver.machine().run().unwrap().totals.cost;
    assert!(cost > Cost::from_usd("0.015"), "1,000 tokens at 15 dollars for a million: {cost:?}");
}

#[tokio::test]
async fn h_cst_02_without_price_and_count_the_cost_is_not_known() {
    let world = World::new(Scripted::new([Reply::text("ok")]));
    let mut driver = world.open().await;
    let spec = spec("go", RunLimits::default());
    driver.begin(open_agent_engine::RunSpec { settings: settings("nobody-knows-me"), ..spec }).await.unwrap();
    finish(&mut driver).await;
    assert_eq!(driver.machine().run().unwrap().totals.cost, None);
}

#[tokio::test]
async fn the_rest_of_the_budget_lowers_the_output_limit() {
    let options = Options { budget: Budget::new(Cost::from_usd("0.015")), ..Options::default() };
    let world = World::with(Scripted::new([Reply::text("ok")]), options);
    world.run(RunLimits::default()).await;
    let asked = world.model.requests()[0].options.max_tokens;
    assert!((900..1_000).contains(&asked), "{asked}: 1,000 tokens cost the whole budget");
}

#[tokio::test]
async fn a_run_that_is_taken_up_again_goes_on_with_the_rest_of_its_budget() {
    let store: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
    // A request costs 0.315 dollars; two fit into 0.9, whichever process makes them.
    let world = || {
        let model = Scripted::responding(|_| Reply::call("read", r#"{"n":1}"#).usage(100_000, 1_000));
        let budget = Budget::new(Cost::from_usd("0.9"));
        World::with(model, Options { store: Arc::clone(&store), budget, ..Options::default() })
    };
    let first = world();
    let mut driver = first.open().await;
    driver.begin(spec("go", RunLimits::default())).await.unwrap();
    while first.model.requests().is_empty() {
        driver.advance().await.unwrap();
    }
    drop(driver);
    let second = world();
    let mut driver = second.open().await;
    finish(&mut driver).await;
    assert_eq!(status(driver.machine().run().unwrap()), RunStatus::ErrorMaxBudgetUsd);
    assert_eq!(second.model.requests().len(), 1);
}
