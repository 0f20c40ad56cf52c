//! The HTTP side. Owns sockets and the sending of bodies with their faults.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body as HttpBody, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};

use crate::server::reply::{Body, Pace, Reply};
use crate::server::{Format, Recorded, State, check, render};

const LARGEST_REQUEST: usize = 256 << 20;

pub(super) async fn serve(listener: TcpListener, state: Arc<State>, mut stopped: oneshot::Receiver<()>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = &mut stopped => return,
        };
        let Ok((socket, peer)) = accepted else { continue };
        // Pieces are to arrive as they are sent.
        let _ = socket.set_nodelay(true);
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(request, peer, Arc::clone(&state)));
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(socket), service)
                .await;
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    peer: SocketAddr,
    state: Arc<State>,
) -> Result<Response<Paced>, Infallible> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, LARGEST_REQUEST).collect().await.map(|b| b.to_bytes()).unwrap_or_default();
    let path = head.uri.path().to_owned();
    let headers: BTreeMap<String, String> = head
        .headers
        .iter()
        .map(|(k, v)| (k.as_str().to_owned(), String::from_utf8_lossy(v.as_bytes()).into_owned()))
        .collect();
    let text = String::from_utf8_lossy(&body).into_owned();
    let recorded = Recorded {
        peer,
        method: head.method.to_string(),
        query: head.uri.query().unwrap_or_default().to_owned(),
        headers,
        body: serde_json::from_str(&text).unwrap_or_default(),
        text,
        format: format_of(&path),
        path,
    };
    let reply = choose(&recorded, head.method == Method::POST, &state);
    Ok(send(reply, state))
}

fn format_of(path: &str) -> Option<Format> {
    if path.ends_with("/messages") || path.ends_with("/messages/count_tokens") {
        Some(Format::Anthropic)
    } else if path.ends_with("/chat/completions") {
        Some(Format::OpenAi)
    } else {
        None
    }
}

fn choose(request: &Recorded, post: bool, state: &State) -> Reply {
    let mut log = state.log();
    log.requests.push(request.clone());
    state.changed.notify_all();
    let Some(format) = request.format.filter(|_| post) else {
        return Reply::error(404, "not_found_error", "there is nothing at this path");
    };
    let counts = request.path.ends_with("/count_tokens");
    if let Err(fault) = check::request(&request.body, format, counts) {
        log.violations.push(fault.clone());
        return Reply::error(400, "invalid_request_error", &fault);
    }
    if counts {
        let tokens = request.text.len() / 4 + 1;
        return Reply::status(200, &json!({ "input_tokens": tokens }));
    }
    let turn = log.turns;
    log.turns += 1;
    drop(log);
    // The lock is not held here: a script may ask for anything.
    let Some(mut reply) = state.script.reply(turn, request) else {
        let fault = format!("the script has no reply number {}", turn + 1);
        state.log().violations.push(fault.clone());
        return Reply::error(400, "invalid_request_error", &fault);
    };
    if let Body::Answer(answer) = &reply.body {
        let (content_type, text) = render::answer(answer, request, format, turn);
        reply.body = Body::Raw(text.into());
        reply.headers.push(("content-type".to_owned(), content_type.to_owned()));
    }
    reply
}

fn send(reply: Reply, state: Arc<State>) -> Response<Paced> {
    let bytes = match reply.body {
        Body::Raw(bytes) => bytes,
        // Rendered before it comes here.
        Body::Answer(_) => Bytes::new(),
    };
    let mut response = Response::new(Paced::new(bytes, reply.pace, state));
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in &reply.headers {
        let name = hyper::header::HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, value.parse()) {
            response.headers_mut().append(name, value);
        }
    }
    response
}

/// A body that is sent as its pace says.
pub(super) struct Paced {
    rest: Bytes,
    /// Bytes of the next piece.
    next: usize,
    pace: Pace,
    pause: Option<Pin<Box<Sleep>>>,
    /// The next poll gives way once, so that what was given is sent by itself.
    breathe: bool,
    over: bool,
    state: Arc<State>,
}

impl Drop for Paced {
    fn drop(&mut self) {
        if !self.over {
            self.state.log().abandoned += 1;
            self.state.changed.notify_all();
        }
    }
}

#[derive(Debug)]
pub(super) struct CutOnPurpose;

impl std::fmt::Display for CutOnPurpose {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cut on purpose")
    }
}

impl std::error::Error for CutOnPurpose {}

impl Paced {
    fn new(rest: Bytes, pace: Pace, state: Arc<State>) -> Self {
        let next = match pace {
            Pace::Whole | Pace::Split(0) => rest.len(),
            Pace::Cut(at) | Pace::Stall(at) | Pace::Split(at) => at.min(rest.len()),
            Pace::Drip { size, .. } => size.max(1),
        };
        Self { rest, next, pace, pause: None, breathe: false, over: false, state }
    }
}

impl HttpBody for Paced {
    type Data = Bytes;
    type Error = CutOnPurpose;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CutOnPurpose>>> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        if std::mem::take(&mut self.breathe) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.next > 0 {
            let size = self.next.min(self.rest.len());
            let piece = self.rest.split_to(size);
            // What was sent has to leave before the next piece or the end does.
            let flush = Duration::from_millis(1);
            (self.next, self.pause) = match self.pace {
                Pace::Whole | Pace::Stall(_) => (0, None),
                Pace::Cut(_) => (0, Some(Box::pin(sleep(flush)))),
                Pace::Split(_) => (self.rest.len(), Some(Box::pin(sleep(flush)))),
                Pace::Drip { size, pause } => {
                    let timer = (!pause.is_zero()).then(|| Box::pin(sleep(pause)));
                    self.breathe = timer.is_none();
                    (size.max(1).min(self.rest.len()), timer)
                }
            };
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        if matches!(self.pace, Pace::Stall(_)) {
            return Poll::Pending;
        }
        self.over = true;
        Poll::Ready(if matches!(self.pace, Pace::Cut(_)) { Some(Err(CutOnPurpose)) } else { None })
    }
}
