# Space that clients give back, with OSDs of one and of eight reactors (REACTORS). On an idle cluster, `ceph df` shows the
# 4 GiB (GIB) of an image within 10 s of `rbd rm`. On a cluster filled until the OSD is FULL, a write waits, deletions
# work, and the write succeeds within 10 s of enough deletions. That is done twice; at the end all space is free.
source "$(dirname "$0")/../lib.sh"
GIB=${GIB:-4}
now() { date +%s%N; }
ms() { echo $((($(now) - $1) / 1000000)); }
avail() { ceph df -f json | jq .stats.total_avail_bytes; }
within_10s() { [ "$1" -le 10000 ] || { echo "$2 took $1 ms"; return 1; }; }
clean() { ceph status -f json | jq -e '[.pgmap.pgs_by_state[].state_name] == ["active+clean"]'; }
full() { ceph health detail -f json | jq -e '.checks | has("OSD_FULL")'; }
not_full() { ceph health detail -f json | jq -e '.checks | has("OSD_FULL") or has("POOL_FULL") | not'; }
pool() { ceph osd pool create "$1" 16; ceph osd pool application enable "$1" "$2"; wait_for 60 clean; }

for r in ${REACTORS:-1 8}; do
  export BELEMNITE_OSD_REACTORS=$r
  cluster_up --osds 1 --pool-size 1 --osd-size $((2 * GIB))G
  expect reactors "$(ceph tell osd.0 status | jq .num_reactors)" "$r"
  pool images rbd
  sleep 6
  empty=$(avail)
  rbd create images/i --size "${GIB}G"
  rbd bench images/i --io-type write --io-size 4M --io-threads 4 --io-total "${GIB}G" >"$W/bench.out"
  taken() { [ "$(avail)" -lt $((empty - GIB * 1000000000)) ]; }
  wait_for 30 taken || { ceph df; false; }
  sleep 6
  rbd rm --no-progress images/i
  start=$(now)
  back() { [ "$(avail)" -ge $((empty - (64 << 20))) ]; }
  wait_for 30 back || { ceph df; echo "empty: $empty"; false; }
  took=$(ms "$start")
  echo "== $r reactors: space of an image of $GIB GiB shown after $took ms"
  within_10s "$took" "the space of a removed image"
  cluster_down
  rm -rf "$W/c"

  cluster_up --osds 1 --pool-size 1 --osd-size 3G
  pool test rados
  sleep 6
  empty=$(avail)
  head -c 4194304 /dev/urandom >"$W/object"
  for round in 1 2; do
    rados -p test bench 600 write -b 4194304 -t 8 --no-cleanup --run-name "fill-$round" >"$W/bench.out" 2>&1 & bench=$!
    PIDS+=("$bench")
    wait_for 400 full || { ceph df; ceph health detail; false; }
    kill -KILL "$bench"
    wait "$bench" 2>/dev/null || true
    # What was on its way when the map said so.
    sleep 2
    left=$(avail)
    timeout 60 rados -p test put "late-$round" "$W/object" & put=$!
    sleep 3
    kill -0 "$put" || { echo "a write did not wait on a full cluster"; false; }
    rados -p test ls >"$W/all"
    some=$(($(wc -l <"$W/all") / 4))
    head -n "$some" "$W/all" | xargs rados -p test rm --force-full
    start=$(now)
    wait "$put" || { echo "the write that waited failed: $?"; ceph df; ceph health detail; false; }
    took=$(ms "$start")
    echo "== $r reactors: FULL with $((left >> 20)) MiB left; $some of $(wc -l <"$W/all") objects removed, a write went on after $took ms"
    within_10s "$took" "the end of FULL"
    rados -p test get "late-$round" - | cmp - "$W/object"
    wait_for 10 not_full || { ceph health detail; false; }
  done
  rados -p test ls | xargs rados -p test rm
  start=$(now)
  wait_for 30 back || { ceph df; echo "empty: $empty"; false; }
  took=$(ms "$start")
  echo "== $r reactors: all space shown after $took ms"
  within_10s "$took" "the space of all objects"
  ceph pg ls -f json | jq -r '.pg_stats[].pgid' | while read -r pg; do ceph pg deep-scrub "$pg" >/dev/null; done
  cluster_down
  belemnite store fsck "$W/c/osd.0/block" >"$W/fsck.out" || { cat "$W/fsck.out"; false; }
  rm -rf "$W/c"
done
