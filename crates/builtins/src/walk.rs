//! Walking folders as ripgrep does: hidden files and what ignore files name are left out, links are not followed. Owns
//! the count of what was left out and the deadline.
//!
//! Folders and files are reached through the port `Files`. Only the ignore files themselves are read by the `ignore` crate:
//! nothing of them reaches an answer, they only decide what is left out of it.

mod crew;

use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use ignore::overrides::Override;
use ignore::types::Types;
use open_agent_tool::{Files, Folder, Located, PathKind, PortError};
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

use crate::bounds::count;

/// How long a walk may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// How long work may go on after its deadline before it is given up: it may be in a place where it cannot look.
const GRACE: Duration = Duration::from_millis(100);

/// Ends work that takes too long or is not wanted any more.
#[derive(Clone)]
pub(crate) struct Deadline {
    until: Instant,
    cancel: CancellationToken,
    #[cfg(test)]
    looks: Option<std::sync::Arc<std::sync::atomic::AtomicUsize>>,
}

impl Deadline {
    pub(crate) fn new(patience: Duration, cancel: &CancellationToken) -> Self {
        Self {
            until: Instant::now() + patience,
            cancel: cancel.clone(),
            #[cfg(test)]
            looks: None,
        }
    }

    /// One that is over once it was looked at so often: for tests that know no time.
    #[cfg(test)]
    pub(crate) fn after_looks(looks: usize) -> Self {
        let looks = Some(std::sync::Arc::new(looks.into()));
        Self { looks, ..Self::new(PATIENCE, &CancellationToken::new()) }
    }

    pub(crate) fn is_over(&self) -> bool {
        #[cfg(test)]
        if let Some(looks) = &self.looks {
            use std::sync::atomic::Ordering::Relaxed;
            return looks.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err();
        }
        self.cancel.is_cancelled() || Instant::now() >= self.until
    }

    /// Does work that looks at the deadline, on a thread that may block. Nothing comes back from work that does not end
    /// soon after it: a regular expression in the middle of a long line, a folder on a server that is gone.
    pub(crate) async fn bound<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Option<T>, JoinError> {
        let mut work = tokio::task::spawn_blocking(work);
        tokio::select! {
            done = &mut work => return done.map(Some),
            () = self.cancel.cancelled() => {}
            () = tokio::time::sleep_until(self.until.into()) => {}
        }
        tokio::time::timeout(GRACE, work).await.map_or(Ok(None), |done| done.map(Some))
    }
}

/// What is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rules {
    /// Hidden files and what ignore files name.
    All,
    /// What ignore files name.
    Ignored,
    /// Nothing but Git's own folder.
    None,
}

/// A folder to walk.
pub(crate) struct Walk<'a> {
    pub(crate) files: &'a dyn Files,
    pub(crate) root: &'a Located,
    pub(crate) rules: Rules,
    pub(crate) max_depth: Option<usize>,
    pub(crate) overrides: Override,
    pub(crate) types: Types,
    pub(crate) deadline: &'a Deadline,
}

/// A file that a walk gives, or a link to whatever it may be.
pub(crate) struct Met<'a> {
    pub(crate) path: &'a Path,
    /// From the walk's root on.
    pub(crate) relative: &'a Path,
    folder: &'a dyn Folder,
    name: &'a OsStr,
    is_link: bool,
}

/// What a walk met besides what it gave.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    counts: Counts,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    files: usize,
    ignored: usize,
    hidden: usize,
    unreadable: usize,
    is_late: bool,
}

impl Walk<'_> {
    /// Whether globs or types leave it out.
    fn is_unwanted(&self, path: &Path, is_dir: bool) -> bool {
        let wanted = self.overrides.matched(path, is_dir);
        wanted.is_ignore() || (wanted.is_none() && self.types.matched(path, is_dir).is_ignore())
    }
}

impl Met<'_> {
    /// Whether it is a link; those to files only are worth a look.
    pub(crate) fn is_link(&self) -> bool {
        self.is_link
    }

    /// Whether there is a file behind it.
    pub(crate) fn is_file(&self) -> bool {
        !self.is_link || self.folder.target(self.name).is_ok_and(|behind| behind.kind == PathKind::File)
    }

    /// When the file was changed last.
    pub(crate) fn modified(&self) -> SystemTime {
        self.folder.entry(self.name).map_or(SystemTime::UNIX_EPOCH, |known| known.modified)
    }

    /// Opens it, if it is no link.
    pub(crate) fn open(&self) -> Result<File, PortError> {
        self.folder.open(self.name)
    }
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.files += other.files;
        self.ignored += other.ignored;
        self.hidden += other.hidden;
        self.unreadable += other.unreadable;
        self.is_late |= other.is_late;
    }
}

