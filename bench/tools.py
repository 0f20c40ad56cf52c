#!/usr/bin/env python3
"""What search tools cost on the generated tree: tools.py TREE [reps=7]. Warm page cache, output read through a pipe.

Programs that are not installed are left out. OTHERS='name=path,…' repeats each case of rg with other builds of it.
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
    ("list all files", ["fdfind", "-t", "f"]),
    ("list all files", ["find", ".", "-type", "f"]),
    ("list *.rs", ["rg", "--files", "-g", "*.rs"]),
    ("list *.rs", ["fdfind", "-t", "f", "-e", "rs"]),
    ("list *.rs", ["find", ".", "-name", "*.rs"]),
    ("list *.rs by time", ["rg", "--files", "-g", "*.rs", "--sort", "modified"]),
    ("rare literal", ["rg", "-n", "NEEDLE_RARE"]),
    ("rare literal", ["rg", "-n", "-j1", "NEEDLE_RARE"]),
    ("rare literal", ["grep", "-rnI", "NEEDLE_RARE", "."]),
    ("rare literal, ignoring case", ["rg", "-n", "-i", "needle_rare"]),
    ("no match", ["rg", "-n", "ZZZ_ABSENT_ZZZ"]),
    ("common regex", ["rg", "-n", r"fn handle_\w+\("]),
    ("common regex", ["rg", "-n", "-j1", r"fn handle_\w+\("]),
    ("common regex, files only", ["rg", "-l", r"fn handle_\w+\("]),
    ("common regex, *.rs, with context", ["rg", "-n", "-C", "2", "-g", "*.rs", r"fn handle_\w+\("]),
    ("regex without a literal", ["rg", "-n", r"\b[a-z]+_\d{4}\b"]),
    ("multiline", ["rg", "-U", "-n", r"config;\n\s*fn handle_"]),
    ("one small folder", ["rg", "-n", "async", "crate02/src/m00"]),
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
