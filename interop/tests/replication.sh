# Pools of three copies with real clients: an OSD is killed, one hangs, one is marked out. Service continues, everything
# recovers, and every answer must equal that of a model. (The long form, with hosts, links and disks, is
# interop/thrash.py.)
source "$(dirname "$0")/../lib.sh"
cluster_up --osds 4 --osd-size 2G
ceph config set global osd_heartbeat_grace 5
ceph config set global osd_heartbeat_interval 1
ceph osd pool create test 16
ceph osd pool application enable test rados
expect "size of a new pool" "$(ceph osd pool get test size)" "size: 3"
expect "min_size of a new pool" "$(ceph osd pool get test min_size)" "min_size: 2"
pgs() { ceph status -f json | jq -r '.pgmap.pgs_by_state[].state_name' | sort -u | tr '\n' ' '; }
all_clean() { [ "$(pgs)" = "active+clean " ] && ceph osd stat -f json | jq -e '.num_up_osds == 4' >/dev/null; }
all_active() { ! pgs | tr ' ' '\n' | grep -v '^$' | grep -qv active; }
shown() { ceph status | grep -q "$1"; }
pid_of() { cat "$W/c/run/osd.$1.pid"; }
load() { [ -s "$W/model.out" ] && { cat "$W/model.out"; return 1; }; return 0; }
clean() { wait_for 60 all_clean || { ceph -s; ceph pg dump pgs_brief; return 1; }; load; echo "clean: $1"; }
clean "new pool"
model_begins
rados -p test bench 30 write -b 16384 -t 4 --no-cleanup --max-objects 500 >"$W/bench.out" 2>&1 & BENCH=$!
sleep 1
# An OSD is killed and kept down for a while: degraded, but in service.
ceph osd set noup
kill -9 "$(pid_of 1)"
wait_for 30 shown "osds: 3 up"
wait_for 30 shown undersized
wait_for 30 all_active
wait_for 30 shown "objects degraded"
ceph health detail | grep -q "PG_DEGRADED"
ceph osd unset noup
clean "killed and back"
# An OSD hangs: the others report it; it returns by itself.
P=$(pid_of 2)
kill -STOP "$P"
wait_for 30 shown "osds: 3 up"
wait_for 30 all_active
kill -CONT "$P"
clean "stopped and going on"
# An OSD is drained and refilled without a pause.
ceph osd out 3
wait_for 60 sh -c 'ceph pg ls-by-osd 3 -f json | jq -e ".pg_stats | length == 0"' || { ceph pg dump pgs_brief; exit 1; }
ceph osd safe-to-destroy 3
ceph osd in 3
clean "out and in"
wait "$BENCH" || { cat "$W/bench.out"; exit 1; }
rados -p test bench 10 seq -t 4 >/dev/null
model_ends
cluster_down
