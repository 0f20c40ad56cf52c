//! The threads of a walk. Owns how they share the work, and the one reading of each folder that finds what to give, where
//! to go on and what the rules leave out.
//!
//! The `ignore` crate's own walk does not say what it leaves out, so that a second reading of each folder would be needed
//! to count it; here its matcher is asked about each entry instead.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use ignore::{IncrementalIgnore, WalkBuilder};
use open_agent_tool::{Entry, Folder as OpenFolder, PathKind};

use super::{Counts, Met, Rules, Tally, Walk};

/// No more threads than this, as ripgrep has it.
const MAX_THREADS: usize = 12;
/// Entries between two looks at the clock.
const UNWATCHED: usize = 64;
/// Files that change hands together.
const BATCH: usize = 16;

/// What a thread can take from another.
enum Work {
    Folder(Folder),
    Files(Files),
}

/// Files of a folder, which stays open until all of them were visited.
struct Files {
    folder: Arc<dyn OpenFolder>,
    /// The folder's path.
    path: Arc<Path>,
    entries: Vec<Entry>,
}

struct Folder {
    path: PathBuf,
    depth: usize,
}

/// Where threads leave work for each other. It is kept filled, for a thread that is busy with a long file cannot give.
struct Queue {
    state: Mutex<State>,
    bell: Condvar,
    len: AtomicUsize,
    threads: usize,
}

#[derive(Default)]
struct State {
    work: VecDeque<Work>,
    idle: usize,
    is_closed: bool,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_short(&self) -> bool {
        self.threads > 1 && self.len.load(Ordering::Relaxed) < 4 * self.threads
    }

    fn give(&self, work: Work) {
        let mut state = self.state();
        state.work.push_back(work);
        self.len.store(state.work.len(), Ordering::Relaxed);
        if state.idle > 0 {
            self.bell.notify_one();
        }
    }

    /// Waits for work; none, once nobody has any.
    fn take(&self) -> Option<Work> {
        let mut state = self.state();
        state.idle += 1;
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(work) = state.work.pop_front() {
                state.idle -= 1;
                self.len.store(state.work.len(), Ordering::Relaxed);
                return Some(work);
            }
            if state.idle == self.threads {
                drop(state);
                self.close();
                return None;
            }
            state = self.bell.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// One thread fewer than was counted on.
    fn leave(&self) {
        self.state().idle += 1;
    }

    fn close(&self) {
        self.state().is_closed = true;
        self.bell.notify_all();
    }
}

impl Walk<'_> {
    /// Walks with several threads, of which the caller's is one; `visitor` makes the function that a thread calls with
    /// each file.
    pub(crate) fn run<F: FnMut(&Met<'_>) + Send>(&self, visitor: impl FnMut() -> F) -> Tally {
        Tally { counts: walk(self, visitor) }
    }
}

fn walk<F: FnMut(&Met<'_>) + Send>(walk: &Walk<'_>, mut visitor: impl FnMut() -> F) -> Counts {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    let root = Folder { path: walk.root.path().to_owned(), depth: 0 };
    let state = State { work: VecDeque::from([Work::Folder(root)]), ..State::default() };
    let queue = Queue { state: Mutex::new(state), bell: Condvar::new(), len: AtomicUsize::new(1), threads };
    let Some(rules) = rules_of(walk).build_matchers().pop() else { return Counts::default() };
    let mut worker = || Worker {
        walk,
        queue: &queue,
        rules: rules.clone(),
        visit: visitor(),
        folders: VecDeque::new(),
        root_len: walk.root.path().as_os_str().len(),
        batch: Vec::new(),
        until_look: 0,
        counts: Counts::default(),
    };
    let mine = worker();
    let others: Vec<_> = (1..threads).map(|_| worker()).collect();
    std::thread::scope(|scope| {
        let others: Vec<_> = others
            .into_iter()
            .filter_map(|other| {
                let thread = std::thread::Builder::new().spawn_scoped(scope, || other.run());
                // Where there are no more threads, fewer do the work.
                thread.inspect_err(|_| queue.leave()).ok()
            })
            .collect();
        let mut counts = mine.run();
        for other in others {
            match other.join() {
                Ok(more) => counts.add(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        counts
    })
}

fn rules_of(walk: &Walk<'_>) -> WalkBuilder {
    let mut builder = WalkBuilder::new(walk.root.path());
    builder.hidden(walk.rules == Rules::All).overrides(walk.overrides.clone()).types(walk.types.clone());
    if walk.rules == Rules::None {
        builder.ignore(false).git_ignore(false).git_global(false).git_exclude(false).parents(false);
    } else {
        builder.add_custom_ignore_filename(".rgignore");
    }
    builder
}

struct Worker<'a, F> {
    walk: &'a Walk<'a>,
    queue: &'a Queue,
    rules: IncrementalIgnore,
    visit: F,
    /// Folders still to be read; the last one is the next.
    folders: VecDeque<Folder>,
    root_len: usize,
    /// Entries of the folder that is being read; kept for its memory.
    batch: Vec<Entry>,
    until_look: usize,
    counts: Counts,
}

/// The others would wait for ever for a thread that went down with its work.
impl<F> Drop for Worker<'_, F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.queue.close();
        }
    }
}

