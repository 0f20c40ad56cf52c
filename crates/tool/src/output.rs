//! What a call gives back.

use open_agent_model::{Change, Provenance, RawJson, ResultBlock};
use serde::Serialize;

use crate::ToolErrorKind;

/// A call's answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolOutput {
    /// For the model.
    pub content: Vec<ResultBlock>,
    /// For a user interface: the same in structured form.
    pub details: Option<RawJson>,
    /// The call failed, in a way that has more to say than [`crate::ToolError`].
    pub is_error: bool,
    /// The kind of failure, if it failed; `None` for one that has no kind of its own. The log keeps it as the call's outcome.
    pub error_kind: Option<ToolErrorKind>,
    /// What changes in the session.
    pub changes: Vec<Change>,
    /// Whether the text comes from someone whom the user trusts. A tool that brings text from elsewhere, such as a web page,
    /// says that it is untrusted.
    pub provenance: Provenance,
}

impl ToolOutput {
    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![ResultBlock::text(text)], ..Self::default() }
    }

    /// Adds structured details. What cannot be rendered is left out: the model's part is what counts.
    #[must_use]
    pub fn with_details<T: Serialize>(mut self, details: &T) -> Self {
        self.details = RawJson::of(details).ok();
        self
    }

    /// Adds a change.
    #[must_use]
    pub fn with_change(mut self, change: Change) -> Self {
        self.changes.push(change);
        self
    }

    /// Marks it as failed in this way.
    #[must_use]
    pub fn as_error_of(mut self, kind: ToolErrorKind) -> Self {
        self.error_kind = Some(kind);
        self.as_error()
    }

    /// Marks it as failed.
    #[must_use]
    pub fn as_error(mut self) -> Self {
        self.is_error = true;
        self
    }
}

impl From<String> for ToolOutput {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<&str> for ToolOutput {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<()> for ToolOutput {
    fn from((): ()) -> Self {
        Self::default()
    }
}
