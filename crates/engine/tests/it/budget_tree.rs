//! Trees of budgets and the order in which requests get their share. There is no runtime: futures are polled by hand, and only
//! when they were woken, so that a lost wake-up shows itself.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use open_agent_engine::{Budget, BudgetError, Reservation};
use open_agent_model::{Cost, Price};
use proptest::prelude::*;

/// A token costs one nano-dollar, so that amounts are numbers of tokens.
const PRICE: Price = Price {
    input: Cost(1_000_000),
    output: Cost(1_000_000),
    cache_read: Cost(1_000_000),
    cache_write_5m: Cost(1_000_000),
    cache_write_1h: Cost(1_000_000),
};

type Outcome = Result<Reservation, BudgetError>;

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A request for a reservation, and whether it was woken since it was last polled.
struct Request {
    future: Pin<Box<dyn Future<Output = Outcome>>>,
    flag: Arc<Flag>,
}

impl Request {
    fn new(budget: &Arc<Budget>, input: u64, max_tokens: u64) -> Self {
        let budget = Arc::clone(budget);
        let future = Box::pin(async move { budget.reserve(Some(&PRICE), input, max_tokens).await });
        Self { future, flag: Arc::new(Flag(AtomicBool::new(false))) }
    }

    /// A request that took its place in the queue and waits.
    fn waiting(budget: &Arc<Budget>, input: u64, max_tokens: u64) -> Self {
        let mut request = Self::new(budget, input, max_tokens);
        assert!(request.poll().is_none(), "it need not wait");
        request
    }

    fn poll(&mut self) -> Option<Outcome> {
        self.flag.0.store(false, Ordering::Relaxed);
        match self.future.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&self.flag)))) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }

    fn is_woken(&self) -> bool {
        self.flag.0.load(Ordering::Relaxed)
    }

    /// The outcome of a request that was woken.
    fn woken(mut self) -> Outcome {
        assert!(self.is_woken(), "it was not woken");
        self.poll().expect("it was woken for nothing")
    }
}

fn budget(limit: u64) -> Arc<Budget> {
    Arc::new(Budget::new(Cost(limit)))
}

fn child(parent: &Arc<Budget>, limit: impl Into<Option<u64>>) -> Arc<Budget> {
    Arc::new(Budget::child_of(parent, limit.into().map(Cost)))
}

/// The outcome of a request that need not wait.
fn now(budget: &Arc<Budget>, input: u64, max_tokens: u64) -> Outcome {
    Request::new(budget, input, max_tokens).poll().expect("it waits")
}

fn state(budget: &Budget) -> (u64, u64, Option<u64>) {
    (budget.spent().0, budget.reserved().0, budget.left().map(|left| left.0))
}

#[test]
fn a_single_request_gets_what_is_left_and_is_refused_when_that_is_nothing() {
    let budget = budget(100);
    let first = now(&budget, 30, 500).unwrap();
    assert_eq!((first.max_tokens(), state(&budget)), (70, (0, 100, Some(0))));
    first.settle(Some(Cost(95)));
    assert_eq!(state(&budget), (95, 0, Some(5)));
    let BudgetError::Exceeded(error) = now(&budget, 5, 500).unwrap_err() else { panic!() };
    assert_eq!((error.limit, error.spent, error.needed), (Cost(100), Cost(95), Cost(5)));
    assert!(!error.is_shared);
    assert_eq!(now(&budget, 4, 500).unwrap().max_tokens(), 1);
    assert_eq!(state(&budget), (95, 0, Some(5)), "a reservation that is dropped is free again");
}

#[test]
fn without_a_limit_nothing_is_lowered_and_spending_is_counted() {
    let budget = Arc::new(Budget::new(None));
    let (huge, second) = (now(&budget, 1 << 40, 1 << 40).unwrap(), now(&budget, 1, 7).unwrap());
    assert_eq!((huge.max_tokens(), second.max_tokens()), (1 << 40, 7));
    second.settle(Some(Cost(3)));
    assert_eq!(state(&budget), (3, 1 << 41, None));
    assert!(!budget.is_limited());
}

