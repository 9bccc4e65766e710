# OSDs with two reactors: a pool of one PG gets 64 while clients work; the PGs that were split off move to the reactors their names
# say (osd_move_pgs) until all are loaded alike, an OSD is killed on the way, and every answer is what a model expects.
source "$(dirname "$0")/../lib.sh"
# What the plan writes for each OSD is a matter of how many cores there are.
cluster_up --osds 3 --osd-size 2G
kill -TERM "$UP"
wait "$UP"
sed -i 's/^osd_reactors = .*/osd_reactors = 2\nosd_move_pgs = true/' "$CEPH_CONF"
grep -q '^osd_reactors = 2' "$CEPH_CONF"
cluster_up --osds 3 --osd-size 2G
ceph config set global osd_heartbeat_grace 5
ceph config set global osd_heartbeat_interval 1
ceph osd pool create test 1
ceph osd pool application enable test rados
pgs() { ceph status -f json | jq -r '.pgmap.pgs_by_state[].state_name' | sort -u | tr '\n' ' '; }
total() { ceph status -f json | jq -r .pgmap.num_pgs; }
all_clean() { [ "$(pgs)" = "active+clean " ] && ceph osd stat -f json | jq -e '.num_up_osds == 3' >/dev/null; }
clean() { wait_for 60 all_clean || { ceph -s; ceph pg dump pgs_brief; return 1; }; echo "clean: $1"; }
# PGs of each reactor of an OSD.
load() { ceph tell "osd.$1" dump_reactors | jq -c '[.[].num_pgs]'; }
# No reactor has a fifth more or less than its share, and nothing moves.
even() {
  local o
  for o in 0 1 2; do
    ceph tell "osd.$o" dump_reactors | jq -e '
      (map(.num_pgs) | add / length) as $share
      | all(.[]; .moving == null and .num_to_move == 0 and (.num_pgs - $share | fabs) <= $share / 5)' >/dev/null || return 1
  done
}
clean "new pool"
/usr/bin/python3 "$ROOT/interop/py/model_load.py" test "${SEED:-$RANDOM}" 4 >"$W/model.out" 2>&1 & LOAD=$!
PIDS+=("$LOAD")
rados -p test bench 8 write -b 65536 -t 4 --no-cleanup --max-objects 400 >"$W/bench.out" 2>&1 & BENCH=$!
PIDS+=("$BENCH")
sleep 2
ceph osd pool set test pg_num 64
grown() { [ "$(total)" = 64 ]; }
wait_for 30 grown
for o in 0 1 2; do echo "osd.$o: PGs on its reactors: $(load $o)"; done
moves() { ceph tell osd.1 dump_reactors | jq -e 'any(.[]; .moving != null)'; }
wait_for 30 moves
kill -9 "$(cat "$W/c/run/osd.1.pid")"
wait_for 90 even || { for o in 0 1 2; do load $o; done; ceph -s; exit 1; }
for o in 0 1 2; do echo "osd.$o: PGs on its reactors: $(load $o)"; done
clean "64 PGs, an OSD killed on the way"
wait "$BENCH" || { cat "$W/bench.out"; exit 1; }
rados -p test bench 3 seq -t 4 >/dev/null
kill -TERM "$LOAD"
wait "$LOAD" || { cat "$W/model.out"; exit 1; }
cat "$W/model.out"
# Of all copies.
before=$(date +%s)
ceph pg dump pgs -f json | jq -r '.pg_stats[].pgid' | while read -r p; do ceph pg deep-scrub "$p" >/dev/null 2>&1; done
scrubbed() {
  ceph pg dump pgs -f json | jq -e --argjson t "$before" \
    'all(.pg_stats[]; (.last_deep_scrub_stamp | sub("\\..*"; "Z") | fromdateiso8601) >= $t)'
}
wait_for 60 scrubbed
ceph health detail | grep -qi 'inconsistent\|scrub error' && { ceph health detail; exit 1; }
even
# And they are there after a restart.
cluster_down
cluster_up --osds 3 --osd-size 2G
clean "after a restart"
even
rados -p test bench 3 seq -t 4 >/dev/null
cluster_down
