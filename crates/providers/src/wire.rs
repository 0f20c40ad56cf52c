//! Fields as servers really send them: null, missing, a number for a text, a text for an object. Owns the tolerance for
//! single fields, so that no odd field can fail a whole frame. Knows no vendor.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Number;
use serde_json::value::RawValue;

/// No answer has more tokens than this: a greater count is a mistake.
const MOST: f64 = 1e12;
/// How deep `plain` and `says_something` look.
const DEEP: u8 = 32;

/// What a field makes of each kind of JSON. A kind that it does not take leaves it absent, as null does.
trait Field<'de>: Default {
    const WANTED: &'static str;
    fn text(_: Cow<'de, str>) -> Self {
        absent("a text")
    }
    fn number(_: Number) -> Self {
        absent("a number")
    }
    fn list<A: SeqAccess<'de>>(mut seq: A) -> Result<Self, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(absent("a list"))
    }
    fn object<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(absent("an object"))
    }
}

struct Reader<F>(PhantomData<F>);

impl<'de, F: Field<'de>> Visitor<'de> for Reader<F> {
    type Value = F;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(F::WANTED)
    }
    fn visit_borrowed_str<E>(self, v: &'de str) -> Result<F, E> {
        Ok(F::text(Cow::Borrowed(v)))
    }
    fn visit_str<E>(self, v: &str) -> Result<F, E> {
        Ok(F::text(Cow::Owned(v.to_owned())))
    }
    fn visit_u64<E>(self, v: u64) -> Result<F, E> {
        Ok(F::number(v.into()))
    }
    fn visit_i64<E>(self, v: i64) -> Result<F, E> {
        Ok(F::number(v.into()))
    }
    fn visit_f64<E>(self, v: f64) -> Result<F, E> {
        Ok(Number::from_f64(v).map_or_else(|| absent("a number"), F::number))
    }
    fn visit_bool<E>(self, _: bool) -> Result<F, E> {
        Ok(absent("true or false"))
    }
    fn visit_unit<E>(self) -> Result<F, E> {
        Ok(F::default())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<F, A::Error> {
        F::list(seq)
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<F, A::Error> {
        F::object(map)
    }
}

#[cold]
fn absent<'de, F: Field<'de>>(came: &str) -> F {
    tracing::debug!(came, wanted = F::WANTED, "an odd part of an event is skipped");
    F::default()
}

/// A text, borrowed where it holds no escapes. Anything that is neither text nor number is the empty text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Text<'a>(pub(crate) Cow<'a, str>);

impl Text<'_> {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text, unless it is empty.
    pub(crate) fn some(self) -> Option<String> {
        if self.0.is_empty() { None } else { Some(self.0.into_owned()) }
    }
}

impl<'de> Field<'de> for Text<'de> {
    const WANTED: &'static str = "a text";
    fn text(text: Cow<'de, str>) -> Self {
        Self(text)
    }
    fn number(number: Number) -> Self {
        Self(Cow::Owned(number.to_string()))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(Reader::<Text<'de>>(PhantomData))
    }
}

/// A count. Anything that no counting gives is none: less than nothing, more than there can be, words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Num(pub(crate) Option<u64>);

impl<'de> Field<'de> for Num {
    const WANTED: &'static str = "a count";
    fn text(text: Cow<'de, str>) -> Self {
        text.trim().parse().ok().and_then(Self::of).unwrap_or_else(|| absent("another text"))
    }
    fn number(number: Number) -> Self {
        number.as_f64().and_then(Self::of).unwrap_or_else(|| absent("another number"))
    }
}

impl Num {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range is checked, and up to its end each whole number is exact"
    )]
    fn of(number: f64) -> Option<Self> {
        (0.0..=MOST).contains(&number).then_some(Self(Some(number as u64)))
    }
}

impl<'de> Deserialize<'de> for Num {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(Reader::<Self>(PhantomData))
    }
}

/// An object; anything else is none.
#[derive(Clone, Debug)]
pub(crate) struct Maybe<T>(pub(crate) Option<T>);

impl<T> Default for Maybe<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: Deserialize<'de>> Field<'de> for Maybe<T> {
    const WANTED: &'static str = "an object";
    fn object<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(|object| Self(Some(object)))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Maybe<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(Reader::<Self>(PhantomData))
    }
}

/// A list of anything. What is no list is empty.
#[derive(Clone, Debug)]
pub(crate) struct Many<T>(pub(crate) Vec<T>);