#[test]
fn a_limit_needs_a_price() {
    let unpriced = |budget: Arc<Budget>| {
        let future = async move { budget.reserve(None, 10, 10).await.map(|r| r.max_tokens()) };
        let mut future = Box::pin(future);
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => panic!("it waits"),
        }
    };
    assert_eq!(unpriced(Arc::new(Budget::new(None))), Ok(10));
    let limited = child(&budget(9), None);
    assert!(limited.is_limited(), "by its parent");
    let error = unpriced(limited).unwrap_err();
    assert_eq!(error, BudgetError::NoPrice { limit: Cost(9) });
    assert!(error.to_string().contains("the price of the model is not known"), "{error}");
}

#[test]
fn a_request_waits_for_others_instead_of_being_lowered_or_refused() {
    let budget = budget(100);
    let first = now(&budget, 10, 80).unwrap();
    let second = Request::waiting(&budget, 10, 80);
    // By what is free now it could not even pay for its input.
    let third = Request::waiting(&budget, 20, 1);
    first.settle(Some(Cost(4)));
    let second = second.woken().unwrap();
    assert_eq!(second.max_tokens(), 80);
    assert!(!third.is_woken());
    drop(second);
    assert_eq!(third.woken().unwrap().max_tokens(), 1);
}

#[test]
fn the_output_limit_is_lowered_once_nothing_else_is_reserved() {
    let budget = budget(100);
    let (first, second) = (now(&budget, 0, 20).unwrap(), now(&budget, 0, 30).unwrap());
    let large = Request::waiting(&budget, 10, 500);
    first.settle(Some(Cost(20)));
    assert!(!large.is_woken(), "the second reservation may still free money");
    second.settle(Some(Cost(25)));
    assert_eq!(large.woken().unwrap().max_tokens(), 45);
}

/// A reservation that is smaller than the price of a token counts as well: it could free what a further token costs.
#[test]
fn the_output_limit_is_not_lowered_beside_a_tiny_reservation() {
    let budget = budget(35);
    let tiny = now(&budget, 2, 3).unwrap();
    let price = Price { output: Cost(10_000_000), ..PRICE };
    let mut large = {
        let budget = Arc::clone(&budget);
        Box::pin(async move { budget.reserve(Some(&price), 0, 10).await.map(|r| r.max_tokens()) })
    };
    let cx = &mut Context::from_waker(Waker::noop());
    assert!(large.as_mut().poll(cx).is_pending(), "3 tokens would fit");
    tiny.settle(Some(Cost(6)));
    assert!(matches!(large.as_mut().poll(cx), Poll::Ready(Ok(2))));
}

#[test]
fn a_request_that_cannot_fit_any_more_is_refused_at_once() {
    let budget = budget(100);
    let first = now(&budget, 0, 90).unwrap();
    let (head, hopeless) = (Request::waiting(&budget, 0, 50), Request::waiting(&budget, 60, 10));
    assert!(now(&budget, 100, 1).is_err(), "though others wait");
    first.settle(Some(Cost(50)));
    assert_eq!(head.woken().unwrap().max_tokens(), 50);
    let BudgetError::Exceeded(error) = hopeless.woken().unwrap_err() else { panic!() };
    assert_eq!(error.needed, Cost(60));
}

#[test]
fn a_small_request_does_not_pass_a_large_one() {
    let root = budget(100);
    let [a, b] = [child(&root, None), child(&root, None)];
    let running = [now(&a, 0, 60).unwrap(), now(&b, 0, 20).unwrap()];
    let large = Request::waiting(&a, 0, 70);
    // 20 are free; but with small ones passing all the time the large one might never be served.
    let small = [Request::waiting(&a, 0, 5), Request::waiting(&b, 0, 5)];
    let [first, second] = running;
    drop(second);
    assert!(!large.is_woken() && !small.iter().any(Request::is_woken));
    drop(first);
    let _large = large.woken().unwrap();
    for request in small {
        assert_eq!(request.woken().unwrap().max_tokens(), 5);
    }
}

#[test]
fn a_request_that_waits_holds_only_the_budget_that_lacks_money() {
    let root = budget(100);
    let [narrow, wide] = [child(&root, 10), child(&root, None)];
    let first = now(&narrow, 0, 8).unwrap();
    let second = Request::waiting(&narrow, 0, 8);
    let _passes = now(&wide, 0, 85).unwrap();
    drop(first);
    assert_eq!(second.woken().unwrap().max_tokens(), 8);
}

