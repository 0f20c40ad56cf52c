//! The check of requests that belong to one conversation. Owns what was found valid; the rules are those of
//! [`ModelRequest::check`].

use std::collections::HashSet;
use std::sync::Arc;

use crate::check::check_message;
use crate::{Invalid, Messages, ModelRequest, Prefix, ToolUseId};

/// Checks the requests of a conversation one after the other, as [`ModelRequest::check`] does, and does not walk again what
/// the request before shares with the next.
///
/// A conversation that is no continuation of the one before is checked from where they differ, so that any request can be
/// given to any checker.
#[derive(Clone, Debug, Default)]
pub struct Checker {
    /// The messages of the last valid request.
    valid: Messages,
    /// The ids of their calls.
    used: HashSet<ToolUseId>,
    /// The last valid list of tools, with the system prompt.
    prefix: Option<Arc<Prefix>>,
}

impl Checker {
    /// Returns the verdict of [`ModelRequest::check`].
    ///
    /// # Errors
    ///
    /// Returns the first fault of the request.
    pub fn check(&mut self, request: &ModelRequest) -> Result<(), Invalid> {
        if self.check_new(request).is_ok() {
            return Ok(());
        }
        // The whole check says which fault is the first one.
        *self = Self::default();
        request.check()
    }

    fn check_new(&mut self, request: &ModelRequest) -> Result<(), Invalid> {
        request.check_head()?;
        request.check_ends()?;
        if !self.prefix.as_ref().is_some_and(|known| Arc::ptr_eq(known, &request.prefix)) {
            request.check_tools()?;
            self.prefix = Some(Arc::clone(&request.prefix));
        }
        let messages = &request.messages;
        let known = self.valid.shared_with(messages);
        for gone in self.valid.since(known) {
            gone.tool_uses().for_each(|call| _ = self.used.remove(&call.id));
        }
        let mut before = known.checked_sub(1).and_then(|at| messages.get(at));
        for (at, message) in (known..).zip(messages.since(known)) {
            if before.is_some_and(|before| before.role == message.role) {
                return Err(Invalid::SameRole(at - 1));
            }
            check_message(at, before.map(|before| &**before), message, &mut self.used)?;
            before = Some(message);
        }
        self.valid = messages.clone();
        request.check_end()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        Block, Message, MessageId, ModelInfo, RawJson, RequestOptions, ResultBlock, Role, ToolResult,
        ToolSpec, ToolUse,
    };

    fn text(text: &str) -> Block {
        Block::Text(text.into())
    }

    fn call(id: &str) -> Block {
        let (id, name) = (ToolUseId::new(id), "Read".into());
        Block::ToolUse(ToolUse { id, name, input: RawJson::object(), broken: None })
    }

    fn result(id: &str) -> Block {
        let (tool_use_id, content) = (ToolUseId::new(id), vec![ResultBlock::text("x")]);
        Block::ToolResult(ToolResult { tool_use_id, content, is_error: false })
    }

    fn message(role: Role, content: Vec<Block>) -> Arc<Message> {
        Arc::new(Message { id: MessageId::from_number(1), role, content, model: None })
    }

    fn request(messages: &Messages) -> ModelRequest {
        ModelRequest {
            model: "m".into(),
            info: Arc::new(ModelInfo::unknown("m")),
            prefix: Arc::new(Prefix::default()),
            messages: messages.clone(),
            options: RequestOptions::default(),
        }
    }

    /// What happens to a conversation between two requests.
    #[derive(Clone, Debug)]
    enum Op {
        /// An answer with so many calls and their results, `times` over.
        Turns { calls: usize, times: usize },
        /// A text joins the last message.
        Joined,
        /// An answer without calls, and the next prompt.
        Prompt,
        /// Any message anywhere becomes another one that is as valid.
        Withheld(usize),
        /// Everything before this message is replaced by a summary.
        Compacted(usize),
        /// The conversation goes on from an earlier request.
        Back(usize),
        /// Something is wrong; the conversation goes on without it afterwards.
        Fault(Fault, usize),
    }

