//! The way from a run to its reader and to those who subscribed to all events of the agent. Owns its guarantees: durable
//! events are never dropped, deltas for a slow reader are joined, and a reader that goes away does not end the run.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use tokio::sync::Notify;

use crate::{AgentEvent, Envelope};

/// How many durable events wait for a slow reader before the run waits, too.
const MAX_WAITING: usize = 1_024;

/// Where a run's events go: to its own reader, if it has one, and to the agent's subscribers.
#[derive(Clone, Default)]
pub struct EventSink {
    reader: Option<Arc<Shared>>,
    subscribers: Option<Arc<Subscribers>>,
}

/// Events, as they come.
pub struct EventStream(Arc<Shared>);

/// Those who read all events of an agent: of every run, and of the time between runs.
#[derive(Default)]
pub struct Subscribers(Mutex<Subscribed>);

#[derive(Default)]
struct Subscribed {
    readers: Vec<Arc<Shared>>,
    over: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    room: Notify,
    live: bool,
}

#[derive(Default)]
struct Queue {
    events: VecDeque<Envelope>,
    durable: usize,
    reader: Option<Waker>,
    reader_gone: bool,
    /// There is always room.
    hurried: bool,
    over: bool,
}

impl EventSink {
    /// A sink that nobody reads.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// A sink that only subscribers read.
    #[must_use]
    pub fn of(subscribers: &Arc<Subscribers>) -> Self {
        Self::none().with(subscribers)
    }

    /// The same sink, read by these subscribers as well.
    #[must_use]
    pub fn with(self, subscribers: &Arc<Subscribers>) -> Self {
        Self { subscribers: Some(Arc::clone(subscribers)), ..self }
    }

    /// A sink and its reader, for durable events only.
    #[must_use]
    pub fn durable() -> (Self, EventStream) {
        Self::pair(Shared::default())
    }

    /// A sink and its reader, for durable and live events.
    #[must_use]
    pub fn live() -> (Self, EventStream) {
        Self::pair(Shared { live: true, ..Shared::default() })
    }

    fn pair(shared: Shared) -> (Self, EventStream) {
        let shared = Arc::new(shared);
        (Self { reader: Some(Arc::clone(&shared)), subscribers: None }, EventStream(shared))
    }

    /// All readers that are there now.
    fn readers(&self) -> impl Iterator<Item = Arc<Shared>> {
        let subscribed = self.subscribers.as_ref().map(|all| all.readers()).unwrap_or_default();
        subscribed.into_iter().chain(self.reader.clone()).filter(|shared| !shared.queue().reader_gone)
    }

    /// Whether somebody reads live events. If not, none need be made.
    #[must_use]
    pub fn wants_live(&self) -> bool {
        self.readers().any(|shared| shared.live)
    }

    /// Whether somebody reads.
    #[must_use]
    pub fn wants_durable(&self) -> bool {
        self.readers().next().is_some()
    }

    /// Hands over a durable event; waits while a reader is far behind.
    pub async fn durable_event(&self, event: Envelope) {
        let mut readers = self.readers().peekable();
        while let Some(shared) = readers.next() {
            if readers.peek().is_none() {
                return shared.durable_event(event).await;
            }
            shared.durable_event(event.clone()).await;
        }
    }

    /// Hands over a live event. Never waits: text for a block joins what waits already.
    pub fn live_event(&self, event: Envelope) {
        let mut readers = self.readers().filter(|shared| shared.live).peekable();
        while let Some(shared) = readers.next() {
            if readers.peek().is_none() {
                return shared.live_event(event);
            }
            shared.live_event(event.clone());
        }
    }

    /// Waits for no reader any more: whoever ends a run must not wait for one who waits for that end. What comes is kept
    /// for the reader all the same.
    pub fn hurry(&self) {
        self.readers().for_each(|shared| shared.hurry());
    }

    /// Says to the run's own reader that nothing more comes. Subscribers hear of the next run, too.
    pub fn finish(&self) {
        if let Some(shared) = &self.reader {
            shared.finish();
        }
    }
}

impl Subscribers {
    /// Returns a stream of all events from now on, live ones too. It ends with [`Subscribers::finish`].
    #[must_use]
    pub fn subscribe(&self) -> EventStream {
        let shared = Arc::new(Shared { live: true, ..Shared::default() });
        let mut all = self.subscribed();
        if all.over {
            shared.finish();
        } else {
            all.readers.push(Arc::clone(&shared));
        }
        EventStream(shared)
    }

    /// Says that nothing more comes, ever.
    pub fn finish(&self) {
        let mut all = self.subscribed();
        all.over = true;
        all.readers.drain(..).for_each(|shared| shared.finish());
    }

    fn readers(&self) -> Vec<Arc<Shared>> {
        let mut all = self.subscribed();
        all.readers.retain(|shared| !shared.queue().reader_gone);
        all.readers.clone()
    }

    fn subscribed(&self) -> MutexGuard<'_, Subscribed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Subscribers {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Shared {
    async fn durable_event(&self, event: Envelope) {
        loop {
            let room = self.room.notified();
            {
                let mut queue = self.queue();
                if queue.reader_gone {
                    return;
                }
                if queue.durable < MAX_WAITING || queue.hurried {
                    queue.durable += 1;
                    queue.events.push_back(event);
                    queue.wake();
                    return;
                }
            }
            room.await;
        }
    }

