//! What a call changed in a file, as lines for a terminal. Reads the patch in a result's details; a tool of anybody's that
//! has one is shown alike.

use serde::Deserialize;

use crate::words::{fit, harmless};

/// A person looks at this many lines before they want an editor.
const MAX_LINES: usize = 24;
const RED: &str = "\u{1b}[31m";
const GREEN: &str = "\u{1b}[32m";
const DIM: &str = "\u{1b}[2m";
const PLAIN: &str = "\u{1b}[0m";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    structured_patch: Vec<Hunk>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Hunk {
    old_start: usize,
    new_start: usize,
    lines: Vec<String>,
}

/// The lines, none if nothing was changed.
pub(super) fn lines(details: &str, width: usize, colours: bool) -> Vec<String> {
    let Ok(Details { structured_patch }) = serde_json::from_str(details) else { return Vec::new() };
    let total: usize = structured_patch.iter().map(|hunk| hunk.lines.len()).sum();
    let all = structured_patch.iter().flat_map(numbered);
    let paint = |(sign, text): (char, String)| {
        let text = fit(&text, width);
        match sign {
            _ if !colours => text,
            '-' => format!("{RED}{text}{PLAIN}"),
            '+' => format!("{GREEN}{text}{PLAIN}"),
            _ => format!("{DIM}{text}{PLAIN}"),
        }
    };
    let mut shown: Vec<String> = all.take(MAX_LINES).map(paint).collect();
    if total > MAX_LINES {
        shown.push(paint((' ', format!("       … {} more lines", total - MAX_LINES))));
    }
    shown
}

/// Each line with its sign and its number, in the old text where it goes, else in the new one.
fn numbered(hunk: &Hunk) -> impl Iterator<Item = (char, String)> {
    let (mut old, mut new) = (hunk.old_start, hunk.new_start);
    hunk.lines.iter().map(move |line| {
        let sign = line.chars().next().unwrap_or(' ');
        let text = harmless(line.get(sign.len_utf8()..).unwrap_or_default()).replace('\t', "    ");
        let number = if sign == '-' { old } else { new };
        // Any tool may say any number.
        old = old.saturating_add(usize::from(sign != '+'));
        new = new.saturating_add(usize::from(sign != '-'));
        (sign, format!("  {number:>5} {sign} {text}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patch(lines: &[&str]) -> String {
        let hunk =
            serde_json::json!({ "oldStart": 7, "oldLines": 9, "newStart": 8, "newLines": 9, "lines": lines });
        serde_json::json!({ "filePath": "a", "structuredPatch": [hunk] }).to_string()
    }

    #[test]
    fn lines_have_their_numbers_and_colours() {
        let details = patch(&[" a", "-\tb", "+c\u{1b}[2J", " d"]);
        let plain = ["      8   a", "      8 -     b", "      9 + c[2J", "     10   d"];
        assert_eq!(lines(&details, 80, false), plain);
        let coloured = lines(&details, 80, true);
        assert_eq!(coloured[1], format!("{RED}{}{PLAIN}", plain[1]));
        assert_eq!(coloured[2], format!("{GREEN}{}{PLAIN}", plain[2]));
    }

    #[test]
    fn long_patches_and_lines_are_cut() {
        let many = vec!["+x"; 100];
        let shown = lines(&patch(&many), 80, false);
        assert_eq!((shown.len(), shown.last().unwrap().trim()), (25, "… 76 more lines"));
        let long = lines(&patch(&[&format!("+{}", "y".repeat(200))]), 40, false);
        assert_eq!(long[0].chars().count(), 40);
    }

    #[test]
    fn other_details_have_no_patch() {
        assert!(lines("{\"exitCode\":0}", 80, true).is_empty());
        assert!(lines("no json", 80, true).is_empty());
    }
}