#[test]
fn what_holds_back_a_request_can_be_another_budget_later() {
    let root = budget(100);
    let [narrow, wide] = [child(&root, 50), child(&root, None)];
    let first = now(&narrow, 0, 20).unwrap();
    let large = Request::waiting(&narrow, 0, 50);
    let other = now(&wide, 0, 60).unwrap();
    drop(first);
    assert!(!large.is_woken(), "the root has 40 now");
    let small = Request::waiting(&wide, 0, 10);
    drop(other);
    let _large = large.woken().unwrap();
    assert_eq!(small.woken().unwrap().max_tokens(), 10);
}

#[test]
fn a_reservation_has_to_fit_everywhere_and_spending_counts_everywhere() {
    let root = budget(100);
    let middle = child(&root, 50);
    let [leaf, other] = [child(&middle, 200), child(&root, None)];
    assert_eq!(leaf.left(), Some(Cost(50)), "the budget that has least decides");
    let reservation = now(&leaf, 10, 300).unwrap();
    assert_eq!(reservation.max_tokens(), 40);
    assert_eq!((root.reserved(), middle.reserved(), leaf.reserved()), (Cost(50), Cost(50), Cost(50)));
    assert_eq!(other.reserved(), Cost(0));
    reservation.settle(Some(Cost(49)));
    for (budget, left) in [(&root, 51), (&middle, 1), (&leaf, 1), (&other, 51)] {
        let spent = if Arc::ptr_eq(budget, &other) { 0 } else { 49 };
        assert_eq!(state(budget), (spent, 0, Some(left)));
    }
    let BudgetError::Exceeded(error) = now(&leaf, 1, 1).unwrap_err() else { panic!() };
    assert_eq!((error.limit, error.is_shared), (Cost(50), true));
    assert!(error.to_string().starts_with("the shared budget of $0.000000 is spent"), "{error}");
    drop((leaf, middle));
    assert_eq!(state(&root), (49, 0, Some(51)), "what a child spent stays spent");
}

#[test]
fn leaving_the_queue_frees_the_place_and_what_was_granted() {
    let budget = budget(100);
    let first = now(&budget, 0, 60).unwrap();
    let (head, next) = (Request::waiting(&budget, 0, 90), Request::waiting(&budget, 0, 40));
    drop(head);
    let next = next.woken().unwrap();
    let (granted, last) = (Request::waiting(&budget, 0, 80), Request::waiting(&budget, 0, 80));
    drop((first, next));
    assert!(granted.is_woken() && !last.is_woken());
    assert_eq!(budget.reserved(), Cost(80));
    drop(granted);
    assert_eq!(last.woken().unwrap().max_tokens(), 80);
    assert_eq!(state(&budget), (0, 0, Some(100)));
}

#[test]
fn a_cost_above_the_reservation_is_counted_in_full() {
    let root = budget(100);
    let leaf = child(&root, None);
    now(&leaf, 10, 10).unwrap().settle(Some(Cost(130)));
    assert_eq!((state(&root), state(&leaf)), ((130, 0, Some(0)), (130, 0, Some(0))));
    assert!(now(&leaf, 0, 1).is_err());
    // A cost that nobody knows counts as nothing.
    let unlimited = Arc::new(Budget::new(None));
    now(&unlimited, 10, 10).unwrap().settle(None);
    assert_eq!(state(&unlimited), (0, 0, None));
}

// ---- properties ----

#[derive(Clone, Debug)]
enum Op {
    Ask { node: usize, input: u64, max_tokens: u64 },
    Settle { which: usize, percent: u64 },
    Drop { which: usize },
    Cancel { which: usize },
    Fetch { which: usize },
}

fn op() -> impl Strategy<Value = Op> {
    let any = 0..64_usize;
    prop_oneof![
        4 => (any.clone(), 0..40_u64, 1..120_u64)
            .prop_map(|(node, input, max_tokens)| Op::Ask { node, input, max_tokens }),
        3 => (any.clone(), 0..130_u64).prop_map(|(which, percent)| Op::Settle { which, percent }),
        1 => any.clone().prop_map(|which| Op::Drop { which }),
        1 => any.clone().prop_map(|which| Op::Cancel { which }),
        3 => any.prop_map(|which| Op::Fetch { which }),
    ]
}

