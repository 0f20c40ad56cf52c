//! What people are told of a request and of its answer that went otherwise than asked, and how often.

use open_agent_model::{Cost, Message, StopReason, Usage};
use open_agent_session::{Notice, NoticeKind, SessionEntry};

use super::Machine;

const USAGE_MISSING: &str =
    "the provider tells no token counts: the cost is estimated from the length of what was sent and received";
const NO_TEXT: &str = "the model answered without any text";

/// Below so many tokens the estimate of a request is too rough to doubt the provider's count.
const LEAST_TO_DOUBT: u64 = 4_000;

/// An answer, and about how many input tokens its request had.
#[derive(Clone, Copy)]
pub(crate) struct AnswerFacts<'a> {
    pub message: &'a Message,
    pub stop: &'a StopReason,
    /// What the provider counted; nothing at all if it tells no counts.
    pub usage: Usage,
    pub cost: Option<Cost>,
    /// The estimated tokens of what was sent.
    pub sent: u64,
}

impl Machine {
    /// Returns the entries about what a request leaves out or lowers, without those that the run was told before.
    #[must_use]
    pub(crate) fn about_request(&self, notes: Vec<String>) -> Vec<SessionEntry> {
        let told = self.told();
        let is_new =
            |text: &String| told.iter().all(|n| n.kind != NoticeKind::RequestFitted || n.text != *text);
        notes.into_iter().filter(is_new).map(|text| noticed(NoticeKind::RequestFitted, text)).collect()
    }

    /// Returns the entries about an answer. That the input looks cut and that nothing is counted is told once a run; an
    /// answer without any text is told each time, for nobody would know whether the run worked.
    #[must_use]
    pub(crate) fn about_answer(&self, facts: AnswerFacts<'_>) -> Vec<SessionEntry> {
        let AnswerFacts { message, stop, usage, cost, sent } = facts;
        let is_untold = |kind: NoticeKind| self.told().iter().all(|n| n.kind != kind);
        let mut entries = Vec::new();
        if let Some(text) = truncation(usage.all_input(), sent)
            && is_untold(NoticeKind::InputTruncated)
        {
            entries.push(noticed(NoticeKind::InputTruncated, text));
        }
        let is_estimated = usage == Usage::default() && cost.is_some_and(|cost| cost > Cost(0));
        if is_estimated && is_untold(NoticeKind::UsageMissing) {
            entries.push(noticed(NoticeKind::UsageMissing, USAGE_MISSING.to_owned()));
        }
        if says_nothing(message, stop) {
            entries.push(noticed(NoticeKind::NoText, NO_TEXT.to_owned()));
        }
        entries
    }

    fn told(&self) -> &[Notice] {
        self.run.as_ref().map(|run| run.notices.as_slice()).unwrap_or_default()
    }
}

fn noticed(kind: NoticeKind, text: String) -> SessionEntry {
    SessionEntry::Noticed(Notice { kind: kind.into(), text })
}

/// Returns the notice about an input that the provider seems to have truncated: it counted less than a third of the
/// estimated tokens. A server with a small context window truncates without an error.
fn truncation(counted: u64, sent: u64) -> Option<String> {
    (counted > 0 && sent > LEAST_TO_DOUBT && counted.saturating_mul(3) < sent).then(|| {
        format!(
            "the provider counted {counted} input tokens where about {sent} were sent: it may have cut the conversation. \
             Set the server's context window to what the conversation needs"
        )
    })
}

/// Returns true if the turn ended normally but produced neither text nor tool calls. Other reasons to stop are reported by
/// themselves.
fn says_nothing(message: &Message, stop: &StopReason) -> bool {
    matches!(stop, StopReason::EndTurn | StopReason::StopSequence | StopReason::Other(_))
        && message.tool_uses().next().is_none()
        && message.text().trim().is_empty()
}
