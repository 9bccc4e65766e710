# OSDs with several reactors (REACTORS, 2): a pool of one PG gets 256 (PGS) while clients work. The split PGs move to
# the reactors of their names until all are loaded equally; OSDs are killed meanwhile, and every answer must equal that
# of a model. Then clients load all PGs, and the OSDs are restarted with one reactor more.
source "$(dirname "$0")/../lib.sh"
REACTORS=${REACTORS:-2}
PGS=${PGS:-256}
export BELEMNITE_OSD_REACTORS=$REACTORS
cluster_up --osds 3 --osd-size 2G
for i in 0 1 2; do expect "reactors of osd.$i" "$(ceph tell osd.$i status | jq .num_reactors)" "$REACTORS"; done
ceph config set global osd_heartbeat_grace 5
ceph config set global osd_heartbeat_interval 1
ceph config set global mon_max_pg_per_osd 1000
ceph osd pool create test 1
ceph osd pool application enable test rados
pgs() { ceph status -f json | jq -r '.pgmap.pgs_by_state[].state_name' | sort -u | tr '\n' ' '; }
total() { ceph status -f json | jq -r .pgmap.num_pgs; }
all_clean() { [ "$(pgs)" = "active+clean " ] && ceph osd stat -f json | jq -e '.num_up_osds == 3' >/dev/null; }
clean() { wait_for 60 all_clean || { ceph -s; ceph pg dump pgs_brief; return 1; }; echo "clean: $1"; }
# Number of PGs of each reactor of an OSD.
load() { ceph tell "osd.$1" dump_reactors | jq -c '[.[].num_pgs]'; }
# Each reactor is within a fifth of its share, and no PG is moving.
even() {
  local o
  for o in 0 1 2; do
    ceph tell "osd.$o" dump_reactors | jq -e '
      (map(.num_pgs) | add / length) as $share
      | all(.[]; .moving == null and .num_to_move == 0 and (.num_pgs - $share | fabs) <= $share / 5)' >/dev/null || return 1
  done
}
clean "new pool"
model_begins
rados -p test bench 30 write -b 65536 -t 4 --no-cleanup --max-objects 400 >"$W/bench.out" 2>&1 & BENCH=$!
PIDS+=("$BENCH")
sleep 2
ceph osd pool set test pg_num "$PGS"
grown() { [ "$(total)" = "$PGS" ]; }
wait_for 120 grown
for o in 0 1 2; do echo "osd.$o: PGs on its reactors: $(load $o)"; done
moves() { ceph tell "osd.$1" dump_reactors | jq -e 'any(.[]; .moving != null)'; }
up() { ceph osd stat -f json | jq -e '.num_up_osds == 3' >/dev/null; }
killed=0
for o in 1 0 2; do
  # An OSD that has moved all its PGs has passed.
  wait_for 20 moves "$o" || continue
  # Kill the OSD in the middle of its work.
  sleep "0.$((RANDOM % 9 + 1))"
  kill -9 "$(cat "$W/c/run/osd.$o.pid")"
  killed=$((killed + 1))
  sleep 3
  wait_for 60 up
  echo "osd.$o was killed: $(load $o)"
done
[ "$killed" -gt 0 ]
wait_for 600 even || { for o in 0 1 2; do load $o; done; ceph -s; exit 1; }
for o in 0 1 2; do echo "osd.$o: PGs on its reactors: $(load $o)"; done
clean "$PGS PGs, $killed OSDs killed on the way"
wait "$BENCH" || { cat "$W/bench.out"; exit 1; }
rados -p test bench 3 seq -t 4 >/dev/null
model_ends
# With clients that write all over the pool, each reactor is within a fifth of its share, by the OSDs' own counters: of
# client operations as primary, and of CPU time.
counts() { for o in 0 1 2; do ceph tell "osd.$o" dump_reactors | jq -c '.[] | [.num_ops, .cpu_seconds]'; done; }
spread() { jq -s --slurpfile b "$W/counts.before" --argjson n "$REACTORS" '
  [., $b] | transpose | map([.[0][0] - .[1][0], .[0][1] - .[1][1]])
  | [range(0; length; $n) as $o | .[$o:$o + $n]
    | (map(.[0]) | add / length) as $ops | (map(.[1]) | add / length) as $cpu
    | map({ops: (.[0] / $ops), cpu: (.[1] / $cpu)})]' "$W/counts.after"; }
counts >"$W/counts.before"
SPREAD=()
for c in 1 2 3 4; do
  rados -p test bench "${LOAD_SECONDS:-15}" write -b 4096 -t 8 --run-name "spread$c" >/dev/null & SPREAD+=("$!")
done
PIDS+=("${SPREAD[@]}")
wait "${SPREAD[@]}"
counts >"$W/counts.after"
spread >"$W/spread"
echo "shares of the reactors of each OSD: $(jq -c 'map(map("\(.ops * 100 | round) % of operations, \(.cpu * 100 | round) % of time"))' "$W/spread")"
if [ "$PGS" -ge 256 ]; then
  jq -e 'flatten | all(.[]; (.ops - 1 | fabs) <= 0.2 and (.cpu - 1 | fabs) <= 0.2)' "$W/spread" >/dev/null
fi
# Compare all copies.
before=$(date +%s)
ceph pg dump pgs -f json | jq -r '.pg_stats[].pgid' | while read -r p; do ceph pg deep-scrub "$p" >/dev/null 2>&1; done
scrubbed() {
  ceph pg dump pgs -f json | jq -e --argjson t "$before" \
    'all(.pg_stats[]; (.last_deep_scrub_stamp | sub("\\..*"; "Z") | fromdateiso8601) >= $t)'
}
wait_for 300 scrubbed
ceph health detail | grep -qi 'inconsistent\|scrub error' && { ceph health detail; exit 1; }
even
# The PGs are still balanced after a restart.
cluster_down
cluster_up --osds 3 --osd-size 2G
clean "after a restart"
even
rados -p test bench 3 seq -t 4 >/dev/null
cluster_down
# Another number of reactors: PGs that are not on the reactor of their name now move there.
export BELEMNITE_OSD_REACTORS=$((REACTORS + 1))
cluster_up --osds 3 --osd-size 2G
clean "after a restart with $BELEMNITE_OSD_REACTORS reactors"
wait_for 300 even || { for o in 0 1 2; do load $o; done; exit 1; }
for o in 0 1 2; do echo "osd.$o: PGs on its reactors: $(load $o)"; done
rados -p test bench 3 seq -t 4 >/dev/null
cluster_down
