//! Background work as the log tells it, and what the model is told of its end.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use open_agent_model::{
    BackgroundEnd, BackgroundId, BackgroundWork, Block, Message, MessageId, OutputRef, Role,
};
use open_agent_session::{BackgroundEnded, SessionEntry};

/// The most characters of a command in a note about it.
const MAX_SHOWN: usize = 200;

/// Background work of a session.
#[derive(Clone, Debug, Default)]
pub(super) struct Background(BTreeMap<BackgroundId, Known>);

#[derive(Clone, Debug)]
struct Known {
    work: BackgroundWork,
    /// The model was told that it is over.
    is_told: bool,
}

impl Background {
    pub(super) fn start(&mut self, work: &BackgroundWork) {
        self.0.insert(work.id.clone(), Known { work: work.clone(), is_told: false });
    }

    pub(super) fn end(&mut self, id: &BackgroundId) {
        if let Some(work) = self.0.get_mut(id) {
            work.is_told = true;
        }
    }

    pub(super) fn find(&self, id: &BackgroundId) -> Option<&BackgroundWork> {
        self.0.get(id).map(|known| &known.work)
    }

    /// Returns the work of whose end the model was not told.
    pub(super) fn open(&self) -> impl Iterator<Item = &BackgroundWork> {
        self.0.values().filter(|known| !known.is_told).map(|known| &known.work)
    }
}

/// Returns the entry for work that is over. `folder` is the session's own folder.
#[must_use]
pub(crate) fn ended(
    work: &BackgroundWork,
    end: BackgroundEnd,
    id: MessageId,
    folder: Option<&Path>,
) -> SessionEntry {
    let content = vec![Block::Text(note(work, &end, folder))];
    let message = Arc::new(Message { id, role: Role::User, content, model: None });
    SessionEntry::BackgroundEnded(BackgroundEnded { id: work.id.clone(), end, message })
}

fn note(work: &BackgroundWork, end: &BackgroundEnd, folder: Option<&Path>) -> String {
    let line = work.description.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let (shown, dots) = match line.char_indices().nth(MAX_SHOWN) {
        Some((at, _)) => (&line[..at], "…"),
        None => (line, ""),
    };
    let noun = work.kind.known().map_or("work", |kind| kind.noun());
    let output = work.output.as_ref().map(|output: &OutputRef| output.path(folder));
    let output = output.map_or_else(String::new, |path| format!(" Its output is in {}", path.display()));
    format!(
        "[This is no message of the user. The background {noun} {} ({shown}{dots}) {end}.{output}]",
        work.id
    )
}
