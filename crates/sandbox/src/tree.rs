//! A started process and everything that came out of it. Owns how descendants are found and ended.
//!
//! Leaving the process group, starting a new session and being handed to init are the ways in which a descendant gets
//! lost. So four traces are followed: who its parent is, its group and session, a mark in the environment that all of
//! them inherit, and the pipes that lead to us. Only a process that drops all four escapes.

use std::time::{Duration, Instant};

use open_agent_tool::Descendant;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// How often the dying are looked at.
const POLL: Duration = Duration::from_millis(5);
/// A process that makes new ones while it is killed is met again; this often at most.
const ROUNDS: usize = 20;

/// The variable that holds the marks of all trees a process belongs to.
pub(crate) const MARK: &str = "OPEN_AGENT_TREE";

/// What descendants are recognised by.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    /// The main process, which leads the group.
    pub(crate) main: Pid,
    /// Its mark.
    pub(crate) mark: String,
    /// When it started, in the kernel's ticks: what is older is no descendant.
    pub(crate) since: u64,
    /// The pipes it was given, as the kernel names them.
    pub(crate) pipes: Vec<String>,
    /// The main process was reaped: its number may belong to a stranger by now.
    pub(crate) reaped: bool,
    /// Those that were left running, by number and start. With the main process goes what its group and session tell.
    pub(crate) left: Vec<(Pid, u64)>,
}

impl Tree {
    /// Asks all to end, waits for `grace`, kills what is left.
    pub(crate) fn end(&self, grace: Duration) {
        end(self, grace);
    }

    /// Kills all, at once.
    pub(crate) fn kill(&self) {
        kill(self);
    }

    /// Kills what is there now, without waiting.
    pub(crate) fn strike(&self) {
        self.signal(Signal::KILL);
    }

    /// Goes on knowing these, whatever traces they drop.
    pub(crate) fn remember(&mut self, left: &[Descendant]) {
        let number = |d: &Descendant| Pid::from_raw(i32::try_from(d.pid).ok()?);
        self.left = left.iter().filter_map(number).map(|pid| (pid, started_at(pid))).collect();
    }

    /// Those that run, but for the main process.
    pub(crate) fn descendants(&self) -> Vec<Descendant> {
        let mut all = members(std::slice::from_ref(self));
        all.retain(|p| self.reaped || *p != self.main);
        all.into_iter().map(describe).collect()
    }
}

/// One tree or several: what can be signalled.
pub(crate) trait Signalled {
    /// Sends it to all that run now. Says whether there was any.
    fn signal(&self, signal: Signal) -> bool;

    /// Whether nothing runs.
    fn is_gone(&self) -> bool;
}

impl Signalled for Tree {
    fn signal(&self, signal: Signal) -> bool {
        std::slice::from_ref(self).signal(signal)
    }

    fn is_gone(&self) -> bool {
        std::slice::from_ref(self).is_gone()
    }
}

impl Signalled for [Tree] {
    fn signal(&self, signal: Signal) -> bool {
        let members = members(self);
        // Members are met one by one: what is asked to end twice may take that for an order to hurry. Killing them twice does
        // no harm, and the group has those, too, who came a moment ago.
        let by_group = signal == Signal::KILL || cfg!(not(target_os = "linux"));
        for tree in self.iter().filter(|tree| by_group && !tree.reaped) {
            let _ = kill_process_group(tree.main, signal);
        }
        for pid in &members {
            let _ = kill_process(*pid, signal);
        }
        !members.is_empty() || (cfg!(not(target_os = "linux")) && !self.is_gone())
    }

    fn is_gone(&self) -> bool {
        is_gone(self)
    }
}

/// Asks all to end, waits for `grace`, kills what is left.
pub(crate) fn end(trees: &impl Signalled, grace: Duration) {
    if !trees.signal(Signal::TERM) {
        return;
    }
    // A stopped process sees the request only when it goes on.
    trees.signal(Signal::CONT);
    let until = Instant::now() + grace;
    while Instant::now() < until {
        std::thread::sleep(POLL);
        if trees.is_gone() {
            return;
        }
    }
    kill(trees);
}

