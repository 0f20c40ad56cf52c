//! Live events of one step: what they have in common, and the way to the sink.

use std::sync::Arc;

use open_agent_model::{AgentId, CallId, RunId, SessionId};
use open_agent_tool::{Clock, ProgressSink};

use crate::{AgentEvent, EVENT_VERSION, Envelope, EventSink, ToolProgress};

/// Tells live events. Owned, so that a call or a stream can keep it.
#[derive(Clone)]
pub(super) struct Teller {
    pub(super) sink: EventSink,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) session: SessionId,
    pub(super) run: Option<RunId>,
    pub(super) agent: AgentId,
    pub(super) parent: Option<SessionId>,
    pub(super) turn: u32,
}

impl Teller {
    pub(super) fn is_heard(&self) -> bool {
        self.sink.wants_live()
    }

    pub(super) fn tell(&self, event: AgentEvent) {
        self.sink.live_event(Envelope {
            v: EVENT_VERSION,
            seq: None,
            at: self.clock.now(),
            session: self.session.clone(),
            run: self.run,
            agent: self.agent.clone(),
            parent: self.parent.clone(),
            turn: self.turn,
            event,
        });
    }

    pub(super) fn progress(self) -> ProgressSink {
        Arc::new(move |call: CallId, line: &str| {
            if self.is_heard() {
                self.tell(AgentEvent::ToolProgress(ToolProgress { call, line: line.to_owned() }));
            }
        })
    }
}
