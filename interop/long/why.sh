# Causes of slow operations are planted one after the other on a cluster under load, and `belemnite why` names each of them
# with its culprit within 30 seconds; without a cause it names none (root; loop devices, cgroups of version 1 or 2 for blkio
# and cpu, tc with tbf, python3-rados, a C compiler). Not planted: random loss of single packets (netem is no part of many
# kernels; a link with a short queue loses them too).
[ -n "${PRIVATE:-}" ] || PRIVATE=1 exec unshare --mount --net --propagation private bash "$0"
source "$(dirname "$0")/../lib.sh"
ip link set lo up
mount -t sysfs sysfs /sys
for c in blkio cpu; do
  mountpoint -q /sys/fs/cgroup || mount -t tmpfs tmpfs /sys/fs/cgroup
  mkdir -p "/sys/fs/cgroup/$c"
  mount -t cgroup -o "$c" "$c" "/sys/fs/cgroup/$c" 2>/dev/null || true
done
G=belemnite-why.$$
cluster_up --osds 3 --osd-size 1G
cluster_down
disk "$W/image" 2G "$W/fs"
cp --sparse=never -r "$W/c/osd.1/." "$W/fs/"
mount --move "$W/fs" "$W/c/osd.1"
NUMBER=$(findmnt -no MAJ:MIN "$W/c/osd.1")
cluster_up

# undo: removes what is planted.
undo() {
  local p g
  for p in "${BUSY[@]:-}"; do [ -z "$p" ] || kill "$p" 2>/dev/null || true; done
  BUSY=()
  for g in blkio cpu; do
    [ ! -d "/sys/fs/cgroup/$g/$G" ] || while read -r p; do echo "$p" >"/sys/fs/cgroup/$g/cgroup.procs" || true; done <"/sys/fs/cgroup/$g/$G/cgroup.procs"
    rmdir "/sys/fs/cgroup/$g/$G" 2>/dev/null || true
  done
  tc qdisc del dev lo root 2>/dev/null || true
  ip link set lo mtu 65536
}
BUSY=()
trap 'status=$?; undo; umount -l "$W/c/osd.1" 2>/dev/null || true; finish $status' EXIT

pid() { cat "$W/c/run/$1.pid"; }
why() { belemnite why --json --since 10s "$@"; }
# is_named CAUSE CULPRIT: both stand in one verdict.
is_named() { why | jq -e --arg c "$1" --arg w "$2" '.verdicts[] | select(.cause == $c and (.culprit | contains($w)))'; }
nothing() { why | jq -e '.verdicts == [] and .operations > 0'; }
# named CAUSE CULPRIT: shows after how many seconds it is named, and the answer.
named() {
  local begin
  begin=$(date +%s%N)
  if wait_for "${WITHIN:-30}" is_named "$1" "$2"; then
    echo "== $1 ($2): named after $((($(date +%s%N) - begin) / 1000000000)) s"
    belemnite why --since 10s
  else
    echo "== $1 ($2): NOT named"; why; belemnite why --since 10s; MISSED=$((MISSED + 1))
    ceph tell osd.1 dump_ledger 10 | jq -c '{us, device, reactors, network, waiting, peers}' || true
  fi
  undo
  [ "${STAYS:-}" = 1 ] || wait_for 60 nothing || { echo "== after $1 something is still named:"; belemnite why --since 10s; MISSED=$((MISSED + 1)); }
}
MISSED=0
ceph osd pool create test 16
ceph osd pool application enable test rados
wait_for 60 sh -c 'ceph pg stat | grep -q "active+clean;"'
load() { while :; do rados -p test bench 20 write -b 4096 -t "${1:-8}" --no-cleanup --run-name "r$RANDOM" >/dev/null 2>&1 || sleep 0.2; done; }
load & LOAD=$!
PIDS+=("$LOAD")

wait_for 60 nothing
for _ in $(seq "${QUIET:-20}"); do nothing >/dev/null || { belemnite why --since 10s; MISSED=$((MISSED + 1)); }; sleep 1; done
echo "== nothing planted: $(belemnite why --since 10s)"
belemnite safe

mkdir "/sys/fs/cgroup/blkio/$G"
echo "$NUMBER 40" >"/sys/fs/cgroup/blkio/$G/blkio.throttle.write_iops_device"
pid osd.1 >"/sys/fs/cgroup/blkio/$G/cgroup.procs"
named slow_disk osd.1

taskset -acp 1 "$(pid osd.1)" >/dev/null
for _ in 1 2 3 4; do taskset -c 1 nice -n -19 sh -c 'while :; do :; done' & BUSY+=("$!"); done
named cpu_taken osd.1
taskset -acp "0-$(($(nproc) - 1))" "$(pid osd.1)" >/dev/null

mkdir "/sys/fs/cgroup/cpu/$G"
echo 5000 >"/sys/fs/cgroup/cpu/$G/cpu.cfs_quota_us"
pid osd.1 >"/sys/fs/cgroup/cpu/$G/cgroup.procs"
named cpu_quota osd.1

ip link set lo mtu 1280
named small_mtu "host $(hostname)"

tc qdisc add dev lo root tbf rate 30mbit burst 100kb limit 100kb
named lossy_link "host $(hostname)"

rados -p test create locked
rados -p test lock get locked L --lock-cookie dead
for _ in 1 2 3; do rados -p test lock get locked L --lock-cookie other 2>/dev/null || true; done
named dead_lock test/locked

ceph osd pool create small 8
ceph osd pool application enable small rados
rados -p small put a /etc/hostname
ceph osd pool set-quota small max_objects 1
named full small
ceph osd pool rm small small --yes-i-really-really-mean-it || true

/usr/bin/python3 - "$CEPH_CONF" <<'P' &
import sys, rados
io = rados.Rados(conffile=sys.argv[1])
io.connect()
io = io.open_ioctx("test")
import collections
q = collections.deque()
while True:
    q.append(io.aio_write_full("hot", b"x" * 512))
    if len(q) >= 256:
        q.popleft().wait_for_complete()
P
BUSY+=("$!")
named hot_object test/hot

expect "causes that were not named, or named for nothing" "$MISSED" 0
kill "$LOAD"
cluster_down
umount "$W/c/osd.1"
