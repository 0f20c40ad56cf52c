//! Edit on files of many kinds: what it does beside a reference that knows nothing but lines, and what is left when it is
//! killed.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use open_agent_testkit::cases;
use serde_json::json;

use crate::corpus::{Random, Source, corpus};
use crate::world::World;

/// A way of writing lines into a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Plain,
    Crlf,
    Mark,
    MarkCrlf,
    Utf16Le,
    Utf16BeCrlf,
    Latin,
    Mixed,
}

const FORMS: &[Form] = &[
    Form::Plain,
    Form::Crlf,
    Form::Mark,
    Form::MarkCrlf,
    Form::Utf16Le,
    Form::Utf16BeCrlf,
    Form::Latin,
    Form::Mixed,
];

impl Form {
    fn end(self, line: usize) -> &'static str {
        match self {
            Self::Plain | Self::Mark | Self::Utf16Le | Self::Latin => "\n",
            Self::Crlf | Self::MarkCrlf | Self::Utf16BeCrlf => "\r\n",
            Self::Mixed => {
                if line.is_multiple_of(3) {
                    "\n"
                } else {
                    "\r\n"
                }
            }
        }
    }

    fn bytes(self, text: &str) -> Vec<u8> {
        let wide = |mark: [u8; 2], unit: fn(u16) -> [u8; 2]| {
            let mut out = mark.to_vec();
            out.extend(text.encode_utf16().flat_map(unit));
            out
        };
        match self {
            Self::Utf16Le => wide([0xFF, 0xFE], u16::to_le_bytes),
            Self::Utf16BeCrlf => wide([0xFE, 0xFF], u16::to_be_bytes),
            Self::Mark | Self::MarkCrlf => [b"\xEF\xBB\xBF", text.as_bytes()].concat(),
            Self::Latin => text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect(),
            _ => text.as_bytes().to_vec(),
        }
    }
}

fn join(lines: &[(String, String)]) -> String {
    lines.iter().map(|(text, end)| format!("{text}{end}")).collect()
}

/// One random change of whole lines: where, how many, and what comes instead.
fn change(random: &mut Random, lines: &[(String, String)]) -> Option<(usize, usize, Vec<String>)> {
    for _ in 0..50 {
        let start = random.below(lines.len() - 1);
        let len = 1 + random.below(4.min(lines.len() - 1 - start));
        let old: Vec<&str> = lines[start..start + len].iter().map(|l| l.0.as_str()).collect();
        let plain: String = lines.iter().map(|l| format!("{}\n", l.0)).collect();
        let needle = old.join("\n");
        // The last place where it is found may overlap the first one.
        if needle.trim().len() < 4 || plain.find(&needle) != plain.rfind(&needle) {
            continue;
        }
        let mut new: Vec<String> = old.iter().map(|l| (*l).to_owned()).collect();
        match random.below(4) {
            0 => new.insert(random.below(len + 1), "\tnew line with $1 and \\n".into()),
            1 if len > 1 => drop(new.remove(random.below(len))),
            2 => new[random.below(len)].push_str(" // é"),
            _ => new = vec!["only".into(), String::new(), "these".into()],
        }
        return Some((start, len, new));
    }
    None
}

/// The lines of a source with their ends, and the form in which its text can be written. Latin-1 holds few characters, so
/// a text with others is written as it is.
fn lines_as(form: Form, source: &Source) -> (Form, Vec<(String, String)>) {
    let (mut form, mut text) = (form, source.text.clone());
    if form == Form::Latin {
        text = text.chars().filter(|c| u32::from(*c) < 0x80 || u32::from(*c) > 0x9F).collect();
        text.insert_str(0, "caf\u{e9}\n");
        if text.chars().any(|c| u32::from(c) > 0xFF) {
            form = Form::Plain;
        }
    }
    let mut lines: Vec<(String, String)> =
        text.lines().enumerate().map(|(i, l)| (l.to_owned(), form.end(i).to_owned())).collect();
    if !text.ends_with('\n') {
        lines.last_mut().unwrap().1.clear();
    }
    (form, lines)
}

