//! What the program does before it asks, and what a long session costs it: counted, not timed. The bench has the times.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use open_agent_testkit::server::{Reply, Script};
use open_agent_testkit::{FolderOpens, cases};
use serde_json::json;
use tempfile::TempDir;

use crate::rig::Rig;

/// What a process had read when it sent its first request, as the kernel counts it.
#[derive(Clone, Copy, Debug, Default)]
struct Reads {
    bytes: u64,
    calls: u64,
}

impl Reads {
    fn of(pid: u32) -> Self {
        let io = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
        let field = |name: &str| {
            io.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or_default()
        };
        Self { bytes: field("rchar:"), calls: field("syscr:") }
    }
}

/// Runs the program in `project` with one prompt and gives what it had read when the server got its request, and the
/// folder.
fn first_request(project: TempDir) -> (Reads, TempDir) {
    // Held until the program has started, so that the server knows which one it is.
    let (pid, reads): (Arc<Mutex<u32>>, Arc<Mutex<Reads>>) = Default::default();
    let (known, noted) = (Arc::clone(&pid), Arc::clone(&reads));
    let rig = Rig::new(Script::from_fn(move |_, _| {
        *noted.lock().unwrap() = Reads::of(*known.lock().unwrap());
        Reply::text("ok")
    }));
    let rig = Rig { project, ..rig };
    let mut guard = pid.lock().unwrap();
    let child = rig.command(["-p", "Go"]).spawn().unwrap();
    *guard = child.id();
    drop(guard);
    assert_eq!(rig.finish(child).code(), 0);
    assert_eq!(rig.requests().len(), 1, "nothing is asked before the prompt");
    let reads = *reads.lock().unwrap();
    (reads, rig.project)
}

#[test]
fn h_prf_01_a_cold_start_reads_little_before_it_asks() {
    let (reads, _) = first_request(tempfile::tempdir().unwrap());
    assert!(reads.calls > 0 && reads.calls < 100, "{reads:?}");
    assert!(reads.bytes < 100_000, "{reads:?}");
}

#[test]
fn h_grp_03_a_start_among_a_hundred_thousand_folders_looks_at_none() {
    let (plain, _) = first_request(tempfile::tempdir().unwrap());
    // Making them on a disk would take long.
    let project = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    for n in 0..cases(5_000, 100_000) {
        std::fs::create_dir(project.path().join(format!("d{n}"))).unwrap();
    }
    std::fs::write(project.path().join(".gitignore"), "d1*\n").unwrap();
    let watched = FolderOpens::watch([project.path()]).unwrap();
    let (among_many, _project) = first_request(project);
    assert_eq!(watched.count(), 0, "nobody lists the folder");
    assert!(among_many.calls <= plain.calls + 20, "{among_many:?}, and {plain:?} in an empty folder");
}

/// Turns with a tool. In deep runs the one after them is the 500th, and no run may have more by default.
fn turns() -> usize {
    cases(119, 499)
}

/// Lines of 100 bytes in each file that is read.
const LINES: usize = 240;

/// What the program had used when it sent a request.
#[derive(Clone, Copy, Debug)]
struct Used {
    rss: u64,
    /// In ticks of the system's clock, mostly 10 ms.
    cpu: u64,
    body: usize,
}

fn used(pid: u32, body: usize) -> Used {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap();
    let status = read("status");
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let stat = read("stat");
    // After the name, which may hold blanks, utime and stime are the 12th and the 13th.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<u64>().unwrap();
    let rss = rss.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024;
    Used { rss, cpu: ticks(11) + ticks(12), body }
}

