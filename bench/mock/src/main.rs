//! A scripted model server to bench agents against: no thinking, exact counting, one clock.
//!
//!   mockllm --port 18080 --dir REPO --log FILE.jsonl [--dump DIR]
//!
//! The path of a request is `/s/<options>/v1/…`, where the options are a comma list of `key=value`:
//!   n     tool turns before the final answer (1)
//!   p     parallel tool calls in each turn (1)
//!   d     text deltas in the final answer (1: "DONE")
//!   ds    bytes of each delta (20)
//!   cb    bytes of events to a write, about (16384; 0: one event a write)
//!   lat   delay before a response, ms (0)
//!   tool  the tool to call, by name
//!   run   a tag for the log
//! The turn is the number of tool results in the conversation, divided by p: the server keeps no state.

mod reply;
mod request;

use std::convert::Infallible;
use std::io::Write;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::body::{Body, Frame, Incoming};
use hyper::{Request, Response};
use serde_json::{Value, json};

use reply::{Act, Call, Events};
use request::{Api, Tool};

struct Server {
    dir: String,
    log: mpsc::Sender<String>,
    count: AtomicU64,
    dump: Option<String>,
}

struct Options {
    turns: usize,
    parallel: usize,
    deltas: usize,
    delta_bytes: usize,
    write_bytes: usize,
    latency: u64,
    tool: Option<String>,
    run: String,
}

impl Options {
    fn read(segment: &str) -> Options {
        let mut o = Options {
            turns: 1,
            parallel: 1,
            deltas: 1,
            delta_bytes: 20,
            write_bytes: 16384,
            latency: 0,
            tool: None,
            run: String::new(),
        };
        for (key, text) in segment.split(',').filter_map(|pair| pair.split_once('=')) {
            let number = text.parse::<usize>().unwrap_or(0);
            match key {
                "n" => o.turns = number,
                "p" => o.parallel = number.max(1),
                "d" => o.deltas = number.max(1),
                "ds" => o.delta_bytes = number.max(1),
                "cb" => o.write_bytes = number,
                "lat" => o.latency = number as u64,
                "tool" => o.tool = Some(text.into()),
                "run" => o.run = text.into(),
                _ => {}
            }
        }
        o
    }
}

/// The record of one request; logged when the response has been handed over, or dropped by a client that left.
struct Record {
    fields: Value,
    log: mpsc::Sender<String>,
}

impl Record {
    fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.fields[key] = value.into();
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.set("t_end", now());
        let _ = self.log.send(self.fields.to_string());
    }
}

/// A response body rendered while it is sent, so that a long answer costs no memory here.
struct Stream {
    events: Events,
    write_bytes: usize,
    record: Option<Record>,
}

impl Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let mut buffer = String::new();
        let enough = self.write_bytes;
        for event in self.events.by_ref() {
            buffer.push_str(&event);
            if buffer.len() >= enough {
                break;
            }
        }
        if buffer.is_empty() {
            self.record.take();
            return Poll::Ready(None);
        }
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(buffer)))))
    }
}

type Answer = Response<BoxBody<Bytes, Infallible>>;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let args: Vec<String> = std::env::args().collect();
    let get = |key: &str| args.iter().position(|arg| arg == key).and_then(|i| args.get(i + 1)).cloned();
    let port: u16 = get("--port").and_then(|port| port.parse().ok()).unwrap_or(18080);
    let (log, lines) = mpsc::channel::<String>();
    let file = get("--log").unwrap_or_else(|| "mock.jsonl".into());
    std::thread::spawn(move || write_log(&file, &lines));
    let server = Arc::new(Server {
        dir: get("--dir").unwrap_or_else(|| ".".into()),
        log,
        count: AtomicU64::new(0),
        dump: get("--dump"),
    });
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.expect("bind");
    eprintln!("mockllm on 127.0.0.1:{port}");
    loop {
        let Ok((connection, _)) = listener.accept().await else { continue };
        let _ = connection.set_nodelay(true);
        let server = server.clone();
        tokio::spawn(async move {
            let service = hyper::service::service_fn(move |request| handle(server.clone(), request));
            let io = hyper_util::rt::TokioIo::new(connection);
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
        });
    }
}

fn write_log(path: &str, lines: &mpsc::Receiver<String>) {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).expect("log");
    while let Ok(line) = lines.recv() {
        let mut text = line + "\n";
        for more in lines.try_iter() {
            text.push_str(&more);
            text.push('\n');
        }
        let _ = file.write_all(text.as_bytes());
    }
}

