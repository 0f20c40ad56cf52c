//! Texts for people: short, of a known width, and without anything that a terminal would obey.

use std::time::Duration;

use serde_json::Value;

/// Arguments that say most about a call, by what tools commonly call them.
const TELLING: [&str; 8] =
    ["file_path", "path", "notebook_path", "command", "pattern", "url", "query", "description"];

/// A call's tool and its most telling argument.
pub(crate) fn call(tool: &str, input: &str) -> String {
    let input: Value = serde_json::from_str(input).unwrap_or_default();
    let telling = TELLING.iter().find_map(|name| input.get(name).and_then(Value::as_str));
    let any = || input.as_object().and_then(|o| o.values().find_map(Value::as_str));
    // A pattern says more than the folder it is looked for in.
    let telling = input.get("pattern").and_then(Value::as_str).or(telling).or_else(any);
    match telling {
        Some(text) => format!("{} {}", one_line(tool), one_line(text)),
        None => one_line(tool),
    }
}

/// Text without control characters but line ends and tabs: what comes from a model or a file must not move the cursor,
/// set titles or write to the clipboard, nor show itself in another order than it has.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().filter(|c| is_harmless(*c) || matches!(c, '\n' | '\t')).collect()
}

fn is_harmless(c: char) -> bool {
    let turns_or_hides = matches!(
        c,
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}'
    );
    !c.is_control() && !turns_or_hides
}

/// The first line that is not empty.
pub(crate) fn one_line(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    line.chars().filter(|c| is_harmless(*c)).collect()
}

/// At most `width` columns; what is cut is marked.
pub(crate) fn fit(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let mut cut = String::new();
    let mut used = 1;
    for c in text.chars() {
        used += column(c);
        if used > width {
            break;
        }
        cut.push(c);
    }
    cut.push('…');
    cut
}

fn columns(text: &str) -> usize {
    text.chars().map(column).sum()
}

/// Two for what may take two: a line that is a little short looks better than one that wraps.
fn column(c: char) -> usize {
    if c < '\u{1100}' || ('\u{2000}'..'\u{2600}').contains(&c) { 1 } else { 2 }
}

pub(crate) fn seconds(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds >= 60 {
        format!("{}m {:02}s", seconds / 60, seconds % 60)
    } else {
        format!("{:.1}s", time.as_secs_f64())
    }
}

/// `12,345`
pub(crate) fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_known_by_its_most_telling_argument() {
        assert_eq!(call("Read", r#"{"limit":3,"file_path":"/a/b.rs"}"#), "Read /a/b.rs");
        assert_eq!(call("Grep", r#"{"path":"/a","pattern":"fn main"}"#), "Grep fn main");
        assert_eq!(call("Bash", "{\"command\":\"\\n  ls\\nrm\"}"), "Bash ls");
        assert_eq!(call("Mine", r#"{"n":1,"what":"this"}"#), "Mine this");
        assert_eq!(call("Mine", "no json"), "Mine");
    }

    #[test]
    fn nothing_moves_the_cursor() {
        assert_eq!(harmless("a\u{1b}[2J\u{9b}b\r\n\tc\u{7}"), "a[2Jb\n\tc");
        assert_eq!(harmless("rm \u{202e}txt.exe\u{2069}\u{e0041}"), "rm txt.exe");
        assert_eq!(one_line("\n \u{1b}]0;t\u{7}x\ny"), "]0;tx");
    }

    #[test]
    fn lines_fit() {
        assert_eq!(fit("abcdef", 6), "abcdef");
        assert_eq!(fit("abcdefg", 6), "abcde…");
        assert_eq!(fit("日本語日本語", 6), "日本…");
        assert_eq!(fit("abc", 0), "…");
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!([thousands(0), thousands(999), thousands(1_234_567)], ["0", "999", "1,234,567"]);
        assert_eq!(seconds(Duration::from_millis(1_240)), "1.2s");
        assert_eq!(seconds(Duration::from_secs(125)), "2m 05s");
    }
}