/// Kills all, at once.
pub(crate) fn kill(trees: &impl Signalled) {
    for _ in 0..ROUNDS {
        if !trees.signal(Signal::KILL) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(target_os = "linux")]
use linux::{describe, is_gone, members};

#[cfg(target_os = "linux")]
pub(crate) use linux::started_at;

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::HashSet;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;

    use super::{Descendant, MARK, Pid, Tree};

    /// What `/proc/PID/stat` tells.
    struct Process {
        pid: i32,
        state: u8,
        parent: i32,
        group: i32,
        session: i32,
        started: u64,
    }

    /// When the process started; 0 if it cannot be known.
    pub(crate) fn started_at(pid: Pid) -> u64 {
        process(pid.as_raw_nonzero().get()).map_or(0, |p| p.started)
    }

    /// All that run of these trees, main processes included. One look at the system, however many trees.
    pub(crate) fn members(trees: &[Tree]) -> Vec<Pid> {
        let Some(since) = trees.iter().map(|tree| tree.since).min() else { return Vec::new() };
        let candidates: Vec<Process> = processes().filter(|p| p.started >= since).collect();
        let mut ours: HashSet<i32> = HashSet::new();
        for p in &candidates {
            let by_number = trees.iter().any(|tree| {
                let main = tree.main.as_raw_nonzero().get();
                let was_left =
                    |(pid, since): &(Pid, u64)| pid.as_raw_nonzero().get() == p.pid && *since == p.started;
                (!tree.reaped && (p.pid == main || p.group == main)) || tree.left.iter().any(was_left)
            });
            if by_number || is_marked(trees, p.pid) || holds_pipe(trees, p) {
                ours.insert(p.pid);
            }
        }
        loop {
            let before = ours.len();
            for p in &candidates {
                if [p.parent, p.group, p.session].iter().any(|id| ours.contains(id)) {
                    ours.insert(p.pid);
                }
            }
            if ours.len() == before {
                break;
            }
        }
        let own = i32::try_from(std::process::id()).unwrap_or_default();
        let alive = candidates.iter().filter(|p| ours.contains(&p.pid) && p.pid != own && is_alive(p.state));
        alive.filter_map(|p| Pid::from_raw(p.pid)).collect()
    }

    pub(crate) fn is_gone(trees: &[Tree]) -> bool {
        members(trees).is_empty()
    }

    fn is_marked(trees: &[Tree], pid: i32) -> bool {
        let Ok(environ) = fs::read(format!("/proc/{pid}/environ")) else { return false };
        environ.split(|b| *b == 0).any(|variable| {
            let value = variable.strip_prefix(MARK.as_bytes()).and_then(|v| v.strip_prefix(b"="));
            let is_ours = |mark: &[u8]| trees.iter().any(|tree| tree.mark.as_bytes() == mark);
            value.is_some_and(|v| v.split(|b| *b == b':').any(is_ours))
        })
    }

    fn holds_pipe(trees: &[Tree], process: &Process) -> bool {
        let pid = process.pid;
        // We hold the other ends. So does, for a moment, each process that is being started here, whoever starts it: until
        // it executes its program it is a copy of us with all our files. Whether it still is one is asked before
        // its files are looked at: what is none any more has closed ours.
        if u32::try_from(pid).is_ok_and(|p| p == std::process::id()) || is_copy_of_us(process) {
            return false;
        }
        let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        let pipes = || trees.iter().flat_map(|tree| &tree.pipes);
        open.flatten()
            .filter_map(|fd| fs::read_link(fd.path()).ok())
            .any(|target| pipes().any(|pipe| target.as_os_str().as_bytes() == pipe.as_bytes()))
    }

    /// Whether this is a child of ours that runs our program with our arguments.
    fn is_copy_of_us(process: &Process) -> bool {
        let pid = process.pid;
        u32::try_from(process.parent).is_ok_and(|parent| parent == std::process::id())
            && fs::read_link(format!("/proc/{pid}/exe")).ok() == fs::read_link("/proc/self/exe").ok()
            && fs::read(format!("/proc/{pid}/cmdline")).ok() == fs::read("/proc/self/cmdline").ok()
    }

    fn is_alive(state: u8) -> bool {
        !matches!(state, b'Z' | b'X')
    }

    pub(crate) fn describe(pid: Pid) -> Descendant {
        let number = pid.as_raw_nonzero().get();
        let line = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        let line = line.strip_suffix(b"\0").unwrap_or(&line);
        let command = String::from_utf8_lossy(line).replace('\0', " ");
        Descendant { pid: number.unsigned_abs(), command }
    }

    fn processes() -> impl Iterator<Item = Process> {
        fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            process(pid)
        })
    }

    fn process(pid: i32) -> Option<Process> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        // The name stands in brackets and may hold anything, brackets included.
        let end = stat.iter().rposition(|b| *b == b')')?;
        let rest = std::str::from_utf8(stat.get(end + 2..)?).ok()?;
        let fields: Vec<&str> = rest.split(' ').collect();
        let number = |at: usize| fields.get(at)?.parse::<i32>().ok();
        Some(Process {
            pid,
            state: *fields.first()?.as_bytes().first()?,
            parent: number(1)?,
            group: number(2)?,
            session: number(3)?,
            started: fields.get(19)?.parse().ok()?,
        })
    }
}

/// Where there is no `/proc`, the group is all that is known.
#[cfg(not(target_os = "linux"))]
mod portable {
    use super::{Descendant, Pid, Tree};

    pub(crate) fn started_at(_pid: Pid) -> u64 {
        0
    }

    pub(crate) fn members(_trees: &[Tree]) -> Vec<Pid> {
        Vec::new()
    }

    pub(crate) fn is_gone(trees: &[Tree]) -> bool {
        let is_gone =
            |tree: &Tree| tree.reaped || rustix::process::test_kill_process_group(tree.main).is_err();
        trees.iter().all(is_gone)
    }

    pub(crate) fn describe(pid: Pid) -> Descendant {
        Descendant { pid: pid.as_raw_nonzero().get().unsigned_abs(), command: String::new() }
    }
}

#[cfg(not(target_os = "linux"))]
use portable::{describe, is_gone, members};

#[cfg(not(target_os = "linux"))]
pub(crate) use portable::started_at;