impl<F: FnMut(&Met<'_>)> Worker<'_, F> {
    fn run(mut self) -> Counts {
        loop {
            if let Some(folder) = self.folders.pop_back() {
                self.read(folder);
                // The oldest are the highest in the tree: whoever takes one is busy for long.
                while self.folders.len() > 1 && self.queue.is_short() {
                    self.queue.give(Work::Folder(match self.folders.pop_front() {
                        Some(folder) => folder,
                        None => break,
                    }));
                }
            } else {
                match self.queue.take() {
                    Some(Work::Folder(folder)) => self.folders.push_back(folder),
                    Some(Work::Files(files)) => self.visit_all(files),
                    None => return std::mem::take(&mut self.counts),
                }
            }
        }
    }

    fn read(&mut self, folder: Folder) {
        let Ok(open) = self.walk.files.read_dir(self.walk.root, relative(&folder.path, self.root_len)) else {
            self.counts.unreadable += 1;
            return;
        };
        let mut path = folder.path.into_os_string().into_encoded_bytes();
        let folder_path: Arc<Path> = Path::new(OsStr::from_bytes(&path)).into();
        if path.last() != Some(&b'/') {
            path.push(b'/');
        }
        let len = path.len();
        let give = |entries: Vec<Entry>| Files {
            folder: Arc::clone(&open),
            path: Arc::clone(&folder_path),
            entries,
        };
        let mut for_others = Vec::new();
        let mut batch = std::mem::take(&mut self.batch);
        let mut has_more = true;
        while has_more {
            has_more = open.next_batch(&mut batch).unwrap_or_else(|_| {
                self.counts.unreadable += 1;
                false
            });
            for entry in batch.drain(..) {
                if self.is_over() {
                    return;
                }
                path.truncate(len);
                path.extend_from_slice(entry.name.as_bytes());
                let full = Path::new(OsStr::from_bytes(&path));
                let is_folder = entry.kind == PathKind::Folder;
                if self.leaves_out(full, &path[len..], is_folder) {
                    continue;
                }
                if is_folder {
                    if self.walk.max_depth.is_none_or(|max| folder.depth + 1 < max) {
                        self.folders.push_back(Folder { path: full.to_owned(), depth: folder.depth + 1 });
                    }
                } else if matches!(entry.kind, PathKind::File | PathKind::Link) {
                    self.counts.files += usize::from(entry.kind == PathKind::File);
                    if self.queue.is_short() {
                        for_others.push(entry);
                        if for_others.len() == BATCH {
                            self.queue.give(Work::Files(give(std::mem::take(&mut for_others))));
                        }
                    } else {
                        self.visit(full, &*open, &entry);
                    }
                }
            }
        }
        self.batch = batch;
        self.visit_all(give(for_others));
    }

    fn visit(&mut self, path: &Path, folder: &dyn OpenFolder, entry: &Entry) {
        let relative = relative(path, self.root_len);
        let is_link = entry.kind == PathKind::Link;
        (self.visit)(&Met { path, relative, folder, name: &entry.name, is_link });
    }

    /// Visits files, and leaves half of them to others who have nothing to do.
    fn visit_all(&mut self, mut files: Files) {
        while let Some(entry) = files.entries.pop() {
            if self.is_over() {
                return;
            }
            if files.entries.len() > 1 && self.queue.is_short() {
                let half = files.entries.split_off(files.entries.len() / 2);
                let (folder, path) = (Arc::clone(&files.folder), Arc::clone(&files.path));
                self.queue.give(Work::Files(Files { folder, path, entries: half }));
            }
            self.visit(&files.path.join(&entry.name), &*files.folder, &entry);
        }
    }

    /// Whether the rules leave an entry out, which is counted.
    fn leaves_out(&mut self, path: &Path, name: &[u8], is_dir: bool) -> bool {
        let is_git = name == b".git";
        if is_git && self.walk.rules != Rules::All {
            return true;
        }
        if !self.rules.matched(relative(path, self.root_len), is_dir).is_ignore() {
            return false;
        }
        // What was not asked for was not left out by the rules.
        if !is_git && !self.walk.is_unwanted(path, is_dir) {
            let counter =
                if name.first() == Some(&b'.') { &mut self.counts.hidden } else { &mut self.counts.ignored };
            *counter += 1;
        }
        true
    }

    /// Whether the walk has to end; looks at the clock now and then only.
    fn is_over(&mut self) -> bool {
        if let Some(left) = self.until_look.checked_sub(1) {
            self.until_look = left;
            return false;
        }
        self.until_look = UNWATCHED;
        if self.walk.deadline.is_over() {
            self.counts.is_late = true;
            self.folders.clear();
            self.queue.close();
        }
        self.counts.is_late
    }
}

fn relative(path: &Path, root_len: usize) -> &Path {
    let bytes = &path.as_os_str().as_bytes()[root_len..];
    Path::new(OsStr::from_bytes(bytes.strip_prefix(b"/").unwrap_or(bytes)))
}
