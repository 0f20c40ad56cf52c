//! Recordings of real servers, played back. Each stream is cut wherever it could matter (in deep runs at every byte) and
//! arrives as two chunks: the result must be the one that was checked in. `UPDATE_GOLDEN=1` writes that anew.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use open_agent_model::{Assembler, Block, ProviderError};
use open_agent_testkit::cases;
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, HeaderName};
use tokio::runtime::{Builder, Runtime};

use crate::events::EventStream;
use crate::failure::Site;
use crate::frame::Decode;
use crate::{Profile, anthropic, openai};

/// In how many parts the cuts of a recording are tried at once.
const THREADS: usize = 2;

/// Over how many tests the cuts of a recording are spread.
const PARTS: usize = 2;

struct Recording {
    name: String,
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
    /// The connection broke after the body.
    broken: bool,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn recordings() -> Vec<Recording> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder().join("recordings")).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    paths.retain(|p| p.extension().is_some_and(|e| e == "sse"));
    assert_eq!(paths.len(), 64);
    paths.iter().filter_map(|p| read(p)).collect()
}

/// `None` where the server did not even send a status.
fn read(path: &Path) -> Option<Recording> {
    let bytes = std::fs::read(path).unwrap();
    let name = path.file_stem().unwrap().to_string_lossy().into_owned();
    let text = String::from_utf8(bytes).unwrap();
    let end = if text.contains("\r\n\r\n") { "\r\n\r\n" } else { "\n\n" };
    let (head, body) = text.split_once(end)?;
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers = lines
        .filter_map(|l| l.split_once(':'))
        .map(|(k, v)| (HeaderName::from_bytes(k.as_bytes()).unwrap(), v.trim().parse().unwrap()));
    let (body, broken) = match body.split_once("curl: (") {
        Some((body, _)) => (body, true),
        None => (body, false),
    };
    Some(Recording { name, status, headers: headers.collect(), body: body.as_bytes().to_vec(), broken })
}

fn site(r: &Recording) -> Arc<Site> {
    let profile =
        Profile::by_name(if r.name.contains("anthropic") { "anthropic" } else { "openai" }).unwrap();
    Arc::new(Site {
        profile,
        name: "server".into(),
        model: "m".into(),
        address: "http://h/v1".into(),
        path: "/v1".into(),
        has_key: false,
        proxy: None,
        secrets: Arc::new([]),
    })
}

fn play(runtime: &Runtime, r: &Recording, chunks: &[&[u8]]) -> String {
    let site = site(r);
    if r.status != StatusCode::OK {
        return show(&Err(site.refused(r.status, &r.headers, &chunks.concat())));
    }
    let anthropic = site.profile.api == crate::Api::Anthropic;
    let (a, o) = (anthropic::decoder(site.clone()), openai::decoder(site.clone()));
    let result = if anthropic { run(runtime, r, chunks, a) } else { run(runtime, r, chunks, o) };
    show(&result)
}

type Played = Result<String, ProviderError>;

fn run<D: Decode>(runtime: &Runtime, r: &Recording, chunks: &[&[u8]], decoder: D) -> Played {
    let mut body: Vec<io::Result<Bytes>> = chunks.iter().map(|c| Ok(Bytes::copy_from_slice(c))).collect();
    body.extend(r.broken.then(|| Err(io::Error::other("connection reset"))));
    runtime.block_on(async {
        let mut events = EventStream::new(stream::iter(body), decoder, site(r), Duration::from_secs(1));
        let mut assembler = Assembler::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => assembler.push(&event),
                Err(mut error) => {
                    write!(error.message, " | partial {:?}", assembler.partial()).unwrap();
                    return Err(error);
                }
            };
        }
        let done = assembler.finish()?;
        let mut out = format!("{} {:?} {:?}\n", done.stop.as_str(), done.model, done.usage.total());
        for block in &done.content {
            match block {
                Block::ToolUse(u) => {
                    writeln!(out, "  call {} {} {} {:?}", u.id.as_str(), u.name, u.input.get(), u.broken)
                        .unwrap();
                }
                other => writeln!(out, "  {other:?}").unwrap(),
            }
        }
        Ok(out)
    })
}