/// A parent (an earlier node) and a limit for each node but the root.
fn nodes() -> impl Strategy<Value = Vec<(usize, Option<u64>)>> {
    prop::collection::vec((0..64_usize, prop::option::weighted(0.6, 20..300_u64)), 0..6)
}

/// What a node looked like when a request was decided.
#[derive(Clone, Copy)]
struct Seen {
    limit: Option<u64>,
    spent: u64,
    reserved: u64,
}

struct Asked {
    number: usize,
    node: usize,
    input: u64,
    max_tokens: u64,
    request: Request,
    /// The nodes of its path at its decision, and earlier requests of the same node that had none then.
    decided: Option<(Vec<Seen>, Vec<usize>)>,
}

struct Held {
    node: usize,
    amount: u64,
    reservation: Reservation,
}

/// The tree under test beside what must be true of it.
struct Model {
    parents: Vec<Option<usize>>,
    budgets: Vec<Arc<Budget>>,
    spent: Vec<u64>,
    /// What was billed above reservations.
    overshoot: Vec<u64>,
    asked: Vec<Asked>,
    held: Vec<Held>,
    count: usize,
}

impl Model {
    fn new(root: u64, nodes: &[(usize, Option<u64>)]) -> Self {
        let mut budgets = vec![budget(root)];
        let mut parents = vec![None];
        for (parent, limit) in nodes {
            let parent = parent % budgets.len();
            budgets.push(child(&budgets[parent], *limit));
            parents.push(Some(parent));
        }
        let zeros = vec![0; budgets.len()];
        let (spent, overshoot) = (zeros.clone(), zeros);
        Self { parents, budgets, spent, overshoot, asked: Vec::new(), held: Vec::new(), count: 0 }
    }

    fn path(&self, node: usize) -> Vec<usize> {
        std::iter::successors(Some(node), |node| self.parents[*node]).collect()
    }

