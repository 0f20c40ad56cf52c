//! The arithmetic of a tree of budgets: what is spent and reserved at each node, and who waits. Pure: no locks, no async;
//! `super` adds both.
//!
//! A request asks for a reservation at a node. It is judged against that node and all of its ancestors:
//!
//! - If even without the reservations of others not one output token could be paid, it is refused.
//! - If a node has too little money *and* other reservations are open there, it waits, for they may cost less than they
//!   reserve.
//! - If a node has too little money and nothing else is reserved there, waiting cannot help: the output limit is lowered to
//!   what the node can pay.
//!
//! Requests that wait stand in one queue for the whole tree. A request that finds too little money at a node holds that
//! node: no later request passes it there, however small, so a large request cannot be starved. Later requests whose paths do
//! not touch a held node do pass.
//!
//! There is no deadlock: a request waits only at a node with an open reservation, and whoever has a reservation does not wait
//! for another one. When the last reservation ends, the first request of the queue is granted or refused.

use std::collections::{HashMap, HashSet, VecDeque};

use open_agent_model::{Cost, Price, Usage};

use super::BudgetExceeded;

/// A node of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct NodeId(u64);

/// A request that waits, or whose decision was not fetched yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ticket(u64);

/// What a request may cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Estimate {
    price: Option<Price>,
    /// The cost of the input.
    input: Cost,
    /// The output limit that the request would like to have.
    max_tokens: u64,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// `amount` is reserved; the request may ask for `max_tokens` output tokens.
    Granted { amount: Cost, max_tokens: u64 },
    /// It will never fit.
    Refused(BudgetExceeded),
}

/// All nodes of a tree, and the requests that wait for money.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    nodes: HashMap<NodeId, Node>,
    queue: VecDeque<Waiting>,
    decided: HashMap<Ticket, (NodeId, Decision)>,
    last_id: u64,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    parent: Option<NodeId>,
    limit: Option<Cost>,
    spent: Cost,
    reserved: Cost,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    ticket: Ticket,
    node: NodeId,
    estimate: Estimate,
}

/// What the state of the tree says about a request.
enum Judgement {
    Fits {
        amount: Cost,
        max_tokens: u64,
    },
    /// These nodes have too little money while other reservations are open there.
    Waits(Vec<NodeId>),
    Never(BudgetExceeded),
}

impl Estimate {
    pub(super) fn new(price: Option<&Price>, input_tokens: u64, max_tokens: u64) -> Self {
        // The vendor may write the input to its cache, which can cost more than reading it plainly.
        let plain = Usage { input_tokens, ..Usage::default() };
        let cached = Usage { cache_write_5m_input_tokens: input_tokens, ..Usage::default() };
        let input = price.map(|price| price.of(&plain).max(price.of(&cached))).unwrap_or_default();
        Self { price: price.copied(), input, max_tokens }
    }

    /// The cost of the request if it uses `max_tokens` output tokens.
    fn amount(&self, max_tokens: u64) -> Cost {
        let output = Usage { output_tokens: max_tokens, ..Usage::default() };
        self.input.plus(self.price.map(|price| price.of(&output)).unwrap_or_default())
    }

    /// The number of output tokens that `money` pays for, beside the input.
    fn affordable(&self, money: Cost) -> u64 {
        match (minus(money, self.input), &self.price) {
            (Cost(0), _) => 0,
            (rest, Some(price)) => price.output_tokens_for(rest),
            (_, None) => u64::MAX,
        }
    }
}

impl Ledger {
    pub(super) fn add(&mut self, parent: Option<NodeId>, limit: Option<Cost>) -> NodeId {
        let id = NodeId(self.new_id());
        self.nodes.insert(id, Node { parent, limit, spent: Cost(0), reserved: Cost(0) });
        id
    }

    /// Forgets a node that nobody can ask at any more. What was spent there stays counted in its ancestors.
    pub(super) fn remove(&mut self, node: NodeId) {
        self.nodes.remove(&node);
    }

    pub(super) fn limit(&self, node: NodeId) -> Option<Cost> {
        self.nodes.get(&node).and_then(|n| n.limit)
    }

    pub(super) fn spent(&self, node: NodeId) -> Cost {
        self.nodes.get(&node).map(|n| n.spent).unwrap_or_default()
    }

    pub(super) fn reserved(&self, node: NodeId) -> Cost {
        self.nodes.get(&node).map(|n| n.reserved).unwrap_or_default()
    }

    /// The smallest limit of a node and its ancestors.
    pub(super) fn smallest_limit(&self, node: NodeId) -> Option<Cost> {
        self.path(node).filter_map(|(_, n)| n.limit).min()
    }

    /// The money that is neither spent nor reserved, at the node or ancestor that has the least.
    pub(super) fn left(&self, node: NodeId) -> Option<Cost> {
        self.path(node).filter_map(|(_, n)| Some(minus(n.limit?, n.spent.plus(n.reserved)))).min()
    }