async fn handle(server: Arc<Server>, request: Request<Incoming>) -> Result<Answer, Infallible> {
    let arrived = now();
    let path = request.uri().path().to_string();
    let method = request.method().to_string();
    let (options, route) = match path.strip_prefix("/s/").and_then(|rest| rest.split_once('/')) {
        Some((segment, rest)) => {
            (Options::read(&segment.replace("%3D", "=").replace("%2C", ",")), format!("/{rest}"))
        }
        None => (Options::read(""), path),
    };
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let number = server.count.fetch_add(1, Relaxed);
    let fields = json!({"run": options.run, "seq": number, "method": method, "path": route, "t_arr": arrived,
        "t_body": now(), "body": body.len()});
    let mut record = Record { fields, log: server.log.clone() };

    let Some(api) = Api::of(&route).filter(|_| method == "POST") else {
        record.set("kind", "other");
        return Ok(aside(&method, &route, body.len()));
    };
    let json: Value = match serde_json::from_slice(&body) {
        Ok(json) => json,
        Err(error) => {
            record.set("kind", "bad");
            return Ok(answer(400, &json!({"error": {"message": error.to_string()}})));
        }
    };
    if let Some(folder) = &server.dump {
        let _ = std::fs::write(format!("{folder}/{number:06}.json"), &body);
    }
    let tools = request::tools(api, &json);
    let shape = request::shape(api, &json);
    let tool = request::pick(&tools, options.tool.as_deref());
    let turn = shape.results / options.parallel;
    let id = format!("{:08x}{:04x}", (arrived / 1000) as u32, number & 0xffff);
    let (kind, act) = decide(&server.dir, &options, tool, turn, &id);
    // A request without tools is not the loop's own: a title, a summary.
    let kind = if tools.is_empty() { "side" } else { kind };
    record.set("api", api.name());
    record.set("kind", kind);
    record.set("turn", turn);
    record.set("msgs", shape.messages);
    record.set("tools", tools.len());
    record.set("tools_bytes", request::len(&json["tools"]));
    record.set("sys", shape.system_bytes);
    record.set("stream", json["stream"].clone());
    if let Some(tool) = tool {
        record.set("tool", tool.name.as_str());
    }
    if options.latency > 0 {
        tokio::time::sleep(Duration::from_millis(options.latency)).await;
    }
    let model = json["model"].as_str().unwrap_or("mock").to_string();
    record.set("t_resp", now());
    if json["stream"] != json!(true) {
        return Ok(answer(200, &reply::whole(api, act, &model, &id)));
    }
    let events = reply::events(api, act, model, id);
    let stream = Stream { events, write_bytes: options.write_bytes, record: Some(record) };
    let response = Response::builder()
        .header("content-type", "text/event-stream")
        .header("cache-control", "no-cache")
        .body(BodyExt::boxed(stream));
    Ok(response.expect("headers"))
}

/// One more file until the turns are through, then the final answer.
fn decide(dir: &str, options: &Options, tool: Option<&Tool>, turn: usize, id: &str) -> (&'static str, Act) {
    let text = |count| {
        let letters = "abcdefghijklmnop qr ".chars().cycle();
        Act::Text { count, delta: letters.take(options.delta_bytes).collect() }
    };
    let done = || Act::Text { count: 1, delta: "DONE".into() };
    match tool {
        None => ("final", done()),
        Some(tool) if turn < options.turns => {
            let call = |i: usize| {
                let file = format!("{dir}/src/f{}.txt", (turn * options.parallel + i) % 200);
                Call {
                    id: format!("{id}{i:02}"),
                    name: tool.name.clone(),
                    input: request::arguments(tool, &file),
                    custom: tool.custom,
                }
            };
            ("tool", Act::Calls((0..options.parallel).map(call).collect()))
        }
        Some(_) if options.deltas > 1 => ("final", text(options.deltas)),
        Some(_) => ("final", done()),
    }
}

/// Routes that some agents ask before, or beside, the loop.
fn aside(method: &str, route: &str, bytes: usize) -> Answer {
    if route.ends_with("/count_tokens") {
        answer(200, &json!({"input_tokens": bytes / 4}))
    } else if route.ends_with("/models") {
        let model = json!({"id": "mock", "object": "model", "created": 1750000000, "owned_by": "mock"});
        answer(200, &json!({"object": "list", "data": [model]}))
    } else if method == "HEAD" || route == "/" {
        answer(200, &json!({}))
    } else {
        answer(404, &json!({"error": {"type": "not_found", "message": "no such route"}}))
    }
}

fn answer(status: u16, json: &Value) -> Answer {
    Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(json.to_string())).boxed())
        .expect("status")
}

/// Nanoseconds of the wall clock: the bench's own clock, for both sides run on one machine.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_nanos() as u64
}
