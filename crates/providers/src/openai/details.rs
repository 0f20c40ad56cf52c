//! Structured thinking (`reasoning_details`) that comes in pieces. Owns putting them together again, for the vendor wants
//! back whole entries; entries that we do not know stay as they came.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::wire::Text;

#[derive(Default)]
pub(crate) struct Details(Vec<Entry>);

enum Entry {
    Known(Detail),
    Raw(String),
}

/// An entry whose text comes in pieces.
#[derive(Serialize)]
struct Detail {
    #[serde(rename = "type")]
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signature: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<Box<RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Piece<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow)]
    text: Text<'a>,
    #[serde(borrow)]
    summary: Text<'a>,
    #[serde(borrow)]
    signature: Text<'a>,
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    format: Text<'a>,
    index: Option<Box<RawValue>>,
}

impl Details {
    pub(crate) fn push(&mut self, raw: &str) {
        let piece = match serde_json::from_str::<Piece<'_>>(raw) {
            Ok(piece) if matches!(piece.kind.as_str(), "reasoning.text" | "reasoning.summary") => piece,
            _ => return self.0.push(Entry::Raw(raw.to_owned())),
        };
        let index = |i: &Option<Box<RawValue>>| i.as_ref().map(|r| r.get().to_owned());
        if let Some(Entry::Known(last)) = self.0.last_mut()
            && last.kind == piece.kind.as_str()
            && index(&last.index) == index(&piece.index)
        {
            append(&mut last.text, piece.text);
            append(&mut last.summary, piece.summary);
            append(&mut last.signature, piece.signature);
            last.id = piece.id.some().or(last.id.take());
            last.format = piece.format.some().or(last.format.take());
            return;
        }
        self.0.push(Entry::Known(Detail {
            kind: piece.kind.0.into_owned(),
            text: piece.text.some(),
            summary: piece.summary.some(),
            signature: piece.signature.some(),
            id: piece.id.some(),
            format: piece.format.some(),
            index: piece.index,
        }));
    }

    /// All entries, whole, as JSON.
    pub(crate) fn take(&mut self) -> Vec<String> {
        let json = |entry| match entry {
            Entry::Known(detail) => serde_json::to_string(&detail).ok(),
            Entry::Raw(raw) => Some(raw),
        };
        std::mem::take(&mut self.0).into_iter().filter_map(json).collect()
    }
}

fn append(text: &mut Option<String>, more: Text<'_>) {
    if let Some(more) = more.some() {
        text.get_or_insert_default().push_str(&more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_become_whole_entries() {
        let mut details = Details::default();
        details.push(r#"{"type":"reasoning.text","text":"a","format":"f","index":0}"#);
        details.push(r#"{"type":"reasoning.text","text":"b","index":0}"#);
        details.push(r#"{"type":"reasoning.text","signature":"s","index":0}"#);
        details.push(r#"{"type":"reasoning.encrypted","data":"x","index":1}"#);
        assert_eq!(
            details.take(),
            [
                r#"{"type":"reasoning.text","text":"ab","signature":"s","format":"f","index":0}"#,
                r#"{"type":"reasoning.encrypted","data":"x","index":1}"#,
            ]
        );
        assert!(details.take().is_empty());
    }
}