    fn live_event(&self, event: Envelope) {
        let mut queue = self.queue();
        if queue.reader_gone {
            return;
        }
        if let (AgentEvent::BlockDelta(new), Some(last)) = (&event.event, queue.events.back_mut())
            && let AgentEvent::BlockDelta(waiting) = &mut last.event
            && waiting.index == new.index
            && waiting.kind == new.kind
        {
            waiting.text.push_str(&new.text);
            return;
        }
        if let AgentEvent::ToolProgress(new) = &event.event {
            // Several calls tell in turn; each has one line waiting at most.
            let live = queue.events.iter_mut().rev().take_while(|e| e.seq.is_none());
            for waiting in live {
                if let AgentEvent::ToolProgress(old) = &mut waiting.event
                    && old.call == new.call
                {
                    old.line.clone_from(&new.line);
                    return;
                }
            }
        }
        queue.events.push_back(event);
        queue.wake();
    }

    fn hurry(&self) {
        self.queue().hurried = true;
        self.room.notify_waiters();
    }

    fn finish(&self) {
        let mut queue = self.queue();
        queue.over = true;
        queue.wake();
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl EventStream {
    /// Returns the next event; `None` once there are no more. Not to be confused with `StreamExt::next`, which does the
    /// same.
    pub async fn next(&mut self) -> Option<Envelope> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl Stream for EventStream {
    type Item = Envelope;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Envelope>> {
        let mut queue = self.0.queue();
        match queue.events.pop_front() {
            Some(event) => {
                if event.seq.is_some() {
                    queue.durable -= 1;
                    self.0.room.notify_waiters();
                }
                Poll::Ready(Some(event))
            }
            None if queue.over => Poll::Ready(None),
            None => {
                queue.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        queue.reader_gone = true;
        queue.events.clear();
        drop(queue);
        self.0.room.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use open_agent_model::{Seq, SessionId, Timestamp};

    use super::*;
    use crate::{BlockDelta, DeltaKind, EVENT_VERSION};

    fn envelope(seq: Option<u64>, event: AgentEvent) -> Envelope {
        Envelope {
            v: EVENT_VERSION,
            seq: seq.map(Seq),
            at: Timestamp(0),
            session: SessionId::new("s").unwrap(),
            run: None,
            agent: open_agent_model::AgentId::main(),
            parent: None,
            turn: 0,
            event,
        }
    }

    fn delta(offset: usize, text: &str) -> AgentEvent {
        AgentEvent::BlockDelta(BlockDelta { index: 0, offset, kind: DeltaKind::Text, text: text.into() })
    }

    #[tokio::test]
    async fn waiting_deltas_are_joined_and_durable_events_kept() {
        let (sink, mut stream) = EventSink::live();
        sink.live_event(envelope(None, delta(0, "a")));
        sink.live_event(envelope(None, delta(1, "b")));
        sink.durable_event(envelope(Some(1), AgentEvent::Interrupted)).await;
        sink.live_event(envelope(None, delta(2, "c")));
        sink.finish();
        assert_eq!(stream.next().await.unwrap().event, delta(0, "ab"));
        assert_eq!(stream.next().await.unwrap().event, AgentEvent::Interrupted);
        assert_eq!(stream.next().await.unwrap().event, delta(2, "c"));
        assert!(stream.next().await.is_none());
    }

    #[tokio::test]
    async fn the_run_waits_for_a_slow_reader_and_not_for_one_that_left() {
        let (sink, mut stream) = EventSink::durable();
        let writer = tokio::spawn({
            let sink = sink.clone();
            async move {
                for seq in 0..MAX_WAITING as u64 * 2 {
                    sink.durable_event(envelope(Some(seq), AgentEvent::Interrupted)).await;
                }
                sink.finish();
            }
        });
        for want in 0..10 {
            assert_eq!(stream.next().await.unwrap().seq, Some(Seq(want)));
        }
        assert!(!writer.is_finished());
        drop(stream);
        writer.await.unwrap();
    }

    #[tokio::test]
    async fn subscribers_hear_all_runs_from_when_they_came() {
        let subscribers = Arc::new(Subscribers::default());
        let mut early = subscribers.subscribe();
        let (sink, mut first) = EventSink::durable();
        let sink = sink.with(&subscribers);
        sink.durable_event(envelope(Some(1), AgentEvent::Interrupted)).await;
        let mut late = subscribers.subscribe();
        assert!(sink.wants_live(), "subscribers read live events, too");
        sink.live_event(envelope(None, delta(0, "a")));
        sink.finish();
        EventSink::of(&subscribers).durable_event(envelope(Some(2), AgentEvent::Interrupted)).await;
        subscribers.finish();
        let seqs = async |stream: &mut EventStream| {
            let mut seqs = Vec::new();
            while let Some(event) = stream.next().await {
                seqs.push(event.seq.map(|seq| seq.0));
            }
            seqs
        };
        assert_eq!(seqs(&mut first).await, [Some(1)]);
        assert_eq!(seqs(&mut early).await, [Some(1), None, Some(2)]);
        assert_eq!(seqs(&mut late).await, [None, Some(2)]);
        assert!(subscribers.subscribe().next().await.is_none(), "nothing comes any more");
        drop(first);
        assert!(!sink.wants_durable(), "they are not waited for either");
    }
}
