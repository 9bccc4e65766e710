# Common parts of the interoperability tests; sourced with errexit on.
#
# Provides: $W, a new directory that is removed at the end (KEEP=1 keeps it, KEEP=failed if the test fails); belemnite;
# cluster_up ARGS… and cluster_down for a cluster in $W/c (CEPH_CONF is set); wait_for SECONDS COMMAND…; expect WHAT
# ACTUAL EXPECTED; exact_usage FILE; disk FILE SIZE DIR. Processes are ended by pid.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BIN=${BELEMNITE:-$ROOT/target/release/belemnite}
W=$(mktemp -d "${SCRATCH:-/tmp}/belemnite-interop.XXXXXX")
PIDS=()
: "${PORT:=23300}"
export PYTHONPATH=$ROOT/interop/py${PYTHONPATH:+:$PYTHONPATH}

belemnite() { "$BIN" "$@"; }

# Ceph's own command waits for an answer without limit; here a timeout is an error.
ceph() {
  local status=0
  timeout 180 "$(type -P ceph)" "$@" || status=$?
  [ $status != 124 ] || echo "no answer within three minutes: ceph $*" >&2
  return $status
}

# CLIENT, as "chroot DIR", runs Ceph's tools of another release; SCRATCH is then a directory that is the same in both.
if [ -n "${CLIENT:-}" ]; then
  for c in ceph rados rbd fio; do eval "$c() { $CLIENT $c \"\$@\"; }"; done
fi

