//! Values that must not be seen. Owns `Secret`, which shows nothing, and `Env`, which shows names only.

use std::collections::{BTreeMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// A key. `Debug` and `Display` show `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Hides `text`.
    #[must_use]
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text. Call it where the key is sent, nowhere else.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// `text` with every occurrence of the key replaced by `***`, and with words that show a part of it: servers echo keys
    /// in their error texts, whole, cut off, or with stars in the middle.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        let key = &*self.0;
        // A key of a few characters would tear words apart, and is no key.
        if key.len() < 4 {
            return text.to_owned();
        }
        let text = text.replace(key, HIDDEN);
        let parts = || key.split_whitespace();
        let text = parts().filter(|part| has_runs(part)).fold(text, |text, part| redact_runs(part, &text));
        parts().filter(|part| is_guarded(part)).fold(text, |text, part| redact_parts(part, &text))
    }
}

const HIDDEN: &str = "***";
/// Of a shorter key no part is looked for: there are too many words like it.
const SHORTEST: usize = 12;
/// The shortest run out of a key's middle that is hidden.
const RUN: usize = 8;
/// The shortest beginning or end of a key that is hidden where it stands alone.
const ALONE: usize = 6;
/// The same where characters that mask the rest stand beside it.
const MASKED: usize = 4;

/// An address is no key, and each other address begins like it.
fn is_guarded(part: &str) -> bool {
    part.len() >= SHORTEST && part.is_ascii() && !part.contains("://")
}

fn has_runs(part: &str) -> bool {
    part.len() >= RUN && part.is_ascii() && !part.contains("://")
}

/// `text` without the runs of characters that are in the key too, in either case, wherever they stand.
fn redact_runs(key: &str, text: &str) -> String {
    let lower = key.to_ascii_lowercase();
    let known: HashSet<&[u8]> = lower.as_bytes().windows(RUN).collect();
    let said = text.to_ascii_lowercase();
    let mut out = String::with_capacity(text.len());
    let (mut done, mut at) = (0, 0);
    while let Some(window) = said.as_bytes().get(at..at + RUN) {
        if !known.contains(window) {
            at += 1;
            continue;
        }
        let mut end = at + RUN;
        while said.as_bytes().get(end + 1 - RUN..=end).is_some_and(|next| known.contains(next)) {
            end += 1;
        }
        // What matches is ASCII, so that both ends are ends of characters.
        if !text.get(at..end).is_none_or(is_words) {
            out.push_str(text.get(done..at).unwrap_or_default());
            out.push_str(HIDDEN);
            // Stars that hide the rest of it say nothing more.
            done = end + said.bytes().skip(end).take_while(|b| *b == b'*').count();
        }
        at = end.max(done);
    }
    out.push_str(text.get(done..).unwrap_or_default());
    out
}

/// Short, and nothing in it that words do not have: no digit, and capitals only where words begin.
fn is_words(run: &str) -> bool {
    let begins = |at: usize| at == 0 || run.as_bytes().get(at - 1).is_some_and(|b| !b.is_ascii_alphabetic());
    let shouted = !run.bytes().any(|b| b.is_ascii_lowercase());
    let odd =
        |(at, b): (usize, u8)| b.is_ascii_digit() || (b.is_ascii_uppercase() && !shouted && !begins(at));
    run.len() < SHORTEST && !run.bytes().enumerate().any(odd)
}

fn redact_parts(key: &str, text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let between = |c: char| c.is_whitespace() || "\"'`,;:()[]{}<>|\\&?".contains(c);
    for piece in text.split_inclusive(between) {
        let word = piece.trim_end_matches(between);
        match shown_from(key, word) {
            Some(from) => {
                out.push_str(word.get(..from).unwrap_or_default());
                out.push_str(HIDDEN);
                out.push_str(piece.get(word.len()..).unwrap_or_default());
            }
            None => out.push_str(piece),
        }
    }
    out
}

