//! What to say when a text is not in a file. A miss costs a whole round, so it must tell what the file has instead.

use std::borrow::Cow;
use std::cell::Cell;

use super::lines::without_carriage_returns;
use crate::bounds::cut_line;
use crate::text::show;

const MAX_LINE: usize = 200;
const MAX_SHOWN: usize = 8;
/// How much of a file is searched for what was meant: all that people write, and no machine's dump.
const MAX_SEARCHED: usize = 4 * 1024 * 1024;
/// How many bytes are compared: a text of many lines, in a file that repeats itself, would be compared with each of them.
const MAX_COMPARED: usize = 16 * 1024 * 1024;
/// How alike a line must be to be worth showing.
const LIKE: f64 = 0.4;

/// Why `needle` is not in `body`.
pub(crate) fn explain_miss(body: &[u8], needle: &str) -> String {
    let searched = match memchr::memrchr(b'\n', &body[..body.len().min(MAX_SEARCHED)]) {
        _ if body.len() <= MAX_SEARCHED => body,
        Some(end) => &body[..=end],
        None => &body[..MAX_SEARCHED],
    };
    let plain = without_carriage_returns(searched);
    let (text, _) = show(&plain);
    let lines: Vec<&str> = text.lines().collect();
    let needle = needle.replace("\r\n", "\n");
    let wanted: Vec<&str> = needle.lines().collect();
    let mut out = String::from("old_string is not in the file. Nothing was changed. ");
    let why = numbered(&lines, &wanted)
        .or_else(|| escaped(&text, &needle))
        .or_else(|| disguised(&lines, &wanted))
        .unwrap_or_else(|| nearest(&lines, &wanted));
    out.push_str(&why);
    if searched.len() < body.len() {
        let (mib, lines) = (MAX_SEARCHED / (1024 * 1024), lines.len());
        out.push_str(&format!(
            " (Only the first {mib} MiB, {lines} lines, were searched for something like it; search the rest with Grep.)"
        ));
    }
    out
}

/// Line numbers copied from Read's answer.
fn numbered(lines: &[&str], wanted: &[&str]) -> Option<String> {
    let stripped: Option<Vec<&str>> = wanted.iter().map(|line| strip_number(line)).collect();
    let at = window(lines, &stripped.filter(|s| !s.is_empty())?, &|s| s.into())?;
    Some(format!(
        "It has line numbers in front of its lines, which are not part of the file. Without them it matches at line {}.",
        at + 1
    ))
}

fn strip_number(line: &str) -> Option<&str> {
    let rest = line.trim_start_matches(' ');
    let text = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    if text.len() == rest.len() {
        return None;
    }
    ["\t", "→", ": ", "| "].iter().find_map(|sign| text.strip_prefix(sign))
}

/// `\n`, `\t`, `\"` written out where the characters themselves are meant.
fn escaped(text: &str, needle: &str) -> Option<String> {
    if !needle.contains('\\') {
        return None;
    }
    let meant = needle.replace("\\n", "\n").replace("\\t", "\t").replace("\\\"", "\"").replace("\\'", "'");
    let meant = meant.replace("\\\\", "\\");
    let at = (meant != needle).then(|| text.find(&meant)).flatten()?;
    let line = text[..at].matches('\n').count() + 1;
    Some(format!(
        "It has a backslash before characters where the file has the character itself (such as \\n for a line end). \
         Without that it matches at line {line}."
    ))
}

type Disguise = (&'static str, fn(&str) -> Cow<'_, str>);

/// What makes two lines differ that look the same, the likeliest first.
const DISGUISES: &[Disguise] = &[
    ("spaces at the line's end", |s| s.trim_end().into()),
    ("tabs and spaces", |s| squeeze(s).into()),
    ("quotes, dashes or special spaces", |s| straighten(s).into()),
    ("capital letters", |s| s.to_lowercase().into()),
    ("spaces, quotes and capital letters", |s| squeeze(&straighten(s)).to_lowercase().into()),
];

