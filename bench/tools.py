#!/usr/bin/env python3
"""What search tools cost on the generated tree: tools.py TREE [reps=7]. Warm page cache, output read through a pipe.

Programs that are not installed are left out. OTHERS='name=path,…' repeats each case of rg with other builds of it. Our own
tools are called through OPEN_AGENT_CALL (target/release/examples/call), each in a process of its own like the others.
"""
import json
import os
import shutil
import statistics as st
import subprocess
import sys
import time

CASES = [
    ("list all files", ["rg", "--files"]),
    ("list all files by time", ["rg", "--files", "--sort", "modified"]),
    ("list all files", ["fdfind", "-t", "f"]),
    ("list all files", ["find", ".", "-type", "f"]),
    ("list *.rs", ["rg", "--files", "-g", "*.rs"]),
    ("list *.rs", ["fdfind", "-t", "f", "-e", "rs"]),
    ("list *.rs", ["find", ".", "-name", "*.rs"]),
    ("list *.rs by time", ["rg", "--files", "-g", "*.rs", "--sort", "modified"]),
    ("list f123*.rs by time", ["rg", "--files", "-g", "f123*.rs", "--sort", "modified"]),
    ("list f123*.rs", ["rg", "--files", "-g", "f123*.rs"]),
    ("rare literal", ["rg", "-n", "NEEDLE_RARE"]),
    ("rare literal", ["rg", "-n", "-j1", "NEEDLE_RARE"]),
    ("rare literal", ["grep", "-rnI", "NEEDLE_RARE", "."]),
    ("rare literal, ignoring case", ["rg", "-n", "-i", "needle_rare"]),
    ("no match", ["rg", "-n", "ZZZ_ABSENT_ZZZ"]),
    ("common regex", ["rg", "-n", r"fn handle_\w+\("]),
    ("common regex", ["rg", "-n", "-j1", r"fn handle_\w+\("]),
    ("common regex, files only", ["rg", "-l", r"fn handle_\w+\("]),
    ("common regex, count", ["rg", "-c", r"fn handle_\w+\("]),
    ("common regex, *.rs, with context", ["rg", "-n", "-C", "2", "-g", "*.rs", r"fn handle_\w+\("]),
    ("regex without a literal", ["rg", "-n", r"\b[a-z]+_\d{4}\b"]),
    ("multiline", ["rg", "-U", "-n", r"config;\n\s*fn handle_"]),
    ("one small folder", ["rg", "-n", "async", "crate02/src/m00"]),
]

# `head_limit` 0 finds all that rg finds.
COMMON = {"pattern": r"fn handle_\w+\("}
OURS = [
    ("list all files by time", "Glob", {"pattern": "**"}),
    ("list *.rs by time", "Glob", {"pattern": "*.rs"}),
    ("list f123*.rs by time", "Glob", {"pattern": "f123*.rs"}),
    ("rare literal", "Grep", {"pattern": "NEEDLE_RARE", "output_mode": "content"}),
    ("no match", "Grep", {"pattern": "ZZZ_ABSENT_ZZZ"}),
    ("common regex", "Grep", COMMON | {"output_mode": "content", "head_limit": 0}),
    ("common regex, first 250 lines", "Grep", COMMON | {"output_mode": "content"}),
    ("common regex, files only", "Grep", COMMON | {"head_limit": 0}),
    ("common regex, count", "Grep", COMMON | {"output_mode": "count", "head_limit": 0}),
    ("regex without a literal", "Grep",
     {"pattern": r"\b[a-z]+_\d{4}\b", "output_mode": "content", "head_limit": 0}),
    ("one small folder", "Grep", {"pattern": "async", "path": "crate02/src/m00", "output_mode": "content"}),
]


def once(argv, tree):
    """(wall ms, CPU ms, lines, bytes)"""
    start = time.perf_counter()
    process = subprocess.Popen(argv, cwd=tree, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    size = lines = 0
    while data := os.read(process.stdout.fileno(), 1 << 20):
        size += len(data)
        lines += data.count(b"\n")
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    process.stdout.close()
    return (time.perf_counter() - start) * 1e3, (usage.ru_utime + usage.ru_stime) * 1e3, lines, size


def main():
    tree, reps = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 7
    cases = list(CASES)
    for pair in filter(None, os.environ.get("OTHERS", "").split(",")):
        name, path = pair.split("=", 1)
        cases += [(f"{case} [{name}]", [path] + argv[1:]) for case, argv in CASES if argv[0] == "rg"]
    call = os.environ.get("OPEN_AGENT_CALL", "target/release/examples/call")
    if os.path.exists(call):
        cases += [(case, [os.path.abspath(call), tree, tool, json.dumps(asked)]) for case, tool, asked in OURS]
    for case, argv in cases:
        if not shutil.which(argv[0]):
            continue
        once(argv, tree)
        runs = [once(argv, tree) for _ in range(reps)]
        wall, cpu = [r[0] for r in runs], [r[1] for r in runs]
        print(json.dumps({"case": case, "cmd": " ".join(argv), "wall_ms": round(st.median(wall), 1),
                          "wall_min_ms": round(min(wall), 1), "cpu_ms": round(st.median(cpu), 1),
                          "cpu_min_ms": round(min(cpu), 1), "lines": runs[-1][2], "bytes": runs[-1][3]}), flush=True)


main()
