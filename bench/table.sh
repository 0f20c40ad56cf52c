#!/usr/bin/env bash
# Runs floor, rig and open-agent over all cases and prints the table of README.md.
#   REPS=5 table.sh          what is not built is left out
#   table.sh --only-print    the table of the results that are there
# The peers take turns within a case, so that each meets the same load of the machine.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=${BENCH_ROOT:-${TMPDIR:-/tmp}/agent-bench}
target=${CARGO_TARGET_DIR:-$here/../target}
results=$root/results.jsonl
reps=${REPS:-5}

ours=() lib=() json=()
if [ -x "${OPEN_AGENT_BIN:-$target/release/open-agent}" ]; then ours=(open-agent) json=(open-agent-json); fi
if [ -x "${OPEN_AGENT_LIB_BIN:-$target/release/examples/bench_agents}" ]; then lib=(open-agent-lib); fi

rounds() { # count "arguments of bench.py" peer...
  local count=$1 arguments=$2
  shift 2
  for _ in $(seq "$count"); do
    for peer in "$@"; do
      # shellcheck disable=SC2086 # several words on purpose
      bash "$here/run.sh" "$peer" $arguments --reps 1 >>"$root/table.log"
    done
  done
}

if [ "${1:-}" != --only-print ]; then
  if [ -f "$results" ]; then mv "$results" "$results.before"; fi
  : >"$root/table.log"
  rounds 10 "1" floor rig "${ours[@]}" "${json[@]}"
  rounds "$reps" "20" floor rig "${ours[@]}"
  rounds "$reps" "100" floor rig "${ours[@]}"
  rounds "$reps" "1 --d 200000" floor rig "${ours[@]}" "${json[@]}"
  rounds "$reps" "20 --agents 100" floor rig "${lib[@]}"
  rounds "$reps" "2000 --timeout 900" floor rig "${lib[@]}"
  rounds "$reps" "1 --agents 10000 --timeout 900" floor rig "${lib[@]}"
fi
python3 "$here/report.py" --table "$results"
