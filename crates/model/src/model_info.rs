//! What is known about one model: one type for prices, limits and abilities. The catalogue fills it, callers override it,
//! requests carry it, and providers fit requests to it.
//!
//! An ability that is not known is `None`. It is then treated as present, because a vendor's refusal can be handled
//! while a picture that was left out for nothing cannot be noticed.

use crate::{Effort, Price};

/// What is known about one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelInfo {
    /// The name that requests carry.
    pub name: String,
    /// The vendor of the model, by which its provider is chosen; empty if it is not known.
    pub vendor: String,
    /// The price. `None` means that it is not known, never that the model is free.
    pub price: Option<Price>,
    /// The size of the context window in tokens, shared by input and output. An answer is never asked to be longer than
    /// what the input leaves of it.
    pub context_tokens: Option<u64>,
    /// The largest number of output tokens of one answer.
    pub max_output_tokens: Option<u64>,
    /// The ways in which the model can be asked to think; [`ThinkingKinds::NONE`] for a model that does not think.
    pub thinking: Option<ThinkingKinds>,
    /// The efforts that the model can be asked for, lowest first; empty for a model that takes none.
    pub efforts: Option<Vec<Effort>>,
    /// Whether the model accepts pictures. Where it does not, a note is sent in the place of each picture.
    pub vision: Option<bool>,
    /// Whether the model accepts PDF documents. Where it does not, a note is sent in the place of each document.
    pub pdf: Option<bool>,
    /// Whether pictures and documents may stand inside tool results. Where they may not, they follow the results.
    pub media_in_results: Option<bool>,
}

/// The ways in which a model can be asked to think.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThinkingKinds {
    /// It can decide by itself how long it thinks.
    pub adaptive: bool,
    /// It accepts a budget of tokens.
    pub budget: bool,
    /// It can be told not to think.
    pub off: bool,
}

impl ThinkingKinds {
    /// A model that does not think.
    pub const NONE: Self = Self { adaptive: false, budget: false, off: false };
    /// A model that can be asked in every way.
    pub const ALL: Self = Self { adaptive: true, budget: true, off: true };
    /// A model that thinks within a budget of tokens, or not at all.
    pub const BUDGET: Self = Self { adaptive: false, budget: true, off: true };

    /// Whether the model can think at all.
    #[must_use]
    pub fn thinks(self) -> bool {
        self.adaptive || self.budget
    }
}

impl ModelInfo {
    /// A model of which nothing but its name is known.
    #[must_use]
    pub fn unknown(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            vendor: String::new(),
            price: None,
            context_tokens: None,
            max_output_tokens: None,
            thinking: None,
            efforts: None,
            vision: None,
            pdf: None,
            media_in_results: None,
        }
    }

    /// Fills what is not known here with what `other` knows. The name stays.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            name: self.name,
            vendor: if self.vendor.is_empty() { other.vendor } else { self.vendor },
            price: self.price.or(other.price),
            context_tokens: self.context_tokens.or(other.context_tokens),
            max_output_tokens: self.max_output_tokens.or(other.max_output_tokens),
            thinking: self.thinking.or(other.thinking),
            efforts: self.efforts.or(other.efforts),
            vision: self.vision.or(other.vision),
            pdf: self.pdf.or(other.pdf),
            media_in_results: self.media_in_results.or(other.media_in_results),
        }
    }

    /// The effort to ask for when `wish` is wanted: the highest one that is not above it, else the lowest one there is.
    /// `None` if the model takes no effort; `wish` itself if its efforts are not known.
    #[must_use]
    pub fn nearest_effort(&self, wish: Effort) -> Option<Effort> {
        match &self.efforts {
            None => Some(wish),
            Some(known) => {
                known.iter().copied().filter(|e| *e <= wish).max().or_else(|| known.iter().copied().min())
            }
        }
    }

    /// The name as people write it: `claude-sonnet-4-6` is "Claude Sonnet 4.6".
    #[must_use]
    pub fn display_name(&self) -> String {
        let is_number = |part: &str| part.bytes().all(|b| b.is_ascii_digit()) && part.len() < 4;
        let mut name = String::new();
        let mut last_is_number = false;
        for part in self.name.split(['-', '_', '/']).filter(|part| !part.is_empty()) {
            let number = is_number(part);
            if !name.is_empty() {
                name.push(if number && last_is_number { '.' } else { ' ' });
            }
            let mut letters = part.chars();
            name.extend(letters.next().map(|first| first.to_ascii_uppercase()));
            name.push_str(letters.as_str());
            last_is_number = number;
        }
        name
    }

    /// The window and the abilities that are known, in a few words.
    #[must_use]
    pub fn description(&self) -> String {
        let window = self.context_tokens.map(|n| format!("{n} tokens of context"));
        let thinks = self.thinking.is_some_and(ThinkingKinds::thinks);
        let can = [
            (thinks, "thinks"),
            (self.vision == Some(true), "sees pictures"),
            (self.pdf == Some(true), "reads PDFs"),
        ];
        let can = can.into_iter().filter(|(able, _)| *able).map(|(_, word)| word.to_owned());
        window.into_iter().chain(can).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effort_is_fitted_to_those_there_are() {
        let of = |efforts: Option<&[Effort]>, wish| {
            ModelInfo { efforts: efforts.map(<[_]>::to_vec), ..ModelInfo::unknown("m") }.nearest_effort(wish)
        };
        assert_eq!(of(None, Effort::Max), Some(Effort::Max));
        assert_eq!(of(Some(&[]), Effort::Max), None);
        assert_eq!(of(Some(&[Effort::Low, Effort::High]), Effort::Max), Some(Effort::High));
        assert_eq!(of(Some(&[Effort::Low, Effort::High]), Effort::Medium), Some(Effort::Low));
        assert_eq!(of(Some(&[Effort::High]), Effort::Low), Some(Effort::High));
    }
}