    #[derive(Clone, Copy, Debug)]
    enum Fault {
        Removed,
        Repeated,
        Emptied,
        IdOfAnother,
        ResultsSwapped,
        IllegalId,
        OpenCall,
    }

    fn op() -> impl Strategy<Value = Op> {
        use Fault::{Emptied, IdOfAnother, IllegalId, OpenCall, Removed, Repeated, ResultsSwapped};
        let faults = [Removed, Repeated, Emptied, IdOfAnother, ResultsSwapped, IllegalId, OpenCall];
        let fault = (proptest::sample::select(faults.to_vec()), 0..400_usize);
        prop_oneof![
            4 => (0..4_usize, 1..40_usize).prop_map(|(calls, times)| Op::Turns { calls, times }),
            2 => Just(Op::Joined),
            2 => Just(Op::Prompt),
            2 => (0..400_usize).prop_map(Op::Withheld),
            1 => (0..400_usize).prop_map(Op::Compacted),
            2 => (0..10_usize).prop_map(Op::Back),
            3 => fault.prop_map(|(fault, at)| Op::Fault(fault, at)),
        ]
    }

    fn join(messages: &mut Messages, at: usize, block: Block) {
        let mut joined = Message::clone(&messages[at]);
        joined.content.push(block);
        messages.set(at, Arc::new(joined));
    }

    fn turn(messages: &mut Messages, calls: usize, ids: &mut usize) {
        let of = |make: fn(&str) -> Block| (0..calls).map(|i| make(&format!("c{}", *ids + i))).collect();
        let (mut answer, mut results): (Vec<Block>, Vec<Block>) = (of(call), of(result));
        answer.push(text("a"));
        if calls == 0 {
            results.push(text("go on"));
        }
        *ids += calls;
        messages.push(message(Role::Assistant, answer));
        messages.push(message(Role::User, results));
    }

    fn broken(messages: &Messages, fault: Fault, at: usize) -> Messages {
        let mut list = messages.to_vec();
        let at = at % list.len();
        let mut changed = Message::clone(&list[at]);
        match fault {
            Fault::Removed => _ = list.remove(at),
            Fault::Repeated => list.insert(at, Arc::clone(&messages[at])),
            Fault::Emptied => {
                changed.content.clear();
                list[at] = Arc::new(changed);
            }
            Fault::IdOfAnother | Fault::IllegalId => {
                let id = if matches!(fault, Fault::IllegalId) { "a b" } else { "c0" };
                for block in &mut changed.content {
                    match block {
                        Block::ToolUse(_) => *block = call(id),
                        Block::ToolResult(_) => *block = result(id),
                        _ => {}
                    }
                }
                list[at] = Arc::new(changed);
            }
            Fault::ResultsSwapped => {
                changed.content.reverse();
                list[at] = Arc::new(changed);
            }
            Fault::OpenCall => {
                list.push(message(Role::Assistant, vec![call("open")]));
            }
        }
        list.into()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn the_verdict_is_that_of_the_whole_check(ops in proptest::collection::vec(op(), 1..20)) {
            let (mut checker, mut ids) = (Checker::default(), 0);
            let mut messages: Messages = [message(Role::User, vec![text("go")])].into_iter().collect();
            let mut past = vec![messages.clone()];
            for op in ops {
                match op {
                    Op::Turns { calls, times } => (0..times).for_each(|_| turn(&mut messages, calls, &mut ids)),
                    Op::Joined => {
                        let last = messages.len() - 1;
                        join(&mut messages, last, text("more"));
                    }
                    Op::Prompt => turn(&mut messages, 0, &mut ids),
                    Op::Withheld(at) => {
                        let at = at % messages.len();
                        join(&mut messages, at, text("withheld"));
                    }
                    Op::Compacted(at) => {
                        // An even place is a user's message; one that holds results cannot be the first.
                        let kept = messages.since(at % messages.len() / 2 * 2 + 1);
                        let summary = message(Role::User, vec![text("summary")]);
                        messages = std::iter::once(summary).chain(kept.cloned()).collect();
                    }
                    Op::Back(at) => messages = past[at % past.len()].clone(),
                    Op::Fault(fault, at) => {
                        let mut request = request(&broken(&messages, fault, at));
                        request.options.resumes_pause = at % 2 == 0;
                        prop_assert_eq!(checker.check(&request), request.check());
                    }
                }
                let request = request(&messages);
                prop_assert_eq!(request.check(), Ok(()), "the test itself");
                prop_assert_eq!(checker.check(&request), Ok(()));
                past.push(messages.clone());
            }
        }
    }

