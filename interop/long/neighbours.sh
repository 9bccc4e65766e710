# OSDs of two versions serve the same PGs. OLD is the program of another version; without it nothing is tested. A cluster of OLD gets the
# new program by rolling restarts under load: the monitor first, then OSD by OSD, each of which dies once beside those of
# the other version, so that logs, recovery and backfill cross in both directions. A model checks every answer, a deep
# scrub finds nothing, and stores and state of OLD are opened by the new program. Needs root and iproute2. About five minutes.
#
#     OLD=/DIR/belemnite interop/run.sh neighbours
source "$(dirname "$0")/../lib.sh"
[ -n "${OLD:-}" ] || { echo "== skipped: OLD names no program of another version"; exit 0; }
[ -x "$OLD" ] || { echo "OLD: $OLD is not a program"; exit 1; }
N=bnb$$
hub() { ip netns exec "$N" "$@"; }
ceph() { hub timeout 60 ceph "$@"; }

cleanup() {
  local status=$? n
  for n in "$W"/run/*.pid; do kill -KILL "$(cat "$n")" 2>/dev/null || true; done
  ip netns del "$N" 2>/dev/null || true
  [ $status = 0 ] || tail -n 12 "$W"/log/*
  finish $status
}
trap cleanup EXIT

# The cluster has a loopback device of its own, and so all ports.
mkdir -p "$W"/{log,run}
ip netns add "$N"
ip -n "$N" link set lo up
key=$(ceph-authtool --gen-print-key)
printf '[client.admin]\n\tkey = %s\n\tcaps mon = "allow *"\n\tcaps osd = "allow *"\n\tcaps mgr = "allow *"\n' "$key" >"$W/keyring"
export CEPH_CONF=$W/ceph.conf
cat >"$CEPH_CONF" <<C
[global]
fsid = $(cat /proc/sys/kernel/random/uuid)
mon_host = [v2:127.0.0.1:3300/0]
osd_crush_chooseleaf_type = 0
[client.admin]
keyring = $W/keyring
[mon]
keyring = $W/keyring
mon_data = $W/mon.\$id
[mon.a]
public_addr = [v2:127.0.0.1:3300/0]
mgr_port = 6800
[osd]
osd_data = $W/osd.\$id
keyring = $W/osd.\$id/keyring
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
C
pid() { cat "$W/run/$1.pid"; }
# run NAME PROGRAM ARGUMENTS…: a daemon
run() {
  local name=$1; shift
  ip netns exec "$N" "$@" >>"$W/log/$name" 2>&1 &
  PIDS+=($!)
  echo $! >"$W/run/$name.pid"
}
# end NAME SIGNAL
end() {
  kill -"$2" "$(pid "$1")"
  wait "$(pid "$1")" 2>/dev/null || true
}
osd() { run "osd.$1" "$2" osd --id "$1" --reactors 2; }
up() { expect up "$(ceph osd stat -f json | jq .num_up_osds)" "$1"; }
hub "$OLD" mon --id a --mkfs
run mon "$OLD" mon --id a
wait_for 60 ceph -s
for o in 0 1 2 3; do
  uuid=$(cat /proc/sys/kernel/random/uuid) okey=$(ceph-authtool --gen-print-key)
  printf '{"cephx_secret": "%s"}' "$okey" >"$W/secret"
  expect "number of the OSD" "$(ceph osd new "$uuid" -i "$W/secret")" $o
  mkdir -p "$W/osd.$o"
  printf '[osd.%s]\n\tkey = %s\n' $o "$okey" >"$W/osd.$o/keyring"
  "$OLD" osd --id $o --mkfs --osd-uuid "$uuid" --size 3G
  osd $o "$OLD"
  # Builds before that which holds its ports choose the same ones if they start at once.
  wait_for 60 up $((o + 1))
done
clean() { ceph pg stat -f json | jq -e '.pg_summary | .num_pg_by_state == [{"name": "active+clean", "num": .num_pgs}]'; }
whole() { wait_for 60 up 4; wait_for 240 clean; }
wait_for 60 up 4
ceph osd pool create p 16 >/dev/null
ceph osd erasure-code-profile set code k=2 m=1 crush-failure-domain=osd
ceph osd pool create coded 8 8 erasure code >/dev/null
ceph osd pool set coded allow_ec_overwrites true >/dev/null
whole
# What a push carries in parts: a large attribute set and many omap keys.
head -c 20000000 /dev/urandom >"$W/big"
hub rados -p p put big "$W/big"
for i in $(seq 40); do head -c 60000 /dev/zero | tr '\0' "$((i % 10))" | hub rados -p p setxattr big "a$i"; done
seq 2000 | sed 's/.*/k& v&/' >"$W/pairs"
while read -r k v; do echo "$k"; echo "$v"; done <"$W/pairs" >/dev/null
hub rados -p p create keys
for i in $(seq 60); do hub rados -p p setomapval keys "k$i" "$(head -c 2000 /dev/zero | tr '\0' v)"; done

ip netns exec "$N" python3 "$ROOT/interop/py/model_load.py" p 1 6 >"$W/load.p" 2>&1 & loads=($!)
ip netns exec "$N" python3 "$ROOT/interop/py/model_load.py" coded 2 4 >"$W/load.coded" 2>&1 & loads+=($!)
PIDS+=("${loads[@]}")
alive() { for p in "${loads[@]}"; do kill -0 "$p" || { cat "$W"/load.*; return 1; }; done; }

end mon TERM
run mon "$BIN" mon --id a
wait_for 60 ceph -s
whole
# death OSD PROGRAM: it is killed, misses writes for a while, and comes back.
death() {
  end "osd.$1" KILL
  wait_for 30 up 3
  sleep 5
  osd "$1" "$2"
  whole
}
for o in 0 1 2 3; do
  end osd.$o TERM
  sleep 3
  osd $o "$BIN"
  whole
  alive
  # One of the new version, then one of the old.
  death $o "$BIN"
  [ $o = 3 ] || death 3 "$OLD"
  alive
  echo "== with osd.0 to osd.$o of the new version all PGs are clean"
  if [ $o = 1 ]; then
    # Two and two: one OSD is emptied, so that PGs are filled from both versions.
    ceph osd out 2 >/dev/null
    sleep 5
    wait_for 240 clean
    ceph osd in 2 >/dev/null
    whole
    alive
  fi
done
ceph osd metadata -f json | jq -r '.[] | "osd.\(.id): \(.ceph_version_short // .ceph_version)"'
kill -TERM "${loads[@]}"
for p in "${loads[@]}"; do wait "$p" || { cat "$W"/load.*; exit 1; }; done
sed 's/^/== /' "$W"/load.*
hub rados -p p get big - | cmp - "$W/big"
for i in 1 40; do expect "bytes of attribute a$i" "$(hub rados -p p getxattr big "a$i" | wc -c)" 60000; done
expect "omap keys" "$(hub rados -p p listomapkeys keys | wc -l)" 60
whole
since=$(date -u +%FT%T)
sleep 1
for pg in $(ceph pg ls -f json | jq -r '.pg_stats[].pgid'); do ceph pg deep-scrub "$pg" >/dev/null 2>&1; done
scrubbed() { ceph pg ls -f json | jq -e --arg t "$1" '[.pg_stats[] | select(.last_deep_scrub_stamp < $t)] == []'; }
wait_for 240 scrubbed "$since"
! ceph health detail | grep -E "inconsistent|scrub errors|OSD_INCOMPATIBLE"
grep -hE "not understood|panicked" "$W"/log/* && exit 1
for o in 0 1 2 3; do end osd.$o TERM; "$BIN" store fsck "$W/osd.$o/block" >"$W/fsck" || { cat "$W/fsck"; exit 1; }; done
