//! Whether a request is valid for every vendor. Owns invariant 4: roles alternate, each tool use is answered exactly
//! once and in order, nothing is empty, nothing is orphaned.

use std::collections::HashSet;

use crate::{Block, Message, ModelRequest, Role, ToolUseId, is_legal_name};

/// What is wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// The model's name is empty.
    #[error("the model name is empty")]
    NoModel,
    /// `max_tokens` is 0.
    #[error("max_tokens is 0")]
    NoOutput,
    /// There is no message.
    #[error("there is no message")]
    NoMessages,
    /// The first message is not the user's.
    #[error("the first message is not the user's")]
    FirstNotUser,
    /// The last message is the model's.
    #[error("the last message is not the user's")]
    LastNotUser,
    /// Two messages of one role follow each other.
    #[error("messages {0} and {next} have the same role", next = .0 + 1)]
    SameRole(usize),
    /// A message has no content.
    #[error("message {0} is empty")]
    EmptyMessage(usize),
    /// A block has no content.
    #[error("message {message}, block {block} is empty")]
    EmptyBlock {
        /// Which message.
        message: usize,
        /// Which block.
        block: usize,
    },
    /// A block refers to a blob whose content nobody has read.
    #[error("message {message}, block {block} refers to a blob that was not read")]
    UnreadBlob {
        /// Which message.
        message: usize,
        /// Which block.
        block: usize,
    },
    /// A block stands in a message of the wrong role, or a result after other content.
    #[error("message {message}, block {block} must not stand there")]
    MisplacedBlock {
        /// Which message.
        message: usize,
        /// Which block.
        block: usize,
    },
    /// The results do not answer the calls before them one by one and in order.
    #[error("message {message}: results for {got:?}, calls were {want:?}")]
    Unpaired {
        /// Which message.
        message: usize,
        /// The calls.
        want: Vec<String>,
        /// The results.
        got: Vec<String>,
    },
    /// A call's id is not legal.
    #[error("tool use id {0:?} is not legal")]
    BadToolUseId(String),
    /// Two calls have one id.
    #[error("tool use id {0:?} is used twice")]
    RepeatedToolUseId(String),
    /// A call's input is no object.
    #[error("the input of tool use {0:?} is not an object")]
    InputNotObject(String),
    /// A tool's name or schema is not legal.
    #[error("tool {0:?} has an illegal name or schema")]
    BadTool(String),
    /// Two tools have one name.
    #[error("tool {0:?} is declared twice")]
    RepeatedTool(String),
}

impl ModelRequest {
    /// Checks whether every vendor would accept the request's shape. Walks the whole conversation; a
    /// [`Checker`](crate::Checker) gives the same verdict on the next request of a conversation and walks what is new.
    ///
    /// # Errors
    ///
    /// Returns the first fault.
    pub fn check(&self) -> Result<(), Invalid> {
        self.check_head()?;
        self.check_tools()?;
        self.check_roles()?;
        let mut used = HashSet::new();
        let mut before = None;
        for (at, message) in self.messages.iter().enumerate() {
            check_message(at, before, message, &mut used)?;
            before = Some(&**message);
        }
        self.check_end()
    }

    pub(crate) fn check_head(&self) -> Result<(), Invalid> {
        if self.model.trim().is_empty() {
            return Err(Invalid::NoModel);
        }
        if self.options.max_tokens == 0 {
            return Err(Invalid::NoOutput);
        }
        Ok(())
    }

    pub(crate) fn check_tools(&self) -> Result<(), Invalid> {
        let mut names = HashSet::new();
        for tool in &self.prefix.tools {
            if !is_legal_name(&tool.name) || !tool.input_schema.is_object() {
                return Err(Invalid::BadTool(tool.name.clone()));
            }
            if !names.insert(tool.name.as_str()) {
                return Err(Invalid::RepeatedTool(tool.name.clone()));
            }
        }
        Ok(())
    }

