//! Recordings of real servers, played back. Each stream is cut at every byte: the result must be the one that was checked
//! in. `UPDATE_GOLDEN=1` writes that anew.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::StreamExt as _;
use open_agent_model::{Assembler, Block, Provider, ProviderError};
use open_agent_providers::{Profile, ProviderConfig, provider};
use tokio::runtime::{Builder, Runtime};

use super::sender::{Answer, Sender};
use crate::support::hello;

/// The bytes between two cuts of one play. Each play is a request, so that one play for each cut would take minutes.
const GAP: usize = 32;

struct Recording {
    name: String,
    /// The status line and the headers, without those that say how the body is transferred.
    head: String,
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
    let (status, fields) = head.split_once('\n').unwrap_or((head, ""));
    status.split(' ').nth(1)?.parse::<u16>().ok()?;
    let transfer = ["transfer-encoding", "content-length", "content-encoding", "connection", "keep-alive"];
    let kept = fields.lines().filter(|line| {
        line.split_once(':').is_some_and(|(name, _)| !transfer.contains(&name.to_ascii_lowercase().as_str()))
    });
    // HTTP/2 has no text for a status, and no such line here.
    let code = status.split(' ').nth(1)?;
    let head = kept.fold(format!("HTTP/1.1 {code} .\r\n"), |head, line| head + line.trim_end() + "\r\n");
    let (body, broken) = match body.split_once("curl: (") {
        Some((body, _)) => (body, true),
        None => (body, false),
    };
    Some(Recording { name, head, body: body.as_bytes().to_vec(), broken })
}

/// Both providers, before a server that sends them what a test wants.
struct Player {
    runtime: Runtime,
    sender: Sender,
    anthropic: Arc<dyn Provider>,
    openai: Arc<dyn Provider>,
}

thread_local! {
    static PLAYER: Player = Player::new();
}

type Played = Result<String, ProviderError>;

impl Player {
    fn new() -> Self {
        let sender = Sender::start();
        let of = |profile| {
            let mut config =
                ProviderConfig::new(Profile::by_name(profile).unwrap()).with_base_url(&sender.url);
            config.name = "server".into();
            provider(config).unwrap()
        };
        let (anthropic, openai) = (of("anthropic"), of("openai"));
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        Self { runtime, sender, anthropic, openai }
    }

    fn play(&self, r: &Recording, chunks: &[&[u8]]) -> String {
        let pieces = chunks.iter().map(|chunk| chunk.to_vec()).collect();
        self.sender.will_send(Answer { head: r.head.clone(), pieces, breaks: r.broken });
        let provider = if r.name.contains("anthropic") { &self.anthropic } else { &self.openai };
        let shown = show(&self.runtime.block_on(run(&**provider)));
        // The port is another one each time.
        let shown = shown.replace(&self.sender.url, "http://h");
        shown.replace("/v1/messages", "/v1").replace("/v1/chat/completions", "/v1")
    }
}

async fn run(provider: &dyn Provider) -> Played {
    let mut events = provider.stream(hello()).await?;
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
}

fn play(r: &Recording, chunks: &[&[u8]]) -> String {
    PLAYER.with(|player| player.play(r, chunks))
}

fn show(result: &Played) -> String {
    match result {
        Ok(text) => text.clone(),
        Err(e) => {
            let (kind, hint) = (e.kind.as_str(), e.hint.as_ref().map(|hint| format!("\n  {hint:?}")));
            format!(
                "error {kind} {:?} {:?} {:?}\n  {}{}\n",
                e.status,
                e.request_id,
                e.retry_after,
                e.message,
                hint.unwrap_or_default()
            )
        }
    }
}

/// Plays one body that was written by hand; `api` is `anthropic` or `openai`.
pub(super) fn play_body(api: &str, body: &str) -> String {
    let r = by_hand(api, body);
    play(&r, &[&r.body])
}

/// The same in pieces, which need be no text.
pub(super) fn play_chunks(api: &str, chunks: &[&[u8]]) -> String {
    play(&by_hand(api, ""), chunks)
}

fn by_hand(api: &str, body: &str) -> Recording {
    Recording {
        name: api.into(),
        head: "HTTP/1.1 200 OK\r\n".into(),
        body: body.as_bytes().to_vec(),
        broken: false,
    }
}

/// Cuts each recording at every byte: in the first play at bytes 0, `GAP`, twice that and so on, in the next play one byte
/// later, until each byte was a cut once. A run that is not deep makes every fifth play.
fn cut_everywhere(api: &str) {
    for r in recordings().iter().filter(|r| r.name.contains(api)) {
        let want = play(r, &[&r.body]);
        // Five and 32 have no common factor, so the few plays of a quick run meet all kinds of places.
        for first in (0..GAP.min(r.body.len() + 1)).step_by(open_agent_testkit::cases(5, 1)) {
            let (head, rest) = r.body.split_at(first);
            let chunks: Vec<&[u8]> = std::iter::once(head).chain(rest.chunks(GAP)).collect();
            assert_eq!(play(r, &chunks), want, "{} cut at {first} and every {GAP} bytes on", r.name);
        }
        let single: Vec<&[u8]> = r.body.chunks(1).collect();
        assert_eq!(play(r, &single), want, "{} byte by byte", r.name);
    }
}

#[test]
fn h_str_01_anthropic_recordings_cut_at_every_byte() {
    cut_everywhere("anthropic");
}

#[test]
fn h_str_01_openai_recordings_cut_at_every_byte() {
    cut_everywhere("openai");
}

#[test]
fn recordings_give_what_was_checked_in() {
    let all = recordings();
    // Two recordings hold no answer at all.
    assert!(all.len() >= 62, "{}", all.len());
    let mut text = String::new();
    for r in &all {
        writeln!(text, "{}: {}", r.name, play(r, &[&r.body]).trim_end()).unwrap();
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
                let got = play(&r, &[a, b]);
                assert!(got.contains(r#"Text("é€𝄞")"#) && got.contains(r#"{"t":"é€𝄞"}"#), "{cut}: {got}");
            }
        }
    }
}
