//! The file `owner` beside a transcript: who made the newest claim. It is a note for messages and for the epoch; the lock
//! on the transcript decides who may write.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{io_error, private_file};
use crate::StoreError;

/// What stands in the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct OwnerNote {
    pub(super) epoch: u64,
    pub(super) owner: String,
    /// The process, by which it can be told whether the owner still lives.
    #[serde(default)]
    pub(super) pid: u32,
}

impl OwnerNote {
    /// Reads the note; `None` if there is none, or none that can be read.
    pub(super) fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    /// Writes over an earlier note. Only the holder of the lock may call it.
    pub(super) fn write(&self, path: &Path) -> Result<(), StoreError> {
        let text = serde_json::to_vec(self)?;
        let mut file = private_file(path, OpenOptions::new().write(true))?;
        // Overwritten, then cut: a reader in between sees a note or, rarely, none; never the file without an epoch.
        file.write_all(&text).and_then(|()| file.set_len(text.len() as u64)).map_err(io_error("write", path))
    }

    /// Returns true if the process that made the claim has ended. A process of another machine or container may look so.
    pub(super) fn is_dead(&self) -> bool {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(rustix::process::Pid::from_raw) else {
            return false;
        };
        match rustix::process::test_kill_process(pid) {
            Err(rustix::io::Errno::SRCH) => true,
            // It was killed, and its parent has not asked for its exit status yet.
            _ => fs::read_to_string(format!("/proc/{}/stat", self.pid)).is_ok_and(|stat| {
                stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X']))
            }),
        }
    }
}
