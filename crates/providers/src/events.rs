//! From bytes to events. Owns the stream that callers read: framing, the idle limit, the plain answer where a stream was
//! asked for. Knows no vendor: a decoder reads the frames.

use std::collections::VecDeque;
use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use open_agent_http::SseDecoder;
use open_agent_model::{ModelEvent, ProviderError};
use tokio::time::{Instant, Sleep, sleep};

use crate::failure::Site;

/// An event holds at most a block, and blocks of many megabytes are met: generated pictures.
const LARGEST_EVENT: usize = 32 << 20;
const LARGEST_ANSWER: usize = 64 << 20;
/// After the vendor's end mark the connection's own end is waited for this long, so that the connection can be used again.
const LINGER: Duration = Duration::from_millis(250);

pub(crate) type Queue = VecDeque<ModelEvent>;

/// Reads one vendor's frames.
pub(crate) trait Decode: Send + Unpin {
    /// One event of a stream.
    fn frame(&mut self, name: &str, data: &[u8], out: &mut Queue) -> Result<(), ProviderError>;
    /// A whole answer in one piece.
    fn whole(&mut self, body: &[u8], out: &mut Queue) -> Result<(), ProviderError>;
    /// The stream is over. Gives out what was held back; false if the answer was not finished.
    fn close(&mut self, out: &mut Queue) -> bool;
}

/// The events of one answer.
pub(crate) struct EventStream<S, D> {
    body: S,
    decoder: D,
    sse: SseDecoder,
    mode: Mode,
    queue: Queue,
    /// Bytes of frames so far.
    taken: usize,
    failed: Option<ProviderError>,
    idle: Idle,
    site: Arc<Site>,
}

enum Mode {
    /// Nothing but white space has come.
    Unknown,
    Frames,
    Whole(Vec<u8>),
    /// The vendor's end mark has been read.
    Ended,
    Over,
}

impl<S, E, D> EventStream<S, D>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: Error + Send + Sync + 'static,
    D: Decode,
{
    pub(crate) fn new(body: S, decoder: D, site: Arc<Site>, limit: Duration) -> Self {
        Self {
            body,
            decoder,
            sse: SseDecoder::new(LARGEST_EVENT),
            mode: Mode::Unknown,
            queue: Queue::new(),
            taken: 0,
            failed: None,
            idle: Idle::new(limit),
            site,
        }
    }

    fn take(&mut self, chunk: &Bytes) -> Result<(), ProviderError> {
        if matches!(self.mode, Mode::Unknown) {
            match chunk.iter().find(|b| !b.is_ascii_whitespace()) {
                None => return Ok(()),
                // No line of an event stream begins like that.
                Some(b'{' | b'<') => self.mode = Mode::Whole(Vec::new()),
                Some(_) => self.mode = Mode::Frames,
            }
        }
        match &mut self.mode {
            Mode::Frames => {
                self.taken += chunk.len();
                if self.taken > LARGEST_ANSWER {
                    return Err(self.site.senseless("an answer without end", b""));
                }
                self.sse.feed(chunk);
                self.decode()
            }
            Mode::Whole(body) if body.len() + chunk.len() > LARGEST_ANSWER => {
                Err(self.site.senseless("an answer without end", chunk))
            }
            Mode::Whole(body) => {
                body.extend_from_slice(chunk);
                Ok(())
            }
            Mode::Unknown | Mode::Ended | Mode::Over => Ok(()),
        }
    }

    fn decode(&mut self) -> Result<(), ProviderError> {
        loop {
            let event = match self.sse.next_event() {
                Ok(Some(event)) => event,
                Ok(None) => return Ok(()),
                Err(error) => return Err(self.site.senseless(&error.to_string(), b"")),
            };
            self.decoder.frame(event.name, event.data, &mut self.queue)?;
            if matches!(self.queue.back(), Some(ModelEvent::End)) {
                self.mode = Mode::Ended;
                self.idle.shorten(LINGER);
                return Ok(());
            }
        }
    }

    fn close(&mut self) -> Result<(), ProviderError> {
        match std::mem::replace(&mut self.mode, Mode::Over) {
            Mode::Ended | Mode::Over => Ok(()),
            Mode::Whole(body) => self.decoder.whole(&body, &mut self.queue),
            Mode::Unknown => Err(self.site.unfinished()),
            Mode::Frames => {
                // Half a frame at the very end is part of the cut, not a fault of its own.
                if let Ok(Some(event)) = self.sse.finish()
                    && (event.data == b"[DONE]" || is_json(event.data))
                {
                    self.decoder.frame(event.name, event.data, &mut self.queue)?;
                }
                if self.decoder.close(&mut self.queue) { Ok(()) } else { Err(self.site.unfinished()) }
            }
        }
    }

    /// Ends an answer whose stop reason has come, though not the vendor's end mark.
    fn close_if_whole(&mut self) -> Option<Result<(), ProviderError>> {
        if matches!(self.mode, Mode::Frames) && self.decoder.close(&mut self.queue) {
            self.mode = Mode::Over;
            return Some(Ok(()));
        }
        None
    }

    fn fail(&mut self, error: ProviderError) {
        self.mode = Mode::Over;
        self.failed = Some(error);
    }
}

