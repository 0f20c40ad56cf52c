//! One frame, and what a decoder makes of it. Owns the repair of damaged frames, for all vendors alike; a decoder gets JSON
//! that it can read, or the frame is skipped or refused here.

use std::collections::VecDeque;

use open_agent_model::{ModelEvent, ProviderError};

use crate::failure::Site;
use crate::halves::Halves;
use crate::{inband, wire};

pub(crate) type Queue = VecDeque<ModelEvent>;

/// What a decoder made of a piece of JSON. The outer error says that it has a shape that no reader takes; then nothing
/// was made of it.
pub(crate) type Read = serde_json::Result<Result<(), ProviderError>>;

/// Reads one vendor's frames.
pub(crate) trait Decode: Send + Unpin {
    /// One event of a stream, a JSON object.
    fn frame(&mut self, name: &str, json: &[u8], out: &mut Queue) -> Read;
    /// One event that is no JSON object; false if it means nothing.
    fn word(&mut self, _word: &[u8], _out: &mut Queue) -> bool {
        false
    }
    /// A whole answer in one piece.
    fn whole(&mut self, json: &[u8], out: &mut Queue) -> Read;
    /// The stream is over. Gives out what was held back; false if the answer was not finished.
    fn close(&mut self, out: &mut Queue) -> bool;
}

/// Brings what came into a shape that a decoder can read.
pub(crate) struct Reader<'a, D> {
    pub(crate) site: &'a Site,
    pub(crate) halves: &'a mut Halves,
    pub(crate) decoder: &'a mut D,
    pub(crate) out: &'a mut Queue,
}

impl<D: Decode> Reader<'_, D> {
    pub(crate) fn frame(&mut self, name: &str, data: &[u8]) -> Result<(), ProviderError> {
        let data = data.trim_ascii();
        if !data.starts_with(b"{") {
            if !self.decoder.word(data, self.out) {
                if let Some(error) = inband::of_word(name, data) {
                    return Err(self.site.in_stream(error));
                }
                tracing::debug!(name, "an event without a JSON object is skipped");
            }
            return Ok(());
        }
        let mended = self.halves.mend(data);
        let data = mended.as_deref().unwrap_or(data);
        match repaired(data, |json| self.decoder.frame(name, json, self.out)) {
            Some(taken) => taken,
            None if is_json(data) => {
                tracing::debug!(name, "an event of an unknown shape is skipped");
                Ok(())
            }
            None if name == "error" => Err(self.site.in_stream(data)),
            None => Err(self.site.senseless("broken JSON", data)),
        }
    }

    pub(crate) fn whole(&mut self, body: &[u8]) -> Result<(), ProviderError> {
        let mended = self.halves.mend(body);
        let body = mended.as_deref().unwrap_or(body);
        // Some servers put a single answer into a list.
        let inner = body.trim_ascii().strip_prefix(b"[").and_then(|b| b.strip_suffix(b"]"));
        let json = inner.filter(|b| is_json(b)).unwrap_or(body);
        let taken = repaired(json, |json| self.decoder.whole(json, self.out));
        taken.unwrap_or_else(|| Err(self.site.senseless("no JSON that we know", body)))
    }
}

/// Reads as it is, and if that fails once more without what is damaged: a few bytes, a number or a key given twice are no
/// reason to lose all the rest.
fn repaired(data: &[u8], mut read: impl FnMut(&[u8]) -> Read) -> Option<Result<(), ProviderError>> {
    if let Ok(taken) = read(data) {
        return Some(taken);
    }
    let text = String::from_utf8_lossy(data);
    if !is_json(text.as_bytes()) {
        return None;
    }
    read(wire::plain(&text).as_bytes()).ok()
}

/// The lines of a stream whose events come as lines of JSON, without any framing. Half a line at the end is left out.
pub(crate) fn lines(body: &[u8]) -> Option<Vec<&[u8]>> {
    let mut lines: Vec<&[u8]> =
        body.split(|b| *b == b'\n').map(<[u8]>::trim_ascii).filter(|l| !l.is_empty()).collect();
    if lines.len() < 2 || !is_json(lines.first()?) {
        return None;
    }
    lines.pop_if(|last| !is_json(last) && *last != b"[DONE]");
    Some(lines)
}

pub(crate) fn is_json(data: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(data).is_ok()
}
