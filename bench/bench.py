#!/usr/bin/env python3
"""Runs one agent against the scripted model server and prints one line of JSON a run.

  bench.py PEER TURNS [--p CALLS] [--d DELTAS] [--agents COUNT] [--reps COUNT]      (run.sh starts the server first)

Times come from the server's log: one clock for both sides. CPU comes from wait4() of the agent and of every orphan (we
are the subreaper), so that tools and helpers count. Memory is sampled over the process tree.
"""
import argparse
import bisect
import ctypes
import json
import os
import re
import shlex
import shutil
import signal
import statistics as st
import subprocess
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.environ.get("BENCH_ROOT") or os.path.join(tempfile.gettempdir(), "agent-bench")
TARGET = os.environ.get("CARGO_TARGET_DIR") or os.path.join(os.path.dirname(HERE), "target")
PEERS = os.path.join(ROOT, "peers")
REPO = os.path.join(ROOT, "repo")
LOG = os.path.join(ROOT, "mock.jsonl")
PORT = int(os.environ.get("MOCK_PORT", "18080"))
PROMPT = "Read the files in src one after another, then say DONE."
PAGE = os.sysconf("SC_PAGE_SIZE")
PR_SET_CHILD_SUBREAPER = 36


# ---- peers: each takes the server's URL and the options, and gives (argv, extra environment) ----

KEYS = {"ANTHROPIC_API_KEY": "x", "OPENAI_API_KEY": "x"}


def home(peer):
    folder = os.path.join(ROOT, "home", peer)
    os.makedirs(folder, exist_ok=True)
    return folder


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write(text)


def open_agent(*more, base="", provider=()):
    def peer(url, a):
        program = os.environ.get("OPEN_AGENT_BIN") or os.path.join(TARGET, "release/open-agent")
        return ([program, "-p", PROMPT, *provider, "--base-url", url + base,
                 "--permission-mode", "bypassPermissions", *more], KEYS)
    return peer


def open_agent_lib(url, a):
    program = os.environ.get("OPEN_AGENT_LIB_BIN") or os.path.join(TARGET, "release/examples/bench_agents")
    return [program, url, str(a.agents)], KEYS


def rust_lib(name):
    return lambda url, a: ([f"{ROOT}/target/release/{name}", url, str(a.agents)], KEYS)


def claude_code(url, a):
    return ([f"{PEERS}/claude-code/node_modules/.bin/claude", "-p", PROMPT, "--output-format", "stream-json", "--verbose",
             "--dangerously-skip-permissions", "--model", "claude-sonnet-4-5"],
            {**KEYS, "ANTHROPIC_BASE_URL": url, "DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1",
             "DISABLE_ERROR_REPORTING": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "IS_SANDBOX": "1"})


def codex(url, a):
    folder = f"{home('codex')}/.codex"
    write(f"{folder}/config.toml", f"""model = "mock"
model_provider = "mock"
check_for_update_on_startup = false
[model_providers.mock]
name = "mock"
base_url = "{url}/v1"
env_key = "MOCK_KEY"
wire_api = "responses"
[analytics]
enabled = false
[otel]
exporter = "none"
""")
    return (["node", f"{PEERS}/codex/node_modules/@openai/codex/bin/codex.js", "exec", "--json", "--skip-git-repo-check",
             "--dangerously-bypass-approvals-and-sandbox", PROMPT], {"MOCK_KEY": "x", "CODEX_HOME": folder})


def pi(url, a):
    folder = f"{home('pi')}/agent"
    write(f"{folder}/models.json", json.dumps({"providers": {"mock": {
        "baseUrl": url, "api": "anthropic-messages", "apiKey": "x",
        "models": [{"id": "mock", "contextWindow": 1000000, "maxTokens": 32000}]}}}))
    # Text mode: its JSON mode repeats the whole message in each delta event.
    return (["node", f"{PEERS}/pi/node_modules/@mariozechner/pi-coding-agent/dist/cli.js", "-p", "--provider", "mock",
             "--model", "mock", PROMPT], {"PI_CODING_AGENT_DIR": folder, "PI_OFFLINE": "1"})


def command(url, a):
    """Any other program: BENCH_CMD='argv with {url} {prompt} {agents}'."""
    words = shlex.split(os.environ["BENCH_CMD"])
    return ([word.format(url=url, prompt=PROMPT, agents=a.agents) for word in words],
            {**KEYS, "ANTHROPIC_BASE_URL": url, "OPENAI_BASE_URL": url + "/v1"})


TABLE = {
    "floor": rust_lib("floor-bench"), "rig": rust_lib("rig-bench"),
    "open-agent": open_agent(), "open-agent-lib": open_agent_lib,
    "open-agent-json": open_agent("--output-format", "stream-json", "--verbose", "--include-partial-messages"),
    "open-agent-chat": open_agent(base="/v1", provider=("--provider", "openai", "--model", "mock")),
    "claude-code": claude_code, "codex": codex, "pi": pi, "cmd": command,
}


# ---- the process tree ----