impl Tally {
    /// Of a walk that was given up.
    pub(crate) fn late() -> Self {
        Self { counts: Counts { is_late: true, ..Counts::default() } }
    }

    /// Files that were given, links not among them.
    pub(crate) fn files(&self) -> usize {
        self.counts.files
    }

    /// The walk was ended before it was through.
    pub(crate) fn is_late(&self) -> bool {
        self.counts.is_late
    }

    /// Notes that the walk's work was ended early.
    pub(crate) fn set_late(&mut self) {
        self.counts.is_late = true;
    }

    /// Files and folders that were left out: by ignore files, and as hidden.
    pub(crate) fn skipped(&self) -> (usize, usize) {
        (self.counts.ignored, self.counts.hidden)
    }

    /// What has to be said about the walk.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let (ignored, hidden) = self.skipped();
        if ignored > 0 {
            notes.push(format!("{} skipped because ignore files (.gitignore …) name them", entries(ignored)));
        }
        if hidden > 0 {
            notes.push(format!("{} skipped as hidden", entries(hidden)));
        }
        if ignored + hidden > 0 {
            notes.push("name such a folder or file outright to look into it".into());
        }
        if self.counts.unreadable > 0 {
            notes.push(format!("{} could not be read", count(self.counts.unreadable, "folder")));
        }
        if self.is_late() {
            notes.push(
                "STOPPED EARLY because it took too long or was interrupted: the result is incomplete, narrow it down".into(),
            );
        }
        notes
    }
}

fn entries(n: usize) -> String {
    if n == 1 { "1 file or folder was".into() } else { format!("{n} files and folders were") }
}

/// The note below an answer.
pub(crate) fn with_notes(mut text: String, notes: &[String]) -> String {
    if !notes.is_empty() {
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str(&format!("[{}.]", notes.join("; ")));
    }
    text
}

/// Says that a folder that was named was looked into once more, without rules.
pub(crate) const WITHOUT_RULES: &str = "nothing matched among what ignore files leave of this folder, so everything in \
                                        it was looked at: ignored and hidden files too";

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[tokio::test]
    async fn work_that_cannot_look_is_given_up_soon_after_its_deadline() {
        let (cancel, never) = (CancellationToken::new(), CancellationToken::new());
        cancel.cancel();
        for deadline in [Deadline::new(PATIENCE, &cancel), Deadline::new(Duration::ZERO, &never)] {
            let (ended, waits) = std::sync::mpsc::channel::<()>();
            assert!(deadline.bound(move || waits.recv()).await.unwrap().is_none());
            drop(ended);
        }
        let deadline = Deadline::new(Duration::ZERO, &never);
        assert_eq!(deadline.bound(|| 7).await.unwrap(), Some(7), "what is done in time counts");
    }

    fn walk<F: FnMut(&Met<'_>) + Send>(root: &Path, visitor: impl FnMut() -> F) -> Tally {
        let files = open_agent_sandbox::PlainFiles::new(None, root);
        let root = files.locate(root, Path::new(".")).unwrap();
        let deadline = Deadline::new(PATIENCE, &CancellationToken::new());
        let (overrides, types) = (Override::empty(), Types::empty());
        let walk = Walk {
            files: &files,
            root: &root,
            rules: Rules::All,
            max_depth: None,
            overrides,
            types,
            deadline: &deadline,
        };
        walk.run(visitor)
    }

    #[test]
    fn each_file_is_given_once_however_the_threads_share_them() {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["", "a/b/c", "d"] {
            std::fs::create_dir_all(dir.path().join(folder)).unwrap();
            for n in 0..700 {
                std::fs::write(dir.path().join(folder).join(format!("f{n}")), "").unwrap();
            }
        }
        let (root, met) = (dir.path().canonicalize().unwrap(), Mutex::new(Vec::new()));
        let tally = walk(&root, || {
            |file: &Met<'_>| {
                assert_eq!(file.path, root.join(file.relative));
                met.lock().unwrap().push(file.relative.to_owned());
            }
        });
        let mut met = met.into_inner().unwrap();
        met.sort();
        met.dedup();
        assert_eq!((met.len(), tally.files(), tally.is_late()), (2_100, 2_100, false));
    }

    #[test]
    fn a_thread_that_panics_leaves_no_other_waiting() {
        let dir = tempfile::tempdir().unwrap();
        // One file: only one thread has something to do.
        std::fs::write(dir.path().join("f"), "").unwrap();
        let walk = || walk(dir.path(), || |_: &Met<'_>| panic!("on purpose"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(walk)).is_err());
    }
}
