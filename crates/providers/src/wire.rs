//! Scalars and lists as servers really send them: null, missing, a number for a text, one thing for a list. Owns the
//! tolerance for single fields, so that no odd field can fail a whole frame. Knows no vendor.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

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

fn skip_seq<'de, A: SeqAccess<'de>>(mut seq: A) -> Result<(), A::Error> {
    while seq.next_element::<IgnoredAny>()?.is_some() {}
    Ok(())
}

fn skip_map<'de, A: MapAccess<'de>>(mut map: A) -> Result<(), A::Error> {
    while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
    Ok(())
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }
    fn visit_borrowed_str<E>(self, v: &'de str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Borrowed(v)))
    }
    fn visit_str<E>(self, v: &str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(v.to_owned())))
    }
    fn visit_unit<E>(self) -> Result<Text<'de>, E> {
        Ok(Text::default())
    }
    fn visit_bool<E>(self, _: bool) -> Result<Text<'de>, E> {
        Ok(Text::default())
    }
    fn visit_u64<E>(self, v: u64) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(v.to_string())))
    }
    fn visit_i64<E>(self, v: i64) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(v.to_string())))
    }
    fn visit_f64<E>(self, v: f64) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(v.to_string())))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Text<'de>, A::Error> {
        skip_seq(seq).map(|()| Text::default())
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Text<'de>, A::Error> {
        skip_map(map).map(|()| Text::default())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(TextVisitor)
    }
}

/// A count. Anything that is no number is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Num(pub(crate) Option<u64>);

struct NumVisitor;

impl<'de> Visitor<'de> for NumVisitor {
    type Value = Num;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a count")
    }
    fn visit_u64<E>(self, v: u64) -> Result<Num, E> {
        Ok(Num(Some(v)))
    }
    fn visit_i64<E>(self, v: i64) -> Result<Num, E> {
        Ok(Num(u64::try_from(v).ok()))
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates, and counts are far below 2^53"
    )]
    fn visit_f64<E>(self, v: f64) -> Result<Num, E> {
        Ok(Num((v >= 0.0).then_some(v as u64)))
    }
    fn visit_str<E>(self, v: &str) -> Result<Num, E> {
        Ok(Num(v.trim().parse().ok()))
    }
    fn visit_unit<E>(self) -> Result<Num, E> {
        Ok(Num(None))
    }
    fn visit_bool<E>(self, _: bool) -> Result<Num, E> {
        Ok(Num(None))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Num, A::Error> {
        skip_seq(seq).map(|()| Num(None))
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Num, A::Error> {
        skip_map(map).map(|()| Num(None))
    }
}

impl<'de> Deserialize<'de> for Num {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(NumVisitor)
    }
}

/// A list. Null and anything else that is no list is empty.
#[derive(Clone, Debug)]
pub(crate) struct Many<T>(pub(crate) Vec<T>);

impl<T> Default for Many<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

struct ManyVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ManyVisitor<T> {
    type Value = Many<T>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Many<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = seq.next_element::<Option<T>>()? {
            list.extend(item);
        }
        Ok(Many(list))
    }
    fn visit_unit<E>(self) -> Result<Many<T>, E> {
        Ok(Many::default())
    }
    fn visit_str<E>(self, _: &str) -> Result<Many<T>, E> {
        Ok(Many::default())
    }
    fn visit_bool<E>(self, _: bool) -> Result<Many<T>, E> {
        Ok(Many::default())
    }
    fn visit_u64<E>(self, _: u64) -> Result<Many<T>, E> {
        Ok(Many::default())
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Many<T>, A::Error> {
        skip_map(map).map(|()| Many::default())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Many<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(ManyVisitor(PhantomData))
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

struct PartsVisitor;

impl<'de> Visitor<'de> for PartsVisitor {
    type Value = Parts<'de>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a list of parts")
    }
    fn visit_borrowed_str<E>(self, v: &'de str) -> Result<Parts<'de>, E> {
        Ok(Parts::One(Text(Cow::Borrowed(v))))
    }
    fn visit_str<E>(self, v: &str) -> Result<Parts<'de>, E> {
        Ok(Parts::One(Text(Cow::Owned(v.to_owned()))))
    }
    fn visit_unit<E>(self) -> Result<Parts<'de>, E> {
        Ok(Parts::default())
    }
    fn visit_bool<E>(self, _: bool) -> Result<Parts<'de>, E> {
        Ok(Parts::default())
    }
    fn visit_u64<E>(self, _: u64) -> Result<Parts<'de>, E> {
        Ok(Parts::default())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Parts<'de>, A::Error> {
        ManyVisitor(PhantomData).visit_seq(seq).map(|many| Parts::Many(many.0))
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Parts<'de>, A::Error> {
        skip_map(map).map(|()| Parts::default())
    }
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

impl<'de: 'a, 'a> Deserialize<'de> for Parts<'a> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(PartsVisitor)
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
    }

    #[test]
    fn nothing_odd_fails() {
        for odd in ["null", "true", "3", "-3", "3.5", "\"x\"", "\"\\n\"", "[null]", "{\"a\":[{}]}"] {
            let text = format!(r#"{{"t":{odd},"n":{odd},"m":{odd},"p":{odd}}}"#);
            let out: Result<All<'_>, _> = serde_json::from_str(&text);
            // A negative or broken number cannot be a list.
            assert!(out.is_ok() || odd.contains(['-', '.']), "{odd}: {:?}", out.err());
        }
    }

    #[test]
    fn texts_are_borrowed_and_parts_filtered() {
        let text = r#"{"t":"abc","n":7,"m":[1,null,2],"p":[{"type":"text","text":"a"},{"type":"new"},{"text":"b"}]}"#;
        let all: All<'_> = serde_json::from_str(text).unwrap();
        assert!(matches!(all.t.0, Cow::Borrowed("abc")));
        assert_eq!((all.n.0, all.m.0.len()), (Some(7), 2));
        assert_eq!(all.p.texts().collect::<String>(), "ab");
    }
}
