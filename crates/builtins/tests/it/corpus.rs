//! Texts to edit: generated ones in many languages with everything that makes matching hard, and the project's own files.
//! The same in every run and on every machine; the generated ones never change.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Small numbers, the same in each run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % n
    }

    fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

pub(crate) struct Source {
    /// The extension of its file.
    pub(crate) language: String,
    pub(crate) text: String,
}

/// How a language looks, line by line. `$` stands for a name, `#` for a number.
struct Language {
    extension: &'static str,
    opens: &'static [&'static str],
    /// Ends a block; empty where indentation does.
    closes: &'static str,
    lines: &'static [&'static str],
    comment: &'static str,
}

const LANGUAGES: &[Language] = &[
    Language {
        extension: "rs",
        opens: &["fn $($: &str) -> usize {", "if let Some($) = $ {", "impl $ for $ {", "match $ {"],
        closes: "}",
        lines: &["let $ = $(#)?;", "$.push(#);", "r#\"$ \\n \"$\" {}\"#;", "Some($) => $ + #,"],
        comment: "// ",
    },
    Language {
        extension: "py",
        opens: &["def $($, *$):", "for $ in range(#):", "class $:", "try:", "else:"],
        closes: "",
        lines: &["$ = $[#:$]", "return $", "pass", "print(f'{$!r:>#}')", "'''$'''"],
        comment: "# ",
    },
    Language {
        extension: "c",
        opens: &["static int $(char *$) {", "for (int $ = 0; $ < #; $++) {", "switch ($) {"],
        closes: "}",
        lines: &["$->$ = $ & 0x#;", "return -#;", "#define $ \\", "case #: break;"],
        comment: "/* ",
    },
    Language {
        extension: "js",
        opens: &["const $ = async ($) => {", "if ($ === #) {", "$.on('$', function () {"],
        closes: "})",
        lines: &["await $(`${$} costs $${#}`)", "return $?.$ ?? #", "let $ = /^\\s*$/g"],
        comment: "// ",
    },
    Language {
        extension: "html",
        opens: &["<div class=\"$\">", "<ul id=$>", "<table>"],
        closes: "</div>",
        lines: &["<li>$ &amp; $</li>", "<br/>", "<td>#</td>", "<a href=\"/$?a=#&b=$\">$</a>"],
        comment: "<!-- ",
    },
    Language {
        extension: "json",
        opens: &["\"$\": {", "\"$\": [{"],
        closes: "},",
        lines: &["\"$\": #,", "\"$\": \"$\\u00e9\\n\",", "null,", "\"$\": true,"],
        comment: "",
    },
    Language {
        extension: "yml",
        opens: &["$:", "- $:", "$: &$"],
        closes: "",
        lines: &["$: #", "- $", "$: |", "- '$: #'", "$: \"$\""],
        comment: "# ",
    },
    Language {
        extension: "mk",
        opens: &["$: $.o $.h", "ifeq ($,#)", "define $"],
        closes: "endif",
        lines: &["\t$$(CC) -o $@ $$<", "$ := $$(wildcard $/*.c) \\", "\t@echo $"],
        comment: "# ",
    },
    Language {
        extension: "sh",
        opens: &["if [ \"$$\" = $ ]; then", "while read -r $; do", "$() {"],
        closes: "fi",
        lines: &["$=$${$:-#}", "echo \"$$#\" | sed 's/$/&\\n/'", "cat <<EOF", "EOF", "exit #"],
        comment: "# ",
    },
    Language {
        extension: "sql",
        opens: &["CREATE TABLE $ (", "SELECT $, COUNT(*)", "BEGIN"],
        closes: ");",
        lines: &["$ INTEGER NOT NULL,", "WHERE $ = '$' AND $ > #", "INSERT INTO $ VALUES (#, '$');"],
        comment: "-- ",
    },
    Language {
        extension: "md",
        opens: &["# $", "1. $ $", "> $"],
        closes: "",
        lines: &["* $ `$` **$**  ", "| $ | # | $ |", "|---|---|---|", "```", "$ $ $ [$](#$)."],
        comment: "",
    },
    Language {
        extension: "tex",
        opens: &["\\begin{$}", "\\section{$}"],
        closes: "\\end{$}",
        lines: &["\\item $ & # \\\\", "$$ $_# ^{$} $$", "\\frac{#}{$}"],
        comment: "% ",
    },
    Language {
        extension: "S",
        opens: &["$:", ".section .$"],
        closes: "ret",
        lines: &["mov %$, #(%rsp)", "jne 1b", ".byte 0x#, #", "nop"],
        comment: "; ",
    },
    Language {
        extension: "csv",
        opens: &["$,$,$"],
        closes: "",
        lines: &["#,$,\"$, $\"", "#,,#", "\"$ \"\"$\"\"\",#,$"],
        comment: "",
    },
];

