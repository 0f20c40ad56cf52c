//! The bound that holds for every result of every tool: nothing reaches a model without one. What a model does not see of a
//! text stays in the session as a blob, which it can read page by page.

use open_agent_model::{ResultBlock, ResultText};
use open_agent_session::blob_id;

/// The most characters of text in a result.
pub(crate) const MAX_CHARS: usize = 100_000;

/// The most bytes of pictures and documents in a result, in base64: what vendors take in a request.
const MAX_MEDIA: usize = 32 << 20;

/// The most bytes of a text that is kept whole beside the log.
const MAX_KEPT: usize = 32 << 20;

/// The most parts of a result.
const MAX_PARTS: usize = 100;

/// Keeps the head and the tail of texts that are too long, leaves out pictures and documents that no vendor takes and
/// parts beyond the hundredth, and says so. Adds each text that was cut to `cut`: a note refers to it as to a blob.
pub(crate) fn bound(content: Vec<ResultBlock>, cut: &mut Vec<String>) -> Vec<ResultBlock> {
    let (mut left, mut media) = (MAX_CHARS, MAX_MEDIA);
    let parts = content.len();
    let mut out = Vec::with_capacity(parts.min(MAX_PARTS));
    for block in content.into_iter().take(MAX_PARTS) {
        let size = media_size(&block);
        if size > media {
            let text =
                format!("A picture or document of {size} bytes was left out: it is too large to be sent.");
            out.push(ResultBlock::text(text));
            continue;
        }
        media -= size;
        out.push(match block {
            ResultBlock::Text { text } => ResultBlock::Text { text: head_and_tail(text, &mut left, cut) },
            ResultBlock::Resource { uri, text } => {
                ResultBlock::Resource { uri, text: head_and_tail(text, &mut left, cut) }
            }
            other => other,
        });
    }
    if parts > MAX_PARTS {
        out.push(ResultBlock::text(format!("{} further parts were left out.", parts - MAX_PARTS)));
    }
    out
}

fn media_size(block: &ResultBlock) -> usize {
    match block {
        ResultBlock::Image { source } | ResultBlock::Document { source, .. } => {
            source.base64().map_or(0, |(_, data)| data.len())
        }
        ResultBlock::Text { .. } | ResultBlock::Resource { .. } => 0,
    }
}

fn head_and_tail(text: ResultText, left: &mut usize, cut: &mut Vec<String>) -> ResultText {
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
    let left_out = count - 2 * half;
    let whole = match text.len() {
        ..=MAX_KEPT => format!("; all of it is in {}", blob_id(text.as_bytes()).path()),
        _ => String::new(),
    };
    let shown = format!("{}\n… {left_out} characters left out{whole} …\n{}", &text[..head], &text[tail..]);
    if !whole.is_empty() {
        cut.push(text.as_str().to_owned());
    }
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_keep_head_and_tail() {
        let text = format!("HEAD{}TAIL", "é".repeat(MAX_CHARS));
        let mut cut = Vec::new();
        let out = bound(vec![ResultBlock::text(text.clone())], &mut cut);
        let [ResultBlock::Text { text: shown }] = out.as_slice() else { panic!() };
        assert!(shown.starts_with("HEADé") && shown.ends_with("éTAIL"));
        let whole = blob_id(text.as_bytes()).path();
        assert!(shown.contains(&format!("… 8 characters left out; all of it is in {whole} …")));
        assert!(shown.chars().count() <= MAX_CHARS + 150);
        assert_eq!(cut, [text], "what the note refers to is to be kept");
    }

    #[test]
    fn media_and_parts_are_bounded_too() {
        let image = |bytes: usize| ResultBlock::Image {
            source: open_agent_model::Source::Inline {
                media_type: "image/png".into(),
                data: "A".repeat(bytes).into(),
            },
        };
        let out = bound(vec![image(MAX_MEDIA - 1), image(2), image(1)], &mut Vec::new());
        assert_eq!((&out[0], &out[2]), (&image(MAX_MEDIA - 1), &image(1)));
        assert!(matches!(&out[1], ResultBlock::Text { text } if text.contains("of 2 bytes was left out")));
        let many = bound(vec![ResultBlock::text("x"); MAX_PARTS + 5], &mut Vec::new());
        assert_eq!(many.len(), MAX_PARTS + 1);
        assert_eq!(many[MAX_PARTS], ResultBlock::text("5 further parts were left out."));
    }

    #[test]
    fn the_bound_is_for_the_whole_result() {
        let part = || ResultBlock::text("x".repeat(MAX_CHARS / 2));
        let out = bound(vec![part(), part(), part()], &mut Vec::new());
        assert_eq!(out[..2], [part(), part()]);
        let ResultBlock::Text { text } = &out[2] else { panic!() };
        assert!(text.len() < 160, "{}", text.len());
    }
}
