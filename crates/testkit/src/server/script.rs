//! What a server answers. Owns the order of replies.

use crate::server::{Recorded, Reply};

type Choose = dyn Fn(usize, &Recorded) -> Option<Reply> + Send + Sync;

/// Replies to requests for an answer, in order, or a function that makes them. Token counts are no such requests.
pub struct Script(Box<Choose>);

impl Script {
    /// One reply a request. More requests than replies are a violation.
    #[must_use]
    pub fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        let replies: Vec<Reply> = replies.into_iter().collect();
        Self(Box::new(move |turn, _| replies.get(turn).cloned()))
    }

    /// The same reply to each request.
    #[must_use]
    pub fn always(reply: Reply) -> Self {
        Self(Box::new(move |_, _| Some(reply.clone())))
    }

    /// Asks `choose` with the number of requests before and the request.
    #[must_use]
    pub fn from_fn(choose: impl Fn(usize, &Recorded) -> Reply + Send + Sync + 'static) -> Self {
        Self(Box::new(move |turn, request| Some(choose(turn, request))))
    }

    pub(super) fn reply(&self, turn: usize, request: &Recorded) -> Option<Reply> {
        (self.0)(turn, request)
    }
}
