#!/usr/bin/env bash
# run.sh PEER TURNS [--p CALLS] [--d DELTAS] [--agents COUNT] [--reps COUNT] [--quiet SECONDS]
#   e.g. run.sh open-agent 100 --reps 5; PEER `cmd` with BENCH_CMD='my-agent {prompt} --url {url}' is any other program
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bash "$here/mock.sh" start
exec python3 "$here/bench.py" "$@"
