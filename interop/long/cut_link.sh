# Three OSDs in network namespaces, and the link between two of them is cut, then only one direction of it, while both reach the monitor:
# a client's writes go on within MOST seconds (40), health names the pair, one OSD is taken out of service once and
# comes back after the repair. About four minutes; needs root and iproute2.
source "$(dirname "$0")/../lib.sh"
most=${MOST:-40} T=bcl$$
hub() { ip netns exec "$T"h "$@"; }
ceph() { hub timeout 60 ceph "$@"; }

cleanup() {
  local status=$? n
  touch "$W/end"
  for n in "$W"/run/*.pid; do kill -KILL "$(cat "$n")" 2>/dev/null || true; done
  for n in h o0 o1 o2; do ip netns del "$T$n" 2>/dev/null || true; done
  [ $status = 0 ] || tail -n 12 "$W"/log/*
  finish $status
}
trap cleanup EXIT

# Namespace h has the bridge, the monitor and clients; o0 to o2 an OSD each.
mkdir -p "$W"/{log,run}
ip netns add "$T"h
hub ip link add name bridge0 type bridge
hub ip addr add 10.78.0.1/24 dev bridge0
hub ip link set bridge0 up
hub ip link set lo up
for i in 0 1 2; do
  n=$T"o"$i
  ip netns add "$n"
  hub ip link add "$n" type veth peer name eth
  hub ip link set eth netns "$n"
  hub ip link set "$n" master bridge0 up
  ip -n "$n" addr add 10.78.0.1$i/24 dev eth
  ip -n "$n" link set eth up
  ip -n "$n" link set lo up
done
# away FROM TO, back FROM TO: one direction between two OSDs. What is sent is swallowed, without a word.
away() { ip -n "$T"o"$1" route add blackhole 10.78.0.1"$2"; }
back() { ip -n "$T"o"$1" route del blackhole 10.78.0.1"$2"; }

key=$(ceph-authtool --gen-print-key)
printf '[client.admin]\n\tkey = %s\n\tcaps mon = "allow *"\n\tcaps osd = "allow *"\n\tcaps mgr = "allow *"\n' "$key" >"$W/keyring"
export CEPH_CONF=$W/ceph.conf
cat >"$CEPH_CONF" <<C
[global]
fsid = $(cat /proc/sys/kernel/random/uuid)
mon_host = [v2:10.78.0.1:3300/0]
[client.admin]
keyring = $W/keyring
[mon]
keyring = $W/keyring
mon_data = $W/mon.\$id
[mon.a]
public_addr = [v2:10.78.0.1:3300/0]
mgr_port = 6800
[osd]
osd_data = $W/osd.\$id
keyring = $W/osd.\$id/keyring
$(for i in 0 1 2; do printf '[osd.%s]\npublic_addr = 10.78.0.1%s\ncluster_addr = 10.78.0.1%s\nhost = machine%s\n' $i $i $i $i; done)
C
# run NAME COMMAND…: a daemon
run() {
  local name=$1; shift
  "$@" >"$W/log/$name" 2>&1 &
  PIDS+=($!)
  echo $! >"$W/run/$name.pid"
}
hub "$BIN" mon --id a --mkfs
run mon ip netns exec "$T"h "$BIN" mon --id a
wait_for 60 ceph -s
for o in 0 1 2; do
  uuid=$(cat /proc/sys/kernel/random/uuid) okey=$(ceph-authtool --gen-print-key)
  printf '{"cephx_secret": "%s"}' "$okey" >"$W/secret"
  expect "number of the OSD" "$(ceph osd new "$uuid" -i "$W/secret")" $o
  mkdir -p "$W/osd.$o"
  printf '[osd.%s]\n\tkey = %s\n' $o "$okey" >"$W/osd.$o/keyring"
  "$BIN" osd --id $o --mkfs --osd-uuid "$uuid" --size 2G
  run osd.$o ip netns exec "$T"o$o unshare --uts bash -c "hostname machine$o; exec '$BIN' osd --id $o --reactors 1"
done
up() { expect up "$(ceph osd stat -f json | jq .num_up_osds)" "$1"; }
clean() { ceph pg stat | grep -q "16 active+clean;"; }
wait_for 60 up 3
ceph osd pool create p 16 >/dev/null
wait_for 60 clean
taken() { ceph log last 10000 warn cluster | grep -c "osd.[12] is taken out of service" || true; }
marked() { ceph osd dump -f json | jq '[.osds[].down_at] | add'; }

# cut SECONDS DIRECTION…: clients write for so long; after five seconds these directions are cut.
cut() {
  local secs=$1 before after d took last; shift
  before=$(taken)
  hub rados -p p bench "$secs" write -b 4096 -t 16 >"$W/bench" 2>&1 &
  local bench=$!
  PIDS+=($bench)
  sleep 5
  for d in "$@"; do away ${d/-/ }; done
  wait_for $((most + 10)) up 2
  ceph health detail | grep -q "OSD_LINK_CUT" || { ceph health detail; return 1; }
  ceph health detail | grep -q "osd.[12] and osd.[12] do not reach each other; osd.[12] is out of service until they do"
  wait $bench
  took=$(awk '/^Max latency/ { print int($3 + 0.999) }' "$W/bench")
  last=$(awk '$1 ~ /^[0-9]+$/ { f[n++] = $4 } END { print f[n - 1] - f[n - 11] }' "$W/bench")
  echo "== cut $*: the longest write took $took s; $last writes in the last ten seconds"
  [ "$last" -gt 0 ]
  [ "$took" -le "$most" ]
  up 2
  for d in "$@"; do back ${d/-/ }; done
  wait_for 60 up 3
  wait_for 120 clean
  ! ceph health detail | grep OSD_LINK_CUT
  after=$(taken)
  expect "times that an OSD was taken out" $((after - before)) 1
}
cut 90 1-2 2-1
cut 90 2-1

# A short cut changes nothing.
before=$(marked)
away 1 2; away 2 1
sleep 12
back 1 2; back 2 1
hub timeout 60 rados -p p put after "$CEPH_CONF"
sleep 20
expect "epochs in which OSDs went down" "$(marked)" "$before"
up 3