finish() {
  local status=${1:-$?} p
  trap - EXIT TERM
  for p in "${PIDS[@]}"; do kill -TERM "$p" 2>/dev/null || true; done
  for p in "${PIDS[@]}"; do
    for _ in $(seq 100); do kill -0 "$p" 2>/dev/null || break; sleep 0.1; done
    kill -KILL "$p" 2>/dev/null || true
  done
  if [ $status != 0 ]; then
    echo "--- status $status; last lines of the daemons' logs:"
    tail -n 15 "$W"/c/log/*.log "$W"/c/log/*.out 2>/dev/null || true
    echo "--- free: $(df -h --output=avail,pcent "$W" | tail -n 1)"
  fi
  # The daemons end shortly after `up`: wait for them, because the next test needs their ports.
  for p in "$W"/c/run/*.pid; do
    for _ in $(seq 100); do daemon_gone "$p" && break; sleep 0.1; done
  done
  if [ "${KEEP:-}" = failed ] && [ $status = 0 ]; then KEEP=; fi
  if [ -n "${KEEP:-}" ]; then echo "kept: $W"; else rm -rf "$W"; fi
  exit $status
}
trap finish EXIT
trap 'echo "ended from outside at: $BASH_COMMAND"; finish 143' TERM

# daemon_gone PIDFILE: true if the process that wrote the file has ended.
daemon_gone() { [ ! -e "$1" ] || ! kill -0 "$(cat "$1")" 2>/dev/null; }

# wait_for SECONDS COMMAND…: runs the command until it succeeds.
wait_for() {
  local end=$(($(date +%s) + $1)); shift
  until "$@" >/dev/null 2>&1; do
    [ "$(date +%s)" -lt "$end" ] || { echo "gave up waiting for: $*" >&2; return 1; }
    sleep 0.1
  done
}

expect() { [ "$2" = "$3" ] || { echo "$1: got '$2', expected '$3'" >&2; return 1; }; }

# `finish` and what it calls must not be a script's own function of the same name.
readonly -f finish daemon_gone wait_for expect

# disk FILE SIZE DIR: a file system of its own in that file, mounted at DIR. Its loop device ends with the mount.
disk() {
  local l
  truncate -s "$2" "$1"
  mkfs.ext4 -q "$1"
  mkdir -p "$3"
  l=$(losetup -f --show "$1")
  # Some kernels keep a device that was used before read-only.
  blockdev --setrw "$l"
  mount "$l" "$3"
  losetup -d "$l"
}

is_up() { grep -q '^The cluster is up' "$W/up.out"; }

# cluster_up [belemnite up arguments…]: a Belemnite cluster in $W/c.
cluster_up() {
  : >"$W/up.out"
  "$BIN" up --data "$W/c" --port "$PORT" "$@" >"$W/up.out" 2>&1 &
  UP=$!
  PIDS+=("$UP")
  export CEPH_CONF=$W/c/ceph.conf
  wait_for 60 is_up || { cat "$W/up.out"; return 1; }
}

cluster_down() {
  kill -TERM "$UP"
  wait "$UP" || { echo "up ended with status $?" >&2; cat "$W/up.out"; return 1; }
}

# exact_usage FILE: by this output of `radosgw-admin bucket check`, the statistics in the bucket's index equal those counted
# from its entries. The index keeps categories without entries.
exact_usage() {
  local used='def used: with_entries(select(any(.value[]; . != 0)));'
  jq -e "$used .check_result | (.existing_header.usage | used) == (.calculated_header.usage | used)" "$1" >/dev/null ||
    { cat "$1"; return 1; }
}

# real_osd ID: a real ceph-osd with this id in the Belemnite cluster, of device class `real`.
real_osd() {
  local id=$1 uuid key r=$W/real.$1
  uuid=$(cat /proc/sys/kernel/random/uuid) key=$(ceph-authtool --gen-print-key)
  expect "number of the OSD" "$(echo "{\"cephx_secret\": \"$key\"}" | ceph osd new "$uuid" -i -)" "$id"
  mkdir -p "$r/osd"
  sed '/^\[osd/,$d' "$CEPH_CONF" >"$r/ceph.conf"
  cat >>"$r/ceph.conf" <<C
[osd]
osd_data = $r/osd
keyring = $r/keyring
osd_objectstore = bluestore
bluestore_block_size = 4294967296
bluestore_fsck_quick_fix_on_mount = false
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_port_min = $((PORT + 200 + 20 * id))
ms_bind_port_max = $((PORT + 219 + 20 * id))
run_dir = $r
admin_socket = $r/\$name.asok
log_file = $r/osd.log
crash_dir = $r/crash
setuser_match_path =
C
  printf '[osd.%s]\n\tkey = %s\n' "$id" "$key" >"$r/keyring"
  ceph-osd -c "$r/ceph.conf" -i "$id" --mkfs --osd-uuid "$uuid" >"$r/mkfs.out" 2>&1
  ceph-osd -c "$r/ceph.conf" -f -i "$id" >"$r/out" 2>&1 & REAL=$!
  PIDS+=("$REAL")
  wait_for 60 sh -c "ceph osd dump -f json | jq -e '.osds[] | select(.osd == $id) | .up == 1'" || { tail -n 40 "$r/osd.log"; return 1; }
  ceph osd crush rm-device-class "osd.$id"
  ceph osd crush set-device-class real "osd.$id"
}

# pool_clean POOL PGS: waits until the pool has exactly that many PGs and all are active+clean.
pool_clean() {
  wait_for 90 sh -c "ceph pg ls-by-pool $1 -f json | jq -e '[.pg_stats[].state] | length == $2 and all(. == \"active+clean\")'" ||
    { ceph -s; ceph pg ls-by-pool "$1"; return 1; }
}

# model_begins [POOL], model_ends: clients of pool `test` in the background; every answer must equal that of a model.
model_begins() {
  /usr/bin/python3 "$ROOT/interop/py/model_load.py" "${1:-test}" "${SEED:-$RANDOM}" 4 >"$W/model.out" 2>&1 & LOAD=$!
  PIDS+=("$LOAD")
}

model_ends() {
  kill -TERM "$LOAD"
  wait "$LOAD" || { cat "$W/model.out"; return 1; }
  cat "$W/model.out"
}

# image_counters POOL: writes to an image of a pool and waits until the manager has its counters from the OSDs' reports.
image_counters() {
  rbd create --size 32M --image-feature layering "$1/counted"
  counted() {
    rbd bench --io-type write --io-size 16K --io-total 1M --io-threads 4 "$1/counted" >/dev/null
    ceph rbd perf image counters "$1" | jq -e '[.counters[] | .["0/counted"][0]] | add > 0'
  }
  wait_for 60 counted "$1" || { ceph rbd perf image counters "$1"; return 1; }
}
