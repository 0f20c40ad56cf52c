#!/usr/bin/env bash
# mock.sh start|stop: the model server, on 127.0.0.1 only. MOCK_DUMP=DIR keeps each request body there.
set -euo pipefail
root=${BENCH_ROOT:-${TMPDIR:-/tmp}/agent-bench}
port=${MOCK_PORT:-18080}
pid=$root/mock.pid

case ${1:-} in
  start)
    if [ -f "$pid" ] && kill -0 "$(cat "$pid")" 2>/dev/null; then exit 0; fi
    nohup "$root/target/release/mockllm" --port "$port" --dir "$root/repo" --log "$root/mock.jsonl" \
      ${MOCK_DUMP:+--dump "$MOCK_DUMP"} >"$root/mock.out" 2>&1 </dev/null &
    echo $! >"$pid"
    for _ in $(seq 50); do
      if (: >"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then exit 0; fi
      sleep 0.1
    done
    echo "the server does not answer on port $port" >&2
    exit 1
    ;;
  stop)
    if [ -f "$pid" ]; then
      kill "$(cat "$pid")" 2>/dev/null || true
      rm -f "$pid"
    fi
    ;;
  *) echo "mock.sh start|stop" >&2 && exit 2 ;;
esac
