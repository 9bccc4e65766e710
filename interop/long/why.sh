# Twelve causes of slow operations are planted one after the other on a cluster under load, and `belemnite why` names each
# with its culprit within 30 seconds; without a cause it names none, for SECS seconds (60) of changing load (root; loop
# devices, cgroups of version 1 for blkio and cpu, nft, etcd, python3-rados, a C compiler). CAUSES selects some of
# them. Packets are dropped by nft, since netem is no part of many kernels. Neighbours that
# write to the disk are a cause, too: SCRATCH=/dev/shm keeps the cluster's device off it.
[ -n "${PRIVATE:-}" ] || PRIVATE=1 exec unshare --mount --net --propagation private bash "$0"
source "$(dirname "$0")/../lib.sh"
ip link set lo up
G=belemnite-why.$$ MISSED=0 BUSY=()
: "${CAUSES:=silence slow_disk cpu_taken cpu_quota small_mtu lossy_link dead_lock full hot_object clock deep_scrub recovery mon_store}"
# A new network namespace has a sysfs of its own, with its interfaces. No cgroup lies below $W, which is removed at the end.
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /sys/fs/cgroup
for c in blkio cpu; do
  mkdir "/sys/fs/cgroup/$c"
  mount -t cgroup -o "$c" "$c" "/sys/fs/cgroup/$c"
done

pid() { cat "$W/c/run/$1.pid"; }
# limit GROUP FILE VALUE DAEMON…: these daemons into a cgroup with this limit.
limit() {
  local d g=/sys/fs/cgroup/$1/$G
  mkdir -p "$g"
  echo "$3" >"$g/$2"
  for d in "${@:4}"; do pid "$d" >"$g/cgroup.procs"; done
}
# undo: removes what is planted.
undo() {
  local p g
  for p in "${BUSY[@]:-}"; do [ -z "$p" ] || kill "$p" 2>/dev/null || true; done
  BUSY=()
  for g in /sys/fs/cgroup/{blkio,cpu}/$G; do
    [ -d "$g" ] || continue
    while read -r p; do echo "$p" >"$g/../cgroup.procs" || true; done <"$g/cgroup.procs"
    wait_for 10 rmdir "$g"
  done
  nft delete table inet why 2>/dev/null || true
  ip link set lo mtu 65536
}
trap 'status=$?; set +e; undo; umount -l "$W/c"; finish $status' EXIT

why() { belemnite why --json --since 10s "$@"; }
# is_named CAUSE CULPRIT: both stand in one verdict.
is_named() { why >"$W/answer" && jq -e --arg c "$1" --arg w "$2" '.verdicts[] | select(.cause == $c and (.culprit | contains($w)))' "$W/answer"; }
nothing() { why >"$W/answer" && jq -e '.verdicts == []' "$W/answer"; }
works() { why | jq -e '.verdicts == [] and .operations > 0'; }
# named CAUSE CULPRIT: shows after how many seconds it is named, and the answer. Then removes the cause; it may be named on
# for as long as the span, or as what it left behind lasts.
named() {
  local begin
  begin=$(date +%s%N)
  if wait_for 30 is_named "$1" "$2"; then
    echo "== $1 ($2): named after $((($(date +%s%N) - begin) / 1000000000)) s"
  else
    echo "== $1 ($2): NOT named"; jq -c . "$W/answer"; MISSED=$((MISSED + 1))
    for o in 0 1 2; do ceph tell "osd.$o" dump_ledger 10 | jq -c '{osd, ops, us, device, reactors, network, waiting, peers, objects: .objects[:2]}' || true; done
  fi
  belemnite why --since 10s
  [ -z "${ALSO:-}" ] || eval "$ALSO" || true
  undo
}
quiet_again() { wait_for 90 nothing || { echo "== after $1 something is still named:"; belemnite why --since 10s; MISSED=$((MISSED + 1)); }; }

silence() {
  local end=$(($(date +%s) + ${SECS:-60})) wrong=0 asked=0
  kill "$LOAD"
  /usr/bin/python3 "$ROOT/interop/py/changing_load.py" test changing "${SEED:-$RANDOM}" >"$W/changes" & LOAD=$!
  PIDS+=("$LOAD")
  while [ "$(date +%s)" -lt "$end" ]; do
    asked=$((asked + 1))
    nothing >/dev/null || { wrong=$((wrong + 1)); date +%T; tail -n 2 "$W/changes"; jq -c . "$W/answer"
      for o in 0 1 2; do ceph tell "osd.$o" dump_ledger 10 | jq -c '{osd, ops, us, long_ops, long_us, device, reactors, network, waiting, objects: .objects[:2]}' || true; done; }
    sleep 1
  done
  echo "== nothing planted: asked $asked times, $wrong times something was named; $(wc -l <"$W/changes") loads"
  MISSED=$((MISSED + wrong))
  kill "$LOAD"
  steady
}

slow_disk() {
  limit blkio blkio.throttle.write_iops_device "$NUMBER 40" osd.1
  named slow_disk osd.1
}

