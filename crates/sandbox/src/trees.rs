//! Everything that a runner has started and that may still run: commands that go on, and what commands left running.
//! Owns that a process is known from the moment it is there, and that none is started any more once all are ended.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use open_agent_tool::Descendant;
use rustix::process::Signal;

use crate::orphans::OrphanReaper;
use crate::tree::{self, Signalled, Tree};

/// All trees of a runner.
pub(crate) struct Trees {
    inner: Mutex<Inner>,
    /// What the marks of all trees begin with.
    mark: String,
    reaper: OrphanReaper,
}

#[derive(Default)]
struct Inner {
    closed: bool,
    /// The reaper was told of the mark.
    is_known: bool,
    next: u64,
    by_number: BTreeMap<u64, Tree>,
}

/// A tree's place among the others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeNumber(u64);

impl Trees {
    /// `mark` begins the marks of all trees.
    pub(crate) fn new(mark: String, reaper: OrphanReaper) -> Self {
        Self { inner: Mutex::default(), mark, reaper }
    }

    /// Starts a tree, unless everything was ended: then nobody would end this one.
    pub(crate) fn start<T, E>(
        &self,
        start: impl FnOnce() -> Result<(T, Tree), E>,
    ) -> Option<Result<(T, TreeNumber), E>> {
        // Under the lock, so that whoever ends all does not miss what is just being started.
        let mut inner = self.lock();
        if inner.closed {
            return None;
        }
        if !inner.is_known {
            // Before the first one runs: by this mark a tree is found that could not be told of any more.
            self.reaper.expect(&self.mark);
            inner.is_known = true;
        }
        Some(start().map(|(started, tree)| {
            let number = inner.next;
            inner.next += 1;
            self.reaper.update(&tree);
            inner.by_number.insert(number, tree);
            (started, TreeNumber(number))
        }))
    }

    /// Reaps a main process that has ended. From then on its number may be a stranger's, so nobody may signal it meanwhile.
    pub(crate) fn reap(&self, TreeNumber(number): TreeNumber, reap: impl FnOnce()) {
        let mut inner = self.lock();
        reap();
        if let Some(tree) = inner.by_number.get_mut(&number) {
            tree.reaped = true;
            if !tree.left.is_empty() {
                self.reaper.update(tree);
            }
        }
    }

    /// Goes on knowing what was left running.
    pub(crate) fn remember(&self, TreeNumber(number): TreeNumber, left: &[Descendant]) {
        if let Some(tree) = self.lock().by_number.get_mut(&number) {
            tree.remember(left);
        }
    }

    /// Nothing of it runs any more.
    pub(crate) fn forget(&self, TreeNumber(number): TreeNumber) {
        if let Some(tree) = self.lock().by_number.remove(&number) {
            self.reaper.forget(&tree.mark);
        }
    }

    /// Asks all of one tree to end, waits for `grace`, kills what is left.
    pub(crate) fn end_one(&self, number: TreeNumber, grace: Duration) {
        tree::end(&One { trees: self, number }, grace);
    }

    /// Asks all to end, waits for `grace`, kills what is left. Nothing is started any more.
    pub(crate) fn end(&self, grace: Duration) {
        if self.close() {
            tree::end(self, grace);
        }
    }

    /// Kills all, at once. Nothing is started any more.
    pub(crate) fn kill(&self) {
        if self.close() {
            tree::kill(self);
        }
    }

    /// Nothing is started any more. Says whether there is anything to end.
    pub(crate) fn close(&self) -> bool {
        let mut inner = self.lock();
        inner.closed = true;
        !inner.by_number.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all(inner: &Inner) -> Vec<Tree> {
        inner.by_number.values().cloned().collect()
    }
}

impl Signalled for Trees {
    fn signal(&self, signal: Signal) -> bool {
        let inner = self.lock();
        // The lock is held: what is reaped meanwhile could be hit under a number that is a stranger's by then.
        Self::all(&inner).as_slice().signal(signal)
    }

    fn is_gone(&self) -> bool {
        Self::all(&self.lock()).as_slice().is_gone()
    }
}

/// A reaper may be shared with others who go on.
impl Drop for Trees {
    fn drop(&mut self) {
        let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
        for tree in inner.by_number.values() {
            self.reaper.forget(&tree.mark);
        }
        if inner.is_known {
            self.reaper.forget(&self.mark);
        }
    }
}

/// One of the trees as it stands at each look, for it may be reaped between two.
struct One<'a> {
    trees: &'a Trees,
    number: TreeNumber,
}

impl Signalled for One<'_> {
    fn signal(&self, signal: Signal) -> bool {
        let inner = self.trees.lock();
        inner.by_number.get(&self.number.0).is_some_and(|tree| tree.signal(signal))
    }

    fn is_gone(&self) -> bool {
        self.trees.lock().by_number.get(&self.number.0).is_none_or(Signalled::is_gone)
    }
}
