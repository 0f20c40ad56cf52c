//! Where the prompt comes from: the argument, stdin, or both, stdin after the argument.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::args::RunArgs;
use crate::exit::{self, wrong};

/// How long a stdin that may be nobody's is waited for. A program that starts us with an open pipe and never writes to it
/// would otherwise wait for ever.
const PATIENCE: Duration = Duration::from_secs(3);

const NO_PROMPT: &str =
    "there is no prompt: give one as an argument (open-agent -p \"…\") or on stdin (… | open-agent -p)";
const NO_TERMINAL_MODE: &str = "there is no interactive mode yet: give a prompt with open-agent -p \"…\"";

/// More than any model can read. What has no end (a device, a log that grows) must not fill the memory first.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// The prompt, never empty.
pub(crate) fn read(args: &RunArgs) -> Result<String> {
    let given = args.prompt.first().map(String::as_str);
    let piped = match given {
        _ if io::stdin().is_terminal() => None,
        Some(_) => read_if_any()?,
        None => Some(read_all()?),
    };
    let prompt = match (given, piped.map(text).transpose()?) {
        (None, None) if !args.print => return wrong(NO_TERMINAL_MODE),
        (None, None) => return wrong(NO_PROMPT),
        (Some(given), None) => given.to_owned(),
        (None, Some(piped)) => piped,
        (Some(given), Some(piped)) if piped.trim().is_empty() => given.to_owned(),
        (Some(given), Some(piped)) => format!("{given}\n{piped}"),
    };
    if prompt.trim().is_empty() { wrong(NO_PROMPT) } else { Ok(prompt) }
}

fn text(bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).or_else(|error| {
        let at = error.utf8_error().valid_up_to();
        wrong(format!(
            "stdin is not UTF-8 text (byte {at}): convert it (iconv -t UTF-8), or name the file in the prompt so that it can be read"
        ))
    })
}

fn read_all() -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::stdin().lock().take(MAX_BYTES + 1).read_to_end(&mut bytes).context("cannot read stdin")?;
    bounded(bytes, "stdin")
}

fn bounded(bytes: Vec<u8>, what: &str) -> Result<Vec<u8>> {
    if bytes.len() as u64 > MAX_BYTES {
        return wrong(format!(
            "{what} is longer than {} MiB: name the file in the prompt so that it can be read in parts",
            MAX_BYTES / 1024 / 1024
        ));
    }
    Ok(bytes)
}

/// A file of instructions.
pub(crate) fn read_file(flag: &str, path: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes));
    if let Err(error) = read {
        return wrong(format!("{flag} {} cannot be read: {error}", path.display()));
    }
    let what = format!("{flag} {}", path.display());
    String::from_utf8(bounded(bytes, &what)?).or_else(|_| wrong(format!("{what} is not UTF-8 text")))
}

/// All of stdin, unless nothing comes at all.
fn read_if_any() -> Result<Option<Vec<u8>>> {
    let (first, came) = mpsc::channel();
    let reader = std::thread::spawn(move || -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; 64 * 1024];
        let mut stdin = io::stdin().lock();
        let begun = loop {
            match stdin.read(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        // Nobody listens any more if it took too long.
        let _ = first.send(());
        bytes.truncate(begun?);
        if !bytes.is_empty() {
            stdin.take(MAX_BYTES).read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    });
    if came.recv_timeout(PATIENCE).is_err() && !reader.is_finished() {
        // Said at any level: whoever pipes something slow in must not wonder where it went.
        exit::warn(&format!(
            "nothing came on stdin within {} s: going on without it. Close stdin (</dev/null) to save the wait, or give the \
             text as the prompt to have it waited for",
            PATIENCE.as_secs()
        ));
        return Ok(None);
    }
    match reader.join() {
        Ok(read) => bounded(read.context("cannot read stdin")?, "stdin").map(Some),
        Err(_) => Ok(None),
    }
}