cpu_taken() {
  local last=$(($(nproc) - 1))
  taskset -acp $last "$(pid osd.1)" >/dev/null
  for _ in 1 2 3 4; do taskset -c $last nice -n -19 sh -c 'while :; do :; done' & BUSY+=("$!"); done
  named cpu_taken osd.1
  taskset -acp 0-$last "$(pid osd.1)" >/dev/null
}

cpu_quota() {
  limit cpu cpu.cfs_quota_us 5000 osd.1
  named cpu_quota osd.1
}

small_mtu() {
  ip link set lo mtu 1280
  named small_mtu "host $(hostname)"
}

lossy_link() {
  nft 'add table inet why; add chain inet why in { type filter hook input priority 0; }'
  nft 'add rule inet why in tcp dport != 0 numgen random mod 100 < 2 drop'
  named lossy_link "host $(hostname)"
}

dead_lock() {
  rados -p test create locked
  rados -p test lock get locked L --lock-cookie dead
  while :; do rados -p test lock get locked L --lock-cookie other || sleep 1; done >/dev/null 2>&1 & BUSY+=("$!")
  named dead_lock test/locked
  rados -p test rm locked
}

full() {
  ceph osd pool create small 8
  ceph osd pool application enable small rados
  rados -p small put a /etc/hostname
  rados -p small put b /etc/hostname
  ceph osd pool set-quota small max_objects 1
  named full small
  ceph osd pool rm small small --yes-i-really-really-mean-it
}

hot_object() {
  /usr/bin/python3 - <<'P' &
import collections, os, rados
io = rados.Rados(conffile=os.environ["CEPH_CONF"])
io.connect()
io = io.open_ioctx("test")
queue = collections.deque()
while True:
    queue.append(io.aio_write_full("hot", b"x" * 512))
    if len(queue) >= 256:
        queue.popleft().wait_for_complete()
P
  BUSY+=("$!")
  named hot_object test/hot
}

clock() {
  cat >"$W/ahead.c" <<'C'
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t c, struct timespec *t) {
  int r = syscall(SYS_clock_gettime, c, t);
  if (r == 0 && c == CLOCK_REALTIME) t->tv_sec += 3;
  return r;
}
C
  cc -shared -fPIC -o "$W/ahead.so" "$W/ahead.c"
  belemnite osd stop 0
  LD_PRELOAD=$W/ahead.so "$BIN" osd -i 0 >"$W/ahead.out" 2>&1 & local ahead=$!
  PIDS+=("$ahead")
  named clock osd.0
  kill "$ahead"
  wait "$ahead" || true
  belemnite osd start 0
}

# bulk: 480 MiB in a pool of two copies.
bulk() {
  ceph osd pool ls | grep -q bulk && return
  ceph osd pool create bulk 16
  ceph osd pool set bulk size 2
  ceph osd pool application enable bulk rados
  rados -p bulk bench 20 write -b 1M -t 4 --max-objects 480 --no-cleanup >/dev/null
  wait_for 60 sh -c 'ceph pg stat | grep -q "active+clean[;,]"'
  quiet_again bulk
}

deep_scrub() {
  bulk
  limit blkio blkio.throttle.read_bps_device "$NUMBER 15000000" osd.0 osd.1 osd.2
  while :; do ceph osd pool deep-scrub bulk; sleep 3; done >/dev/null 2>&1 & BUSY+=("$!")
  named deep_scrub "deep scrub"
}

recovery() {
  bulk
  ceph config set osd osd_mclock_profile high_recovery_ops
  ceph config set osd osd_max_backfills 8
  limit blkio blkio.throttle.read_bps_device "$NUMBER 60000000" osd.0 osd.1 osd.2
  limit blkio blkio.throttle.write_bps_device "$NUMBER 60000000" osd.0 osd.1 osd.2
  ceph osd out 2
  named recovery recovery
  ceph osd in 2
  wait_for 180 sh -c 'ceph pg stat | grep -q "16 active+clean[;,]\|[0-9]* active+clean;"'
}

mon_store() {
  kill "$LOAD"
  cluster_down
  rm -rf "${W:?}"/c/*
  cluster_up --osds 1 --osd-size 1G --mons 3
  ceph osd pool create test 8
  wait_for 60 nothing
  limit blkio blkio.throttle.write_iops_device "$NUMBER 2" etcd.a etcd.b etcd.c
  while :; do ceph config-key set a "$RANDOM"; done >/dev/null 2>&1 & BUSY+=("$!")
  named mon_store monitors
}

steady() {
  /usr/bin/python3 "$ROOT/interop/py/changing_load.py" test & LOAD=$!
  PIDS+=("$LOAD")
}

disk "$W/image" 6G "$W/c"
NUMBER=$(findmnt -no MAJ:MIN "$W/c")
rmdir "$W/c/lost+found"
cluster_up --osds 3 --osd-size 1536M
ceph osd pool create test 16
ceph osd pool application enable test rados
wait_for 60 sh -c 'ceph pg stat | grep -q "active+clean;"'
steady
wait_for 60 works
for cause in $CAUSES; do
  $cause
  [ "$cause" = mon_store ] || quiet_again "$cause"
done
expect "causes that were not named, or named for nothing" "$MISSED" 0