impl<S, E, D> Stream for EventStream<S, D>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: Error + Send + Sync + 'static,
    D: Decode,
{
    type Item = Result<ModelEvent, ProviderError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if let Some(event) = this.queue.pop_front() {
                return Poll::Ready(Some(Ok(event)));
            }
            if let Some(error) = this.failed.take() {
                return Poll::Ready(Some(Err(error)));
            }
            if matches!(this.mode, Mode::Over) {
                return Poll::Ready(None);
            }
            let ended = matches!(this.mode, Mode::Ended);
            let taken = match Pin::new(&mut this.body).poll_next(cx) {
                Poll::Ready(Some(Ok(_))) if ended => Ok(()),
                Poll::Ready(Some(Ok(chunk))) => {
                    this.idle.touch();
                    this.take(&chunk)
                }
                Poll::Ready(Some(Err(_))) if ended => this.close(),
                // Whatever happens to the connection after the answer's last word is no matter of the answer.
                Poll::Ready(Some(Err(error))) => {
                    this.close_if_whole().unwrap_or_else(|| Err(this.site.cut(error)))
                }
                Poll::Ready(None) => this.close(),
                Poll::Pending => {
                    ready!(this.idle.poll(cx));
                    if ended {
                        this.close()
                    } else {
                        this.close_if_whole().unwrap_or_else(|| Err(this.site.silent(this.idle.limit)))
                    }
                }
            };
            if let Err(error) = taken {
                this.fail(error);
            }
        }
    }
}

pub(crate) fn is_json(data: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(data).is_ok()
}

/// Measures silence. The timer is set anew only when it fires, not with each chunk.
struct Idle {
    timer: Pin<Box<Sleep>>,
    last: Instant,
    limit: Duration,
}

impl Idle {
    fn new(limit: Duration) -> Self {
        Self { timer: Box::pin(sleep(limit)), last: Instant::now(), limit }
    }

    fn touch(&mut self) {
        self.last = Instant::now();
    }

    fn shorten(&mut self, limit: Duration) {
        self.limit = limit;
        self.timer.as_mut().reset(self.last + limit);
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let due = self.last + self.limit;
            if Instant::now() >= due {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(due);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use futures_util::{StreamExt as _, stream};
    use open_agent_model::ProviderErrorKind;

    use super::*;
    use crate::{Profile, openai};

    const LIMIT: Duration = Duration::from_secs(300);

    /// Each piece comes after its pause; what then follows is silence.
    fn slow(pieces: Vec<(Duration, &'static str)>) -> impl Stream<Item = io::Result<Bytes>> + Unpin {
        let sent = stream::iter(pieces).then(|(pause, text)| async move {
            sleep(pause).await;
            Ok(Bytes::from_static(text.as_bytes()))
        });
        Box::pin(sent.chain(stream::pending()))
    }

    async fn play(
        pieces: Vec<(Duration, &'static str)>,
    ) -> (Vec<ModelEvent>, Option<ProviderError>, Duration) {
        let begin = Instant::now();
        let site = Arc::new(Site {
            profile: Profile::by_name("openai").unwrap(),
            name: "server".into(),
            model: "m".into(),
            address: "http://h".into(),
            path: "/".into(),
            has_key: false,
            proxy: None,
            secrets: Arc::new([]),
        });
        let mut events = EventStream::new(slow(pieces), openai::decoder(site.clone()), site, LIMIT);
        let (mut out, mut error) = (Vec::new(), None);
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => out.push(event),
                Err(e) => error = Some(e),
            }
        }
        (out, error, begin.elapsed())
    }

    const TEXT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
    const DONE: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

    #[tokio::test(start_paused = true)]
    async fn h_str_11_a_slow_stream_is_healthy() {
        let mut pieces = vec![(LIMIT / 2, TEXT); 10];
        pieces.push((LIMIT / 2, DONE));
        let (events, error, took) = play(pieces).await;
        assert!(error.is_none(), "{error:?}");
        assert_eq!(events.iter().filter(|e| matches!(e, ModelEvent::Text { .. })).count(), 10);
        assert!(took > 5 * LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn h_str_10_comments_reset_the_idle_clock_and_silence_ends_it() {
        let almost = LIMIT - Duration::from_secs(1);
        let pings = vec![(almost, ": ping\n\n"), (almost, ": ping\n\n"), (almost, DONE)];
        assert!(play(pings).await.1.is_none());
        let (events, error, took) = play(vec![(Duration::ZERO, TEXT), (almost, ": ping\n\n")]).await;
        assert_eq!(error.unwrap().kind, ProviderErrorKind::Timeout);
        assert_eq!(events.len(), 1);
        assert!(took >= almost + LIMIT && took < almost + LIMIT + Duration::from_secs(1), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_stays_open_after_the_end_holds_nobody() {
        let (events, error, took) = play(vec![(Duration::ZERO, TEXT), (Duration::ZERO, DONE)]).await;
        assert!(error.is_none() && matches!(events.last(), Some(ModelEvent::End)));
        assert!(took <= LINGER * 2, "{took:?}");
    }
}
