//! What happened beside the conversation since the last request: background work that began or ended, tools that came or
//! went. It is written down before the next request, so that the model is told once.

use std::sync::Arc;

use open_agent_model::{
    BackgroundEnd, BackgroundOutcome, BackgroundOwner, BackgroundWork, Block, Message, MessageId, Role,
    ToolSpec,
};
use open_agent_session::{Notice, NoticeKind, SessionEntry, ToolsChanged};

use super::Driver;
use crate::machine::background_ended;

impl Driver {
    /// Returns entries for all news, in the order in which they are written.
    pub(super) async fn news(&mut self) -> Vec<SessionEntry> {
        if self.machine.prefix().is_none() {
            // Its record is lost. Without it the model would have neither instructions nor tools.
            return vec![SessionEntry::Prefix(Arc::new(self.rendered_prefix().await))];
        }
        let started = self.started_background();
        // The log has to know of work before it can end. A paused answer has to end its request.
        if !started.is_empty() || self.machine.resumes_pause() {
            return started;
        }
        let mut entries = self.ended_background();
        entries.extend(self.changed_tools());
        entries
    }

    /// Whose background work it is that this driver sees.
    pub(super) fn owner(&self) -> BackgroundOwner {
        BackgroundOwner { session: self.writer.id().clone(), agent: self.host.identity.agent.clone() }
    }

    /// Returns entries for background work that the log does not know of.
    pub(super) fn started_background(&self) -> Vec<SessionEntry> {
        let all = self.host.ports.background.list(&self.owner()).into_iter();
        let new = all.filter(|status| self.machine.background_work(&status.work.id).is_none());
        new.map(|status| SessionEntry::BackgroundStarted(status.work)).collect()
    }

    /// Returns entries for background work that has ended.
    pub(super) fn ended_background(&self) -> Vec<SessionEntry> {
        let folder = self.host.identity.folder.as_deref();
        let entry = |(work, end): (&BackgroundWork, BackgroundEnd)| {
            tracing::debug!(work = %work.id, %end, "background work is over");
            let id = MessageId::from_number(self.host.ports.clock.new_id());
            background_ended(work, end, id, folder)
        };
        self.untold_work().map(entry).collect()
    }

    /// Returns how background work has ended, as far as the log does not say so. Work that an earlier process had started is
    /// gone with that.
    fn untold_work(&self) -> impl Iterator<Item = (&BackgroundWork, BackgroundEnd)> {
        let owner = self.owner();
        self.machine.open_background().filter_map(move |work| {
            match self.host.ports.background.find(&owner, &work.id) {
                Some(status) => Some((work, status.end?)),
                None => Some((work, BackgroundEnd::of(BackgroundOutcome::Lost))),
            }
        })
    }

    /// Returns the ends of background work of which the log does not tell. Work may have ended before the log knew of it.
    pub(super) fn untold_ends(&self) -> impl Iterator<Item = BackgroundEnd> {
        let all = self.host.ports.background.list(&self.owner()).into_iter();
        let unknown = all.filter(|status| self.machine.background_work(&status.work.id).is_none());
        self.untold_work().map(|(_, end)| end).chain(unknown.filter_map(|status| status.end))
    }

    /// Returns the entries for tools that came or went since the prefix was written. The prefix itself stays as it is, so
    /// that what the provider has cached stays valid.
    fn changed_tools(&self) -> Vec<SessionEntry> {
        let now = self.snapshot();
        let offered = self.machine.offered_tools();
        let is_new = |spec: &ToolSpec| !offered.contains(&spec.name);
        let added: Vec<ToolSpec> =
            now.iter().map(|tool| tool.spec()).filter(|s| is_new(s)).cloned().collect();
        let removed: Vec<String> = offered.iter().filter(|name| now.get(name).is_none()).cloned().collect();
        if added.is_empty() && removed.is_empty() {
            return Vec::new();
        }
        let text = tools_note(&added, &removed);
        let id = MessageId::from_number(self.host.ports.clock.new_id());
        let content = vec![Block::Text(format!("[This is no message of the user. {text}]"))];
        let message = Arc::new(Message { id, role: Role::User, content, model: None });
        vec![
            SessionEntry::Noticed(Notice { kind: NoticeKind::ToolsChanged.into(), text }),
            SessionEntry::ToolsChanged(ToolsChanged { added, removed, message }),
        ]
    }

    /// Returns the notice, before the first command of a session, about variables that commands do not see.
    pub(super) fn variables_notice(&self) -> Option<SessionEntry> {
        let removed = self.host.ports.runner.removed();
        if removed.is_empty() {
            return None;
        }
        let text = format!("commands do not see these variables: {}", removed.join(", "));
        let notice = Notice { kind: NoticeKind::VariablesRemoved.into(), text };
        if self.machine.is_noticed(&notice) {
            return None;
        }
        tracing::info!("{}", notice.text);
        Some(SessionEntry::Noticed(notice))
    }
}

fn tools_note(added: &[ToolSpec], removed: &[String]) -> String {
    let mut parts = Vec::new();
    if !added.is_empty() {
        let each: Vec<String> = added
            .iter()
            .map(|spec| format!("{}: {} Its input: {}", spec.name, spec.description, spec.input_schema.get()))
            .collect();
        parts.push(format!("These tools were added: {}", each.join("; ")));
    }
    if !removed.is_empty() {
        parts
            .push(format!("These tools were removed and cannot be called any more: {}.", removed.join(", ")));
    }
    parts.join(" ")
}
