//! From bytes to events. Owns the stream that callers read: framing, the idle limit, how an answer ends, the plain answer
//! where a stream was asked for. Knows no vendor: a decoder reads the frames.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use open_agent_http::SseDecoder;
use open_agent_model::{ModelEvent, ProviderError};
use reqwest::header::HeaderMap;
use tokio::time::{Instant, Sleep, sleep};

use crate::failure::Site;
use crate::frame::{Decode, Queue, Reader, is_json, lines};
use crate::halves::Halves;
use crate::inband;

/// An event holds at most a block, and blocks of many megabytes are met: generated pictures.
const LARGEST_EVENT: usize = 32 << 20;
const LARGEST_ANSWER: usize = 64 << 20;
/// After the vendor's end mark the connection's own end is waited for this long, so that the connection can be used again,
/// and so that nothing is lost of servers that send the mark too early.
const LINGER: Duration = Duration::from_millis(250);

/// The same after the answer's last word, where no end mark has come: usage and more content may follow.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// So many bytes are a sign of life though no line has ended.
const GROWTH: usize = 1024;

/// So many bytes are kept of an answer, to show them if it is none.
const HEAD: usize = 4 << 10;

/// The events of one answer.
pub(crate) struct EventStream<S, D> {
    body: S,
    decoder: D,
    sse: SseDecoder,
    halves: Halves,
    mode: Mode,
    queue: Queue,
    /// An event came that says something: content, or why there is none.
    answered: bool,
    /// What the server says of the body, and its first bytes: for an answer that is none.
    headers: HeaderMap,
    head: Vec<u8>,
    /// The answer's last word has come.
    stopped: bool,
    /// Bytes of frames so far.
    taken: usize,
    /// Bytes since the last sign of life.
    grown: usize,
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
            halves: Halves::default(),
            mode: Mode::Unknown,
            queue: Queue::new(),
            answered: false,
            headers: HeaderMap::new(),
            head: Vec::new(),
            stopped: false,
            taken: 0,
            grown: 0,
            failed: None,
            idle: Idle::new(limit),
            site,
        }
    }

    /// The head under which the body came.
    pub(crate) fn with_headers(mut self, headers: HeaderMap) -> Self {
        self.headers = headers;
        self
    }

    fn take(&mut self, chunk: &Bytes) -> Result<(), ProviderError> {
        if matches!(self.mode, Mode::Unknown) {
            match chunk.iter().find(|b| !b.is_ascii_whitespace()) {
                None => return Ok(()),
                // No line of an event stream begins like that.
                Some(b'{' | b'[' | b'<') => self.mode = Mode::Whole(Vec::new()),
                Some(_) => self.mode = Mode::Frames,
            }
        }
        match &mut self.mode {
            Mode::Frames | Mode::Ended => {
                self.taken += chunk.len();
                let room = HEAD.saturating_sub(self.head.len()).min(chunk.len());
                self.head.extend_from_slice(chunk.get(..room).unwrap_or_default());
                if self.taken > LARGEST_ANSWER {
                    return Err(self.site.too_much("an answer without end"));
                }
                self.sse.feed(chunk);
                self.decode()
            }
            Mode::Whole(body) if body.len() + chunk.len() > LARGEST_ANSWER => {
                Err(self.site.too_much("an answer without end"))
            }
            Mode::Whole(body) => {
                body.extend_from_slice(chunk);
                Ok(())
            }
            Mode::Unknown | Mode::Over => Ok(()),
        }
    }

    fn decode(&mut self) -> Result<(), ProviderError> {
        loop {
            let event = match self.sse.next_event() {
                Ok(Some(event)) => event,
                Ok(None) => return Ok(()),
                Err(error) => return Err(self.site.too_much(&format!("too much at once: {error}"))),
            };
            let before = self.queue.len();
            let mut reader = Reader {
                site: &self.site,
                halves: &mut self.halves,
                decoder: &mut self.decoder,
                out: &mut self.queue,
            };
            reader.frame(event.name, event.data)?;
            if let Some(ModelEvent::End) = self.queue.back() {
                // Given out with the connection's end: what still comes belongs before it.
                self.queue.pop_back();
                if !matches!(self.mode, Mode::Ended) {
                    self.idle.touch();
                }
                self.mode = Mode::Ended;
                self.idle.shorten(LINGER);
                continue;
            }
            let mut new = self.queue.iter().skip(before);
            if (self.stopped || matches!(self.mode, Mode::Ended)) && new.clone().any(adds) {
                self.idle.touch();
            }
            if !self.stopped && new.any(|event| matches!(event, ModelEvent::Stop(_))) {
                self.stopped = true;
                self.idle.touch();
                self.idle.shorten(LAST_WORDS);
            }
        }
    }

    /// Single bytes are no sign of life: a line that never ends would hold the run for ever.
    fn notice(&mut self, chunk: &Bytes) {
        self.grown += chunk.len();
        let lives = self.grown >= GROWTH || memchr::memchr2(b'\n', b'\r', chunk).is_some();
        if lives && !self.stopped && !matches!(self.mode, Mode::Ended) {
            self.grown = 0;
            self.idle.touch();
        }
    }

    fn close(&mut self) -> Result<(), ProviderError> {
        let mut reader = Reader {
            site: &self.site,
            halves: &mut self.halves,
            decoder: &mut self.decoder,
            out: &mut self.queue,
        };
        let mut last = Ok(());
        let ended = match std::mem::replace(&mut self.mode, Mode::Over) {
            Mode::Over => return Ok(()),
            Mode::Unknown => return Err(self.site.unfinished()),
            Mode::Whole(body) => match lines(&body) {
                None => {
                    reader.whole(&body)?;
                    return if self.has_answer() {
                        Ok(())
                    } else {
                        Err(self.site.senseless("an answer without a message", &body))
                    };
                }
                Some(lines) => {
                    for line in lines {
                        reader.frame("", line)?;
                    }
                    take_end(reader.out)
                }
            },
            mode => {
                // Half a frame at the very end is part of the cut, not a fault of its own.
                while let Ok(Some(event)) = self.sse.finish() {
                    let (name, data) = (event.name, event.data);
                    if last.is_ok()
                        && (data == b"[DONE]" || is_json(data) || inband::of_word(name, data).is_some())
                    {
                        last = reader.frame(name, data);
                    }
                }
                take_end(reader.out) || matches!(mode, Mode::Ended)
            }
        };
        let whole = self.decoder.close(&mut self.queue) && self.has_answer();
        if whole && ended {
            // Whatever came after the answer's last word is no matter of the answer.
            self.queue.push_back(ModelEvent::End);
            return Ok(());
        }
        last?;
        match (whole, ended) {
            (true, _) => Ok(()),
            (false, true) => Err(self.site.empty()),
            (false, false) => Err(self.site.no_answer(&self.headers, &self.head)),
        }
    }

    /// After a failure of the connection: the answer, if its last word had come, else the error.
    fn close_or(&mut self, error: ProviderError) -> Result<(), ProviderError> {
        match self.mode {
            Mode::Frames if self.decoder.close(&mut self.queue) && self.has_answer() => {
                self.mode = Mode::Over;
                Ok(())
            }
            Mode::Ended => self.close(),
            _ => Err(error),
        }
    }

    fn has_answer(&self) -> bool {
        self.answered || self.queue.iter().any(says_something)
    }

    fn fail(&mut self, error: ProviderError) {
        self.mode = Mode::Over;
        self.failed = Some(error);
    }
}