/// All fit into Latin-1, so that every text of these can be written in every form. No two characters beyond ASCII stand side
/// by side: in a text of hardly anything else, Edit would rightly take them for one character of another encoding.
const NAMES: &[&str] =
    &["i", "value", "total_of", "naïve", "straße", "x2", "año", "getÆther", "tmp", "_", "«q»", "TODO"];
/// Beyond Latin-1: two, three and four bytes in UTF-8, one and two units in UTF-16, and a combining mark.
const WIDE_NAMES: &[&str] = &["цена", "値段", "😀", "e\u{301}", "𝛼", "“quoted”"];
const INDENTS: &[&str] = &["    ", "  ", "\t", "        ", " \t", "   "];

/// Fills the places of one of the patterns.
fn line(random: &mut Random, patterns: &[&str], is_wide: bool) -> String {
    let mut out = String::new();
    for c in random.one_of(patterns).chars() {
        match c {
            '$' if is_wide && random.below(3) == 0 => out.push_str(random.one_of(WIDE_NAMES)),
            '$' => out.push_str(random.one_of(NAMES)),
            '#' => out.push_str(&random.below(1_000).to_string()),
            c => out.push(c),
        }
    }
    out
}

/// One text of a language. Blocks nest, their ends and many lines are repeated, some lines are very long, some end in
/// blanks or are nothing but blanks, and the indentation of some texts changes in the middle.
fn generated(language: &Language, random: &mut Random) -> Source {
    let is_wide = random.below(3) == 0;
    let mut indent = random.one_of(INDENTS);
    let (mut text, mut depth) = (String::new(), 0);
    let mut before: Vec<String> = Vec::new();
    for _ in 0..30 + random.below(120) {
        let new = match random.below(20) {
            0..3 if depth < 6 => {
                depth += 1;
                let new = line(random, language.opens, is_wide);
                indent.repeat(depth - 1) + &new
            }
            3..6 if depth > 0 => {
                depth -= 1;
                indent.repeat(depth) + language.closes
            }
            6 => indent.repeat(depth) + language.comment + &line(random, &["$ $ $ #"], is_wide),
            7 => indent.repeat(random.below(3)),
            8 if random.below(10) == 0 => {
                let long = line(random, &["$ # $;"], is_wide).repeat(100 + random.below(600));
                indent.repeat(depth) + &long
            }
            // A line or two as they were: what is looked for stands there more than once.
            9..12 if before.len() > 3 => {
                let at = random.below(before.len() - 1);
                text.push_str(&before[at]);
                text.push('\n');
                before[at + 1].clone()
            }
            12 => {
                indent = if random.below(4) == 0 { random.one_of(INDENTS) } else { indent };
                String::new()
            }
            13 => line(random, language.lines, is_wide) + "  \t",
            _ => {
                let new = line(random, language.lines, is_wide);
                indent.repeat(depth) + &new
            }
        };
        text.push_str(&new);
        text.push('\n');
        before.push(new);
    }
    text.push_str("the end");
    if random.below(4) > 0 {
        text.push('\n');
    }
    Source { language: language.extension.to_owned(), text }
}

