# A key that may only read sends 2,000 commands with long answers at once, while 500 connections hold half a frame each:
# the leader keeps its lease, another client's question is answered within two seconds (SLOWEST), and the monitors' memory
# stays within bounds. With one monitor; with three through the leader and through another monitor.
source "$(dirname "$0")/../lib.sh"
command -v etcd >/dev/null || { echo "etcd is not installed (etcd-server)"; exit 1; }

addr_of() { ceph mon dump -f json | jq -r ".mons[] | select(.name == \"$1\") | .public_addrs.addrvec[0].addr"; }
resident() { awk '/^VmRSS/ { print int($2 / 1024) }' "/proc/$(cat "$W/c/run/mon.$1.pid")/status"; }
pids() { cat "$W"/c/run/mon.*.pid | tr '\n' ' '; }
leader() { ceph quorum_status -f json | jq -r .quorum_leader_name; }

# Thousands of long lines in the log, which `log last` returns.
fill_log() {
  /usr/bin/python3 - <<'P'
import json, os, rados, threading
c = rados.Rados(conffile=os.environ['CEPH_CONF']); c.connect()
threading.stack_size(256 << 10)
def lines(n):
    for i in range(50):
        c.mon_command(json.dumps({'prefix': 'log', 'logtext': [f'{n} {i} ' + 'x' * 500]}), b'')
all = [threading.Thread(target=lines, args=(n,)) for n in range(40)]
for t in all: t.start()
for t in all: t.join()
P
}

# flood WHAT MONITOR: floods through a monitor and questions through every monitor meanwhile.
flood() {
  local what=$1 through=$2 m before grown worst=0 mons
  mons=$(ceph mon dump -f json | jq -r '.mons[].name')
  before=$(pids)
  declare -A had
  for m in $mons; do had[$m]=$(resident "$m"); done
  local at; at=$(addr_of "$through")
  /usr/bin/python3 "$ROOT/interop/py/monitor_flood.py" "$W/weak.keyring" "v2:$at" 500 "$at" >"$W/flood.out" 2>&1 & local f=$!
  PIDS+=("$f")
  wait_for 90 grep -q flooding "$W/flood.out" || { cat "$W/flood.out"; return 1; }
  /usr/bin/python3 - "$what" "${SLOWEST:-2}" $(for m in $mons; do addr_of "$m"; done) <<'P'
import os, rados, sys, time
what, most = sys.argv[1], float(sys.argv[2])
worst, n, end = 0.0, 0, time.time() + 8
clients = []
for at in sys.argv[3:]:
    c = rados.Rados(conffile=os.environ['CEPH_CONF'], conf={'mon_host': 'v2:' + at})
    c.connect(timeout=20)
    clients.append(c)
while time.time() < end:
    for c in clients:
        t = time.time()
        rc, out, err = c.mon_command('{"prefix":"status","format":"json"}', b'')
        assert rc == 0, err
        worst, n = max(worst, time.time() - t), n + 1
print(f'== {what}: {n} questions, the slowest was answered in {worst:.2f} s')
assert n > 10 and worst <= most, (n, worst)
P
  for m in $mons; do
    grown=$(($(resident "$m") - had[$m]))
    [ "$grown" -le "$worst" ] || worst=$grown
  done
  echo "== $what: a monitor's memory grew by $worst MiB"
  [ "$worst" -le 512 ] || return 1
  kill -KILL "$f"
  wait "$f" || true
  expect "the processes after the flood ($what)" "$(pids)" "$before"
}

cluster_up --osds 1 --osd-size 1G
ceph osd pool create p 64 >/dev/null
ceph auth get-or-create client.weak mon 'allow r' >"$W/weak.keyring"
fill_log
flood "one monitor" a
cluster_down
rm -r "$W/c"

cluster_up --osds 1 --osd-size 1G --mons 3
ceph auth get-or-create client.weak mon 'allow r' >"$W/weak.keyring"
fill_log
l=$(leader)
flood "three monitors, at the leader" "$l"
other=$(ceph mon dump -f json | jq -r ".mons[].name" | grep -v "^$l$" | head -n 1)
flood "three monitors, through another one" "$other"
expect "the leader after the floods" "$(leader)" "$l"
if grep -h 'no longer leads\|lease of the leader expired' "$W"/c/log/mon.*.log; then exit 1; fi
cluster_down
