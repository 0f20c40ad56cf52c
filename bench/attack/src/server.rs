//! A model without a model: a server on loopback that speaks the streamed Messages API. It lives in the attacking
//! process, so it outlives the processes that are killed and sees exactly what the model is told.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};

use crate::now;
use crate::plan::{Step, label, tool_use};
use crate::rng::Rng;

/// A request as it came, and what was answered.
#[derive(Clone)]
pub struct Exchange {
    /// Seconds since 1970.
    pub at: f64,
    /// The request's body.
    pub body: Value,
    /// The text of the answer.
    pub text: String,
}

/// What the server knows of one conversation. It is told apart from others by the first part of the request's path.
pub struct Talk {
    plan: Vec<Step>,
    nonce: u64,
    slow: bool,
    keep: bool,
    rng: Rng,
    /// All requests so far.
    pub exchanges: Vec<Exchange>,
}

/// The server.
#[derive(Clone)]
pub struct Server {
    port: u16,
    talks: Arc<Mutex<HashMap<String, Talk>>>,
}

impl Server {
    /// Starts it.
    pub fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let server = Self { port: listener.local_addr()?.port(), talks: Arc::default() };
        let accepting = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = accepting.clone();
                std::thread::spawn(move || {
                    let _ = server.serve(stream);
                });
            }
        });
        Ok(server)
    }

    /// Begins a conversation and returns its address. The numbers in labels of calls begin at `nonce`. With `keep`, the
    /// requests are kept.
    pub fn talk(&self, key: &str, plan: Vec<Step>, nonce: u64, slow: bool, keep: bool) -> String {
        let talk = Talk { plan, nonce, slow, keep, rng: Rng::new(nonce, 77), exchanges: Vec::new() };
        self.lock().insert(key.to_owned(), talk);
        format!("http://127.0.0.1:{}/{key}", self.port)
    }

    /// Returns the requests of a conversation.
    pub fn exchanges(&self, key: &str) -> Vec<Exchange> {
        self.lock().get(key).map(|talk| talk.exchanges.clone()).unwrap_or_default()
    }

    /// Returns the number of requests of a conversation.
    pub fn count(&self, key: &str) -> usize {
        self.lock().get(key).map_or(0, |talk| talk.exchanges.len())
    }

    /// Forgets a conversation.
    pub fn forget(&self, key: &str) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Talk>> {
        self.talks.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut out = stream;
        while let Some((path, body)) = read_request(&mut reader)? {
            let key = path.trim_start_matches('/').split('/').next().unwrap_or_default().to_owned();
            let (events, pauses) = match self.answer(&key, body) {
                Some(answer) => answer,
                None => {
                    out.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")?;
                    continue;
                }
            };
            out.write_all(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
            )?;
            for (event, pause) in events.iter().zip(pauses) {
                let name = event["type"].as_str().unwrap_or_default();
                let text = format!("event: {name}\ndata: {event}\n\n");
                out.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes())?;
                std::thread::sleep(Duration::from_micros(pause));
            }
            out.write_all(b"0\r\n\r\n")?;
        }
        Ok(())
    }

    /// The number of answers in the conversation decides what is answered: what the script has there.
    fn answer(&self, key: &str, body: Value) -> Option<(Vec<Value>, Vec<u64>)> {
        let mut talks = self.lock();
        let talk = talks.get_mut(key)?;
        let step = body["messages"]
            .as_array()
            .map_or(0, |all| all.iter().filter(|m| m["role"] == "assistant").count());
        talk.nonce += 1;
        let nonce = talk.nonce;
        // About as many tokens as a vendor would count, so that nothing looks cut.
        let tokens = body.to_string().len() / 4;
        let calls = talk.plan.get(step).cloned().unwrap_or_default();
        let text = if step >= talk.plan.len() {
            format!("FINAL of {key}, answer {nonce}.")
        } else if calls.is_empty() {
            format!("PAUSE of {key} at step {step}, answer {nonce}.")
        } else {
            format!("Step {step}, answer {nonce}.")
        };
        let mut events = vec![
            json!({"type": "message_start", "message": {"id": format!("msg_{key}_{nonce}"), "type": "message",
                "role": "assistant", "content": [], "model": "claude-sonnet-4-6", "stop_reason": null,
                "stop_sequence": null, "usage": {"input_tokens": tokens, "output_tokens": 1}}}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
            json!({"type": "content_block_stop", "index": 0}),
        ];
        for (place, (call, ms)) in calls.iter().enumerate() {
            let (name, input) = tool_use(*call, *ms, &label(key, step, place, nonce));
            let index = place + 1;
            events.push(
                json!({"type": "content_block_start", "index": index, "content_block": {"type": "tool_use",
                "id": format!("toolu_{key}_{nonce}_{place}"), "name": name, "input": {}}}),
            );
            let input = input.to_string();
            let (head, tail) = input.split_at(input.char_indices().nth(12).map_or(0, |(at, _)| at));
            for part in [head, tail] {
                events.push(json!({"type": "content_block_delta", "index": index,
                    "delta": {"type": "input_json_delta", "partial_json": part}}));
            }
            events.push(json!({"type": "content_block_stop", "index": index}));
        }
        let stop = if calls.is_empty() { "end_turn" } else { "tool_use" };
        events.push(json!({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": null},
            "usage": {"output_tokens": 20}}));
        events.push(json!({"type": "message_stop"}));
        let slow = talk.slow && talk.rng.percent(30);
        let pauses = events.iter().map(|_| if slow { talk.rng.below(15_000) } else { 0 }).collect();
        if talk.keep {
            talk.exchanges.push(Exchange { at: now(), body, text });
        }
        Some((events, pauses))
    }
}

/// Reads a request: its path and its body. `None` at the end of the connection.
fn read_request(reader: &mut BufReader<TcpStream>) -> std::io::Result<Option<(String, Value)>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let path = line.split_whitespace().nth(1).unwrap_or_default().to_owned();
    let (mut length, mut chunked) = (0, false);
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let lower = line.trim().to_ascii_lowercase();
        if lower.is_empty() {
            break;
        }
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        chunked |= lower.starts_with("transfer-encoding:") && lower.contains("chunked");
    }
    let mut body = Vec::new();
    if chunked {
        loop {
            line.clear();
            reader.read_line(&mut line)?;
            let size = usize::from_str_radix(line.trim(), 16).unwrap_or(0);
            let mut chunk = vec![0; size + 2];
            reader.read_exact(&mut chunk)?;
            if size == 0 {
                break;
            }
            body.extend_from_slice(&chunk[..size]);
        }
    } else {
        body = vec![0; length];
        reader.read_exact(&mut body)?;
    }
    Ok(Some((path, serde_json::from_slice(&body).unwrap_or(Value::Null))))
}
