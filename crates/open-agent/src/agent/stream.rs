//! A run that goes on, as its caller holds it: the events, the result, and the way to interrupt it.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use open_agent_engine::{Envelope, EventStream};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{AgentError, QueryResult};

pub(super) struct Run<T> {
    pub(super) handle: JoinHandle<Result<T, AgentError>>,
    pub(super) cancel: CancellationToken,
}

impl<T> Run<T> {
    pub(super) async fn await_guarded(self) -> Result<T, AgentError> {
        let guard: DropGuard = self.cancel.drop_guard();
        let result = self.handle.await.unwrap_or(Err(AgentError::Lost));
        let _spent = guard.disarm();
        result
    }
}

/// A run's events, and in the end its result.
pub struct RunStream<T = QueryResult> {
    pub(super) events: EventStream,
    pub(super) run: Run<T>,
}

/// Interrupts one run, whoever waits for it.
#[derive(Clone, Debug)]
pub struct Interrupter(CancellationToken);

impl Interrupter {
    /// Interrupts the run; at any moment, before it has begun too.
    pub fn interrupt(&self) {
        self.0.cancel();
    }
}

impl<T> RunStream<T> {
    /// Interrupts the run, and takes no further input.
    pub fn interrupt(&self) {
        self.run.cancel.cancel();
    }

    /// To interrupt the run while its result is waited for.
    #[must_use]
    pub fn interrupter(&self) -> Interrupter {
        Interrupter(self.run.cancel.clone())
    }

    /// The next event; `None` once there are no more. Not to be confused with `StreamExt::next`, which does the same.
    pub async fn next(&mut self) -> Option<Envelope> {
        self.events.next().await
    }

    /// Waits for the result; events that were not read are dropped.
    pub async fn result(self) -> Result<T, AgentError> {
        drop(self.events);
        self.run.handle.await.unwrap_or(Err(AgentError::Lost))
    }
}

impl<T> Stream for RunStream<T> {
    type Item = Envelope;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Envelope>> {
        Pin::new(&mut self.events).poll_next(cx)
    }
}