    #[test]
    fn what_stands_beside_the_messages_is_checked_each_time() {
        let mut checker = Checker::default();
        let good = request(&[message(Role::User, vec![text("go")])].into_iter().collect());
        let spec = |name: &str| ToolSpec {
            name: name.into(),
            description: String::new(),
            input_schema: RawJson::object(),
        };
        let tools = |tools| Arc::new(Prefix { system: vec![], tools });
        let mut cases = vec![good.clone(); 5];
        cases[0].model = " ".into();
        cases[1].options.max_tokens = 0;
        cases[2].prefix = tools(vec![spec("a"), spec("a")]);
        cases[3].prefix = tools(vec![spec("a.b")]);
        cases[4].messages = Messages::new();
        for bad in cases {
            assert_eq!(checker.check(&good), Ok(()));
            assert!(bad.check().is_err());
            assert_eq!(checker.check(&bad), bad.check());
            assert_eq!(checker.check(&bad), bad.check(), "and once more");
        }
    }

    #[test]
    fn an_id_is_free_again_when_the_call_that_had_it_is_gone() {
        let mut checker = Checker::default();
        let mut messages: Messages = [message(Role::User, vec![text("go")])].into_iter().collect();
        turn(&mut messages, 2, &mut 0);
        assert_eq!(checker.check(&request(&messages)), Ok(()));
        messages.truncate(1);
        turn(&mut messages, 2, &mut 0);
        assert_eq!(checker.check(&request(&messages)), Ok(()));
        turn(&mut messages, 1, &mut 0);
        assert_eq!(checker.check(&request(&messages)), Err(Invalid::RepeatedToolUseId("c0".into())));
    }

    #[test]
    fn what_a_refused_request_lacked_is_not_forgotten() {
        let mut checker = Checker::default();
        let mut messages: Messages = [message(Role::User, vec![text("go")])].into_iter().collect();
        turn(&mut messages, 1, &mut 0);
        assert_eq!(checker.check(&request(&messages)), Ok(()));
        let mut refused = messages.clone();
        refused.truncate(1);
        refused.push(message(Role::Assistant, vec![text(" ")]));
        refused.push(message(Role::User, vec![text("go on")]));
        assert_eq!(checker.check(&request(&refused)), Err(Invalid::EmptyBlock { message: 1, block: 0 }));
        turn(&mut messages, 1, &mut 0);
        assert_eq!(checker.check(&request(&messages)), Err(Invalid::RepeatedToolUseId("c0".into())));
    }

    #[cfg(feature = "scripted")]
    #[test]
    fn only_what_is_new_is_looked_at() {
        let (mut checker, mut ids) = (Checker::default(), 0);
        let mut messages: Messages = [message(Role::User, vec![text("go")])].into_iter().collect();
        let mut looked_at = |messages: &Messages| {
            let request = request(messages);
            let before = crate::visits();
            assert_eq!(checker.check(&request), Ok(()));
            crate::visits() - before
        };
        assert_eq!(looked_at(&messages), 1);
        for _ in 0..1_000 {
            turn(&mut messages, 1, &mut ids);
            assert_eq!(looked_at(&messages), 2);
        }
        join(&mut messages, 2_000, text("more"));
        assert_eq!(looked_at(&messages), 2, "the last message, and what it was before");
        join(&mut messages, 1_000, text("withheld"));
        assert_eq!(looked_at(&messages), 2 * 1_001, "what follows a changed message, before and after");
    }
}