    fn check_roles(&self) -> Result<(), Invalid> {
        self.check_ends()?;
        let mut before = None;
        for (at, message) in self.messages.iter().enumerate() {
            if before.replace(message.role) == Some(message.role) {
                return Err(Invalid::SameRole(at - 1));
            }
        }
        Ok(())
    }

    /// Checks the roles of the first and the last message.
    pub(crate) fn check_ends(&self) -> Result<(), Invalid> {
        let (Some(first), Some(last)) = (self.messages.first(), self.messages.last()) else {
            return Err(Invalid::NoMessages);
        };
        if first.role != Role::User {
            return Err(Invalid::FirstNotUser);
        }
        if last.role != Role::User && !self.options.resumes_pause {
            return Err(Invalid::LastNotUser);
        }
        Ok(())
    }

    /// Checks that no call is left without a result.
    pub(crate) fn check_end(&self) -> Result<(), Invalid> {
        let want = self.messages.last().map(|last| call_ids(last)).unwrap_or_default();
        if want.is_empty() {
            Ok(())
        } else {
            Err(Invalid::Unpaired { message: self.messages.len(), want, got: Vec::new() })
        }
    }
}

/// Checks all of a message but its role, with the message before it. `used` holds the ids of the calls before and takes
/// those of this message.
pub(crate) fn check_message(
    at: usize,
    before: Option<&Message>,
    message: &Message,
    used: &mut HashSet<ToolUseId>,
) -> Result<(), Invalid> {
    check_blocks(at, message)?;
    let wanted = before.into_iter().flat_map(Message::tool_uses).map(|call| &call.id);
    if !wanted.eq(results(message)) {
        let want = before.map(call_ids).unwrap_or_default();
        let got = results(message).map(|id| id.as_str().to_owned()).collect();
        return Err(Invalid::Unpaired { message: at, want, got });
    }
    for call in message.tool_uses() {
        let id = || call.id.as_str().to_owned();
        if !call.id.is_legal() {
            return Err(Invalid::BadToolUseId(id()));
        }
        if !call.input.is_object() {
            return Err(Invalid::InputNotObject(id()));
        }
        if !used.insert(call.id.clone()) {
            return Err(Invalid::RepeatedToolUseId(id()));
        }
    }
    Ok(())
}

fn call_ids(message: &Message) -> Vec<String> {
    message.tool_uses().map(|call| call.id.as_str().to_owned()).collect()
}

fn check_blocks(at: usize, message: &Message) -> Result<(), Invalid> {
    if message.content.is_empty() {
        return Err(Invalid::EmptyMessage(at));
    }
    let mut results_over = false;
    for (i, block) in message.content.iter().enumerate() {
        let place =
            |ok: bool| if ok { Ok(()) } else { Err(Invalid::MisplacedBlock { message: at, block: i }) };
        let full = |ok: bool| if ok { Ok(()) } else { Err(Invalid::EmptyBlock { message: at, block: i }) };
        match block {
            Block::Text(text) => full(!text.trim().is_empty())?,
            Block::Thinking(t) => {
                place(message.role == Role::Assistant)?;
                full(!t.text.is_empty() || t.signature.is_some() || t.details.is_some())?;
            }
            Block::RedactedThinking { data } => {
                place(message.role == Role::Assistant)?;
                full(!data.is_empty())?;
            }
            Block::ToolUse(_) => place(message.role == Role::Assistant)?,
            Block::ToolResult(_) => place(message.role == Role::User && !results_over)?,
            Block::Image(_) | Block::Document { .. } | Block::Opaque { .. } => {}
        }
        if block.blobs().any(|used| used.blob().content().is_none()) {
            return Err(Invalid::UnreadBlob { message: at, block: i });
        }
        results_over |= !matches!(block, Block::ToolResult(_));
    }
    Ok(())
}