    /// Puts a request into the queue. Fetch the decision with [`Ledger::take_decision`]: it may be there already.
    pub(super) fn ask(&mut self, node: NodeId, estimate: Estimate) -> Ticket {
        let ticket = Ticket(self.new_id());
        self.queue.push_back(Waiting { ticket, node, estimate });
        // Nobody who waits already can be decided by this, so no other ticket is reported.
        self.decide();
        ticket
    }

    /// The decision on a request, once there is one. What is granted belongs to the caller from now on.
    pub(super) fn take_decision(&mut self, ticket: Ticket) -> Option<Decision> {
        self.decided.remove(&ticket).map(|(_, decision)| decision)
    }

    /// Forgets a request whose decision was not fetched; what may have been granted is free again. Returns the requests that
    /// are decided by that.
    pub(super) fn cancel(&mut self, ticket: Ticket) -> Vec<Ticket> {
        self.queue.retain(|waiting| waiting.ticket != ticket);
        match self.decided.remove(&ticket) {
            Some((node, Decision::Granted { amount, .. })) => self.settle(node, amount, Cost(0)),
            // It may have held a node.
            _ => self.decide(),
        }
    }

    /// Ends a reservation of `reserved` which cost `cost`. Returns the requests that are decided by that.
    pub(super) fn settle(&mut self, node: NodeId, reserved: Cost, cost: Cost) -> Vec<Ticket> {
        self.change_path(node, |n| {
            n.reserved = minus(n.reserved, reserved);
            n.spent = n.spent.plus(cost);
        });
        self.decide()
    }

    /// Counts money that was spent without a reservation, at this node alone. Returns the requests that are decided by that.
    pub(super) fn charge(&mut self, node: NodeId, cost: Cost) -> Vec<Ticket> {
        if let Some(n) = self.nodes.get_mut(&node) {
            n.spent = n.spent.plus(cost);
        }
        self.decide()
    }

    /// Decides on every request that need not wait any longer, first come first served.
    fn decide(&mut self) -> Vec<Ticket> {
        let mut held: HashSet<NodeId> = HashSet::new();
        let mut decided = Vec::new();
        for waiting in std::mem::take(&mut self.queue) {
            let Waiting { ticket, node, estimate } = waiting;
            let decision = match self.judge(node, &estimate) {
                Judgement::Never(exceeded) => Decision::Refused(exceeded),
                Judgement::Fits { amount, max_tokens }
                    if self.path(node).all(|(id, _)| !held.contains(&id)) =>
                {
                    self.change_path(node, |n| n.reserved = n.reserved.plus(amount));
                    Decision::Granted { amount, max_tokens }
                }
                Judgement::Fits { .. } => {
                    self.queue.push_back(waiting);
                    continue;
                }
                Judgement::Waits(nodes) => {
                    held.extend(nodes);
                    self.queue.push_back(waiting);
                    continue;
                }
            };
            self.decided.insert(ticket, (node, decision));
            decided.push(ticket);
        }
        decided
    }

    fn judge(&self, node: NodeId, estimate: &Estimate) -> Judgement {
        let mut max_tokens = estimate.max_tokens;
        for (id, n) in self.path(node) {
            let Some(limit) = n.limit else { continue };
            let affordable = estimate.affordable(minus(limit, n.spent));
            if affordable == 0 {
                let is_shared = id != node;
                return Judgement::Never(BudgetExceeded::new(limit, n.spent, estimate.input, is_shared));
            }
            if n.reserved == Cost(0) {
                max_tokens = max_tokens.min(affordable);
            }
        }
        let amount = estimate.amount(max_tokens);
        let lacks = |n: &Node| n.limit.is_some_and(|limit| n.spent.plus(n.reserved).plus(amount) > limit);
        let nodes: Vec<NodeId> = self.path(node).filter(|(_, n)| lacks(n)).map(|(id, _)| id).collect();
        if nodes.is_empty() { Judgement::Fits { amount, max_tokens } } else { Judgement::Waits(nodes) }
    }

    /// A node and its ancestors, the node first.
    fn path(&self, node: NodeId) -> impl Iterator<Item = (NodeId, &Node)> {
        let find = |id: NodeId| self.nodes.get(&id).map(|n| (id, n));
        std::iter::successors(find(node), move |(_, n)| n.parent.and_then(find))
    }

    fn change_path(&mut self, node: NodeId, mut change: impl FnMut(&mut Node)) {
        let mut next = Some(node);
        while let Some(n) = next.and_then(|id| self.nodes.get_mut(&id)) {
            change(n);
            next = n.parent;
        }
    }

    fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}

fn minus(a: Cost, b: Cost) -> Cost {
    Cost(a.0.saturating_sub(b.0))
}
