# Connections that never authenticate: 2,000 (STRANGERS) from a network namespace with half a core, which stay silent,
# send garbage, or request authentication again and again. The daemons' memory stays bounded, their logs name the
# address in a few lines per minute, and clients on other addresses keep 80 % of their rate: two clients, each measured
# in turn without and with the strangers, medians of ROUNDS. Needs root and a cgroup file system with a cpu controller.
source "$(dirname "$0")/../lib.sh"
N=${STRANGERS:-2000} ROUNDS=${ROUNDS:-3} SECONDS_EACH=${SECONDS_EACH:-8}
NS=belemnite-$$ HOST=10.77.0.1 THEIRS=10.77.0.2
CG=$([ -d /sys/fs/cgroup/cpu ] && echo /sys/fs/cgroup/cpu || echo /sys/fs/cgroup)/belemnite-$$
leave() {
  for p in $(cat "$CG/cgroup.procs" 2>/dev/null); do kill -KILL "$p" || true; done
  ip netns del "$NS" 2>/dev/null || true
  ip link del "bel$$" 2>/dev/null || true
  rmdir "$CG" 2>/dev/null || true
}
trap 'status=$?; leave; (exit $status); finish' EXIT
ip netns add "$NS"
ip link add "bel$$" type veth peer name eth0 netns "$NS"
ip addr add $HOST/24 dev "bel$$"
ip link set "bel$$" up
ip -n "$NS" addr add $THEIRS/24 dev eth0
ip -n "$NS" link set eth0 up
mkdir "$CG"
if [ -e "$CG/cpu.cfs_quota_us" ]; then echo 50000 >"$CG/cpu.cfs_quota_us"; else echo "50000 100000" >"$CG/cpu.max"; fi

cluster_up --ip $HOST --osds 1 --osd-size 4G
ceph osd pool create test 32
MON=$HOST:$PORT OSD=$(ceph osd dump -f json | jq -r '.osds[0].public_addrs.addrvec[] | select(.type == "v2").addr')
# CPU milliseconds used by a daemon.
cpu_of() { awk -v hz="$(getconf CLK_TCK)" '{print int(($14 + $15) * 1000 / hz)}' "/proc/$(cat "$W/c/run/$1.pid")/stat"; }
rss() { awk '/VmRSS/ {print int($2 / 1024)}' "/proc/$(cat "$W/c/run/$1.pid")/status"; }
strangers() {
  (echo "$BASHPID" >"$CG/cgroup.procs"; ulimit -n 8192
   exec ip netns exec "$NS" /usr/bin/python3 "$ROOT/interop/py/strangers.py" "$N" "$1" "$MON" "$OSD") >>"$W/strangers.out" & STRANGERS=$!
}
# Rates of two clients per second: 4 KiB writes, and commands with an authentication each.
rate_of_writes() {
  rados -p test bench "$SECONDS_EACH" write -b 4096 -t 16 --no-cleanup | awk '/^Average IOPS/ {print $3}'
}
rate_of_commands() {
  /usr/bin/python3 - "$SECONDS_EACH" <<'P'
import os, rados, sys, time
end, n = time.time() + float(sys.argv[1]), 0
while time.time() < end:
    c = rados.Rados(conffile=os.environ['CEPH_CONF'])
    c.connect(timeout=20)
    r, out, text = c.mon_command('{"prefix": "osd stat"}', b'')
    assert r == 0, text
    c.shutdown()
    n += 1
print(round(n / float(sys.argv[1]), 1))
P
}
median() { sort -n | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }
echo "== at rest, with the strangers alone:"
strangers 14; sleep 4
mon_0=$(cpu_of mon.a) osd_0=$(cpu_of osd.0); sleep 8
echo "== processor time in a second: monitor $((($(cpu_of mon.a) - mon_0) / 8)) ms, OSD $((($(cpu_of osd.0) - osd_0) / 8)) ms"
wait "$STRANGERS"
rate_of_writes >/dev/null
before_mon=$(rss mon.a) before_osd=$(rss osd.0) most_mon=0 most_osd=0
for _ in $(seq "$ROUNDS"); do
  rate_of_writes >>"$W/writes.quiet"; rate_of_commands >>"$W/commands.quiet"
  strangers $((2 * SECONDS_EACH + 6)); sleep 3
  rate_of_writes >>"$W/writes.loud"; rate_of_commands >>"$W/commands.loud"
  most_mon=$(printf '%s\n' "$most_mon" "$(rss mon.a)" | sort -n | tail -1)
  most_osd=$(printf '%s\n' "$most_osd" "$(rss osd.0)" | sort -n | tail -1)
  wait "$STRANGERS"
done
echo "== strangers: $(tail -n 1 "$W/strangers.out")"
echo "== memory of the monitor: $before_mon MiB before, at most $most_mon MiB; of the OSD: $before_osd, $most_osd"
[ "$((most_mon - before_mon))" -lt 200 ] && [ "$((most_osd - before_osd))" -lt 400 ] || { echo "memory grows" >&2; exit 1; }
# The summary is logged once a minute.
named() { grep -c "$THEIRS" "$W/c/log/$1.log" || true; }
sums_up() { grep -q "$THEIRS: .*refused" "$W/c/log/$1.log"; }
for d in mon.a osd.0; do
  wait_for 90 sums_up $d
  lines=$(named $d)
  echo "== $d: $lines lines of the log name $THEIRS; $(grep "$THEIRS: .*refused" "$W/c/log/$d.log" | tail -n 1 | grep -o "$THEIRS: .*")"
done
for what in writes commands; do
  q=$(median <"$W/$what.quiet") l=$(median <"$W/$what.loud")
  share=$(awk "BEGIN {print int(100 * $l / $q)}")
  echo "== $what a second: $q without, $l with the strangers: $share %"
  [ "$share" -ge "${SHARE_MIN:-80}" ] || { echo "$what: less than ${SHARE_MIN:-80} %" >&2; exit 1; }
done
cluster_down
