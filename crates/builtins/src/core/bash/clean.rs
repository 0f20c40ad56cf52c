//! What a terminal would show of an output: colours and cursor moves are taken out, lines that overwrite themselves are
//! shown as they end.

/// Cleans a command's output.
pub(super) fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    if !text.bytes().any(|b| b.is_ascii_control() && b != b'\n' && b != b'\t') {
        return text.into_owned();
    }
    let plain = without_escapes(&text);
    let mut out = String::with_capacity(plain.len());
    for line in plain.split_inclusive('\n') {
        let (text, end) = line.strip_suffix('\n').map_or((line, ""), |text| (text, "\n"));
        let text = text.trim_end_matches('\r');
        push_line(&mut out, text.rsplit('\r').next().unwrap_or(text));
        out.push_str(end);
    }
    out
}

fn push_line(out: &mut String, line: &str) {
    let start = out.len();
    for c in line.chars() {
        match c {
            '\u{8}' => {
                if out.len() > start {
                    out.pop();
                }
            }
            '\t' => out.push(c),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
}

fn without_escapes(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['\u{1b}', '\u{9b}']) {
        out.push_str(&rest[..at]);
        let mut chars = rest[at..].chars();
        let starts_sequence = chars.next() == Some('\u{9b}');
        rest = chars.as_str();
        if starts_sequence {
            rest = after_sequence(rest);
            continue;
        }
        rest = match chars.next() {
            Some('[') => after_sequence(chars.as_str()),
            Some(']' | 'P' | 'X' | '^' | '_') => after_string(chars.as_str()),
            Some(' '..='/') => {
                chars.as_str().trim_start_matches(|c| matches!(c, ' '..='/')).get(1..).unwrap_or("")
            }
            Some(_) => chars.as_str(),
            None => "",
        };
    }
    out.push_str(rest);
    out
}

/// Behind `ESC [ … letter`.
fn after_sequence(text: &str) -> &str {
    let end = text.trim_start_matches(|c: char| matches!(c, ' '..='?'));
    match end.chars().next() {
        Some('@'..='~') => &end[1..],
        _ => end,
    }
}

/// Behind a string that BEL or `ESC \` ends. An unfinished one ends with its line.
fn after_string(text: &str) -> &str {
    match text.find(['\u{7}', '\u{1b}', '\n']) {
        Some(at) if text[at..].starts_with('\u{7}') => &text[at + 1..],
        Some(at) if text[at..].starts_with("\u{1b}\\") => &text[at + 2..],
        Some(at) => &text[at..],
        None => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn as_a_terminal_shows_it() {
        let of = |text: &str| clean(text.as_bytes());
        assert_eq!(of("\x1b[1;31mred\x1b[0m\n"), "red\n");
        assert_eq!(of("10%\r50%\r100%\ndone\r\n"), "100%\ndone\n");
        assert_eq!(of("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b\x1b(Bc"), "abc");
        assert_eq!(of("ab\x08c\x07\0d"), "acd");
        assert_eq!(of("tab\tstays\n"), "tab\tstays\n");
        assert_eq!(of("\x1b"), "");
        assert_eq!(of("\x1b]unfinished\nnext"), "\nnext");
        assert_eq!(clean(b"bad \xFF byte"), "bad \u{fffd} byte");
    }

    proptest! {
        #[test]
        fn nothing_breaks_it(bytes in proptest::collection::vec(prop_oneof![Just(0x1b_u8), Just(b'['), Just(b'\r'), any::<u8>()], 0..100)) {
            let cleaned = clean(&bytes);
            let is_clean = !cleaned.contains(['\u{1b}', '\r', '\0']);
            prop_assert!(is_clean);
        }
    }
}
