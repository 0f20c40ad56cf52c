//! Background work as the log tells it, and what the model is told of its end.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use open_agent_model::{Block, Message, MessageId, OutputRef, Role, Task, TaskEnd, TaskId};
use open_agent_session::{BackgroundEnded, SessionEntry};

/// The most characters of a command in a note about it.
const MAX_SHOWN: usize = 200;

/// Background work of a session.
#[derive(Clone, Debug, Default)]
pub(super) struct Background(BTreeMap<TaskId, Work>);

#[derive(Clone, Debug)]
struct Work {
    task: Task,
    /// The model was told that it is over.
    is_told: bool,
}

impl Background {
    pub(super) fn start(&mut self, task: &Task) {
        self.0.insert(task.id.clone(), Work { task: task.clone(), is_told: false });
    }

    pub(super) fn end(&mut self, id: &TaskId) {
        if let Some(work) = self.0.get_mut(id) {
            work.is_told = true;
        }
    }

    pub(super) fn find(&self, id: &TaskId) -> Option<&Task> {
        self.0.get(id).map(|work| &work.task)
    }

    /// Returns the work of whose end the model was not told.
    pub(super) fn open(&self) -> impl Iterator<Item = &Task> {
        self.0.values().filter(|work| !work.is_told).map(|work| &work.task)
    }
}

/// Returns the entry for work that is over. `folder` is the session's own folder.
#[must_use]
pub(crate) fn ended(task: &Task, end: TaskEnd, id: MessageId, folder: Option<&Path>) -> SessionEntry {
    let content = vec![Block::Text(note(task, &end, folder))];
    let message = Arc::new(Message { id, role: Role::User, content, model: None });
    SessionEntry::BackgroundEnded(BackgroundEnded { id: task.id.clone(), end, message })
}

fn note(task: &Task, end: &TaskEnd, folder: Option<&Path>) -> String {
    let line = task.description.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let (shown, dots) = match line.char_indices().nth(MAX_SHOWN) {
        Some((at, _)) => (&line[..at], "…"),
        None => (line, ""),
    };
    let output = task.output.as_ref().map(|output: &OutputRef| output.path(folder));
    let output = output.map_or_else(String::new, |path| format!(" Its output is in {}", path.display()));
    format!(
        "[This is no message of the user. The background command {} ({shown}{dots}) {end}.{output}]",
        task.id
    )
}