/// The project's own files, in a fixed order.
fn own() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    let mut todo: Vec<PathBuf> = ["crates", "xtask", "bench"].iter().map(|name| root.join(name)).collect();
    let listed = |folder: &Path| {
        let mut entries: Vec<PathBuf> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        entries
    };
    let mut files: Vec<PathBuf> = listed(&root).into_iter().filter(|path| path.is_file()).collect();
    while let Some(folder) = todo.pop() {
        for path in listed(&folder) {
            if !path.is_dir() {
                files.push(path);
            } else if path.file_name().is_some_and(|name| name != "target") {
                todo.push(path);
            }
        }
    }
    for path in files {
        let Some(extension) = path.extension().filter(|extension| *extension != "log") else { continue };
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        if (300..150_000).contains(&text.len())
            && text.lines().count() > 8
            && !text.contains(['\r', '\0', '\u{feff}'])
        {
            found.push(Source { language: extension.to_string_lossy().into_owned(), text });
        }
    }
    found
}

/// The first file of each language, then the second of each, and so on: few files, and yet all languages.
fn by_turns(files: Vec<Source>) -> Vec<Source> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut turns: Vec<(usize, Source)> = Vec::new();
    for file in files {
        let count = counts.entry(file.language.clone()).or_default();
        turns.push((*count, file));
        *count += 1;
    }
    turns.sort_by_key(|(turn, _)| *turn);
    turns.into_iter().map(|(_, file)| file).collect()
}

/// So many texts: two generated ones, then one of the project's.
pub(crate) fn corpus(count: usize) -> Vec<Source> {
    let mut random = Random(0xC0FF_EE00_1234_5678);
    let mut own = by_turns(own()).into_iter();
    let texts = (0..count).map(|n| match n % 3 {
        2 => own.next().unwrap(),
        _ => generated(&LANGUAGES[(n - n / 3) % LANGUAGES.len()], &mut random),
    });
    texts.collect()
}

#[test]
fn the_corpus_holds_what_makes_matching_hard() {
    let texts = corpus(64);
    assert_eq!(texts.len(), 64);
    let languages: BTreeSet<&str> = texts.iter().map(|source| source.language.as_str()).collect();
    assert!(languages.len() > LANGUAGES.len(), "{languages:?}");
    let has = |what: &str, count: usize, is_so: &dyn Fn(&str) -> bool| {
        let found = texts.iter().filter(|source| is_so(&source.text)).count();
        assert!(found >= count, "{what}: {found}");
    };
    for (name, indent) in [("tabs", "\n\t\t"), ("two", "\n  \""), ("both", "\n \t"), ("three", "\n   <")] {
        has(name, 1, &|text| text.contains(indent));
    }
    has("tabs and blanks", 10, &|text| text.contains("\n\t") && text.contains("\n  "));
    has("blanks at the end", 20, &|text| text.contains(" \t\n"));
    has("lines of blanks", 20, &|text| text.lines().any(|line| !line.is_empty() && line.trim().is_empty()));
    has("long lines", 5, &|text| text.lines().any(|line| line.len() > 4_000));
    has("no end", 3, &|text| !text.ends_with('\n'));
    has("no ASCII", 30, &|text| !text.is_ascii());
    has("beyond the first plane", 5, &|text| text.chars().any(|c| u32::from(c) > 0xFFFF));
    has("Latin-1 at most", 10, &|text| !text.is_ascii() && text.chars().all(|c| u32::from(c) < 0x100));
    has("pairs of lines more than once", 30, &|text| {
        let lines: Vec<&str> = text.lines().collect();
        let pairs: BTreeSet<&[&str]> = lines.windows(2).collect();
        pairs.len() + 2 < lines.len()
    });
}
