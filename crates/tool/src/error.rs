//! A tool's failure. It speaks to two: a kind and a text for the model, a source for the operator. It is deliberately no
//! `std::error::Error`, so that `?` takes any error.

use std::error::Error;
use std::fmt;

/// The longest text of a foreign error that a model sees.
const MAX_FOREIGN: usize = 2_000;

/// Why a call failed.
pub struct ToolError {
    kind: ToolErrorKind,
    text: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// Kinds of tool failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolErrorKind {
    /// The input makes no sense.
    BadInput,
    /// It did not work.
    Failed,
    /// It took too long.
    TimedOut,
    /// The run was interrupted.
    Cancelled,
    /// A question waits for its answer; the call runs again once it is there. Only [`crate::ToolCx::ask`] makes it.
    Suspended,
}

/// Says that a question has no answer yet. Only [`crate::ToolCx::ask`] makes it; pass it on with `?`.
#[derive(Debug)]
pub struct Suspended(pub(crate) ());

impl ToolError {
    /// A failure, in words for the model.
    pub fn new(text: impl Into<String>) -> Self {
        Self { kind: ToolErrorKind::Failed, text: text.into(), source: None }
    }

    /// A failure because of the input, in words for the model.
    pub fn bad_input(text: impl Into<String>) -> Self {
        Self { kind: ToolErrorKind::BadInput, text: text.into(), source: None }
    }

    /// The same failure as another kind. A call cannot be suspended this way.
    #[must_use]
    pub fn with_kind(mut self, kind: ToolErrorKind) -> Self {
        if kind != ToolErrorKind::Suspended {
            self.kind = kind;
        }
        self
    }

    /// Adds the cause, for the operator.
    #[must_use]
    pub fn with_source(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Box::new(source));
        self
    }

    /// What kind.
    #[must_use]
    pub fn kind(&self) -> ToolErrorKind {
        self.kind
    }

    /// The words for the model.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The cause, for the operator.
    #[must_use]
    pub fn source(&self) -> Option<&(dyn Error + Send + Sync)> {
        self.source.as_deref()
    }
}

impl fmt::Debug for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolError")
            .field("kind", &self.kind)
            .field("text", &self.text)
            .field("source", &self.source)
            .finish()
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for ToolError {
    /// The error's own text, bounded; the whole error is kept for the operator.
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        if text.len() > MAX_FOREIGN {
            let end = text.floor_char_boundary(MAX_FOREIGN);
            text.truncate(end);
            text.push('…');
        }
        Self { kind: ToolErrorKind::Failed, text, source: Some(Box::new(error)) }
    }
}

impl From<Suspended> for ToolError {
    fn from(_: Suspended) -> Self {
        Self { kind: ToolErrorKind::Suspended, text: String::new(), source: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_errors_are_bounded_and_kept() {
        let error: ToolError = std::io::Error::other("é".repeat(5_000)).into();
        assert!(error.text().len() <= MAX_FOREIGN + 3);
        assert_eq!(error.source().unwrap().to_string().chars().count(), 5_000);
        assert_eq!(ToolError::new("x").with_kind(ToolErrorKind::Suspended).kind(), ToolErrorKind::Failed);
    }
}
