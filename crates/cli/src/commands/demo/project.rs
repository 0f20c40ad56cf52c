//! The demo's job: a small shell project with one bug, chosen by a seed, and the test that shows it. Needs nothing but a
//! POSIX shell.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

/// A function of the project as it should be, and how to call it.
pub(super) struct Function {
    pub(super) name: &'static str,
    pub(super) file: &'static str,
    pub(super) body: &'static str,
}

/// The project's functions, right.
pub(super) const FUNCTIONS: [Function; 6] = [
    Function {
        name: "max",
        file: "src/numbers.sh",
        body: "    if [ \"$1\" -gt \"$2\" ]; then\n        echo \"$1\"\n    else\n        echo \"$2\"\n    fi\n",
    },
    Function {
        name: "sum_to",
        file: "src/numbers.sh",
        body: "    total=0\n    n=1\n    while [ \"$n\" -le \"$1\" ]; do\n        total=$((total + n))\n        n=$((n + 1))\n    done\n    echo \"$total\"\n",
    },
    Function {
        name: "is_even",
        file: "src/numbers.sh",
        body: "    if [ $(($1 % 2)) -eq 0 ]; then\n        echo yes\n    else\n        echo no\n    fi\n",
    },
    Function {
        name: "repeat",
        file: "src/text.sh",
        body: "    out=\n    n=0\n    while [ \"$n\" -lt \"$2\" ]; do\n        out=$out$1\n        n=$((n + 1))\n    done\n    echo \"$out\"\n",
    },
    Function {
        name: "starts_with",
        file: "src/text.sh",
        body: "    case $1 in\n    \"$2\"*) echo yes ;;\n    *) echo no ;;\n    esac\n",
    },
    Function {
        name: "words",
        file: "src/text.sh",
        body: "    # shellcheck disable=SC2086\n    set -- $1\n    echo \"$#\"\n",
    },
];

/// In which function, which piece of text becomes which other one.
const BUGS: [(&str, &str, &str); 8] = [
    ("max", "-gt", "-lt"),
    ("sum_to", "-le", "-lt"),
    ("sum_to", "total + n", "total + 1"),
    ("is_even", "-eq 0", "-eq 1"),
    ("repeat", "-lt", "-le"),
    ("repeat", "out=$out$1", "out=$1"),
    ("starts_with", "\"$2\"*)", "*\"$2\")"),
    ("words", "echo \"$#\"", "echo \"$1\""),
];

/// Writes the project into `folder`. The same seed gives the same bytes.
pub(super) fn write(folder: &Path, seed: u64) -> io::Result<()> {
    let (function, good, bad) = BUGS[usize::try_from(seed % BUGS.len() as u64).unwrap_or_default()];
    std::fs::create_dir_all(folder.join("src"))?;
    for file in ["src/numbers.sh", "src/text.sh"] {
        let mut text = format!("# {}\n", if file.ends_with("text.sh") { "Texts." } else { "Numbers." });
        for f in FUNCTIONS.iter().filter(|f| f.file == file) {
            let body = if f.name == function { f.body.replacen(good, bad, 1) } else { f.body.to_owned() };
            let _ = write!(text, "\n{}() {{\n{body}}}\n", f.name);
        }
        std::fs::write(folder.join(file), text)?;
    }
    std::fs::write(folder.join("README.md"), "# Small shell functions\n\nRun `sh test.sh` to test them.\n")?;
    std::fs::write(folder.join("test.sh"), test(seed))
}

/// The numbers vary with the seed, so that no answer can be learnt by heart.
fn test(seed: u64) -> String {
    let n = 3 + seed % 7;
    let m = n + 2 + seed % 3;
    let sum: u64 = (1..=n).sum();
    let word = ["ab", "xyz", "lo"][usize::try_from(seed % 3).unwrap_or_default()];
    let count = 2 + seed % 3;
    let repeated = word.repeat(usize::try_from(count).unwrap_or_default());
    let checks = [
        format!("check max {m} \"$(max {n} {m})\""),
        format!("check sum_to {sum} \"$(sum_to {n})\""),
        format!("check is_even yes \"$(is_even {})\"", n * 2),
        format!("check repeat {repeated} \"$(repeat {word} {count})\""),
        format!("check starts_with yes \"$(starts_with {word}-tail {word})\""),
        format!("check words {count} \"$(words \"{}\")\"", vec![word; usize::try_from(count).unwrap_or_default()].join(" ")),
    ];
    format!(
        ". ./src/numbers.sh\n. ./src/text.sh\n\nfailed=0\n\ncheck() {{\n    if [ \"$2\" = \"$3\" ]; then\n        echo \"ok $1\"\n    \
         else\n        echo \"FAIL $1: expected $2, got $3\"\n        failed=1\n    fi\n}}\n\n{}\n\nexit $failed\n",
        checks.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn passes(folder: &Path) -> bool {
        Command::new("sh").arg("test.sh").current_dir(folder).output().unwrap().status.success()
    }

    #[test]
    fn every_bug_fails_the_test_and_every_function_as_it_should_be_passes() {
        for seed in 0..24 {
            let dir = tempfile::tempdir().unwrap();
            write(dir.path(), seed).unwrap();
            assert!(!passes(dir.path()), "seed {seed} has no visible bug");
            for file in ["src/numbers.sh", "src/text.sh"] {
                let right: String = FUNCTIONS
                    .iter()
                    .filter(|f| f.file == file)
                    .map(|f| format!("{}() {{\n{}}}\n", f.name, f.body))
                    .collect();
                std::fs::write(dir.path().join(file), right).unwrap();
            }
            assert!(passes(dir.path()), "seed {seed} fails without a bug");
        }
    }
}
