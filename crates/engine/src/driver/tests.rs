//! What is carried over from one request to the next gives the same as work from scratch, whatever happens to the
//! conversation between them.

use std::sync::Arc;

use open_agent_model::{
    Block, Message, MessageId, Messages, ModelInfo, ModelRequest, Prefix, RequestOptions, ResultBlock, Role,
    Section, Source, ToolResult, ToolUseId,
};
use proptest::prelude::*;

use super::fit::Fit;
use super::tokens::Estimator;

fn picture() -> Source {
    Source::Inline { media_type: "image/png".into(), data: "AA==".into() }
}

fn message(kind: usize, length: usize) -> Arc<Message> {
    let text = Block::Text("x".repeat(length));
    let result = |content| {
        Block::ToolResult(ToolResult { tool_use_id: ToolUseId::new("c"), content, is_error: false })
    };
    let block = match kind {
        0 => Block::Image(picture()),
        1 => Block::Document { source: Source::Url { url: "https://example.com/a.pdf".into() }, title: None },
        2 => result(vec![ResultBlock::Image { source: picture() }]),
        3 => result(vec![
            ResultBlock::text("y".repeat(length)),
            ResultBlock::Document { source: picture(), title: None },
        ]),
        _ => Block::Text("only text".into()),
    };
    let id = MessageId::from_number(1);
    Arc::new(Message { id, role: Role::User, content: vec![block, text], model: None })
}

/// What happens to a conversation between two requests.
#[derive(Clone, Debug)]
enum Op {
    Added(Vec<(usize, usize)>),
    /// Any message becomes another one: by joining, or because something is withheld from it.
    Changed(usize, usize, usize),
    Cut(usize),
    /// Goes on from an earlier request.
    Back(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let kind = || 0..8_usize;
    prop_oneof![
        3 => proptest::collection::vec((kind(), 0..50_usize), 1..40).prop_map(Op::Added),
        2 => (0..200_usize, kind(), 0..50_usize).prop_map(|(at, kind, length)| Op::Changed(at, kind, length)),
        1 => (0..200_usize).prop_map(Op::Cut),
        1 => (0..10_usize).prop_map(Op::Back),
    ]
}

fn request(messages: &Messages, prefix: &Arc<Prefix>) -> ModelRequest {
    ModelRequest {
        model: "m".into(),
        info: Arc::new(ModelInfo::unknown("m")),
        prefix: Arc::clone(prefix),
        messages: messages.clone(),
        options: RequestOptions::default(),
    }
}

fn prefix(length: usize) -> Arc<Prefix> {
    let section = Section { name: "s".into(), text: "z".repeat(length) };
    Arc::new(Prefix { system: vec![section], tools: Vec::new() })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn estimates_and_fitted_messages_are_those_of_a_fresh_start(
        ops in proptest::collection::vec(op(), 1..15),
        (vision, pdf) in proptest::sample::select(vec![(false, false), (false, true), (true, false)]),
    ) {
        let info = ModelInfo { vision: Some(vision), pdf: Some(pdf), ..ModelInfo::unknown("m") };
        let prefixes = [prefix(100), prefix(333)];
        let (mut estimator, mut fit) = (Estimator::default(), Fit::default());
        let mut messages = Messages::new();
        let mut past: Vec<(Messages, Messages)> = vec![Default::default()];
        for (n, op) in ops.into_iter().enumerate() {
            match op {
                Op::Added(new) => messages.extend(new.into_iter().map(|(kind, length)| message(kind, length))),
                Op::Changed(at, kind, length) => messages.set(at, message(kind, length)),
                Op::Cut(len) => messages.truncate(len),
                Op::Back(at) => messages = past[at % past.len()].0.clone(),
            }
            let request = request(&messages, &prefixes[n % 3 / 2]);
            prop_assert_eq!(estimator.estimate(&request), Estimator::default().estimate(&request));
            let (sent, note) = fit.media("m", &info, messages.clone());
            let mut fresh = Fit::default();
            let (fresh_sent, fresh_note) = fresh.media("m", &info, messages.clone());
            prop_assert_eq!(&sent, &fresh_sent);
            prop_assert_eq!(note, fresh_note);
            prop_assert_eq!(fit.sent_media(), fresh.sent_media());
            // What both requests share was changed once: providers keep encodings by address.
            if let Some((before, sent_before)) = past.last() {
                prop_assert!(sent.shared_with(sent_before) >= messages.shared_with(before));
            }
            past.push((messages.clone(), sent));
        }
    }
}

#[test]
fn an_estimate_counts_all_that_is_sent() {
    let messages: Messages = [message(2, 30), message(7, 60)].into_iter().collect();
    let bytes = (6_400 + 30) + ("only text".len() + 60) + 100;
    assert_eq!(Estimator::default().estimate(&request(&messages, &prefix(100))), bytes as u64 / 3);
}
