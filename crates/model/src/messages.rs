//! The list of a conversation's messages. Copies share their beginning, and two lists can be compared without walking what
//! they share, so that work on a conversation can go on where it stopped at the request before.

use std::fmt;
use std::ops::Index;
use std::sync::Arc;

use crate::Message;

/// The number of messages in a chunk.
const CHUNK: usize = 32;

/// Messages that will not change any more. Their address stands for their content: a list that differs in one of them has
/// another chunk.
pub type Chunk = Arc<[Arc<Message>]>;

/// A list of messages. Copying it copies at most 63 pointers, however long it is.
///
/// The list is kept in two parts: *chunks* of 32 messages each, which copies share, and a *tail* that holds the rest. Chunks
/// begin at multiples of 32, and the tail of a list that has chunks holds at least 32 messages, so that a change near the
/// end never touches a chunk. A change further back replaces the chunk in which it lies and no other.
///
/// Whoever works through a conversation at each request (a validator, an estimate, an encoder) keeps the list of the last
/// time and asks [`Messages::shared_with`] where the new one departs from it.
///
/// # Examples
///
/// ```
/// # use std::sync::Arc;
/// # use open_agent_model::{Message, MessageId, Messages};
/// let message = |n| Arc::new(Message::user(MessageId::from_number(n), "hello"));
/// let before: Messages = (0..100).map(message).collect();
/// let mut now = before.clone();
/// now.push(message(100));
/// assert_eq!(now.shared_with(&before), 100);
/// assert_eq!(now.since(100).count(), 1);
/// now.set(40, message(40));
/// assert_eq!(now.shared_with(&before), 40);
/// ```
#[derive(Clone, Default)]
pub struct Messages {
    chunks: Arc<Vec<Chunk>>,
    tail: Vec<Arc<Message>>,
}

impl Messages {
    /// Returns an empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of messages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.chunks.len() * CHUNK + self.tail.len()
    }

    /// Returns true if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tail.is_empty()
    }

    /// Returns the first message.
    #[must_use]
    pub fn first(&self) -> Option<&Arc<Message>> {
        self.get(0)
    }

    /// Returns the last message.
    #[must_use]
    pub fn last(&self) -> Option<&Arc<Message>> {
        self.tail.last()
    }

    /// Returns message `at`, counted from 0.
    #[must_use]
    pub fn get(&self, at: usize) -> Option<&Arc<Message>> {
        match self.chunks.get(at / CHUNK) {
            Some(chunk) => chunk.get(at % CHUNK),
            None => self.tail.get(at - self.chunks.len() * CHUNK),
        }
    }

    /// Returns all messages in order.
    #[must_use]
    pub fn iter(&self) -> MessagesIter<'_> {
        self.since(0)
    }

    /// Returns the messages from `first` on, without walking those before it.
    #[must_use]
    pub fn since(&self, first: usize) -> MessagesIter<'_> {
        MessagesIter { list: self, front: first.min(self.len()), back: self.len() }
    }

    /// Returns the number of messages at the beginning that are the same `Arc`s in both lists. Walks no chunk that both
    /// share.
    #[must_use]
    pub fn shared_with(&self, other: &Self) -> usize {
        let chunks = self.chunks.iter().zip(other.chunks.iter());
        let first = chunks.take_while(|(one, two)| Arc::ptr_eq(one, two)).count() * CHUNK;
        let is_same = |at: &usize| match (self.get(*at), other.get(*at)) {
            (Some(one), Some(two)) => Arc::ptr_eq(one, two),
            _ => false,
        };
        first + (first..self.len()).take_while(is_same).count()
    }

    /// Returns the chunks. They hold the list's beginning; what follows is [`Messages::tail`].
    #[must_use]
    pub fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// Returns the messages that are in no chunk: at most 63, and at least 32 if there are chunks.
    #[must_use]
    pub fn tail(&self) -> &[Arc<Message>] {
        &self.tail
    }

    /// Adds a message at the end.
    pub fn push(&mut self, message: Arc<Message>) {
        self.tail.push(message);
        if self.tail.len() >= 2 * CHUNK {
            let chunk: Chunk = self.tail.drain(..CHUNK).collect();
            Arc::make_mut(&mut self.chunks).push(chunk);
        }
    }

    /// Puts a message in the place of message `at`. Does nothing if there is none.
    pub fn set(&mut self, at: usize, message: Arc<Message>) {
        let behind = self.chunks.len() * CHUNK;
        if at >= behind {
            if let Some(place) = self.tail.get_mut(at - behind) {
                *place = message;
            }
        } else if let Some(chunk) = Arc::make_mut(&mut self.chunks).get_mut(at / CHUNK) {
            let mut changed = chunk.to_vec();
            if let Some(place) = changed.get_mut(at % CHUNK) {
                *place = message;
            }
            *chunk = changed.into();
        }
    }

    /// Keeps the first `len` messages. Does nothing if there are no more.
    pub fn truncate(&mut self, len: usize) {
        // As if only these had been pushed.
        let chunks = (len / CHUNK).saturating_sub(1);
        let first = chunks * CHUNK;
        if chunks < self.chunks.len() {
            self.tail = (first..len).filter_map(|at| self.get(at).cloned()).collect();
            Arc::make_mut(&mut self.chunks).truncate(chunks);
        } else {
            self.tail.truncate(len.saturating_sub(self.chunks.len() * CHUNK));
        }
    }

    /// Copies the list into a vector.
    #[must_use]
    pub fn to_vec(&self) -> Vec<Arc<Message>> {
        self.iter().cloned().collect()
    }
}

