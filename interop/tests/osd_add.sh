# `osd add` and `osd remove` while `up` is killed after each of their steps: they end with status 3 and a sentence, go on when
# they are run again, and make one OSD, with the size of the others.
source "$(dirname "$0")/../lib.sh"
cluster_up --osds 2 --osd-size 1536M
ceph osd pool create test 64
osds() { ceph osd dump -f json | jq -c '[.osds[].osd]'; }
# status_of COMMAND…: its exit status; what it says is in $W/said.
status_of() {
  local status=0
  belemnite --conf "$CEPH_CONF" osd "$@" >"$W/said" 2>&1 || status=$?
  echo $status
}
# dies STATUS: the command ended with status 3, since `up` died meanwhile.
dies() {
  expect "status" "$1" 3 || { cat "$W/said"; return 1; }
  grep -q 'ended meanwhile; start it and run the same command again' "$W/said" || { cat "$W/said"; return 1; }
}
down() { daemon_gone "$W/c/run/mon.a.pid" && daemon_gone "$W/c/run/osd.0.pid" && daemon_gone "$W/c/run/osd.1.pid"; }
again() { wait "$UP" 2>/dev/null || true; wait_for 20 down; cluster_up; }
id=2
# `osd add` while `up` is killed once the path is there. Some are there for milliseconds, so it waits without sleeping, and
# a command that was quicker is followed by another one.
killed_at() {
  local path watch status
  for _ in $(seq 20); do
    path=$W/c/${1/ID/$id}
    rm -f "$W/struck"
    (until [ -e "$path" ]; do :; done; : >"$W/struck"; kill -KILL "$UP") &
    watch=$!
    status=$(status_of add)
    kill "$watch" 2>/dev/null || true
    wait "$watch" 2>/dev/null || true
    [ "$status" = 0 ] || { dies "$status"; return; }
    id=$((id + 1))
    [ ! -e "$W/struck" ] || again
  done
  echo "osd add was quicker than the kill at $1, 20 times"
  return 1
}
for at in cluster.json.new osd.ID/block run/osd.ID.pid; do
  killed_at "$at"
  again
  belemnite --conf "$CEPH_CONF" osd add >"$W/said" || { cat "$W/said"; exit 1; }
  expect "OSDs after a kill at $at" "$(osds)" "$(seq -s, 0 $id | sed 's/.*/[&]/')"
  expect "size of osd.$id" "$(stat -c %s "$W/c/osd.$id/block")" "$(stat -c %s "$W/c/osd.0/block")"
  id=$((id + 1))
done
# An earlier command that came to its end is none that goes on.
belemnite --conf "$CEPH_CONF" osd add >/dev/null
expect "OSDs" "$(osds)" "$(seq -s, 0 $id | sed 's/.*/[&]/')"

# The drain takes a while, since the OSD's data is needed: no OSD may take it.
pool_clean test 64
for f in norebalance nobackfill norecover; do ceph osd set $f >/dev/null 2>&1; done
rados -p test bench 2 write -b 65536 --no-cleanup >/dev/null
(wait_for 30 sh -c "ceph osd dump -f json | jq -e '.osds[] | select(.osd == $id) | .in == 0'"; kill -KILL "$UP") &
dies "$(status_of remove $id)"
again
for f in norebalance nobackfill norecover; do ceph osd unset $f >/dev/null 2>&1; done
belemnite --conf "$CEPH_CONF" osd remove $id >/dev/null
expect "OSDs" "$(osds)" "$(seq -s, 0 $((id - 1)) | sed 's/.*/[&]/')"
[ ! -e "$W/c/osd.$id" ]
cluster_down