#[tokio::test]
async fn edits_of_real_files_are_those_of_the_reference() {
    let files = corpus(cases(64, 320));
    let w = World::new();
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let (mut edits, mut kinds) = (0, BTreeSet::new());
    for (n, source) in files.iter().enumerate() {
        let (form, mut lines) = lines_as(FORMS[n % FORMS.len()], source);
        kinds.insert(format!("{form:?}"));
        let name = format!("{n}.{}", source.language);
        w.file(&name, form.bytes(&join(&lines)));
        w.read(&w.path(&name)).await;
        // Three in one turn: each sees what the one before it left.
        for _ in 0..3 {
            let Some((start, len, new)) = change(&mut random, &lines) else { continue };
            let old: Vec<&str> = lines[start..start + len].iter().map(|l| l.0.as_str()).collect();
            let input =
                json!({"file_path": name, "old_string": old.join("\n"), "new_string": new.join("\n")});
            if old == new {
                continue;
            }
            w.ok("Edit", input).await;
            edits += 1;
            let last_end = lines[start + len - 1].1.clone();
            let mut new: Vec<(String, String)> =
                new.into_iter().map(|l| (l, form.end(1).to_owned())).collect();
            new.last_mut().unwrap().1 = last_end;
            if form == Form::Mixed {
                check_mixed(&w.bytes(&name), &lines, (start, len), &mut new);
            }
            lines.splice(start..start + len, new);
            assert!(w.bytes(&name) == form.bytes(&join(&lines)), "{name} as {form:?}");
        }
    }
    assert_eq!(kinds.len(), FORMS.len(), "{kinds:?}");
    assert!(edits * 10 > files.len() * 25, "{edits} edits of {} files", files.len());
}

/// Where ends are mixed, the reference says nothing about new lines; all others must be as they were. What the new ones
/// got is taken over.
fn check_mixed(
    bytes: &[u8],
    lines: &[(String, String)],
    (start, len): (usize, usize),
    new: &mut [(String, String)],
) {
    let text = std::str::from_utf8(bytes).unwrap();
    let before = join(&lines[..start]);
    let after = join(&lines[start + len..]);
    assert!(text.starts_with(&before) && text.ends_with(&after));
    let middle = &text[before.len()..text.len() - after.len()];
    let got: Vec<&str> = middle.split_inclusive('\n').collect();
    assert_eq!(got.len(), new.len());
    for (line, new) in got.iter().zip(new) {
        let text = line.trim_end_matches(['\r', '\n']);
        assert_eq!(text, new.0);
        new.1 = line[text.len()..].to_owned();
    }
}

/// Not a test of its own: edits one file for ever, until it is killed.
#[tokio::test]
#[ignore = "run by a_killed_edit_leaves_the_old_or_the_new"]
async fn child_that_edits_for_ever() {
    let Some(path) = std::env::var_os("EDITED_FILE") else { return };
    let mut w = World::new();
    w.root = Path::new(&path).parent().unwrap().to_owned();
    w.read(Path::new(&path)).await;
    for (old, new) in [("A", "B"), ("B", "A")].into_iter().cycle() {
        let input = json!({"file_path": path.to_str().unwrap(), "old_string": old, "new_string": new, "replace_all": true});
        w.ok("Edit", input).await;
    }
}

#[test]
fn a_killed_edit_leaves_the_old_or_the_new() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file.txt");
    let (a, b) = ("A".repeat(200_000), "B".repeat(200_000));
    let mut random = Random(0xD1B5_4A32_D192_ED03);
    for _ in 0..cases(5, 20) {
        std::fs::write(&path, &a).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "reality::child_that_edits_for_ever", "--ignored"])
            .env("EDITED_FILE", &path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let content = || std::fs::read_to_string(&path).unwrap();
        while content() == a {
            assert_eq!(child.try_wait().unwrap(), None, "it ended by itself");
        }
        for _ in 0..random.below(30) {
            let now = content();
            assert!(now == a || now == b);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let now = content();
        assert!(now == a || now == b);
    }
}