/// Iterates over a list of messages, from both ends.
#[derive(Clone, Debug)]
pub struct MessagesIter<'a> {
    list: &'a Messages,
    front: usize,
    back: usize,
}

impl<'a> MessagesIter<'a> {
    fn visit(&self, at: usize) -> Option<&'a Arc<Message>> {
        #[cfg(feature = "scripted")]
        crate::visits::count();
        self.list.get(at)
    }
}

impl<'a> Iterator for MessagesIter<'a> {
    type Item = &'a Arc<Message>;
    fn next(&mut self) -> Option<&'a Arc<Message>> {
        if self.front >= self.back {
            return None;
        }
        self.front += 1;
        self.visit(self.front - 1)
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.back - self.front;
        (left, Some(left))
    }
}

impl DoubleEndedIterator for MessagesIter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.front >= self.back {
            return None;
        }
        self.back -= 1;
        self.visit(self.back)
    }
}

impl ExactSizeIterator for MessagesIter<'_> {}

impl<'a> IntoIterator for &'a Messages {
    type Item = &'a Arc<Message>;
    type IntoIter = MessagesIter<'a>;
    fn into_iter(self) -> MessagesIter<'a> {
        self.iter()
    }
}

impl FromIterator<Arc<Message>> for Messages {
    fn from_iter<I: IntoIterator<Item = Arc<Message>>>(messages: I) -> Self {
        let mut list = Self::new();
        list.extend(messages);
        list
    }
}

impl Extend<Arc<Message>> for Messages {
    fn extend<I: IntoIterator<Item = Arc<Message>>>(&mut self, messages: I) {
        messages.into_iter().for_each(|message| self.push(message));
    }
}

impl From<Vec<Arc<Message>>> for Messages {
    fn from(messages: Vec<Arc<Message>>) -> Self {
        messages.into_iter().collect()
    }
}

impl Index<usize> for Messages {
    type Output = Arc<Message>;
    /// # Panics
    ///
    /// Panics if there is no message `at`, as a slice does.
    fn index(&self, at: usize) -> &Arc<Message> {
        let behind = self.chunks.len() * CHUNK;
        if at < behind { &self.chunks[at / CHUNK][at % CHUNK] } else { &self.tail[at - behind] }
    }
}

impl PartialEq for Messages {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other)
    }
}