impl<T> Default for Many<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Field<'de> for Many<T> {
    const WANTED: &'static str = "a list";
    fn list<A: SeqAccess<'de>>(mut seq: A) -> Result<Self, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = seq.next_element::<Option<T>>()? {
            list.extend(item);
        }
        Ok(Self(list))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Many<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(Reader::<Self>(PhantomData))
    }
}

/// A list of objects; one object alone is a list of one. What is neither is empty.
#[derive(Clone, Debug)]
pub(crate) struct Objects<T>(pub(crate) Vec<T>);

impl<T> Default for Objects<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Field<'de> for Objects<T> {
    const WANTED: &'static str = "a list of objects";
    fn list<A: SeqAccess<'de>>(mut seq: A) -> Result<Self, A::Error> {
        let mut list = Vec::new();
        while let Some(Maybe(item)) = seq.next_element()? {
            list.extend(item);
        }
        Ok(Self(list))
    }
    fn object<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(|object| Self(vec![object]))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Objects<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(Reader::<Self>(PhantomData))
    }
}

/// Text that comes as a string or as a list of parts. Parts of unknown types are dropped.
#[derive(Clone, Debug)]
pub(crate) enum Parts<'a> {
    One(Text<'a>),
    Many(Vec<Part<'a>>),
}

impl Default for Parts<'_> {
    fn default() -> Self {
        Self::One(Text::default())
    }
}

/// One part.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Part<'a> {
    #[serde(borrow, rename = "type")]
    pub(crate) kind: Text<'a>,
    #[serde(borrow)]
    pub(crate) text: Text<'a>,
}

impl Parts<'_> {
    /// The texts, in order.
    pub(crate) fn texts(self) -> impl Iterator<Item = String> {
        let (one, many) = match self {
            Self::One(text) => (text.some(), Vec::new()),
            Self::Many(parts) => (None, parts),
        };
        let known = |p: &Part<'_>| matches!(p.kind.as_str(), "" | "text" | "output_text");
        one.into_iter().chain(many.into_iter().filter(known).filter_map(|p| p.text.some()))
    }
}

impl<'de> Field<'de> for Parts<'de> {
    const WANTED: &'static str = "a text or a list of parts";
    fn text(text: Cow<'de, str>) -> Self {
        Self::One(Text(text))
    }
    fn list<A: SeqAccess<'de>>(seq: A) -> Result<Self, A::Error> {
        Objects::list(seq).map(|parts| Self::Many(parts.0))
    }
    fn object<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        Objects::object(map).map(|parts| Self::Many(parts.0))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Parts<'a> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(Reader::<Parts<'de>>(PhantomData))
    }
}

/// An object's fields as they came, in their order.
#[derive(Default)]
pub(crate) struct Fields<'a>(pub(crate) Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Field<'de> for Fields<'de> {
    const WANTED: &'static str = "an object";
    fn object<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let mut fields = Vec::new();
        while let Some((key, value)) = map.next_entry::<Text<'de>, &'de RawValue>()? {
            fields.push((key.0, value));
        }
        Ok(Self(fields))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(Reader::<Fields<'de>>(PhantomData))
    }
}

/// The fields as an object's text.
pub(crate) fn object<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut out = String::from("{");
    for (key, value) in fields {
        if out.len() > 1 {
            out.push(',');
        }
        out.push_str(&serde_json::Value::from(key).to_string());
        out.push(':');
        out.push_str(value);
    }
    out.push('}');
    out
}

/// The same JSON without what fails our readers though it is JSON: of a key that is there twice the last counts, and a
/// number beyond all range is null.
pub(crate) fn plain(json: &str) -> String {
    plain_within(json.trim_ascii(), DEEP)
}

fn plain_within(json: &str, depth: u8) -> String {
    match json.as_bytes().first() {
        Some(b'{') if depth > 0 => {
            let Fields(fields) = serde_json::from_str(json).unwrap_or_default();
            let mut seen = HashSet::new();
            let mut kept: Vec<(&str, String)> = fields
                .iter()
                .rev()
                .filter(|(key, _)| seen.insert(key.as_ref()))
                .map(|(key, value)| (key.as_ref(), plain_within(value.get(), depth - 1)))
                .collect();
            kept.reverse();
            object(kept.iter().map(|(key, value)| (*key, value.as_str())))
        }
        Some(b'[') if depth > 0 => {
            let items: Vec<&RawValue> = serde_json::from_str(json).unwrap_or_default();
            let items: Vec<String> = items.iter().map(|i| plain_within(i.get(), depth - 1)).collect();
            format!("[{}]", items.join(","))
        }
        Some(b'-' | b'0'..=b'9') if !json.parse::<f64>().is_ok_and(f64::is_finite) => "null".to_owned(),
        _ => json.to_owned(),
    }
}

