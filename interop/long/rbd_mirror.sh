# Two clusters mirror images to each other with Debian's rbd-mirror: one image by its journal, one by snapshots, the
# latter also by a schedule of the manager role. Roles are swapped (demote, promote), and later writes are replicated
# back.
#
# Needs the package rbd-mirror. The daemons end with this script in every case.
source "$(dirname "$0")/../lib.sh"
command -v rbd-mirror >/dev/null || { echo "rbd-mirror is not installed"; exit 77; }
: "${WAIT:=240}"

declare -A CONF
is_up_at() { grep -q '^The cluster is up' "$W/$1.out"; }
start() { # start SITE PORT
  "$BIN" up --data "$W/$1" --port "$2" --osds 1 --osd-size 2G >"$W/$1.out" 2>&1 &
  PIDS+=("$!")
  CONF[$1]=$W/$1/ceph.conf
  wait_for 60 is_up_at "$1" || { cat "$W/$1.out"; return 1; }
}
at() { # at SITE COMMAND…
  local site=$1; shift
  CEPH_CONF=${CONF[$site]} timeout 120 "$@"
}
mirror() { # mirror SITE: its daemon
  CEPH_CONF=${CONF[$1]} setpriv --pdeathsig KILL rbd-mirror -f -n client.admin --admin-socket "$W/$1.asok" \
    --log-file "$W/$1.mirror.log" --rbd_mirror_pool_replayers_refresh_interval 3 --rbd_mirror_sync_point_update_age 2 \
    --rbd_mirror_image_state_check_interval 2 >"$W/$1.mirror.out" 2>&1 &
  PIDS+=("$!")
}
hash() { at "$1" rbd export "data/$2" - 2>/dev/null | sha256sum; }
same() { [ "$(hash a "$1")" = "$(hash b "$1")" ]; }
state() { at "$1" rbd mirror image status "data/$2" --format json 2>/dev/null | grep -q "\"state\":\"$3\""; }
there() { at "$1" rbd info "data/$2"; }
write() { # write SITE IMAGE: writes new data, partly over old data
  at "$1" rbd bench --io-type write --io-size 16K --io-threads 8 --io-total 6M --io-pattern rand "data/$2" >/dev/null
}
fail() {
  tail -n 20 "$W"/*.mirror.log
  at a rbd mirror pool status data --verbose; at b rbd mirror pool status data --verbose
  exit 1
}
# Not their number: snapshots that the other site has are removed when a newer one is made.
newest_snap() { at "$1" rbd snap ls -a "data/$2" | awk '/mirror \(primary/ { id = $1 } END { print id + 0 }'; }
newer_snap() { [ "$(newest_snap a snap)" -gt "$1" ]; }

start a "$PORT"
start b "$((PORT + 50))"
for s in a b; do
  at $s ceph osd pool create data 16 2>/dev/null
  at $s rbd pool init data
  at $s rbd mirror pool enable data image
done
at a rbd mirror pool peer bootstrap create --site-name a data >"$W/token"
at b rbd mirror pool peer bootstrap import --site-name b --direction rx-tx data "$W/token"
mirror a
mirror b

at a rbd create --size 48M --image-feature layering,exclusive-lock,journaling data/journal
at a rbd create --size 48M --image-feature layering,exclusive-lock,object-map,fast-diff data/snap
write a journal
write a snap
at a rbd mirror image enable data/journal journal
at a rbd mirror image enable data/snap snapshot
for i in journal snap; do
  wait_for "$WAIT" there b $i || fail
  wait_for "$WAIT" state b $i up+replaying || fail
  wait_for "$WAIT" same $i || fail
  echo "$i: first copy equals"
done
write a journal
write a snap
at a rbd snap create data/snap@user
at a rbd mirror image snapshot data/snap
for i in journal snap; do
  wait_for "$WAIT" same $i || fail
  echo "$i: later writes equal"
done
expect "users' snapshots" "$(at b rbd snap ls data/snap | grep -c user)" 1

before=$(newest_snap a snap)
write a snap
at a rbd mirror snapshot schedule add --pool data --image snap 1m
wait_for 130 newer_snap "$before" || fail
at a rbd mirror snapshot schedule remove --pool data --image snap
wait_for "$WAIT" same snap || fail
echo "snap: what the schedule sent equals"

for i in journal snap; do
  at a rbd mirror image demote data/$i
  promote() { at b rbd mirror image promote data/$i; }
  wait_for "$WAIT" promote || fail
  write b $i
  [ $i = journal ] || at b rbd mirror image snapshot data/$i
  wait_for "$WAIT" state a $i up+replaying || fail
  wait_for "$WAIT" same $i || fail
  echo "$i: equals after the roles changed"
done
echo "mirroring both ways passed"