/// Answers each request with one more file to read, and keeps nothing: the testkit's server would keep gigabytes.
fn serve(listener: &TcpListener, folder: &Path, pid: &Mutex<Option<u32>>) -> Vec<Used> {
    let mut uses = Vec::new();
    let mut drain = vec![0; 1 << 20];
    let (stream, _) = listener.accept().unwrap();
    let mut reader = BufReader::with_capacity(1 << 20, stream.try_clone().unwrap());
    while uses.len() <= turns() {
        let Some(length) = head(&mut reader) else { return uses };
        let mut left = length;
        while left > 0 {
            let most = left.min(drain.len());
            left -= reader.read(&mut drain[..most]).unwrap();
        }
        uses.push(used(pid.lock().unwrap().unwrap(), length));
        answer(&stream, uses.len(), folder);
    }
    uses
}

/// The length of the body that follows; nothing at the connection's end.
fn head(reader: &mut impl BufRead) -> Option<usize> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return None;
        }
        if line == "\r\n" {
            return Some(length);
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap();
        }
    }
}

fn answer(mut stream: &TcpStream, turn: usize, folder: &Path) {
    let is_last = turn > turns();
    let delta = if is_last {
        json!({ "content": "done" })
    } else {
        let arguments = json!({ "file_path": folder.join(format!("{turn}.txt")) }).to_string();
        json!({ "tool_calls": [{ "index": 0, "id": format!("call-{turn}"), "type": "function",
            "function": { "name": "Read", "arguments": arguments } }] })
    };
    let reason = if is_last { "stop" } else { "tool_calls" };
    let chunk = json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": reason }] });
    let body = format!("data: {chunk}\n\ndata: [DONE]\n\n");
    // In one piece: the second would wait for the first one's receipt.
    let head = format!("content-type: text/event-stream\r\ncontent-length: {}", body.len());
    stream.write_all(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}").as_bytes()).unwrap();
}

/// CPU of a fifth of all turns, the last of them at `end`.
fn cpu(uses: &[Used], end: usize) -> u64 {
    (uses[end].cpu - uses[end - uses.len() / 5].cpu).max(1)
}

#[cfg(target_os = "linux")]
#[test]
fn h_prf_02_five_hundred_turns_with_twelve_megabytes_stay_small() {
    let turns = turns();
    let rig = Rig::answering([]);
    let folder = rig.project.path().canonicalize().unwrap();
    for n in 1..=turns {
        let line = format!("{n:>5} {}\n", "x".repeat(92));
        std::fs::write(folder.join(format!("{n}.txt")), line.repeat(LINES)).unwrap();
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let pid = Mutex::new(None);
    let uses = std::thread::scope(|scope| {
        let server = scope.spawn(|| serve(&listener, &folder, &pid));
        let mut command = rig.command(["-p", "Read them all.", "--provider", "generic", "--model", "m"]);
        let mut guard = pid.lock().unwrap();
        let child = command.args(["--base-url", &url]).stdin(Stdio::null()).spawn().unwrap();
        *guard = Some(child.id());
        drop(guard);
        let out = rig.finish(child);
        // Whoever still waits for the program hears that it is gone.
        drop(TcpStream::connect(listener.local_addr().unwrap()));
        assert_eq!((out.code(), out.stdout.as_str()), (0, "done\n"), "{}", out.stderr);
        server.join().unwrap()
    });
    assert_eq!(uses.len(), turns + 1);
    let (start, middle, end) = (uses[1], uses[turns / 2], uses[turns]);
    let (early, late) = (cpu(&uses, turns * 3 / 10), cpu(&uses, turns));
    let shown = format!("{start:?} {middle:?} {end:?}, CPU {early} and {late}");
    println!("{shown}");
    assert!(end.body > turns * 23_900, "{shown}");
    assert!(end.rss < 80_000_000 + turns as u64 * 240_000, "{shown}");
    // Twice the transcript, twice the memory; what allocators keep is not the transcript's.
    let (first, second) = (middle.rss.saturating_sub(start.rss), end.rss.saturating_sub(middle.rss));
    assert!(second < 2 * first + 30_000_000, "{shown}");
    // Each request sends all that was before, so that a turn's work grows with its number: by 4.5 here, and by 20 if
    // it grew with the square.
    assert!(late < 10 * early, "{shown}");
}
