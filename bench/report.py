#!/usr/bin/env python3
"""Medians of results.jsonl as Markdown.

  report.py [RESULTS]           all peers and cases that are there
  report.py --table [RESULTS]   the table of README.md: floor, rig, open-agent
"""
import collections
import json
import os
import statistics as st
import sys
import tempfile

ROOT = os.environ.get("BENCH_ROOT") or os.path.join(tempfile.gettempdir(), "agent-bench")
ONE, TWENTY, HUNDRED, LONG = (1, 1, 1), (20, 1, 1), (100, 1, 1), (2000, 1, 1)
DELTAS, AGENTS, IDLE = (1, 200000, 1), (20, 1, 100), (1, 1, 10000)


def load(path):
    """{(peer, (turns, deltas, agents)): [run]} of the runs that did their work"""
    runs, failed = collections.defaultdict(list), 0
    with open(path) as f:
        for r in map(json.loads, f):
            if not r.get("ok"):
                failed += 1
            elif r["p"] == 1:
                runs[r["peer"], (r["n"], r["d"], r["agents"])].append(r)
    if failed:
        print(f"{failed} runs failed and are left out", file=sys.stderr)
    return runs


def value(runs, peer, case, field, pick=st.median):
    values = [r[field] for r in runs.get((peer, case), []) if field in r]
    return pick(values) if values else None


def minus(a, b, per):
    return None if a is None or b is None else (a - b) / per


def own(runs, peer, field, case=AGENTS):
    values = [r["self"][field] for r in runs.get((peer, case), []) if "self" in r]
    return st.median(values) if values else None


def table(runs):
    """(what, digits, function of a peer, of which of our programs)"""
    def v(*args, **more):
        return lambda peer: value(runs, peer, *args, **more)

    def cpu_over_one(case, per):
        return lambda p: minus(value(runs, p, case, "cpu_s"), value(runs, p, ONE, "cpu_s"), per)

    def growth(peer):
        return minus(value(runs, peer, HUNDRED, "gap_last_ms"), value(runs, peer, HUNDRED, "gap_first_ms"), 1)

    def ratio(peer):
        late, early = (value(runs, peer, LONG, f"cpu_turn_{which}_ms") for which in ("last", "20"))
        return None if late is None or not early else late / early

    rows = [
        ("first request after, ms (best of 10)", 1, v(ONE, "ttfr_ms", pick=min), "open-agent"),
        ("CPU of a run of 1 turn, ms", 1, lambda p: minus(value(runs, p, ONE, "cpu_s"), 0, 1e-3), "open-agent"),
        ("CPU per added turn (1 → 100), ms", 2, cpu_over_one(HUNDRED, 99e-3), "open-agent"),
        ("gap between two requests at 20 turns, ms", 2, v(TWENTY, "gap_ms"), "open-agent"),
        ("gap between two requests at 100 turns, ms", 2, v(HUNDRED, "gap_ms"), "open-agent"),
        ("growth of the gap over 100 turns, ms", 2, growth, "open-agent"),
        ("memory at 1 turn, MB", 1, v(ONE, "rss_mb"), "open-agent"),
        ("memory at 100 turns, MB", 1, v(HUNDRED, "rss_mb"), "open-agent"),
        ("first request body, kB", 1, lambda p: minus(value(runs, p, ONE, "first_bytes"), 0, 1e3), "open-agent"),
        ("CPU per streamed delta (200,000), µs", 2, cpu_over_one(DELTAS, 200000e-6), "open-agent"),
        ("the same, as stream-json, µs", 2, cpu_over_one(DELTAS, 200000e-6), "open-agent-json"),
        ("100 agents × 20 turns: CPU per agent turn, ms", 2, lambda p: minus(value(runs, p, AGENTS, "cpu_s"), 0, 2.0), "open-agent-lib"),
        ("100 agents × 20 turns: memory per agent, kB", 0, lambda p: own(runs, p, "per_agent_kb"), "open-agent-lib"),
        ("CPU of a turn at turn 20, ms", 2, v(LONG, "cpu_turn_20_ms"), "open-agent-lib"),
        ("CPU of a turn at turn 2,000, ms", 2, v(LONG, "cpu_turn_last_ms"), "open-agent-lib"),
        ("the latter : the former", 1, ratio, "open-agent-lib"),
        ("10,000 idle agents after 1 turn: memory per agent, kB", 0, lambda p: own(runs, p, "per_agent_kb", IDLE), "open-agent-lib"),
    ]
    print("| | floor | rig | open-agent |\n|---|---:|---:|---:|")
    for what, digits, f, ours in rows:
        theirs = [None, None] if ours == "open-agent-json" else [f("floor"), f("rig")]
        print(f"| {what} | " + " | ".join(number(x, digits) for x in [*theirs, f(ours)]) + " |")


def number(x, digits):
    return "–" if x is None else f"{x:.{digits}f}"


def everything(runs):
    fields = [("wall_ms", 0), ("cpu_s", 3), ("ttfr_ms", 1), ("gap_ms", 2), ("rss_mb", 1), ("first_bytes", 0), ("tools", 0),
              ("tools_bytes", 0), ("sys_bytes", 0), ("total_mb", 2), ("others_cpus", 1)]
    print("| peer | turns, deltas, agents | runs | " + " | ".join(f for f, _ in fields) + " |")
    print("|---" * (len(fields) + 3) + "|")
    for (peer, case), rs in sorted(runs.items()):
        cells = [number(value(runs, peer, case, f), digits) for f, digits in fields]
        print(f"| {peer} | {', '.join(map(str, case))} | {len(rs)} | " + " | ".join(cells) + " |")


def main():
    args = [a for a in sys.argv[1:] if a != "--table"]
    runs = load(args[0] if args else os.path.join(ROOT, "results.jsonl"))
    (table if "--table" in sys.argv else everything)(runs)


main()