fn disguised(lines: &[&str], wanted: &[&str]) -> Option<String> {
    for (name, plain) in DISGUISES {
        let Some(at) = window(lines, wanted, plain) else { continue };
        let differs = |i: &usize| {
            let (line, want) = (lines[at + i], wanted[*i]);
            if wanted.len() == 1 { !line.contains(want) } else { line != want }
        };
        let Some(i) = (0..wanted.len()).find(differs) else { continue };
        return Some(format!(
            "Line {} differs in {name}: the file has {}, old_string has {}.",
            at + i + 1,
            quoted(lines[at + i]),
            quoted(wanted[i])
        ));
    }
    None
}

/// The first place where the lines are the same once made `plain`. The first and the last may be parts of lines.
fn window(lines: &[&str], wanted: &[&str], plain: &dyn Fn(&str) -> Cow<'_, str>) -> Option<usize> {
    let wanted: Vec<Cow<'_, str>> = wanted.iter().map(|line| plain(line)).collect();
    let last = wanted.len().checked_sub(1)?;
    if wanted.iter().all(|line| line.is_empty()) || lines.len() <= last {
        return None;
    }
    let left = Cell::new(MAX_COMPARED);
    let fits = |at: usize| {
        wanted.iter().enumerate().all(|(i, want)| {
            let line = lines[at + i];
            left.set(left.get().saturating_sub(line.len() + 4));
            let line = plain(line);
            match (i == 0, i == last) {
                (true, true) => line.contains(&**want),
                (true, false) => line.ends_with(&**want),
                (false, true) => line.starts_with(&**want),
                (false, false) => line == *want,
            }
        })
    };
    for at in 0..lines.len() - last {
        if fits(at) {
            return Some(at);
        }
        if left.get() == 0 {
            break;
        }
    }
    None
}

fn squeeze(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn straighten(line: &str) -> String {
    line.chars()
        .map(|c| match c {
            '‘' | '’' | '‚' | '′' => '\'',
            '“' | '”' | '„' | '″' | '«' | '»' => '"',
            '‐' | '‑' | '‒' | '–' | '—' | '−' => '-',
            '\u{a0}' | '\u{2007}' | '\u{202f}' | '\u{3000}' => ' ',
            c => c,
        })
        .filter(|c| !matches!(c, '\u{200b}' | '\u{feff}' | '\u{200d}'))
        .collect()
}

/// The lines most like the longest line that was looked for.
fn nearest(lines: &[&str], wanted: &[&str]) -> String {
    let Some((key, longest)) = wanted.iter().enumerate().max_by_key(|(_, line)| line.trim().len()) else {
        return String::new();
    };
    let words = sorted_words(longest);
    let mut best: Vec<(usize, f64)> = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let score = likeness(&words, &sorted_words(line));
        if score >= LIKE {
            best.push((i, score));
        }
    }
    best.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let Some((at, _)) = best.first() else {
        return "Nothing in the file is like it: read the file again before the next try.".into();
    };
    let start = at.saturating_sub(key);
    let end = (start + wanted.len().min(MAX_SHOWN)).min(lines.len());
    let mut out = String::from("The nearest lines are:\n");
    for (i, line) in lines[start..end].iter().enumerate() {
        out.push_str(&format!("{:>6}\t{}\n", start + i + 1, cut_line(line, MAX_LINE)));
    }
    let differs = wanted.iter().enumerate().find(|(i, want)| lines.get(start + i) != Some(*want));
    if let Some((i, want)) = differs
        && let Some(line) = lines.get(start + i)
    {
        out.push_str(&format!(
            "First difference in line {}: the file has {}, old_string has {}.",
            start + i + 1,
            quoted(line),
            quoted(want)
        ));
    }
    let others: Vec<String> = best[1..].iter().take(3).map(|(i, _)| (i + 1).to_string()).collect();
    if !others.is_empty() {
        out.push_str(&format!(" Also like it: line {}.", others.join(", ")));
    }
    out
}

fn sorted_words(line: &str) -> Vec<&str> {
    let mut words: Vec<&str> =
        line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty()).collect();
    words.sort_unstable();
    words
}