/// Whether there is anything in it. Null, false, 0, what is empty and what holds nothing else say nothing.
pub(crate) fn says_something(json: &RawValue) -> bool {
    says_within(json, DEEP)
}

fn says_within(json: &RawValue, depth: u8) -> bool {
    let text = json.get();
    match text.as_bytes().first() {
        Some(b'{') if depth > 0 => {
            let fields: Fields<'_> = serde_json::from_str(text).unwrap_or_default();
            fields.0.iter().any(|(_, value)| says_within(value, depth - 1))
        }
        Some(b'[') if depth > 0 => {
            let items: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
            items.iter().any(|item| says_within(item, depth - 1))
        }
        Some(b'-' | b'0'..=b'9') => text.parse::<f64>().is_ok_and(|n| n != 0.0),
        _ => !matches!(text, "null" | "false" | "\"\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize, Default)]
    #[serde(default)]
    struct All<'a> {
        #[serde(borrow)]
        t: Text<'a>,
        n: Num,
        m: Many<Num>,
        #[serde(borrow)]
        p: Parts<'a>,
        #[serde(borrow)]
        o: Maybe<Part<'a>>,
        #[serde(borrow)]
        l: Objects<Part<'a>>,
    }

    #[test]
    fn nothing_odd_fails() {
        for odd in ["null", "true", "3", "-3", "3.5", "\"x\"", "\"\\n\"", "[null,1]", "{\"a\":[{}]}"] {
            let text = format!(r#"{{"t":{odd},"n":{odd},"m":{odd},"p":{odd},"o":{odd},"l":{odd}}}"#);
            let all: All<'_> = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{odd}: {e}"));
            assert_eq!(all.o.0.is_some(), odd.starts_with('{'), "{odd}");
            assert_eq!(all.l.0.len(), usize::from(odd.starts_with('{')), "{odd}");
        }
    }

    #[test]
    fn texts_are_borrowed_and_parts_filtered() {
        let text = r#"{"t":"abc","n":7,"m":[1,null,2],"p":[{"type":"text","text":"a"},{"type":"new"},{"text":"b"}]}"#;
        let all: All<'_> = serde_json::from_str(text).unwrap();
        assert!(matches!(all.t.0, Cow::Borrowed("abc")));
        assert_eq!((all.n.0, all.m.0.len()), (Some(7), 2));
        assert_eq!(all.p.texts().collect::<String>(), "ab");
        let alone: All<'_> = serde_json::from_str(r#"{"p":{"type":"text","text":"a"}}"#).unwrap();
        assert_eq!(alone.p.texts().collect::<String>(), "a");
    }

    #[test]
    fn a_count_that_makes_no_sense_is_none() {
        for (text, want) in [
            ("7", Some(7)),
            ("7.0", Some(7)),
            ("1.5e3", Some(1500)),
            ("\" 7 \"", Some(7)),
            ("\"7.0\"", Some(7)),
            ("0", Some(0)),
            ("-1", None),
            ("-0.5", None),
            ("1e30", None),
            ("18446744073709551615", None),
            ("\"many\"", None),
            ("\"NaN\"", None),
            ("true", None),
        ] {
            assert_eq!(serde_json::from_str::<Num>(text).unwrap().0, want, "{text}");
        }
    }

    #[test]
    fn json_that_fails_readers_is_made_plain() {
        let odd = r#"{"a":1, "b":[{"x":1,"x":2},1e999, "1e999"], "a": 1.0e2}"#;
        assert_eq!(plain(odd), r#"{"b":[{"x":2},null,"1e999"],"a":1.0e2}"#);
        let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
        assert_eq!(plain(&deep), deep);
    }

    #[test]
    fn what_is_empty_all_through_says_nothing() {
        let says = |text: &str| says_something(serde_json::from_str(text).unwrap());
        for empty in ["null", "false", "0", "0.0", "\"\"", "[]", "{}", r#"{"a":null,"b":[{"c":""}]}"#] {
            assert!(!says(empty), "{empty}");
        }
        for full in ["true", "1", "\"x\"", "[1]", r#"{"a":null,"b":{"c":"x"}}"#] {
            assert!(says(full), "{full}");
        }
    }
}