fn results(message: &Message) -> impl Iterator<Item = &ToolUseId> {
    message.content.iter().filter_map(|block| match block {
        Block::ToolResult(result) => Some(&result.tool_use_id),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        MessageId, Prefix, RawJson, RequestOptions, ResultBlock, ToolResult, ToolSpec, ToolUse, ToolUseId,
    };

    fn call(id: &str) -> Block {
        Block::ToolUse(ToolUse {
            id: ToolUseId::new(id),
            name: "Read".into(),
            input: RawJson::object(),
            broken: None,
        })
    }

    fn result(id: &str) -> Block {
        Block::ToolResult(ToolResult {
            tool_use_id: ToolUseId::new(id),
            content: vec![ResultBlock::text("x")],
            is_error: false,
        })
    }

    fn text(t: &str) -> Block {
        Block::Text(t.into())
    }

    fn request(messages: Vec<(Role, Vec<Block>)>) -> ModelRequest {
        let message = |(role, content)| Message { id: MessageId::from_number(1), role, content, model: None };
        ModelRequest {
            model: "m".into(),
            info: Arc::new(crate::ModelInfo::unknown("m")),
            prefix: Arc::new(Prefix::default()),
            messages: messages.into_iter().map(message).map(Arc::new).collect(),
            options: RequestOptions::default(),
        }
    }

    #[test]
    fn a_paired_conversation_is_valid() {
        use Role::{Assistant, User};
        let ok = request(vec![
            (User, vec![text("go")]),
            (Assistant, vec![text("a"), call("1"), call("2")]),
            (User, vec![result("1"), result("2"), text("and")]),
        ]);
        assert_eq!(ok.check(), Ok(()));
    }

    #[test]
    fn each_fault_is_named() {
        use Role::{Assistant, User};
        let go = || (User, vec![text("go")]);
        let cases: Vec<(ModelRequest, &str)> = vec![
            (request(vec![]), "there is no message"),
            (request(vec![(Assistant, vec![text("a")])]), "first message"),
            (request(vec![go(), (Assistant, vec![text("a")])]), "last message"),
            (request(vec![go(), go()]), "same role"),
            (request(vec![(User, vec![])]), "message 0 is empty"),
            (request(vec![(User, vec![text(" \n")])]), "block 0 is empty"),
            (request(vec![go(), (Assistant, vec![call("1")]), go()]), "results for"),
            (request(vec![(User, vec![result("1")])]), "results for"),
            (
                request(vec![
                    go(),
                    (Assistant, vec![call("1"), call("2")]),
                    (User, vec![result("2"), result("1")]),
                ]),
                "results for",
            ),
            (
                request(vec![
                    go(),
                    (Assistant, vec![call("1")]),
                    (User, vec![result("1")]),
                    (Assistant, vec![call("1")]),
                    (User, vec![result("1")]),
                ]),
                "used twice",
            ),
            (
                request(vec![go(), (Assistant, vec![call("1")]), (User, vec![text("x"), result("1")])]),
                "must not stand",
            ),
            (request(vec![go(), (Assistant, vec![call("a b")]), (User, vec![result("a b")])]), "not legal"),
            (request(vec![(User, vec![call("1")])]), "must not stand"),
        ];
        for (request, want) in cases {
            let error = request.check().unwrap_err().to_string();
            assert!(error.contains(want), "{error} / {want}");
        }
    }

    #[test]
    fn tools_need_legal_and_different_names() {
        let spec = |name: &str| ToolSpec {
            name: name.into(),
            description: String::new(),
            input_schema: RawJson::object(),
        };
        let mut r = request(vec![(Role::User, vec![text("go")])]);
        r.prefix = Arc::new(Prefix { system: vec![], tools: vec![spec("a"), spec("a")] });
        assert_eq!(r.check(), Err(Invalid::RepeatedTool("a".into())));
        r.prefix = Arc::new(Prefix { system: vec![], tools: vec![spec("a.b")] });
        assert_eq!(r.check(), Err(Invalid::BadTool("a.b".into())));
    }
}
