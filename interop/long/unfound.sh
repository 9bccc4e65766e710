# An object whose newest version is on an OSD that is down: it is unfound, and an operator gives it up (first too
# early). It is reverted to an older version or deleted, and the OSD that returns with the lost version follows. The
# order of recovery is tested, too.
source "$(dirname "$0")/../lib.sh"
cluster_up --osds 2 --osd-size 1G
ceph config set global osd_heartbeat_grace 4
ceph config set global osd_heartbeat_interval 1
ceph config set osd osd_max_backfills 3
reserved() { ceph tell osd.0 dump_recovery_reservations | jq -e ".local_reservations.max_allowed == $1"; }
wait_for 10 reserved 3
ceph tell osd.0 injectargs -- --osd_max_backfills=2 >/dev/null
wait_for 10 reserved 2
ceph osd pool create test 1
ceph osd pool set test size 2
ceph osd pool set test min_size 1
ceph osd pool application enable test rados
state() { ceph pg ls-by-pool test -f json | jq -r '.pg_stats[0].state'; }
is() { [ "$(state)" = "$1" ]; }
has() { case "+$(state)+" in *"+$1+"*) return 0 ;; *) return 1 ;; esac; }
up() { ceph osd dump -f json | jq -e ".osds[] | select(.osd == $1) | .up == $2"; }
pid() { cat "$W/c/run/osd.$1.pid"; }
wait_for 30 is active+clean
PG=$(ceph pg ls-by-pool test -f json | jq -r '.pg_stats[0].pgid')
expect "nothing unfound" "$(ceph pg "$PG" mark_unfound_lost delete 2>&1)" "pg has no unfound objects"
FIRST=$(ceph pg ls-by-pool test -f json | jq -r '.pg_stats[0].acting_primary')
OTHER=$((1 - FIRST))

# unfound_now: writes an object whose new version is only on OSD $FIRST, which then hangs.
unfound_now() {
  kill -STOP "$(pid $OTHER)"
  wait_for 60 up $OTHER 0
  wait_for 60 has active
  rados -p test put old "$W/new"
  rados -p test put fresh "$W/new"
  ceph osd set norecover
  kill -CONT "$(pid $OTHER)"
  wait_for 60 up $OTHER 1
  wait_for 60 has degraded
  kill -STOP "$(pid $FIRST)"
  wait_for 60 up $FIRST 0
  ceph osd unset norecover
  wait_for 60 has recovery_unfound
  expect "unfound objects" "$(ceph pg "$PG" list_unfound | jq -r '[.objects[].oid.oid] | sort | join(" ")')" "fresh old"
  ceph health detail | grep -q 'OBJECT_UNFOUND'
}
echo old >"$W/old"
echo new >"$W/new"
for how in revert delete; do
  rados -p test rm fresh 2>/dev/null || true
  rados -p test put old "$W/old"
  wait_for 60 is active+clean
  unfound_now
  if ceph pg "$PG" mark_unfound_lost "$how" >"$W/said" 2>&1; then exit 1; fi
  grep -q "haven't probed all sources, not marking lost" "$W/said"
  ceph osd lost "$FIRST" --yes-i-really-mean-it
  marked() { ceph pg "$PG" mark_unfound_lost "$how" >"$W/said" 2>&1; }
  wait_for 30 marked
  grep -q 'pg has 2 objects unfound and apparently lost marking' "$W/said"
  found() { ! has recovery_unfound; }
  wait_for 30 found
  kill -CONT "$(pid $FIRST)"
  wait_for 60 up $FIRST 1
  wait_for 60 is active+clean
  for o in fresh old; do
    if [ "$how$o" = revertold ]; then
      rados -p test get old "$W/got" && cmp "$W/old" "$W/got"
    else
      if rados -p test stat "$o" 2>/dev/null; then exit 1; fi
    fi
  done
  ceph pg deep-scrub "$PG"
  echo "$how: given up, and the OSD that came back follows"
  FIRST=$(ceph pg ls-by-pool test -f json | jq -r '.pg_stats[0].acting_primary')
  OTHER=$((1 - FIRST))
done
cluster_down
