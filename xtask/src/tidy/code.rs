//! A Rust file with comments and literals blanked out, so that a rule looks at code only; and which lines are tests.
//! It is a scanner for files that compile, no parser: enough for word searches and for counting braces.

use std::ops::Range;

pub(super) struct Code {
    /// As long as the file, byte for byte; comments, contents of literals and non-ASCII bytes are blanks.
    pub(super) text: String,
    tests: Vec<Range<usize>>,
}

impl Code {
    pub(super) fn read(source: &str, all_tests: bool) -> Code {
        let text = blank(source.as_bytes());
        let tests = if all_tests { std::iter::once(0..text.len()).collect() } else { test_ranges(&text) };
        Code { text, tests }
    }

    pub(super) fn is_test(&self, at: usize) -> bool {
        self.tests.iter().any(|range| range.contains(&at))
    }

    pub(super) fn line(&self, at: usize) -> usize {
        self.text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1
    }

    /// Where `needle` stands and is not part of a longer name.
    pub(super) fn find(&self, needle: &str) -> Vec<usize> {
        let bytes = self.text.as_bytes();
        let (first, last) = (needle.as_bytes()[0], needle.as_bytes()[needle.len() - 1]);
        let whole = |at: usize| {
            let end = at + needle.len();
            let starts = !is_name(first) || at == 0 || !is_name(bytes[at - 1]);
            let ends = !is_name(last) || end == bytes.len() || !is_name(bytes[end]);
            starts && ends
        };
        self.text.match_indices(needle).map(|(at, _)| at).filter(|at| whole(*at)).collect()
    }

    /// All functions with a body: where `fn` stands, and the end of the body.
    pub(super) fn functions(&self) -> Vec<Range<usize>> {
        let with_body = |at: usize| Some(at..item_end(self.text.as_bytes(), at, false)?);
        self.find("fn").into_iter().filter_map(with_body).collect()
    }
}

pub(super) fn is_name(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric()
}

/// The end of the item that starts at `at`: behind its first braced block, or behind a `;` before any block, if
/// `semicolon` lets that be an end.
fn item_end(code: &[u8], at: usize, semicolon: bool) -> Option<usize> {
    let (mut braces, mut others) = (0usize, 0usize);
    for (i, byte) in code.iter().enumerate().skip(at) {
        match byte {
            b'(' | b'[' => others += 1,
            b')' | b']' => others = others.checked_sub(1)?,
            b';' if braces == 0 && others == 0 => return semicolon.then_some(i + 1),
            // A block inside parentheses or brackets belongs to a type or an attribute, not to the item.
            b'{' if others == 0 || braces > 0 => braces += 1,
            b'}' if braces > 0 => {
                braces -= 1;
                if braces == 0 {
                    return Some(i + 1);
                }
            }
            b'}' if others == 0 => return None,
            _ => {}
        }
    }
    None
}

fn test_ranges(code: &str) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    for attribute in ["#[cfg(test)]", "#[cfg(all(test", "#[test]", "#[tokio::test"] {
        for (at, _) in code.match_indices(attribute) {
            ranges.push(at..item_end(code.as_bytes(), at, true).unwrap_or(code.len()));
        }
    }
    ranges
}

fn blank(source: &[u8]) -> String {
    let mut out = String::with_capacity(source.len());
    let mut at = 0;
    while at < source.len() {
        let end = token_end(source, at);
        let skipped = end > at + 1 || !source[at].is_ascii();
        for byte in &source[at..end] {
            out.push(if *byte == b'\n' || !skipped { char::from(*byte) } else { ' ' });
        }
        at = end;
    }
    out
}

/// The end of the comment or literal that starts at `at`, or just the next byte.
fn token_end(source: &[u8], at: usize) -> usize {
    let rest = &source[at..];
    let in_name = at > 0 && is_name(source[at - 1]);
    match rest {
        [b'/', b'/', ..] => at + rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => at + block_comment(rest),
        [b'"', ..] => at + string(rest),
        [b'\'', ..] => at + char_literal(rest),
        [b'r', ..] if !in_name => at + raw_string(rest, 1).unwrap_or(1),
        [b'b' | b'c', b'r', ..] if !in_name => at + raw_string(rest, 2).unwrap_or(1),
        _ => at + 1,
    }
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut i) = (0usize, 0);
    while i < rest.len() {
        match &rest[i..] {
            [b'/', b'*', ..] => {
                depth += 1;
                i += 2;
            }
            [b'*', b'/', ..] => {
                depth -= 1;
                i += 2;
                if depth == 0 {
                    return i;
                }
            }
            _ => i += 1,
        }
    }
    rest.len()
}

fn string(rest: &[u8]) -> usize {
    let mut i = 1;
    while i < rest.len() {
        match rest[i] {
            b'\\' => i += 2,
            b'"' => return i + 1,
            _ => i += 1,
        }
    }
    rest.len()
}

/// A lifetime (`'a`) has no closing quote behind its first character.
fn char_literal(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'\\') {
        let close = rest.iter().skip(3).position(|byte| *byte == b'\'');
        return close.map_or(1, |i| i + 4);
    }
    let width = match rest.get(1) {
        Some(byte) if *byte >= 0xf0 => 4,
        Some(byte) if *byte >= 0xe0 => 3,
        Some(byte) if *byte >= 0xc0 => 2,
        _ => 1,
    };
    if rest.get(1 + width) == Some(&b'\'') { width + 2 } else { 1 }
}

fn raw_string(rest: &[u8], prefix: usize) -> Option<usize> {
    let hashes = rest[prefix..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(prefix + hashes) != Some(&b'"') {
        return None;
    }
    let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let body = prefix + hashes + 1;
    let found = rest[body..].windows(close.len()).position(|window| window == close);
    Some(found.map_or(rest.len(), |i| body + i + close.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str) -> String {
        Code::read(source, false).text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_literals_are_blanked() {
        assert_eq!(words("a /* x /* y */ z */ b // c\nd"), "a b d");
        assert_eq!(words(r#"f("x \" y", 'z', '\'', '"', b"w")"#), "f( , , , , b )");
        assert_eq!(words("r#\"a \" b\"# c br\"x\" d"), "c d");
        assert_eq!(words("r#type <'a> for 'ä'"), "r#type <'a> for");
    }

    #[test]
    fn positions_stay() {
        let source = "// ä\nfn f() { \"}\" }\n";
        let code = Code::read(source, false);
        assert_eq!(code.text.len(), source.len());
        assert_eq!(code.line(code.find("fn")[0]), 2);
        let functions = code.functions();
        assert_eq!((functions[0].start, functions[0].end), (6, source.len() - 1));
    }

    #[test]
    fn tests_are_known() {
        let code = Code::read("fn a() {}\n#[cfg(test)]\nmod tests { fn b() {} }\nfn c() {}", false);
        let tests: Vec<bool> = code.find("fn").into_iter().map(|at| code.is_test(at)).collect();
        assert_eq!(tests, [false, true, false]);
    }

    #[test]
    fn a_signature_may_hold_brackets_and_a_trait_method_has_no_body() {
        let code = Code::read("fn a(x: [u8; 4]) -> u8 { 1 } trait T { fn b(); fn c() {} }", false);
        assert_eq!(code.functions().len(), 2);
    }

    #[test]
    fn a_name_is_found_whole() {
        let code = Code::read("unsafe_code; unsafe {} my_unsafe", false);
        assert_eq!(code.find("unsafe"), [13]);
    }
}