fn show(result: &Played) -> String {
    match result {
        Ok(text) => text.clone(),
        Err(e) => format!(
            "error {} {:?} {:?} {:?}\n  {}\n",
            e.kind.as_str(),
            e.status,
            e.request_id,
            e.retry_after,
            e.message
        ),
    }
}

/// Plays one body that was written by hand; `api` is `anthropic` or `openai`.
pub(crate) fn play_body(api: &str, body: &str) -> String {
    let r = by_hand(api, body);
    play(&runtime(), &r, &[&r.body])
}

/// The same in pieces, which need be no text.
pub(crate) fn play_chunks(api: &str, chunks: &[&[u8]]) -> String {
    play(&runtime(), &by_hand(api, ""), chunks)
}

fn by_hand(api: &str, body: &str) -> Recording {
    Recording {
        name: api.into(),
        status: StatusCode::OK,
        headers: HeaderMap::new(),
        body: body.as_bytes().to_vec(),
        broken: false,
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

/// A deep run cuts bodies up to this size at every byte. What that costs grows with the square of the size: the three
/// largest recordings, which repeat a few kinds of lines hundreds of times, would take longer than all others together.
const SMALL: usize = 8_000;

/// Where a body is cut: at every byte of each line that is unlike all lines before it (their shapes are in `shapes`), and at
/// the start and the end of every other line, for a decoder in the middle of a line is in no state that it was not in at
/// the same place of a line of the same shape. In a deep run at every byte, or if the body is large at every byte of
/// each line that is unlike those before it in this body.
fn cuts(body: &[u8], shapes: &mut HashSet<Vec<u8>>) -> Vec<usize> {
    cases(
        cuts_by_shape(body, shapes),
        match body.len() {
            0..SMALL => (0..=body.len()).collect(),
            _ => cuts_by_shape(body, &mut HashSet::new()),
        },
    )
}

fn cuts_by_shape(body: &[u8], shapes: &mut HashSet<Vec<u8>>) -> Vec<usize> {
    let (mut few, mut start) = (Vec::new(), 0);
    for line in body.split_inclusive(|b| *b == b'\n') {
        let end = start + line.len();
        if shapes.insert(shape(line)) {
            few.extend(start..end);
        } else {
            few.extend([start, end - 1]);
        }
        start = end;
    }
    few.push(body.len());
    few
}

/// A line without what a decoder does not look at before the line is whole: a run of ASCII characters that neither end a
/// line nor give JSON its structure counts as one of them.
fn shape(line: &[u8]) -> Vec<u8> {
    let plain = |b: &u8| if b.is_ascii() && !b"\r\n{}[]:\"\\".contains(b) { b'a' } else { *b };
    let mut shape: Vec<u8> = line.iter().map(plain).collect();
    shape.dedup();
    shape
}

/// Cuts the recordings of one API. A part tries every second cut, so that no test takes minutes.
fn cut_everywhere(api: &str, part: usize) {
    let mut recordings: Vec<Recording> = recordings().into_iter().filter(|r| r.name.contains(api)).collect();
    // Each shape is cut in the shortest recording that has it.
    recordings.sort_by_key(|r| r.body.len());
    let mut shapes = HashSet::new();
    for r in &recordings {
        let want = play(&runtime(), r, &[&r.body]);
        let cuts: Vec<usize> = cuts(&r.body, &mut shapes).into_iter().skip(part).step_by(PARTS).collect();
        std::thread::scope(|scope| {
            for some in cuts.chunks(cuts.len().div_ceil(THREADS).max(1)) {
                let want = &want;
                scope.spawn(move || {
                    let runtime = runtime();
                    for cut in some {
                        let (a, b) = r.body.split_at(*cut);
                        assert_eq!(play(&runtime, r, &[a, b]), *want, "{} cut at {cut}", r.name);
                    }
                });
            }
        });
        if part > 0 {
            continue;
        }
        let single: Vec<&[u8]> = r.body.chunks(1).collect();
        assert_eq!(play(&runtime(), r, &single), want, "{} byte by byte", r.name);
    }
}

/// One test for each part of the cuts.
macro_rules! parts {
    ($($test:ident: $api:literal, $part:literal;)*) => {
        $(#[test]
        fn $test() {
            cut_everywhere($api, $part);
        })*
    };
}

parts! {
    h_str_01_anthropic_recordings_cut_at_every_byte: "anthropic", 0;
    h_str_01_anthropic_recordings_cut_at_every_byte_part_2: "anthropic", 1;
    h_str_01_openai_recordings_cut_at_every_byte: "openai", 0;
    h_str_01_openai_recordings_cut_at_every_byte_part_2: "openai", 1;
}

#[test]
fn each_line_of_a_new_shape_is_cut_at_every_byte() {
    let body = "data: {\"n\": 1}\ndata: {\"n\": 22}\ndata: [DONE]\n";
    let (first, second) = (body.find('\n').unwrap() + 1, body.rfind("data").unwrap());
    let few: Vec<usize> = (0..first).chain([first, second - 1]).chain(second..=body.len()).collect();
    assert_eq!(cuts_by_shape(body.as_bytes(), &mut HashSet::new()), few);
    assert_eq!(cuts(body.as_bytes(), &mut HashSet::new()), cases(few, (0..=body.len()).collect()));
}

#[test]
fn recordings_give_what_was_checked_in() {
    let runtime = runtime();
    let all = recordings();
    // Two recordings hold no answer at all.
    assert!(all.len() >= 62, "{}", all.len());
    let mut text = String::new();
    for r in &all {
        writeln!(text, "{}: {}", r.name, play(&runtime, r, &[&r.body]).trim_end()).unwrap();
    }
    let golden = folder().join("recordings.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&golden, &text).unwrap();
    }
    let want = std::fs::read_to_string(golden).unwrap_or_default();
    for (got, want) in text.lines().zip(want.lines()) {
        assert_eq!(got, want);
    }
    assert_eq!(text.lines().count(), want.lines().count());
}

/// 2-, 3- and 4-byte characters, in text and in arguments, in both framings.
#[test]
fn h_str_01_long_characters_survive_every_cut() {
    let runtime = runtime();
    let anthropic = |end: &str| {
        [
            r#"event: message_start|data: {"type":"message_start","message":{"id":"1","model":"m"}}||"#,
            r#"event: content_block_start|data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}||"#,
            r#"event: content_block_delta|data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"é€𝄞"}}||"#,
            r#"event: content_block_start|data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"c","name":"W"}}||"#,
            r#"event: content_block_delta|data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"t\":\"é€𝄞\"}"}}||"#,
            r#"event: message_delta|data: {"type":"message_delta","delta":{"stop_reason":"tool_use"}}||"#,
            r#"event: message_stop|data: {"type":"message_stop"}||"#,
        ]
        .concat()
        .replace('|', end)
    };
    let openai = |end: &str| {
        [
            r#"data: {"choices":[{"delta":{"content":"é€𝄞"}}]}||"#,
            r#"data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"W","arguments":"{\"t\":\"é€𝄞\"}"}}]}}]}||"#,
            r#"data: {"choices":[{"delta":{},"finish_reason":"tool_calls"}]}||data: [DONE]||"#,
        ]
        .concat()
        .replace('|', end)
    };
    for end in ["\n", "\r\n"] {
        for (name, body) in [("anthropic", anthropic(end)), ("openai", openai(end))] {
            let r = by_hand(name, &body);
            for cut in 0..=r.body.len() {
                let (a, b) = r.body.split_at(cut);
                let got = play(&runtime, &r, &[a, b]);
                assert!(got.contains(r#"Text("é€𝄞")"#) && got.contains(r#"{"t":"é€𝄞"}"#), "{cut}: {got}");
            }
        }
    }
}