/// Where in `word` a part of the key begins.
fn shown_from(key: &str, word: &str) -> Option<usize> {
    let masked = mask(word);
    if let Some((from, to)) = masked {
        let (head, tail) = (word.get(..from)?, word.get(to..)?.trim_end_matches(['.', '!']));
        let head = head.rsplit('=').next().unwrap_or(head);
        if key.starts_with(head) && key.ends_with(tail) && head.len() + tail.len() >= MASKED {
            return Some(from - head.len());
        }
    }
    let start = key.get(..MASKED)?;
    let begins = word.match_indices(start).find_map(|(at, _)| {
        let before = word.get(..at)?.chars().next_back();
        let shown = common(key.bytes(), word.get(at..)?.bytes());
        let shown = key.get(..shown).filter(|_| before.is_none_or(|c| !c.is_ascii_alphanumeric()))?;
        is_telling(shown).then_some(at)
    });
    begins.or_else(|| {
        let word = word.trim_end_matches(['.', '!']);
        let shown = common(key.bytes().rev(), word.bytes().rev());
        is_telling(key.get(key.len() - shown..)?).then(|| word.len() - shown)
    })
}

/// Where the characters begin and end that stand for hidden ones.
fn mask(word: &str) -> Option<(usize, usize)> {
    let stands = |c: char| matches!(c, '*' | '•' | '●' | '…' | '.' | 'x' | 'X' | '#');
    let (mut first, mut end, mut run) = (None, 0, (0, ' ', 0));
    for (at, c) in word.char_indices() {
        run = if c == run.1 { (run.0, c, run.2 + 1) } else { (at, c, 1) };
        if stands(c) && (run.2 >= 2 || c == '…') {
            first = first.or(Some(run.0));
            end = at + c.len_utf8();
        }
    }
    first.map(|from| (from, end))
}

fn common(a: impl Iterator<Item = u8>, b: impl Iterator<Item = u8>) -> usize {
    a.zip(b).take_while(|(a, b)| a == b).count()
}

/// Long enough, and no plain word.
fn is_telling(part: &str) -> bool {
    let has = |kind: fn(&u8) -> bool| part.bytes().any(|b| kind(&b));
    let mixed = has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase);
    let is_word = !has(u8::is_ascii_digit) && !has(|b| matches!(b, b'-' | b'_')) && !mixed;
    part.len() >= if is_word { SHORTEST } else { ALONE }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The environment as a value: read once by a binary, passed to whoever needs it. Two agents in one process can have
/// different ones. Names and values are kept byte for byte, whatever their encoding.
#[derive(Clone, Default)]
pub struct Env(Arc<BTreeMap<OsString, OsString>>);

impl Env {
    /// The process's environment.
    #[must_use]
    pub fn from_process() -> Self {
        std::env::vars_os().collect()
    }

    /// The value of `name`, unless it is missing, empty or not UTF-8.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.get_os(name)?.to_str().filter(|v| !v.trim().is_empty())
    }

    /// The value of `name`, in whatever encoding, unless it is missing or empty.
    #[must_use]
    pub fn get_os(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str).filter(|v| !v.is_empty())
    }

    /// The folder for temporary files: `TMPDIR`, or `/tmp`.
    #[must_use]
    pub fn temp_dir(&self) -> PathBuf {
        let named = self.get_os("TMPDIR").map(PathBuf::from).filter(|folder| folder.is_absolute());
        named.unwrap_or_else(|| PathBuf::from("/tmp"))
    }

    /// All names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.0.iter().map(|(k, v)| (k.as_os_str(), v.as_os_str()))
    }

    /// The names of variables whose value is not UTF-8. [`Env::get`] does not find them; processes are passed them.
    pub fn not_text(&self) -> impl Iterator<Item = &OsStr> {
        self.iter().filter(|(_, value)| value.to_str().is_none()).map(|(name, _)| name)
    }
}

impl FromIterator<(String, String)> for Env {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(pairs: I) -> Self {
        pairs.into_iter().map(|(k, v)| (OsString::from(k), OsString::from(v))).collect()
    }
}

