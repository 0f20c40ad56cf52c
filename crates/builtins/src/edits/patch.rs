//! The patch that people see. Owns its form, that of other agents' front ends, and its bound.

use std::time::Duration;

use serde::Serialize;
use similar::{ChangeTag, TextDiff};

use crate::text::show;

/// Lines that do not change around those that do.
const CONTEXT: usize = 3;
/// A change so large that nobody reads its patch gets none.
const MAX_BYTES: usize = 4 * 1024 * 1024;
const MAX_LINES: usize = 2_000;
/// A patch need not be the shortest.
const PATIENCE: Duration = Duration::from_millis(200);

/// Lines that change, with some around them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Hunk {
    /// First line in the old text, from 1.
    pub(crate) old_start: usize,
    /// Lines in the old text.
    pub(crate) old_lines: usize,
    /// First line in the new text, from 1.
    pub(crate) new_start: usize,
    /// Lines in the new text.
    pub(crate) new_lines: usize,
    /// Each with ` `, `-` or `+` in front.
    pub(crate) lines: Vec<String>,
}

/// What leads from `old` to `new`.
pub(crate) fn patch(old: &[u8], new: &[u8]) -> Vec<Hunk> {
    // Most changes are small and most of a file is the same: only the lines between are compared.
    let start = common_head(old, new);
    let end = common_tail(&old[start..], &new[start..]);
    let (before, old, new) = (&old[..start], &old[start..old.len() - end], &new[start..new.len() - end]);
    if old.len() + new.len() > MAX_BYTES {
        return Vec::new();
    }
    let above = memchr::memchr_iter(b'\n', before).count();
    let (old, new) = (show(old).0, show(new).0);
    let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(&*old, &*new);
    let mut hunks = Vec::new();
    let mut total = 0;
    for group in diff.grouped_ops(CONTEXT) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let (old_range, new_range) =
            (first.old_range().start..last.old_range().end, first.new_range().start..last.new_range().end);
        let lines: Vec<String> = group
            .iter()
            .flat_map(|op| diff.iter_changes(op))
            .map(|change| {
                let sign = match change.tag() {
                    ChangeTag::Equal => ' ',
                    ChangeTag::Delete => '-',
                    ChangeTag::Insert => '+',
                };
                format!("{sign}{}", change.value().trim_end_matches(['\n', '\r']))
            })
            .collect();
        total += lines.len();
        if total > MAX_LINES {
            break;
        }
        hunks.push(Hunk {
            old_start: above + old_range.start + 1,
            old_lines: old_range.len(),
            new_start: above + new_range.start + 1,
            new_lines: new_range.len(),
            lines,
        });
    }
    hunks
}

/// Bytes of whole lines at the start that are the same, but for the context of what follows.
fn common_head(old: &[u8], new: &[u8]) -> usize {
    let same = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let mut ends = memchr::memrchr_iter(b'\n', &old[..same]);
    ends.nth(CONTEXT).map_or(0, |at| at + 1)
}

/// Bytes of whole lines at the end that are the same, but for the context of what comes before.
fn common_tail(old: &[u8], new: &[u8]) -> usize {
    let same = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
    let tail = &old[old.len() - same..];
    // The first line of the tail may be the end of one that differs.
    let mut ends = memchr::memchr_iter(b'\n', tail);
    ends.nth(CONTEXT).map_or(0, |at| tail.len() - at - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_same_is_not_compared_but_counted() {
        let text = |changed: &str| -> Vec<u8> {
            (1..=1_000)
                .map(|n| if n == 500 { format!("{changed}\n") } else { format!("line {n}\n") })
                .collect::<String>()
                .into()
        };
        let (old, new) = (text("old"), text("new\nand more"));
        assert_eq!(common_head(&old, &new), memchr::memmem::find(&old, b"line 497\n").unwrap());
        let lines = [
            " line 497",
            " line 498",
            " line 499",
            "-old",
            "+new",
            "+and more",
            " line 501",
            " line 502",
            " line 503",
        ];
        let lines = lines.map(String::from).to_vec();
        assert_eq!(
            patch(&old, &new),
            [Hunk { old_start: 497, old_lines: 7, new_start: 497, new_lines: 8, lines }]
        );
    }

    proptest::proptest! {
        /// Applying the patch to the old text gives the new one.
        #[test]
        fn patches_apply(old in "([ab]?\n){0,12}", new in "([ab]?\n){0,12}") {
            let mut out: Vec<&str> = Vec::new();
            let old_lines: Vec<&str> = old.lines().collect();
            let mut at = 0;
            let hunks = patch(old.as_bytes(), new.as_bytes());
            for hunk in &hunks {
                out.extend(&old_lines[at..hunk.old_start - 1]);
                out.extend(hunk.lines.iter().filter(|l| !l.starts_with('-')).map(|l| &l[1..]));
                at = hunk.old_start - 1 + hunk.old_lines;
            }
            out.extend(&old_lines[at..]);
            proptest::prop_assert_eq!(out, new.lines().collect::<Vec<_>>());
        }
    }

    #[test]
    fn hunks_count_lines_from_one() {
        let hunks = patch(b"a\nb\nc\nd\ne\nf\n", b"a\nb\nc\nd\nX\nf\n");
        let lines = [" b", " c", " d", "-e", "+X", " f"].map(String::from).to_vec();
        assert_eq!(hunks, [Hunk { old_start: 2, old_lines: 5, new_start: 2, new_lines: 5, lines }]);
        assert_eq!(patch(b"a\n", b"a\n"), []);
    }
}
