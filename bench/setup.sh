#!/usr/bin/env bash
# Builds the model server, the floor and rig, and makes the repository that the agents read.
#   setup.sh [claude-code|codex|pi]...      installs these peers too, each into its own folder
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=${BENCH_ROOT:-${TMPDIR:-/tmp}/agent-bench}
mkdir -p "$root/peers"

for program in mock libs; do
  (cd "$here/$program" && CARGO_TARGET_DIR=$root/target cargo build --release --quiet)
done

if [ ! -d "$root/repo/.git" ]; then
  mkdir -p "$root/repo/src"
  cd "$root/repo"
  for file in $(seq 0 199); do
    for line in 1 2 3 4 5 6 7 8 9 10; do
      echo "line $line of file $file: the quick brown fox jumps"
    done >"src/f$file.txt"
  done
  echo "# bench" >README.md
  git init --quiet .
  git add -A
  git -c user.email=bench@localhost -c user.name=bench commit --quiet --message init
fi

npm_peer() { # folder package
  mkdir -p "$root/peers/$1"
  cd "$root/peers/$1"
  [ -f package.json ] || echo '{"private":true,"type":"module"}' >package.json
  npm install --no-audit --no-fund "$2" >install.log 2>&1 || { cat install.log && exit 1; }
}

for peer in "$@"; do
  case $peer in
    claude-code)
      npm_peer claude-code @anthropic-ai/claude-code@2.1.332
      installer=node_modules/@anthropic-ai/claude-code/install.cjs
      if [ -f "$installer" ]; then node "$installer"; fi
      ;;
    codex) npm_peer codex @openai/codex@0.171.0 ;;
    pi) npm_peer pi @mariozechner/pi-coding-agent@0.73.1 ;;
    *) echo "no peer $peer: claude-code, codex, pi" >&2 && exit 2 ;;
  esac
done