impl fmt::Debug for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::MessageId;

    fn message(n: usize) -> Arc<Message> {
        Arc::new(Message::user(MessageId::from_number(n as u128), "x"))
    }

    fn list(len: usize) -> Messages {
        (0..len).map(message).collect()
    }

    #[derive(Clone, Debug)]
    enum Op {
        Push(usize),
        Set(usize),
        SetLast,
        Truncate(usize),
        /// Goes on with the list as it was at an earlier moment.
        Back(usize),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            4 => (1..70_usize).prop_map(Op::Push),
            2 => (0..200_usize).prop_map(Op::Set),
            1 => Just(Op::SetLast),
            1 => (0..200_usize).prop_map(Op::Truncate),
            1 => (0..10_usize).prop_map(Op::Back),
        ]
    }

    fn shared(one: &[Arc<Message>], two: &[Arc<Message>]) -> usize {
        one.iter().zip(two).take_while(|(one, two)| Arc::ptr_eq(one, two)).count()
    }

    fn assert_is(list: &Messages, plain: &[Arc<Message>]) {
        assert_eq!(list.len(), plain.len());
        assert_eq!(list.is_empty(), plain.is_empty());
        assert!((0..plain.len() + 70).all(|at| list.get(at) == plain.get(at)));
        assert!((0..plain.len()).all(|at| Arc::ptr_eq(&list[at], &plain[at])));
        assert_eq!((list.first(), list.last()), (plain.first(), plain.last()));
        for from in [0, 1, 31, 32, 33, 64, 65, plain.len(), plain.len() + 1, usize::MAX] {
            assert!(list.since(from).eq(plain.get(from..).unwrap_or_default()), "since {from}");
        }
        assert!(list.iter().rev().eq(plain.iter().rev()));
        let parts = list.chunks().iter().flat_map(|chunk| chunk.iter()).chain(list.tail());
        assert!(parts.eq(plain));
        assert!(list.chunks().iter().all(|chunk| chunk.len() == CHUNK));
        assert!(list.tail().len() < 2 * CHUNK && (list.chunks().is_empty() || list.tail().len() >= CHUNK));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn it_is_a_list_whatever_is_done_to_it(ops in proptest::collection::vec(op(), 1..20)) {
            let (mut now, mut plain) = (Messages::new(), Vec::new());
            let mut past: Vec<(Messages, Vec<Arc<Message>>)> = vec![(now.clone(), Vec::new())];
            for (n, op) in ops.into_iter().enumerate() {
                match op {
                    Op::Push(count) => for i in 0..count {
                        let new = message(n * 1000 + i);
                        plain.push(Arc::clone(&new));
                        now.push(new);
                    },
                    Op::Set(at) => {
                        let new = message(n * 1000);
                        if let Some(place) = plain.get_mut(at) {
                            *place = Arc::clone(&new);
                        }
                        now.set(at, new);
                    }
                    Op::SetLast => if let Some(last) = plain.last_mut() {
                        *last = message(n * 1000);
                        now.set(now.len() - 1, Arc::clone(last));
                    },
                    Op::Truncate(len) => {
                        plain.truncate(len);
                        now.truncate(len);
                    }
                    Op::Back(at) => (now, plain) = past[at % past.len()].clone(),
                }
                assert_is(&now, &plain);
                past.push((now.clone(), plain.clone()));
            }
            for (list, as_vec) in &past {
                assert_is(list, as_vec);
                prop_assert_eq!(now.shared_with(list), shared(&plain, as_vec));
                prop_assert_eq!(list.shared_with(&now), shared(&plain, as_vec));
            }
        }
    }

    #[test]
    fn a_change_replaces_one_chunk_and_an_end_that_changes_none() {
        let before = list(200);
        let mut now = before.clone();
        now.set(199, message(1));
        now.push(message(2));
        let same = |now: &Messages| {
            now.chunks().iter().zip(before.chunks()).map(|(a, b)| Arc::ptr_eq(a, b)).collect::<Vec<_>>()
        };
        assert_eq!(same(&now), [true; 5]);
        now.set(40, message(3));
        assert_eq!(same(&now), [true, false, true, true, true]);
        assert_eq!(before.get(40), Some(&message(40)), "the copy keeps what it had");
    }
}
