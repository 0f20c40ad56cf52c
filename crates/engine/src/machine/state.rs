//! The session's state as tools see it, and the rule for parallel calls that write the same piece of it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use open_agent_model::{Change, Slot};
use open_agent_tool::SessionState;

/// A piece of session state that a call can change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Piece {
    Slot(Slot),
    Cwd,
    File(PathBuf),
}

/// The state and who wrote each piece last within the open turn.
#[derive(Clone, Debug, Default)]
pub(super) struct StateFold {
    state: Arc<SessionState>,
    writers: BTreeMap<Piece, u16>,
}

impl StateFold {
    pub(super) fn get(&self) -> &Arc<SessionState> {
        &self.state
    }

    /// The shell's folder is the project's again.
    pub(super) fn set_cwd(&mut self, folder: &std::path::Path) {
        Arc::make_mut(&mut self.state).cwd = folder.to_owned();
    }

    pub(super) fn begin_turn(&mut self) {
        self.writers.clear();
    }

    /// Applies what call number `index` of the turn changed. Calls that run together finish in any order; where two write
    /// the same piece, the later call wins.
    pub(super) fn apply(&mut self, index: u16, change: &Change) {
        let piece = match change {
            Change::Put { slot, .. } => Piece::Slot(slot.clone()),
            Change::Cwd(_) => Piece::Cwd,
            Change::FileSeen(seen) => Piece::File(seen.path.clone()),
        };
        let last = self.writers.entry(piece).or_insert(index);
        if *last > index {
            return;
        }
        *last = index;
        let state = Arc::make_mut(&mut self.state);
        match change {
            Change::Put { slot, value } => {
                state.slots.insert(slot.clone(), value.clone());
            }
            Change::Cwd(path) => state.cwd.clone_from(path),
            Change::FileSeen(seen) => {
                state.seen.insert(seen.path.clone(), seen.stamp);
            }
        }
    }
}
