//! Background work in the log: that it began, and that the model is told once when it is over.

use std::sync::Arc;

use open_agent_model::{Block, Message, MessageId, Role, Task, TaskEnd};
use open_agent_session::{Notice, NoticeKind, SessionEntry, TaskEnded};

use super::Driver;

/// As much of a command is shown in a note about it.
const MAX_SHOWN: usize = 200;

impl Driver {
    /// Entries for work that the log does not know of.
    pub(super) fn started_tasks(&self) -> Vec<SessionEntry> {
        let all = self.host.ports.tasks.list().into_iter();
        let new = all.filter(|status| self.machine.task(&status.task.id).is_none());
        new.map(|status| SessionEntry::TaskStarted(status.task)).collect()
    }

    /// Entries for work that has begun or ended since the last request. What an earlier process had started is gone.
    pub(super) fn task_news(&self) -> Vec<SessionEntry> {
        let mut entries = self.started_tasks();
        if !entries.is_empty() {
            // The log has to know of it before it can end.
            return entries;
        }
        if self.machine.resumes_pause() {
            // That request has to end with the paused answer.
            return entries;
        }
        for task in self.machine.open_tasks() {
            let end = match self.host.ports.tasks.find(&task.id) {
                Some(status) => status.end,
                None => Some(TaskEnd::Lost),
            };
            if let Some(end) = end {
                tracing::debug!(task = %task.id, %end, "background work is over");
                let id = MessageId::from_number(self.host.ports.clock.new_id());
                let content = vec![Block::Text(note(task, end))];
                let message = Arc::new(Message { id, role: Role::User, content, model: None });
                entries.push(SessionEntry::TaskEnded(TaskEnded { task: task.id.clone(), end, message }));
            }
        }
        entries
    }

    /// Says, before the first command of a session, which variables it does not see.
    pub(super) fn variables_notice(&self) -> Option<SessionEntry> {
        let removed = self.host.ports.runner.removed();
        if removed.is_empty() {
            return None;
        }
        let text = format!("commands do not see these variables: {}", removed.join(", "));
        let notice = Notice { kind: NoticeKind::VariablesRemoved, text };
        if self.machine.is_told(&notice) {
            return None;
        }
        tracing::info!("{}", notice.text);
        Some(SessionEntry::Noticed(notice))
    }
}

fn note(task: &Task, end: TaskEnd) -> String {
    let line = task.description.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let (shown, dots) = match line.char_indices().nth(MAX_SHOWN) {
        Some((at, _)) => (&line[..at], "…"),
        None => (line, ""),
    };
    format!(
        "[This is no message of the user. The background command {} ({shown}{dots}) {end}. Its output is in {}]",
        task.id,
        task.output_file.display()
    )
}