    fn seen(&self, node: usize) -> Vec<Seen> {
        let see = |node: usize| {
            let budget = &self.budgets[node];
            let limit = budget.limit().map(|limit| limit.0);
            Seen { limit, spent: budget.spent().0, reserved: budget.reserved().0 }
        };
        self.path(node).into_iter().map(see).collect()
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Ask { node, input, max_tokens } => {
                let node = node % self.budgets.len();
                let request = Request::new(&self.budgets[node], input, max_tokens);
                let number = self.count;
                self.count += 1;
                let mut asked = Asked { number, node, input, max_tokens, request, decided: None };
                match asked.request.poll() {
                    None => self.asked.push(asked),
                    Some(outcome) => {
                        asked.decided = Some((self.seen(node), self.passed(node, number)));
                        self.take(&asked, outcome);
                    }
                }
            }
            Op::Settle { which, percent } => {
                if let Some(held) = pick(&mut self.held, which) {
                    self.settle(held, percent);
                }
            }
            Op::Drop { which } => drop(pick(&mut self.held, which)),
            Op::Cancel { which } => drop(pick(&mut self.asked, which)),
            Op::Fetch { which } => self.fetch(which),
        }
        self.note_decisions();
    }

    fn settle(&mut self, held: Held, percent: u64) {
        let cost = held.amount * percent / 100;
        for node in self.path(held.node) {
            self.spent[node] += cost;
            self.overshoot[node] += cost.saturating_sub(held.amount);
        }
        held.reservation.settle(Some(Cost(cost)));
    }

    fn fetch(&mut self, which: usize) {
        let woken: Vec<usize> = (0..self.asked.len()).filter(|i| self.asked[*i].request.is_woken()).collect();
        if woken.is_empty() {
            return;
        }
        let mut asked = self.asked.remove(woken[which % woken.len()]);
        let outcome = asked.request.poll().expect("woken for nothing");
        self.take(&asked, outcome);
    }

    /// Earlier requests of the same node that have no decision.
    fn passed(&self, node: usize, number: usize) -> Vec<usize> {
        let waits = |a: &&Asked| a.node == node && a.number < number && !a.request.is_woken();
        self.asked.iter().filter(waits).map(|a| a.number).collect()
    }

    fn note_decisions(&mut self) {
        for i in 0..self.asked.len() {
            let asked = &self.asked[i];
            if asked.request.is_woken() && asked.decided.is_none() {
                let decided = (self.seen(asked.node), self.passed(asked.node, asked.number));
                self.asked[i].decided = Some(decided);
            }
        }
    }

    /// Checks a decision when it is fetched.
    fn take(&mut self, asked: &Asked, outcome: Outcome) {
        let (seen, passed) = asked.decided.as_ref().unwrap();
        match outcome {
            Ok(reservation) => {
                assert!(passed.is_empty(), "request {} passed {passed:?}", asked.number);
                let amount = asked.input + reservation.max_tokens();
                if reservation.max_tokens() < asked.max_tokens {
                    let took_all = |s: &Seen| s.reserved == amount && s.limit == Some(s.spent + amount);
                    assert!(seen.iter().any(took_all), "lowered while money was free or about to be");
                }
                assert!(reservation.max_tokens() > 0);
                self.held.push(Held { node: asked.node, amount, reservation });
            }
            Err(BudgetError::Exceeded(error)) => {
                let hopeless = |s: &Seen| s.limit.is_some_and(|limit| s.spent + asked.input >= limit);
                assert!(seen.iter().any(hopeless), "refused though it could fit: {error}");
            }
            Err(other) => panic!("{other}"),
        }
    }

    fn check(&mut self) {
        let all_fetched = self.asked.iter().all(|a| !a.request.is_woken());
        for (node, budget) in self.budgets.iter().enumerate() {
            assert_eq!(budget.spent().0, self.spent[node]);
            let below = |held: &&Held| self.path(held.node).contains(&node);
            let held: u64 = self.held.iter().filter(below).map(|held| held.amount).sum();
            let reserved = budget.reserved().0;
            assert!(if all_fetched { reserved == held } else { reserved >= held });
            if let Some(limit) = budget.limit() {
                assert!(self.spent[node] + reserved <= limit.0 + self.overshoot[node], "over the limit");
            }
        }
        let waiting: Vec<usize> =
            (0..self.asked.len()).filter(|i| !self.asked[*i].request.is_woken()).collect();
        if let Some(oldest) = waiting.first() {
            assert!(self.budgets[0].reserved() > Cost(0), "deadlock");
            assert!(self.has_to_wait(&self.asked[*oldest]), "the first of the queue waits for nothing");
        }
        for i in waiting {
            assert!(self.asked[i].request.poll().is_none(), "a lost wake-up");
            let asked = &self.asked[i];
            let hopeless = |s: &Seen| s.limit.is_some_and(|limit| s.spent + asked.input >= limit);
            assert!(!self.seen(asked.node).iter().any(hopeless), "it waits without hope");
        }
    }

    /// Whether a node has too little money for the request while something else is reserved there.
    fn has_to_wait(&self, asked: &Asked) -> bool {
        let seen = self.seen(asked.node);
        let alone = seen.iter().filter(|s| s.reserved == 0);
        let most = alone.filter_map(|s| Some(s.limit?.saturating_sub(s.spent + asked.input))).min();
        let amount = asked.input + asked.max_tokens.min(most.unwrap_or(u64::MAX));
        seen.iter().any(|s| s.limit.is_some_and(|limit| s.spent + s.reserved + amount > limit))
    }
}

fn pick<T>(from: &mut Vec<T>, which: usize) -> Option<T> {
    (!from.is_empty()).then(|| from.remove(which % from.len()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Over no limit but by what was billed above a reservation; first come first served; nobody waits for nothing, and
    /// nobody for ever; lowered only where no money is free.
    #[test]
    fn trees_keep_their_limits_and_serve_everybody(
        root in 50..400_u64,
        nodes in nodes(),
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let mut model = Model::new(root, &nodes);
        for op in &ops {
            model.apply(op);
            model.check();
        }
        // Everything that runs ends at its estimate, so money runs out or everybody was served.
        let most = 2 * model.asked.len() + model.held.len() + 1;
        for _ in 0..most {
            model.apply(&Op::Settle { which: 0, percent: 50 });
            while model.asked.iter().any(|a| a.request.is_woken()) {
                model.apply(&Op::Fetch { which: 0 });
            }
            model.check();
        }
        assert!(model.asked.is_empty() && model.held.is_empty(), "somebody waits for ever");
        assert!(model.budgets.iter().all(|b| b.reserved() == Cost(0)));
    }
}
