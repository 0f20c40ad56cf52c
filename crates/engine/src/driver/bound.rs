//! The bound that holds for every result of every tool: nothing reaches a model without one.

use open_agent_model::ResultBlock;

/// The most characters of text in a result.
pub(crate) const MAX_CHARS: usize = 100_000;

/// Keeps the head and the tail of texts that are too long, and says so.
pub(crate) fn bound(content: Vec<ResultBlock>) -> Vec<ResultBlock> {
    let mut left = MAX_CHARS;
    let mut out = Vec::with_capacity(content.len());
    for block in content {
        out.push(match block {
            ResultBlock::Text { text } => ResultBlock::Text { text: head_and_tail(text, &mut left) },
            ResultBlock::Resource { uri, text } => {
                ResultBlock::Resource { uri, text: head_and_tail(text, &mut left) }
            }
            other => other,
        });
    }
    out
}

fn head_and_tail(text: String, left: &mut usize) -> String {
    // Bytes are at least as many as characters, so most texts need no counting.
    if text.len() <= *left {
        *left -= text.len();
        return text;
    }
    let count = text.chars().count();
    if count <= *left {
        *left -= count;
        return text;
    }
    let half = *left / 2;
    *left = 0;
    let at = |n: usize| text.char_indices().nth(n).map_or(text.len(), |(i, _)| i);
    let (head, tail) = (at(half), at(count - half));
    format!("{}\n… {} characters left out …\n{}", &text[..head], count - 2 * half, &text[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_keep_head_and_tail() {
        let text = format!("HEAD{}TAIL", "é".repeat(MAX_CHARS));
        let out = bound(vec![ResultBlock::text(text)]);
        let [ResultBlock::Text { text }] = out.as_slice() else { panic!() };
        assert!(text.starts_with("HEADé") && text.ends_with("éTAIL"));
        assert!(text.contains("… 8 characters left out …"));
        assert!(text.chars().count() <= MAX_CHARS + 40);
    }

    #[test]
    fn the_bound_is_for_the_whole_result() {
        let part = || ResultBlock::text("x".repeat(MAX_CHARS / 2));
        let out = bound(vec![part(), part(), part()]);
        assert_eq!(out[..2], [part(), part()]);
        let ResultBlock::Text { text } = &out[2] else { panic!() };
        assert!(text.len() < 60, "{}", text.len());
    }
}