/// Words in common, of all.
fn likeness(a: &[&str], b: &[&str]) -> f64 {
    let (mut i, mut j, mut common) = (0, 0, 0_u32);
    while i < a.len() && j < b.len() {
        match a[i].cmp(b[j]) {
            std::cmp::Ordering::Less => i += 1,
            std::cmp::Ordering::Greater => j += 1,
            std::cmp::Ordering::Equal => {
                (i, j, common) = (i + 1, j + 1, common + 1);
            }
        }
    }
    let all = u32::try_from(a.len() + b.len()).unwrap_or(u32::MAX);
    if all == 0 { 0.0 } else { f64::from(2 * common) / f64::from(all) }
}

/// With tabs and other invisible characters written out.
fn quoted(line: &str) -> String {
    let mut out = String::from("`");
    for c in cut_line(line, MAX_LINE).chars() {
        match c {
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\u{a0}' | '\u{200b}' | '\u{feff}' | '\u{200d}' | '\u{202f}' => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out.push('`');
    out
}

#[cfg(test)]
mod tests {
    use open_agent_testkit::cases;

    use super::*;

    fn miss(body: &str, needle: &str) -> String {
        explain_miss(body.as_bytes(), needle)
    }

    #[test]
    fn each_disguise_is_named() {
        let body = "fn main() {\n\tlet a = “x”;  \n    b - c\n}\n";
        assert!(
            miss(body, "     2\t\tlet a = “x”;").contains("line numbers"),
            "{}",
            miss(body, "     2\t\tlet a")
        );
        let tabs = miss(body, "    let a = “x”;");
        assert!(
            tabs.contains("Line 2 differs in tabs and spaces: the file has `\\tlet a = “x”;  `"),
            "{tabs}"
        );
        assert!(
            miss(body, "\tlet a = \"x\";").contains("differs in quotes"),
            "{}",
            miss(body, "\tlet a = \"x\";")
        );
        assert!(miss(body, "FN main").contains("Line 1 differs in capital letters"));
        assert!(
            miss(body, "\tlet a = “x”;\n    b - c").contains("Line 2 differs in spaces at the line's end")
        );
        assert!(miss(body, "main() {\\n\\tlet").contains("backslash"));
    }

    #[test]
    fn the_search_for_what_was_meant_is_bounded_and_says_so() {
        let line = "some line of a large file\n";
        let body = format!("{}fn target()\n", line.repeat(MAX_SEARCHED / line.len() + 1));
        let text = miss(&body, "FN target()");
        assert!(text.contains("Only the first 4 MiB") && !text.contains("capital letters"), "{text}");
        assert!(!miss(line, "FN target()").contains("Only"));
    }

    /// Each of many lines is where each of the many that are looked for could begin.
    #[test]
    fn lines_that_are_all_alike_are_compared_a_bounded_number_of_times() {
        let (mut lines, mut wanted) = (vec!["a"; 40_000], vec!["a"; 20_000]);
        lines.push("b");
        wanted.push("c");
        let compared = Cell::new(0);
        let plain: &dyn Fn(&str) -> Cow<'_, str> = &|line| {
            compared.set(compared.get() + 1);
            Cow::Borrowed(line)
        };
        assert_eq!(window(&lines, &wanted, plain), None);
        // A line counts for its bytes and four more. The lines that are looked for are made plain once, and what was begun
        // when the limit was reached is gone through.
        let limit = MAX_COMPARED / 5 + 2 * wanted.len() + 1;
        assert!((MAX_COMPARED / 5..=limit).contains(&compared.get()), "{} of {limit}", compared.get());

        let (lines, needle) = ("a \n".repeat(cases(400, 40_000)), "a\n".repeat(cases(200, 20_000)));
        let text = miss(&format!("{lines}b"), &format!("{needle}c"));
        assert!(text.starts_with("old_string is not in the file."), "{text}");
    }

    #[test]
    fn otherwise_the_nearest_lines_are_shown() {
        let body = "one\nlet total = sum(first, second);\nthree\n";
        let text = miss(body, "let total = sum(first, third);\nthree");
        assert!(text.contains("     2\tlet total = sum(first, second);\n     3\tthree"), "{text}");
        assert!(text.contains("First difference in line 2"), "{text}");
        assert!(miss(body, "zzz").contains("Nothing in the file is like it"));
    }
}
