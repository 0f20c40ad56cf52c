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
    if old.len() + new.len() > MAX_BYTES {
        return Vec::new();
    }
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
            old_start: old_range.start + 1,
            old_lines: old_range.len(),
            new_start: new_range.start + 1,
            new_lines: new_range.len(),
            lines,
        });
    }
    hunks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hunks_count_lines_from_one() {
        let hunks = patch(b"a\nb\nc\nd\ne\nf\n", b"a\nb\nc\nd\nX\nf\n");
        let lines = [" b", " c", " d", "-e", "+X", " f"].map(String::from).to_vec();
        assert_eq!(hunks, [Hunk { old_start: 2, old_lines: 5, new_start: 2, new_lines: 5, lines }]);
        assert_eq!(patch(b"a\n", b"a\n"), []);
    }
}