fn says_something(event: &ModelEvent) -> bool {
    !matches!(
        event,
        ModelEvent::Start { .. }
            | ModelEvent::Usage(_)
            | ModelEvent::Ping
            | ModelEvent::BlockStop { .. }
            | ModelEvent::End
    )
}

/// Whether an event after the answer's end adds to it.
fn adds(event: &ModelEvent) -> bool {
    says_something(event) || matches!(event, ModelEvent::Usage(_))
}

fn take_end(out: &mut Queue) -> bool {
    let ended = matches!(out.back(), Some(ModelEvent::End));
    if ended {
        out.pop_back();
    }
    ended
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
                this.answered = this.answered || says_something(&event);
                return Poll::Ready(Some(Ok(event)));
            }
            if let Some(error) = this.failed.take() {
                return Poll::Ready(Some(Err(error)));
            }
            if matches!(this.mode, Mode::Over) {
                return Poll::Ready(None);
            }
            let taken = match Pin::new(&mut this.body).poll_next(cx) {
                Poll::Ready(Some(Ok(chunk))) => {
                    this.notice(&chunk);
                    match this.take(&chunk) {
                        Err(error) if matches!(this.mode, Mode::Ended) => this.close().map_err(|_| error),
                        taken => taken,
                    }
                }
                Poll::Ready(Some(Err(error))) => {
                    let cut = this.site.cut(error);
                    this.close_or(cut)
                }
                Poll::Ready(None) => this.close(),
                Poll::Pending => {
                    ready!(this.idle.poll(cx));
                    let limit = this.idle.limit;
                    let silent =
                        if this.grown > 0 { this.site.dripping(limit) } else { this.site.silent(limit) };
                    this.close_or(silent)
                }
            };
            if let Err(error) = taken {
                this.fail(error);
            }
        }
    }
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
        self.limit = limit.min(self.limit);
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
    use crate::{Api, Profile, anthropic, openai};

    const LIMIT: Duration = Duration::from_secs(300);

    /// Each piece comes after its pause; what then follows is silence.
    fn slow(pieces: Vec<(Duration, &'static str)>) -> impl Stream<Item = io::Result<Bytes>> + Unpin {
        let sent = stream::iter(pieces).then(|(pause, text)| async move {
            sleep(pause).await;
            Ok(Bytes::from_static(text.as_bytes()))
        });
        Box::pin(sent.chain(stream::pending()))
    }

    type Played = (Vec<ModelEvent>, Option<ProviderError>, Duration);

    async fn play(pieces: Vec<(Duration, &'static str)>) -> Played {
        play_as("openai", pieces).await
    }

    async fn play_as(profile: &str, pieces: Vec<(Duration, &'static str)>) -> Played {
        let site = Arc::new(Site {
            profile: Profile::by_name(profile).unwrap(),
            name: "server".into(),
            model: "m".into(),
            address: "http://h".into(),
            path: "/".into(),
            has_key: false,
            proxy: None,
            secrets: Arc::new([]),
        });
        let body = slow(pieces);
        match site.profile.api {
            Api::OpenAi => drain(EventStream::new(body, openai::decoder(site.clone()), site, LIMIT)).await,
            Api::Anthropic => {
                drain(EventStream::new(body, anthropic::decoder(site.clone()), site, LIMIT)).await
            }
        }
    }

    async fn drain(mut events: impl Stream<Item = Result<ModelEvent, ProviderError>> + Unpin) -> Played {
        let begin = Instant::now();
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

    const STOP: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7}}\n\n";

    #[tokio::test(start_paused = true)]
    async fn h_str_10_single_bytes_of_a_line_that_never_ends_are_silence() {
        let second = Duration::from_secs(1);
        let mut drip = vec![(Duration::ZERO, TEXT), (Duration::ZERO, "data: {\"x\":\"")];
        drip.extend(vec![(second, "a"); 1000]);
        let (_, error, took) = play(drip).await;
        let error = error.unwrap();
        assert_eq!(error.kind, ProviderErrorKind::Timeout);
        assert!(error.message.contains("not one whole line for 300s"), "{error}");
        assert!(took >= LIMIT && took < LIMIT + 2 * second, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn h_str_11_a_healthy_stream_may_come_byte_by_byte_or_in_one_long_line() {
        let healthy: Vec<&'static str> =
            [TEXT, TEXT, STOP].iter().flat_map(|text| (0..text.len()).map(|at| &text[at..=at])).collect();
        let (events, error, took) = play(healthy.into_iter().map(|byte| (LIMIT / 60, byte)).collect()).await;
        assert!(error.is_none() && took > 2 * LIMIT, "{error:?} {took:?}");
        assert!(matches!(events.last(), Some(ModelEvent::Stop(_))), "{events:?}");
        let part: &'static str = "a".repeat(GROWTH).leak();
        let mut long = vec![(Duration::ZERO, "data: {\"choices\":[{\"delta\":{\"content\":\"")];
        long.extend(vec![(LIMIT / 2, part); 10]);
        long.extend([(LIMIT / 2, "\"}}]}\n\n"), (Duration::ZERO, DONE)]);
        let (events, error, _) = play(long).await;
        assert!(error.is_none() && matches!(events.last(), Some(ModelEvent::End)), "{error:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_said_why_it_stopped_waits_a_moment_for_what_follows() {
        let (now, soon) = (Duration::ZERO, LAST_WORDS - Duration::from_millis(1));
        let (events, error, took) = play(vec![(now, TEXT), (now, STOP)]).await;
        assert!(error.is_none(), "{error:?}");
        assert!(
            matches!(events.last(), Some(ModelEvent::Stop(_) | ModelEvent::BlockStop { .. })),
            "{events:?}"
        );
        assert!(took >= LAST_WORDS && took < LAST_WORDS * 2, "{took:?}");
        // Usage and more content count and are waited for; pings are not.
        let (events, error, took) = play(vec![(now, STOP), (soon, TEXT), (soon, USAGE), (soon, USAGE)]).await;
        assert!(error.is_none() && took < LAST_WORDS * 5, "{error:?} {took:?}");
        assert_eq!(events.iter().filter(|e| matches!(e, ModelEvent::Usage(_))).count(), 2);
        assert_eq!(events.iter().filter(|e| matches!(e, ModelEvent::Text { .. })).count(), 1);
        let mut pings = vec![(now, TEXT), (now, STOP)];
        pings.extend(vec![(soon, ": ping\n\n"); 10]);
        let (_, error, took) = play(pings).await;
        assert!(error.is_none() && took < LAST_WORDS * 2, "{error:?} {took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_said_why_it_stopped_ends_without_its_end_mark() {
        const MESSAGE: &str = "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"}}\n\n\
             data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n";
        let (events, error, took) = play_as("anthropic", vec![(Duration::ZERO, MESSAGE)]).await;
        assert!(error.is_none() && events.len() == 2, "{error:?} {events:?}");
        assert!(took < LAST_WORDS * 2, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_stays_open_after_the_end_holds_nobody() {
        let (events, error, took) = play(vec![(Duration::ZERO, TEXT), (Duration::ZERO, DONE)]).await;
        assert!(error.is_none() && matches!(events.last(), Some(ModelEvent::End)));
        assert!(took <= LINGER * 2, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_follows_an_early_end_mark_is_waited_for_but_pings_are_not() {
        const MARK: &str = "data: [DONE]\n\n";
        let (now, soon) = (Duration::ZERO, LINGER - Duration::from_millis(1));
        let (events, error, took) = play(vec![(now, MARK), (soon, TEXT), (soon, TEXT), (soon, DONE)]).await;
        assert!(error.is_none(), "{error:?}");
        assert_eq!(events.iter().filter(|e| matches!(e, ModelEvent::Text { .. })).count(), 2);
        assert!(matches!(events.last(), Some(ModelEvent::End)), "{events:?}");
        assert!(took <= LINGER * 5, "{took:?}");
        let mut pings = vec![(now, TEXT), (now, MARK)];
        pings.extend(vec![(soon, ": ping\n\n"); 10]);
        let (events, error, took) = play(pings).await;
        assert!(error.is_none() && matches!(events.last(), Some(ModelEvent::End)), "{error:?}");
        assert!(took <= LINGER * 2, "{took:?}");
        let (events, error, took) = play(vec![(now, MARK)]).await;
        assert!(events.is_empty() && took <= LINGER * 2, "{events:?} {took:?}");
        let error = error.unwrap();
        assert_eq!(error.kind, ProviderErrorKind::Connection);
        assert!(error.message.contains("the answer was empty"), "{error}");
    }
}
