//! How long an answer may be. Owns the bound and how a text is cut to it.

/// The most characters that one answer shows to a model.
pub(crate) const MAX_CHARS: usize = 100_000;
/// How much of the head and of the tail is left when a text is cut.
pub(crate) const HALF: usize = MAX_CHARS / 2;

/// `text`, cut in the middle if it is too long. `whole` says where all of it is.
pub(crate) fn head_and_tail(text: String, whole: &str) -> String {
    // Bytes are never fewer than characters.
    if text.len() <= MAX_CHARS {
        return text;
    }
    let chars = text.chars().count();
    if chars <= MAX_CHARS {
        return text;
    }
    let room = 150 + whole.chars().count();
    let half = HALF.saturating_sub(room / 2 + 1);
    let head = text.char_indices().nth(half).map_or(text.len(), |(at, _)| at);
    let tail = text.char_indices().nth(chars - half).map_or(text.len(), |(at, _)| at);
    let left_out = chars - 2 * half;
    format!("{}\n\n[… {left_out} characters left out{whole} …]\n\n{}", &text[..head], &text[tail..])
}

/// At most `max` characters of `line`, with a note of what was cut.
pub(crate) fn cut_line(line: &str, max: usize) -> std::borrow::Cow<'_, str> {
    if line.len() <= max {
        return line.into();
    }
    match line.char_indices().nth(max) {
        None => line.into(),
        Some((at, _)) => {
            let left = line[at..].chars().count();
            format!("{}… [{left} characters cut]", &line[..at]).into()
        }
    }
}

/// `3 files`, `1 file`.
pub(crate) fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_longer_than_the_bound() {
        for text in ["é".repeat(100_001), "ab".repeat(400_000)] {
            let cut = head_and_tail(text.clone(), "; all of it is in /tmp/x");
            assert!(cut.chars().count() <= MAX_CHARS, "{}", cut.chars().count());
            assert!(cut.chars().count() > MAX_CHARS - 400);
            assert_eq!(cut.chars().next(), text.chars().next());
        }
        let fits = "é".repeat(100_000);
        assert_eq!(head_and_tail(fits.clone(), ""), fits);
    }
}
