//! Questions that an agent puts to a person or program, and their answers.

use serde::{Deserialize, Serialize};

use crate::{Open, RawJson};

/// A question, or several that are asked together.
///
/// # Examples
///
/// ```
/// use open_agent_model::Question;
///
/// let question = Question::choice("Which branch?", ["main", "release"]);
/// assert_eq!(question.items[0].options[1].label, "release");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// What kind of question it is, so that a user interface can show it fittingly.
    pub kind: Open<QuestionKind>,
    /// What is asked, at least one item.
    pub items: Vec<QuestionItem>,
    /// Structured data for a user interface, for example a diff or a JSON Schema of the wanted answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<RawJson>,
}

/// Kinds of questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionKind {
    /// A tool needs something that only a person can tell.
    Input,
}

/// One thing that is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuestionItem {
    /// The question in full.
    pub text: String,
    /// A title of a few words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// Answers to choose from; without any, the answer is a free text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<QuestionOption>,
    /// Several options may be chosen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub multi: bool,
}

/// An answer to choose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuestionOption {
    /// What is chosen, a few words; unique within its item.
    pub label: String,
    /// What choosing it means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What it would look like, for example code or a diagram.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<String>,
}

/// The answer to a [`Question`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The options that were chosen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chosen: Vec<Chosen>,
    /// A free text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Structured data, in the form that the question's data asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<RawJson>,
    /// Who answered, for the record: for example `user`, or the name of a program.
    pub by: String,
}

/// An option that was chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chosen {
    /// The item, from 0.
    pub item: u16,
    /// The option's label.
    pub label: String,
}

impl Question {
    /// Asks for a free text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::choice(text, [""; 0])
    }

    /// Asks to choose one of `labels`.
    #[must_use]
    pub fn choice<S: Into<String>>(text: impl Into<String>, labels: impl IntoIterator<Item = S>) -> Self {
        let option = |label: S| QuestionOption { label: label.into(), description: None, preview: None };
        let options = labels.into_iter().map(option).collect();
        let item = QuestionItem { text: text.into(), header: None, options, multi: false };
        Self { kind: QuestionKind::Input.into(), items: vec![item], data: None }
    }

    /// Returns the texts of all items, a line each.
    #[must_use]
    pub fn to_text(&self) -> String {
        self.items.iter().map(|item| item.text.as_str()).collect::<Vec<_>>().join("\n")
    }
}

impl Answer {
    /// A free text from the user.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), by: "user".into(), ..Self::default() }
    }

    /// The user's choice of one option of the first item.
    #[must_use]
    pub fn choice(label: impl Into<String>) -> Self {
        Self { chosen: vec![Chosen { item: 0, label: label.into() }], by: "user".into(), ..Self::default() }
    }

    /// Returns the answer as one text: the chosen labels, then the free text, joined by `, `.
    #[must_use]
    pub fn to_text(&self) -> String {
        let labels = self.chosen.iter().map(|chosen| chosen.label.as_str());
        labels.chain(self.text.as_deref()).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_as_text() {
        assert_eq!(Answer::text("yes").to_text(), "yes");
        let both = Answer { text: Some("and more".into()), ..Answer::choice("main") };
        assert_eq!(both.to_text(), "main, and more");
        assert_eq!(Question::choice("a?", ["x"]).to_text(), "a?");
        assert!(Question::text("a?").items[0].options.is_empty());
    }
}
