//! Money that agents may spend. Owns the limits, which form trees, and the order in which requests get their share.
//!
//! Before a request is sent, it reserves the most that it can cost by our estimate: its input and its whole output limit.
//! Afterwards the reservation is settled with the real cost, which is usually far less. [`ledger`] holds the rules;
//! this file adds a lock and futures, [`agent`] what belongs to one agent and its session.

mod agent;
mod error;
mod ledger;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use open_agent_model::{Cost, Price};

pub use agent::{AgentBudget, BudgetScope, logged_cost};
pub use error::{BudgetError, BudgetExceeded};
use ledger::{Decision, Estimate, Ledger, NodeId, Ticket};

/// An amount of money that one or more agents may spend.
///
/// Budgets form trees. A request reserves its estimated cost at a budget and at all of its ancestors before it is sent, and
/// has to fit into each of them. Afterwards the real cost is counted in each of them.
///
/// # Several agents on one budget
///
/// A request that does not fit only because of others' reservations waits until they are settled; requests are served in
/// the order in which they came, at each budget. So the number of requests under way is bounded by how many
/// reservations fit: at 16,384 output tokens and $15 per million, each reserves about $0.25. A lower `max_tokens` lets
/// more of them run at once.
///
/// The output limit of a request is lowered only if it does not fit into a budget where nothing else is reserved: that
/// is, when the money comes to its end. Once it does not even pay for the input and one output token, requests are refused.
///
/// # How a limit can be passed
///
/// Reservations never exceed a limit. What a request costs can exceed what it reserved, in one case only: the provider
/// bills more than was estimated, because it counts more input tokens, ignores the output limit, or writes to a cache that
/// costs more. Such a cost is counted in full, so spending passes a limit by at most what was billed above the reservations
/// of the requests that were under way. A request that is dropped (not interrupted: with its runtime, say) counts as
/// nothing, for its cost is not known.
///
/// # Deadlocks
///
/// Do not prompt an agent from inside a `Provider` of another agent on the same budget: the outer request keeps its
/// reservation until its answer has come, and the inner one might wait for it for ever. Tools may do so: no reservation is
/// open while tools run.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use open_agent_engine::Budget;
/// use open_agent_model::{Cost, Price};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let usd = |text: &str| Cost::from_usd(text).ok_or("not an amount");
/// let all = Arc::new(Budget::new(usd("1.00")?));
/// let team = Arc::new(Budget::child_of(&all, usd("0.40")?));
///
/// // $3 for a million input tokens, $15 for a million output tokens: 0.03 + 0.15 dollars at most.
/// let price = Price::new(usd("3")?, usd("15")?);
/// let reservation = team.reserve(Some(&price), 10_000, 10_000).await?;
/// assert_eq!(all.reserved(), usd("0.18")?);
/// assert_eq!(team.left(), Some(usd("0.22")?));
///
/// // The answer was shorter than it might have been.
/// reservation.settle(Some(usd("0.05")?));
/// assert_eq!((all.spent(), all.reserved()), (usd("0.05")?, Cost(0)));
/// assert_eq!(team.left(), Some(usd("0.35")?));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Budget {
    tree: Arc<Mutex<Tree>>,
    node: NodeId,
    /// Keeps the ancestors in the ledger.
    parent: Option<Arc<Budget>>,
}

/// One lock for a whole tree: a reservation changes a node and all its ancestors at once. Wakers are woken and dropped
/// without the lock, since either may run code that needs it.
#[derive(Debug, Default)]
struct Tree {
    ledger: Ledger,
    wakers: HashMap<Ticket, Waker>,
}

/// Permission to make one request. [`Reservation::settle`] says what it cost; dropping a reservation frees it without
/// counting any cost.
#[derive(Debug)]
#[must_use = "dropping a reservation frees it"]
pub struct Reservation {
    budget: Arc<Budget>,
    amount: Cost,
    max_tokens: u64,
    cost: Cost,
}

/// A request that waits for its reservation. Dropping it leaves the queue, and frees what was granted and not fetched.
struct Turn {
    budget: Arc<Budget>,
    /// `None` once the decision was fetched.
    ticket: Option<Ticket>,
}

impl Budget {
    /// Creates a budget without a parent. `None` means that spending is counted but not limited.
    #[must_use]
    pub fn new(limit: impl Into<Option<Cost>>) -> Self {
        let mut tree = Tree::default();
        let node = tree.ledger.add(None, limit.into());
        Self { tree: Arc::new(Mutex::new(tree)), node, parent: None }
    }

    /// Creates a budget that is a part of `parent`: what is spent from it is spent from `parent` and its ancestors as well.
    ///
    /// The limit may be larger than that of `parent`, and those of several children may add up to more: all limits hold.
    /// What a child has spent stays counted in its parent when the child is dropped.
    #[must_use]
    pub fn child_of(parent: &Arc<Self>, limit: impl Into<Option<Cost>>) -> Self {
        let tree = Arc::clone(&parent.tree);
        let node = parent.tree().ledger.add(Some(parent.node), limit.into());
        Self { tree, node, parent: Some(Arc::clone(parent)) }
    }

    /// The budget that this one is a part of.
    #[must_use]
    pub fn parent(&self) -> Option<&Arc<Self>> {
        self.parent.as_ref()
    }