impl FromIterator<(OsString, OsString)> for Env {
    fn from_iter<I: IntoIterator<Item = (OsString, OsString)>>(pairs: I) -> Self {
        Self(Arc::new(pairs.into_iter().collect()))
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_keys_nor_environment_show_values() {
        let key = Secret::new("sk-canary");
        assert_eq!(format!("{key:?} {key}"), "*** ***");
        assert_eq!(key.redact("bad key sk-canary!"), "bad key ***!");
        assert_eq!(Secret::new("abc").redact("abc"), "abc", "too short for a key");
        let env: Env = [("A_KEY".to_owned(), "sk-canary".to_owned())].into_iter().collect();
        assert_eq!(format!("{env:?}"), r#"{"A_KEY"}"#);
        assert_eq!(env.get("A_KEY"), Some("sk-canary"));
    }

    #[test]
    fn h_bsh_06_values_that_are_no_text_are_kept_and_named() {
        use std::os::unix::ffi::OsStrExt;
        let odd = OsStr::from_bytes(b"/opt/\xFF/bin");
        let env: Env =
            [("PATH".into(), odd.to_owned()), ("HOME".into(), OsString::from("/h"))].into_iter().collect();
        assert_eq!((env.get("PATH"), env.get_os("PATH")), (None, Some(odd)));
        assert_eq!(
            env.iter().collect::<Vec<_>>(),
            [("HOME".as_ref(), "/h".as_ref()), ("PATH".as_ref(), odd)]
        );
        assert_eq!(env.not_text().collect::<Vec<_>>(), ["PATH"]);
    }

    #[test]
    fn the_folder_for_temporary_files_is_of_this_environment() {
        let of = |value: Option<&str>| {
            let pairs = value.map(|v| ("TMPDIR".to_owned(), v.to_owned()));
            pairs.into_iter().collect::<Env>().temp_dir()
        };
        assert_eq!(of(Some("/var/tmp/mine")), PathBuf::from("/var/tmp/mine"));
        assert_eq!(
            [of(None), of(Some("")), of(Some("relative"))],
            [PathBuf::from("/tmp"), "/tmp".into(), "/tmp".into()]
        );
    }

    #[test]
    fn h_log_01_parts_of_a_key_are_not_repeated() {
        let key = Secret::new("sk-canary-1234567890");
        for (said, want) in [
            (
                "Incorrect API key provided: sk-canar****1234567890. Find yours",
                "Incorrect API key provided: *** Find yours",
            ),
            ("key sk-canar********7890, really", "key ***, really"),
            ("key sk-canar… is wrong", "key *** is wrong"),
            ("key sk-canary-12 is wrong", "key *** is wrong"),
            ("key=sk-c...7890", "key=***"),
            ("key \"xxxxxxxx7890\"", "key \"***\""),
            ("ends in -1234567890.", "ends in ***."),
            ("ends in **7890", "ends in ***"),
            ("api_key:sk-canary-1,", "api_key:***,"),
            ("Bearer sk-canary-1234567890", "Bearer ***"),
        ] {
            let got = key.redact(said);
            assert_eq!(got.trim_end_matches('.'), want.trim_end_matches('.'), "{said}");
        }
        for fine in [
            "keys begin with sk-... and are long",
            "see https://example.com/v1?x=1 for 90 more... canary",
            "a task-canary is not sk",
            "max_tokens: 7890",
            "**bold** and ... dots",
        ] {
            assert_eq!(key.redact(fine), fine);
        }
        for (key, fine) in [
            ("https://example.com/app", "see https://example.org/app2"),
            ("application/json", "an application; json is wanted"),
            ("internal-tools", "internal error of the tools"),
            ("hunter2", "hunter... and ***ter2"),
        ] {
            assert_eq!(Secret::new(key).redact(fine), fine, "{key}");
        }
        for (said, want) in [
            ("the middle ary-1234 is bad", "the middle *** is bad"),
            ("keysk-canary-1234567890", "key***"),
            ("keysk-canary-12345", "key***"),
            ("SK-CANARY-1234567890", "***"),
            ("ein Schlüssel: üary-12345ü", "ein Schlüssel: ü***ü"),
        ] {
            assert_eq!(key.redact(said), want);
        }
        let long = Secret::new("sk-CANARYabcdefghijklmnopqrstuvwxyz");
        assert_eq!(long.redact("xx-cdefghijklmno-xx"), "xx-***-xx", "a long word is none");
        assert_eq!(long.redact("canaryabc and a canary, ABCDEFGH"), "canaryabc and a canary, ABCDEFGH");
        assert_eq!(long.redact("xRYabcdefx"), "x***x");
        let short = Secret::new("a1b2c3d4");
        assert_eq!(short.redact("key A1B2C3D4, or xa1b2c3d4x"), "key ***, or x***x");
        let bearer = Secret::new("Bearer abcdef0123456789");
        assert_eq!(bearer.redact("Bearer abcdef01***"), "Bearer ***");
    }
}
