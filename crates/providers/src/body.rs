//! The fields by which a JSON object that holds no content says what it is: an error, in one of many forms, or an answer
//! of another API. Owns the one list of these fields; what they mean is the matter of those who read them.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::wire::Text;

/// The fields that tell errors and APIs apart. Fields of which only some servers make a text are kept as they came.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Body<'a> {
    #[serde(borrow, rename = "type")]
    pub(crate) kind: Text<'a>,
    #[serde(borrow)]
    pub(crate) object: Text<'a>,
    #[serde(borrow)]
    pub(crate) error: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) errors: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) detail: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) base_resp: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) message: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) msg: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) error_msg: Text<'a>,
    #[serde(borrow)]
    pub(crate) status_msg: Text<'a>,
    #[serde(borrow)]
    pub(crate) code: Text<'a>,
    #[serde(borrow)]
    pub(crate) error_code: Text<'a>,
    #[serde(borrow)]
    pub(crate) status_code: Text<'a>,
    #[serde(borrow)]
    pub(crate) status: Text<'a>,
    #[serde(borrow)]
    pub(crate) request_id: Text<'a>,
    #[serde(borrow)]
    pub(crate) choices: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) delta: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) done: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) response: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) candidates: Option<&'a RawValue>,
}

impl<'a> Body<'a> {
    /// Reads an object; `None` if it is none.
    pub(crate) fn read(json: &'a str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }
}

/// A field as a text, empty if it is none.
pub(crate) fn text(field: Option<&RawValue>) -> Text<'_> {
    field.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

/// The first item of a list, for some servers put a single object into one; `json` itself if it is no list.
pub(crate) fn first_of_list(json: &str) -> &str {
    let first = serde_json::from_str::<Vec<&RawValue>>(json).ok().and_then(|list| list.first().copied());
    first.map_or(json, RawValue::get)
}
