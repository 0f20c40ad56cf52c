//! How soon the program asks, and what a long session costs it. The limits are those of a debug build with room; the
//! bench has the real figures.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use open_agent_testkit::server::{Reply, Script};
use rustix::fs::inotify;
use serde_json::json;

use crate::rig::Rig;

/// From before the program is started until its request is with the server: the best of some.
fn first_request(rig: &Rig, arrivals: &Mutex<Vec<Instant>>) -> Duration {
    let once = || {
        let began = Instant::now();
        assert_eq!(rig.run(["-p", "Go"]).code(), 0);
        arrivals.lock().unwrap().pop().unwrap() - began
    };
    (0..7).map(|_| once()).min().unwrap()
}

fn clocked() -> (Rig, Arc<Mutex<Vec<Instant>>>) {
    let arrivals: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let noted = Arc::clone(&arrivals);
    let rig = Rig::new(Script::from_fn(move |_, _| {
        noted.lock().unwrap().push(Instant::now());
        Reply::text("ok")
    }));
    (rig, arrivals)
}

#[test]
fn h_prf_01_a_cold_start_reaches_the_server_soon() {
    let (rig, arrivals) = clocked();
    let took = first_request(&rig, &arrivals);
    // 150 ms are asked of a release build, which the bench shows.
    assert!(took < Duration::from_millis(600), "{took:?}");
}

#[test]
fn h_grp_03_a_start_among_a_hundred_thousand_folders_looks_at_none() {
    let (rig, arrivals) = clocked();
    let plain = first_request(&rig, &arrivals);
    // Making them on a disk would take long.
    let project = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    for n in 0..100_000 {
        std::fs::create_dir(project.path().join(format!("d{n}"))).unwrap();
    }
    std::fs::write(project.path().join(".gitignore"), "d1*\n").unwrap();
    let watched = Opens::of(project.path());
    let rig = Rig { project, ..rig };
    let among_many = first_request(&rig, &arrivals);
    assert_eq!(watched.count(), 0, "nobody lists the folder");
    assert!(among_many < Duration::from_millis(900), "{among_many:?}, and {plain:?} in an empty folder");
}

/// How often a folder is opened, as the kernel sees it.
struct Opens(OwnedFd);

impl Opens {
    fn of(folder: &Path) -> Self {
        let fd = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&fd, folder, inotify::WatchFlags::OPEN).unwrap();
        Self(fd)
    }

    fn count(self) -> usize {
        let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.0, &mut buffer);
        let mut count = 0;
        while let Ok(event) = events.next() {
            // What lies in it has a name.
            count += usize::from(event.file_name().is_none());
        }
        count
    }
}

#[test]
fn a_folder_that_is_listed_is_seen_to_be() {
    let folder = tempfile::tempdir().unwrap();
    let watched = Opens::of(folder.path());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    assert_eq!(watched.count(), 1);
}

/// Turns with a tool; the one after them is the 500th, and no run may have more by default.
const TURNS: usize = 499;
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
    while uses.len() <= TURNS {
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
    let is_last = turn > TURNS;
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

/// CPU of a hundred turns, the last of them at `end`.
fn cpu(uses: &[Used], end: usize) -> u64 {
    (uses[end].cpu - uses[end - 100].cpu).max(1)
}

#[cfg(target_os = "linux")]
#[test]
fn h_prf_02_five_hundred_turns_with_twelve_megabytes_stay_small() {
    let rig = Rig::answering([]);
    let folder = rig.project.path().canonicalize().unwrap();
    for n in 1..=TURNS {
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
    assert_eq!(uses.len(), TURNS + 1);
    let (start, middle, end) = (uses[1], uses[TURNS / 2], uses[TURNS]);
    let shown = format!("{start:?} {middle:?} {end:?}, CPU {} and {}", cpu(&uses, 150), cpu(&uses, TURNS));
    println!("{shown}");
    assert!(end.body > 11_900_000, "{shown}");
    assert!(end.rss < 200_000_000, "{shown}");
    // Twice the transcript, twice the memory; what allocators keep is not the transcript's.
    let (first, second) = (middle.rss.saturating_sub(start.rss), end.rss.saturating_sub(middle.rss));
    assert!(second < 2 * first + 30_000_000, "{shown}");
    // Each request sends all that was before, so that a turn's work grows with its number: by 4.5 here, and by 20 if
    // it grew with the square.
    assert!(cpu(&uses, TURNS) < 10 * cpu(&uses, 150), "{shown}");
}
