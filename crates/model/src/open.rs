//! Words that describe and do not decide. A later version may add some; this one keeps what it does not know.

use std::fmt;
use std::sync::Arc;

use serde::de::IntoDeserializer;
use serde::de::value::Error as ValueError;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One of a list of words that may grow: a word of the list, or one that this version does not know, kept as it was
/// written.
///
/// Stored records use it for enums that only *describe* (the kind of a notice, the origin of a message). Enums that
/// *decide* what happens next are stored bare: a word that this version does not know must stop it.
///
/// # Examples
///
/// ```
/// use open_agent_model::{Layer, Open};
///
/// let known: Open<Layer> = serde_json::from_str(r#""mode""#).unwrap();
/// assert_eq!(known, Layer::Mode);
/// let later: Open<Layer> = serde_json::from_str(r#""quorum""#).unwrap();
/// assert_eq!(later.known(), None);
/// assert_eq!(serde_json::to_string(&later).unwrap(), r#""quorum""#);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Open<T> {
    /// A word of this version's list.
    Known(T),
    /// A word of a later version, as it was written.
    Unknown(Arc<str>),
}

impl<T> Open<T> {
    /// Returns the word if this version knows it.
    #[must_use]
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(word) => Some(word),
            Self::Unknown(_) => None,
        }
    }
}

impl<T: Default> Default for Open<T> {
    fn default() -> Self {
        Self::Known(T::default())
    }
}

impl<T> From<T> for Open<T> {
    fn from(word: T) -> Self {
        Self::Known(word)
    }
}

impl<T: PartialEq> PartialEq<T> for Open<T> {
    fn eq(&self, other: &T) -> bool {
        self.known() == Some(other)
    }
}

impl<T: fmt::Display> fmt::Display for Open<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(word) => word.fmt(f),
            Self::Unknown(word) => f.write_str(word),
        }
    }
}

impl<T: Serialize> Serialize for Open<T> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Known(word) => word.serialize(s),
            Self::Unknown(word) => s.serialize_str(word),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Open<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let word = Arc::<str>::deserialize(d)?;
        let of_list: Result<T, ValueError> = T::deserialize(word.to_string().into_deserializer());
        Ok(of_list.map_or(Self::Unknown(word), Self::Known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Colour {
        DarkRed,
    }

    #[test]
    fn known_and_unknown_words_are_written_back_as_they_came() {
        for text in [r#""dark_red""#, r#""ultra \" violet""#, r#""""#] {
            let word: Open<Colour> = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&word).unwrap(), text);
            assert_eq!(word == Colour::DarkRed, text.contains("dark_red"));
        }
        assert!(serde_json::from_str::<Open<Colour>>("7").is_err(), "a number is no word");
    }
}