    /// The limit of this budget alone, without those of its ancestors.
    #[must_use]
    pub fn limit(&self) -> Option<Cost> {
        self.tree().ledger.limit(self.node)
    }

    /// Whether this budget or one of its ancestors has a limit.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.tree().ledger.smallest_limit(self.node).is_some()
    }

    /// What was spent from this budget and its children. Requests under way are not in it: see [`Budget::reserved`].
    #[must_use]
    pub fn spent(&self) -> Cost {
        self.tree().ledger.spent(self.node)
    }

    /// The most that the requests under way on this budget and its children can cost, by the estimates made before they
    /// were sent.
    #[must_use]
    pub fn reserved(&self) -> Cost {
        self.tree().ledger.reserved(self.node)
    }

    /// The money that a new request could reserve now: what is neither spent nor reserved, at this budget or the ancestor
    /// that has the least. `None` if no limit holds.
    #[must_use]
    pub fn left(&self) -> Option<Cost> {
        self.tree().ledger.left(self.node)
    }

    /// Reserves what a request can cost, and waits for its turn if others have reserved the money.
    ///
    /// `price` may be `None` where no limit holds; nothing is reserved then. The output limit that the request may use is
    /// [`Reservation::max_tokens`]; it is lower than `max_tokens` if the money does not pay for more.
    ///
    /// The request takes its place in the queue when the future is first polled. Dropping the future leaves the queue and
    /// frees what may have been granted.
    ///
    /// # Errors
    ///
    /// Returns [`BudgetError::Exceeded`] as soon as the input and one output token cost more than any limit leaves, even if
    /// nothing else were reserved, and [`BudgetError::NoPrice`] if a limit holds and `price` is `None`.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use open_agent_engine::Budget;
    /// # use open_agent_model::{Cost, Price};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let usd = |text: &str| Cost::from_usd(text).ok_or("not an amount");
    /// let budget = Arc::new(Budget::new(usd("0.01")?));
    /// let price = Price::new(usd("3")?, usd("15")?);
    /// // The input costs $0.003; the other $0.007 pay for 466 output tokens.
    /// let reservation = budget.reserve(Some(&price), 1_000, 16_384).await?;
    /// assert_eq!(reservation.max_tokens(), 466);
    /// # Ok(()) }
    /// ```
    pub async fn reserve(
        self: &Arc<Self>,
        price: Option<&Price>,
        input_tokens: u64,
        max_tokens: u64,
    ) -> Result<Reservation, BudgetError> {
        let mut turn = {
            let mut tree = self.tree();
            let limit = tree.ledger.smallest_limit(self.node);
            if let (Some(limit), None) = (limit, price) {
                return Err(BudgetError::NoPrice { limit });
            }
            let ticket = tree.ledger.ask(self.node, Estimate::new(price, input_tokens, max_tokens));
            Turn { budget: Arc::clone(self), ticket: Some(ticket) }
        };
        match Pin::new(&mut turn).await {
            Decision::Granted { amount, max_tokens } => {
                Ok(Reservation { budget: Arc::clone(self), amount, max_tokens, cost: Cost(0) })
            }
            Decision::Refused(exceeded) => Err(exceeded.into()),
        }
    }

    /// Counts what was spent without a reservation, at this budget and not at its ancestors.
    fn charge(&self, cost: Cost) {
        self.change(|ledger| ledger.charge(self.node, cost));
    }

    /// Changes the ledger, then wakes the requests that are decided by that. They are woken without the lock.
    fn change(&self, change: impl FnOnce(&mut Ledger) -> Vec<Ticket>) {
        let mut tree = self.tree();
        let decided = change(&mut tree.ledger);
        let wakers: Vec<Waker> = decided.iter().filter_map(|ticket| tree.wakers.remove(ticket)).collect();
        drop(tree);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        // Reservations, waiting requests and children hold the budget, so none of them is left.
        self.tree().ledger.remove(self.node);
    }
}

impl Reservation {
    /// The output limit that the request may use.
    #[must_use]
    pub fn max_tokens(&self) -> u64 {
        self.max_tokens
    }

    /// Ends the reservation and counts what the request really cost, also if that is more than what was reserved. A cost
    /// that is not known counts as nothing; that cannot happen where a limit holds, since the price is known there.
    pub fn settle(mut self, cost: Option<Cost>) {
        self.cost = cost.unwrap_or_default();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.change(|ledger| ledger.settle(self.budget.node, self.amount, self.cost));
    }
}

impl Future for Turn {
    type Output = Decision;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Decision> {
        let Some(ticket) = self.ticket else { return Poll::Pending };
        let mut tree = self.budget.tree();
        let Some(decision) = tree.ledger.take_decision(ticket) else {
            let earlier = tree.wakers.insert(ticket, cx.waker().clone());
            drop(tree);
            if earlier.is_none() {
                tracing::debug!("a request waits until others have settled their part of the budget");
            }
            return Poll::Pending;
        };
        let waker = tree.wakers.remove(&ticket);
        drop(tree);
        drop(waker);
        self.ticket = None;
        Poll::Ready(decision)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let waker = self.budget.tree().wakers.remove(&ticket);
        drop(waker);
        self.budget.change(|ledger| ledger.cancel(ticket));
    }
}
