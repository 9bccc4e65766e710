# `osd add` and `osd remove` while `up` is killed after each of their steps: they end with status 3 and a sentence, go on when
# they are run again, and make one OSD, with the size of the others.
source "$(dirname "$0")/../lib.sh"
cluster_up --osds 2 --osd-size 1536M
ceph osd pool create test 64
osds() { ceph osd dump -f json | jq -c '[.osds[].osd]'; }
# dies COMMAND…: the command ends with status 3, since `up` dies meanwhile.
dies() {
  local status=0
  belemnite --conf "$CEPH_CONF" osd "$@" >"$W/said" 2>&1 || status=$?
  [ $status = 3 ] || { echo "status $status of: osd $*" >&2; cat "$W/said"; return 1; }
  grep -q 'ended meanwhile; start it and run the same command again' "$W/said" || { cat "$W/said"; return 1; }
}
# up_dies_at PATH: `up` is killed once the path is there.
up_dies_at() {
  (while [ ! -e "$1" ]; do sleep 0.01; done; kill -KILL "$UP") &
}
down() { gone "$W/c/run/mon.a.pid" && gone "$W/c/run/osd.0.pid" && gone "$W/c/run/osd.1.pid"; }
again() { wait "$UP" 2>/dev/null || true; wait_for 20 down; cluster_up; }
id=2
for at in cluster.json.new osd.ID/block run/osd.ID.pid; do
  up_dies_at "$W/c/${at/ID/$id}"
  dies add
  again
  belemnite --conf "$CEPH_CONF" osd add >"$W/said" || { cat "$W/said"; exit 1; }
  expect "OSDs after a kill at $at" "$(osds)" "$(seq -s, 0 $id | sed 's/.*/[&]/')"
  expect "size of osd.$id" "$(stat -c %s "$W/c/osd.$id/block")" "$(stat -c %s "$W/c/osd.0/block")"
  id=$((id + 1))
done
# An earlier command that came to its end is none that goes on.
belemnite --conf "$CEPH_CONF" osd add >/dev/null
expect "OSDs" "$(osds)" '[0,1,2,3,4,5]'

# The drain takes a while, since the OSD's data is needed: no OSD may take it.
pool_clean test 64
for f in norebalance nobackfill norecover; do ceph osd set $f >/dev/null 2>&1; done
rados -p test bench 2 write -b 65536 --no-cleanup >/dev/null
(wait_for 30 sh -c "ceph osd dump -f json | jq -e '.osds[] | select(.osd == 5) | .in == 0'"; kill -KILL "$UP") &
dies remove 5
again
for f in norebalance nobackfill norecover; do ceph osd unset $f >/dev/null 2>&1; done
belemnite --conf "$CEPH_CONF" osd remove 5 >/dev/null
expect "OSDs" "$(osds)" '[0,1,2,3,4]'
[ ! -e "$W/c/osd.5" ]
cluster_down
