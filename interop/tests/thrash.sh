#!/usr/bin/env bash
# Two minutes of interop/thrash.py: six OSDs on three hosts (network namespaces), under load, while OSDs, links and
# disks fail. The order of faults is fixed; SEED and FOR change it.
. "$(dirname "$0")/../lib.sh"
if ! ip netns add "bm-try$$"; then
  echo "== not run: network namespaces cannot be made here"
  exit 0
fi
ip netns del "bm-try$$"
export FOR=${FOR:-120} SEED=${SEED:-7} OSD_SIZE=${OSD_SIZE:-2G} DIR=$W BELEMNITE=$BIN
python3 "$ROOT/interop/thrash.py" | tee "$W/thrash.out"
tail -n 2 "$W/thrash.out" | sed 's/^ *[0-9.]* */== /'