def tree(root):
    """root and all that descends from it"""
    kids = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as f:
                stat = f.read()
            kids.setdefault(int(stat[stat.rindex(b")") + 2:].split()[1]), []).append(int(name))
        except (OSError, ValueError):
            pass
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo += kids.get(pid, [])
    return found


def kill(pids, sig):
    for pid in pids:
        try:
            os.kill(pid, sig)
        except OSError:
            pass


class Sampler(threading.Thread):
    """Peak memory: the tree's sum each 20 ms, and the root's own high-water mark each 2 ms, since a run may be
    shorter than 20 ms."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.done, self.peak, self.procs = pid, threading.Event(), 0, 0
        self.times = []                                     # (wall clock in ns, CPU seconds of the root)

    def run(self):
        turn = 0
        while not self.done.wait(0.002):
            self.peak = max(self.peak, self.high_water())
            self.times.append((time.time_ns(), self.cpu()))
            if turn % 10 == 0:
                pids = tree(self.pid)
                self.procs = max(self.procs, len(pids))
                if len(pids) > 1:
                    self.peak = max(self.peak, sum(map(self.resident, pids)))
            turn += 1

    def high_water(self):
        try:
            with open(f"/proc/{self.pid}/status") as f:
                found = re.search(r"^VmHWM:\s+(\d+)", f.read(), re.M)
            return int(found.group(1)) * 1024 if found else 0
        except OSError:
            return 0

    def cpu(self):
        try:
            return time.clock_gettime((~self.pid << 3) | 2)  # as clock_getcpuclockid() makes it
        except OSError:
            return self.times[-1][1] if self.times else 0.0

    def cpu_at(self, moment):
        """CPU seconds at a moment, interpolated"""
        at = min(max(bisect.bisect_left(self.times, (moment,)), 1), len(self.times) - 1)
        (t0, c0), (t1, c1) = self.times[at - 1], self.times[at]
        return c0 + (c1 - c0) * min(max((moment - t0) / max(t1 - t0, 1), 0.0), 1.0)

    @staticmethod
    def resident(pid):
        try:
            with open(f"/proc/{pid}/statm") as f:
                return int(f.read().split()[1]) * PAGE
        except (OSError, ValueError, IndexError):
            return 0


class Drain(threading.Thread):
    """Reads all output, as a caller would, and keeps the end of it."""

    def __init__(self, fd):
        super().__init__(daemon=True)
        self.fd, self.bytes, self.tail = fd, 0, b""

    def run(self):
        while data := os.read(self.fd, 1 << 20):
            self.bytes += len(data)
            self.tail = (self.tail + data)[-65536:]


def busy():
    """busy seconds of all CPUs since boot"""
    with open("/proc/stat") as f:
        v = [int(x) for x in f.readline().split()[1:]]
    return (sum(v) - v[3] - v[4]) / os.sysconf("SC_CLK_TCK")


def quiet(limit):
    """Waits, at most `limit` seconds, for a second in which others use under 0.3 of one CPU."""
    end = time.time() + limit
    while time.time() < end:
        before = busy()
        time.sleep(1)
        if busy() - before < 0.3:
            return True
    return False


# ---- one run ----

def reap(deadline):
    """Waits for the children that are left, ending them first; gives their CPU seconds."""
    cpu = 0.0
    kill((p for p in tree(os.getpid()) if p != os.getpid()), signal.SIGTERM)
    while True:
        try:
            pid, _, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return cpu
        if pid:
            cpu += usage.ru_utime + usage.ru_stime
        elif time.time() > deadline:
            kill((p for p in tree(os.getpid()) if p != os.getpid()), signal.SIGKILL)
            deadline += 3
        else:
            time.sleep(0.01)


def execute(argv, env, timeout):
    """Runs to the end; gives the measured fields, the end of the output, and the sampler."""
    read, out = os.pipe()
    busy_before, start = busy(), time.time_ns()
    process = subprocess.Popen(argv, cwd=REPO, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                               start_new_session=True)
    os.close(out)
    drain, sampler = Drain(read), Sampler(process.pid)
    drain.start()
    sampler.start()
    deadline, rc = time.time() + timeout, "timeout"
    while time.time() < deadline:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            rc = os.waitstatus_to_exitcode(status)
            break
        time.sleep(0.001)
    end, busy_after = time.time_ns(), busy()
    sampler.done.set()
    sampler.join()
    if rc == "timeout":
        kill(tree(process.pid), signal.SIGKILL)
        _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0                                  # already waited for
    cpu = usage.ru_utime + usage.ru_stime + reap(time.time() + 3)
    drain.join(5)
    os.close(read)
    seconds = (end - start) / 1e9
    return {"rc": rc, "t0": start, "t1": end, "wall_ms": seconds * 1e3, "cpu_s": cpu, "rss_mb": sampler.peak / 1e6,
            "procs": sampler.procs, "out_mb": drain.bytes / 1e6,
            # CPUs kept busy by anything else while the agent ran: other users, the server, the sampler
            "others_cpus": max(0.0, busy_after - busy_before - cpu) / seconds}, drain.tail, sampler


def from_log(rows, r, a, sampler):
    """What the server saw: adds to the fields of `r`."""
    main = sorted((x for x in rows if x.get("kind") in ("tool", "final")), key=lambda x: x["t_arr"])
    r["requests"], r["other_requests"] = len(rows), len(rows) - len(main)
    r["turns"] = sum(x["kind"] == "tool" for x in main)
    r["finals"] = sum(x["kind"] == "final" for x in main)
    r["ok"] = r["rc"] == 0 and r["turns"] == a.n * a.agents and r["finals"] == a.agents
    if not main:
        return
    first = main[0]
    r["ttfr_ms"] = (first["t_arr"] - r["t0"]) / 1e6
    r["tail_ms"] = (r["t1"] - main[-1]["t_end"]) / 1e6
    r.update(api=first["api"], tool=first.get("tool"), first_bytes=first["body"], tools=first["tools"],
             tools_bytes=first["tools_bytes"], sys_bytes=first["sys"], last_bytes=main[-1]["body"],
             total_mb=sum(x["body"] for x in rows) / 1e6)
    if a.agents == 1:
        # the agent's own time between two requests: read the answer, run the tool, send
        gaps = [(y["t_arr"] - x["t_end"]) / 1e6 for x, y in zip(main, main[1:]) if y["turn"] == x["turn"] + 1]
        for turn in (20, a.n - 10):
            span = [x["t_arr"] for x in main if abs(x["turn"] - turn) == 10]
            if turn > 10 and len(span) == 2:
                # the root's CPU over 20 turns around this one
                used = sampler.cpu_at(span[1]) - sampler.cpu_at(span[0])
                r["cpu_turn_20_ms" if turn == 20 else "cpu_turn_last_ms"] = used / 20 * 1e3
        if gaps:
            k = max(1, len(gaps) // 10)
            r.update(gap_ms=st.median(gaps), gap_first_ms=st.median(gaps[:k]), gap_last_ms=st.median(gaps[-k:]))
    if a.d > 1:
        r["stream_ms"] = (main[-1]["t_end"] - main[-1]["t_resp"]) / 1e6


def run_once(peer, a, rep):
    was_quiet = quiet(a.quiet) if a.quiet else None
    tag = f"{peer}-{a.n}-{a.p}-{a.d}-{a.agents}-{os.getpid()}-{rep}-{time.time_ns()}"
    url = f"http://127.0.0.1:{PORT}/s/n={a.n},p={a.p},d={a.d},ds={a.ds},cb={a.cb},run={tag}"
    argv, more = TABLE[peer](url, a)
    env = {k: os.environ[k] for k in ("PATH", "LANG", "TERM") if k in os.environ}
    scratch = tempfile.mkdtemp(dir=ROOT)
    env.update(HOME=home(peer), NO_PROXY="127.0.0.1,localhost", NO_COLOR="1", CI="1", TMPDIR=scratch, **more)
    before = os.path.getsize(LOG) if os.path.exists(LOG) else 0
    measured, tail, sampler = execute(argv, env, a.timeout)
    shutil.rmtree(scratch, ignore_errors=True)
    with open(os.path.join(ROOT, "out.txt"), "wb") as f:    # for a look at what went wrong
        f.write(tail)
    time.sleep(0.1)                                         # the server writes its log behind
    with open(LOG) as f:
        f.seek(before)
        rows = [json.loads(line) for line in f if f'"{tag}"' in line]
    r = {"peer": peer, "n": a.n, "p": a.p, "d": a.d, "agents": a.agents, **measured}
    from_log(rows, r, a, sampler)
    if was_quiet is not None:
        r["quiet"] = was_quiet
    try:                                                    # a library's program closes with its own numbers
        own = json.loads(tail.decode().strip().splitlines()[-1])
        if "per_agent_kb" in own:
            r["self"] = own
    except (ValueError, IndexError, TypeError):
        pass
    del r["t0"], r["t1"]
    return {k: round(v, 4 if k == "cpu_s" else 3) if isinstance(v, float) else v for k, v in r.items()}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("peer", choices=sorted(TABLE))
    ap.add_argument("n", type=int, help="tool turns before the final answer")
    ap.add_argument("--p", type=int, default=1, help="parallel calls a turn")
    ap.add_argument("--d", type=int, default=1, help="deltas in the final answer")
    ap.add_argument("--ds", type=int, default=20, help="bytes of a delta")
    ap.add_argument("--cb", type=int, default=16384, help="bytes of one write of the server")
    ap.add_argument("--agents", type=int, default=1, help="agents at once in one process (libraries only)")
    ap.add_argument("--reps", type=int, default=3)
    ap.add_argument("--quiet", type=float, default=0, help="wait up to so many seconds for a quiet machine")
    ap.add_argument("--timeout", type=float, default=180)
    ap.add_argument("--results", default=os.path.join(ROOT, "results.jsonl"))
    a = ap.parse_args()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for rep in range(a.reps):
        r = run_once(a.peer, a, rep)
        print(json.dumps(r), flush=True)
        with open(a.results, "a") as f:
            f.write(json.dumps(r) + "\n")
        if r["rc"] == "timeout":
            break


if __name__ == "__main__":
    main()
