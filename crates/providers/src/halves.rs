//! Characters that a server cut in two: an escape such as `\ud83d` alone is no JSON text, and its other half comes in the
//! next event. Owns the joining; a half that stays alone becomes U+FFFD.

/// Keeps the first half between events.
#[derive(Debug, Default)]
pub(crate) struct Halves(Option<u16>);

impl Halves {
    /// The event with its halves joined or replaced; `None` if it holds none.
    pub(crate) fn mend(&mut self, data: &[u8]) -> Option<Vec<u8>> {
        // Nearly no event holds such an escape.
        memchr::memmem::find(data, b"\\u")?;
        let mut out = Vec::with_capacity(data.len());
        let (mut at, mut changed) = (0, false);
        while let Some(byte) = data.get(at) {
            let Some(code) = escape(data, at) else {
                // Another escape is two bytes, so that an escaped backslash hides what follows it.
                let width = if *byte == b'\\' { 2 } else { 1 };
                let end = (at + width).min(data.len());
                out.extend_from_slice(data.get(at..end)?);
                at = end;
                continue;
            };
            let next = escape(data, at + 6);
            match code {
                0xD800..=0xDBFF if next.is_some_and(is_second) => {
                    out.extend_from_slice(data.get(at..at + 12)?);
                    at += 12;
                    continue;
                }
                0xD800..=0xDBFF => {
                    changed = true;
                    if self.0.replace(code).is_some() {
                        push(&mut out, char::REPLACEMENT_CHARACTER);
                    }
                }
                code if is_second(code) => {
                    changed = true;
                    let whole =
                        self.0.take().and_then(|first| char::decode_utf16([first, code]).next()?.ok());
                    push(&mut out, whole.unwrap_or(char::REPLACEMENT_CHARACTER));
                }
                _ => out.extend_from_slice(data.get(at..at + 6)?),
            }
            at += 6;
        }
        changed.then_some(out)
    }
}

/// The number of the `\uXXXX` that stands there.
fn escape(data: &[u8], at: usize) -> Option<u16> {
    let digits = data.get(at..at + 6)?.strip_prefix(b"\\u")?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

fn is_second(code: u16) -> bool {
    (0xDC00..=0xDFFF).contains(&code)
}

fn push(out: &mut Vec<u8>, c: char) {
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_joined_over_events_and_alone_replaced() {
        let mut halves = Halves::default();
        let mut mend = |text: &str| halves.mend(text.as_bytes()).map(|b| String::from_utf8(b).unwrap());
        assert_eq!(mend(r#"{"t":"a\ud83d"}"#).unwrap(), r#"{"t":"a"}"#);
        assert_eq!(mend(r#"{"t":"plain \\ud83d \ud83d\ude00"}"#), None, "whole ones and hidden ones stay");
        assert_eq!(mend(r#"{"t":"\ude00 b"}"#).unwrap(), "{\"t\":\"😀 b\"}");
        assert_eq!(mend(r#"{"t":"\ude00"}"#).unwrap(), "{\"t\":\"\u{fffd}\"}");
    }
}
