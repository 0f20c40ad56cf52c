//! What becomes of commands when this process dies without ending them: SIGKILL, a crash, `exit` without clean-up. Owns
//! the one process that ends them then.
//!
//! A parent-death signal would not do. It reaches the child alone and none of its descendants, and it fires when the
//! *thread* that started the child ends, which threads of a pool do all the time. So a small shell script waits in a
//! process of its own, with the read end of a pipe. The write end is closed by the kernel however this process ends, and
//! then the script kills all that still runs. While this process lives the script costs a write for each command that
//! begins or ends. It is started with the first command, and all agents that share the value share the process.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;

use open_agent_model::Env;

use crate::tree::Tree;

/// Ends what commands have started if this process dies without doing so. Cloning shares it.
///
/// It needs Linux and `/bin/sh`; elsewhere nothing is ended after a crash. A process that is forked off without `exec`
/// and outlives this one keeps the pipe open, and so keeps the commands alive.
#[derive(Clone)]
pub struct OrphanReaper(Arc<imp::Watch>);

impl OrphanReaper {
    /// Nothing is started yet. `PATH` of `env` is where `grep` and `sleep` are looked for if they are in no usual place.
    #[must_use]
    pub fn new(env: &Env) -> Self {
        let mut path = OsString::from("/usr/local/bin:/usr/bin:/bin");
        if let Some(more) = env.get_os("PATH") {
            path.push(":");
            path.push(more);
        }
        Self(Arc::new(imp::Watch::new(path)))
    }

    /// Processes may run whose mark begins with this one.
    pub(crate) fn expect(&self, mark: &str) {
        self.0.tell(mark, Some("t".to_owned()));
    }

    /// The tree runs, or something of it does.
    pub(crate) fn update(&self, tree: &Tree) {
        let mut items = Vec::new();
        if !tree.reaped {
            items.push(format!("m:{}:{}", tree.main.as_raw_nonzero(), tree.since));
        }
        items.extend(tree.left.iter().map(|(pid, since)| format!("l:{}:{since}", pid.as_raw_nonzero())));
        if items.is_empty() {
            items.push("t".to_owned());
        }
        self.0.tell(&tree.mark, Some(items.join(" ")));
    }

    /// Nothing with this mark runs any more.
    pub(crate) fn forget(&self, mark: &str) {
        self.0.tell(mark, None);
    }
}

impl std::fmt::Debug for OrphanReaper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OrphanReaper").finish_non_exhaustive()
    }
}

/// What is known of the trees, by their marks.
type Known = BTreeMap<String, String>;

#[cfg(target_os = "linux")]
mod imp {
    use std::ffi::OsString;
    use std::io;
    use std::os::fd::OwnedFd;
    use std::process::{Child, Command, Stdio};
    use std::sync::{Mutex, PoisonError};

    use rustix::fs::OFlags;

    use super::Known;
    use crate::limits::new_session;

    const SCRIPT: &str = include_str!("end_orphans.sh");

    pub(super) struct Watch {
        path: OsString,
        state: Mutex<State>,
    }

    #[derive(Default)]
    struct State {
        known: Known,
        running: Option<(Child, OwnedFd)>,
        has_failed: bool,
    }

    impl Watch {
        pub(super) fn new(path: OsString) -> Self {
            Self { path, state: Mutex::default() }
        }

        pub(super) fn tell(&self, mark: &str, items: Option<String>) {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let line = format!("{mark} {}\n", items.as_deref().unwrap_or_default());
            match items {
                Some(items) => drop(state.known.insert(mark.to_owned(), items)),
                None => drop(state.known.remove(mark)),
            }
            if state.is_running() {
                state.write(&line);
            } else if !state.known.is_empty() && !state.has_failed {
                // Started now, or ended by somebody: it has to be told all.
                match start(&self.path) {
                    Ok(started) => {
                        state.running = Some(started);
                        let lines = state.known.iter().map(|(mark, items)| format!("{mark} {items}\n"));
                        let lines: String = lines.collect();
                        state.write(&lines);
                    }
                    Err(error) => {
                        state.has_failed = true;
                        tracing::warn!(%error, "commands would outlive a crash of this process");
                    }
                }
            }
        }
    }

    impl State {
        fn is_running(&mut self) -> bool {
            self.running.as_mut().is_some_and(|(child, _)| matches!(child.try_wait(), Ok(None)))
        }

        /// Never waits: a script that was stopped must not stop us.
        fn write(&self, lines: &str) {
            if let Some((_, pipe)) = &self.running {
                let _ = rustix::io::write(pipe, lines.as_bytes());
            }
        }
    }

    fn start(path: &OsString) -> io::Result<(Child, OwnedFd)> {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", SCRIPT, "open-agent-orphans"])
            .current_dir("/")
            .env_clear()
            .env("PATH", path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // What is sent to our group, such as a hang-up, is not for it.
        new_session(&mut command);
        let mut child = command.spawn()?;
        let Some(pipe) = child.stdin.take().map(OwnedFd::from) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let flags = rustix::fs::fcntl_getfl(&pipe)?;
        rustix::fs::fcntl_setfl(&pipe, flags | OFlags::NONBLOCK)?;
        Ok((child, pipe))
    }

    impl Drop for State {
        fn drop(&mut self) {
            // All trees have ended by now.
            if let Some((mut child, _)) = self.running.take() {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use std::ffi::OsString;

    pub(super) struct Watch;

    impl Watch {
        pub(super) fn new(_: OsString) -> Self {
            Self
        }

        pub(super) fn tell(&self, _: &str, _: Option<String>) {}
    }
}
