# A pool of three copies is split twice while clients work, and merged again, with an OSD killed in between. Every
# answer must equal that of a model, listings must name every object once, and placement must follow in steps.
source "$(dirname "$0")/../lib.sh"
# BELEMNITE_OSD_REACTORS=2: PGs of an OSD are on several reactors, and are merged by copying.
cluster_up --osds 3 --osd-size 2G
if [ -n "${BELEMNITE_OSD_REACTORS:-}" ]; then
  for i in 0 1 2; do
    expect "reactors of osd.$i" "$(ceph tell osd.$i status | jq .num_reactors)" "$BELEMNITE_OSD_REACTORS"
  done
fi
ceph config set global osd_heartbeat_grace 5
ceph config set global osd_heartbeat_interval 1
ceph config set global target_max_misplaced_ratio 0.3
ceph osd pool create test 8
ceph osd pool application enable test rados
field() { ceph osd pool ls detail -f json | jq -r ".[] | select(.pool_name == \"test\") | .$1"; }
pgs() { ceph status -f json | jq -r '.pgmap.pgs_by_state[].state_name' | sort -u | tr '\n' ' '; }
total() { ceph status -f json | jq -r .pgmap.num_pgs; }
all_clean() { [ "$(pgs)" = "active+clean " ] && ceph osd stat -f json | jq -e '.num_up_osds == 3' >/dev/null; }
grown() { [ "$(field pg_num)" = "$1" ]; }
placed() { [ "$(field pg_placement_num)" = "$1" ]; }
load() { [ -s "$W/model.out" ] && { cat "$W/model.out"; return 1; }; return 0; }
clean() { wait_for 60 all_clean || { ceph -s; ceph pg dump pgs_brief; return 1; }; load; echo "clean: $1"; }
clean "new pool"
for i in $(seq 300); do echo "listed.$i"; done >"$W/names"
/usr/bin/python3 - test "$W/names" <<'PY'
import os, rados, sys
c = rados.Rados(conffile=os.environ['CEPH_CONF'])
c.connect()
io = c.open_ioctx(sys.argv[1])
for n in open(sys.argv[2]).read().split():
    io.write_full(n, n.encode())
    io.set_xattr(n, 'a', n.encode())
c.shutdown()
PY
listed() { rados -p test ls | grep '^listed\.' | sort >"$W/ls" && sort "$W/names" | diff - "$W/ls"; }
listed
model_begins
rados -p test bench 20 write -b 16384 -t 4 --no-cleanup --max-objects 500 >"$W/bench.out" 2>&1 & BENCH=$!
sleep 1
ceph osd pool set test pg_num 16
wait_for 30 grown 16
listed
clean "16 PGs"
# An OSD is killed while it splits PGs.
ceph osd pool set test pg_num 64
wait_for 30 grown 64
kill -9 "$(cat "$W/c/run/osd.1.pid")"
listed
clean "64 PGs, an OSD killed on the way"
expect "PGs that report" "$(total)" 64
wait_for 90 placed 64
clean "placed by 64"
listed
wait "$BENCH" || { cat "$W/bench.out"; exit 1; }
rados -p test bench 5 seq -t 4 >/dev/null
# Merge: the PGs first get the placement of their targets and are then merged, a few at a time. An OSD is killed
# meanwhile, twice.
ceph osd pool set test pg_num 8
wait_for 120 placed 8
fewer() { [ "$(field pg_num)" -lt "$1" ]; }
wait_for 120 fewer 64
kill -9 "$(cat "$W/c/run/osd.2.pid")"
listed
wait_for 120 fewer 24
kill -9 "$(cat "$W/c/run/osd.0.pid")"
wait_for 120 grown 8 || { ceph -s; ceph osd pool ls detail; ceph pg dump pgs_brief; exit 1; }
clean "8 PGs again, two OSDs killed on the way"
expect "PGs that report" "$(total)" 8
listed
rados -p test bench 5 seq -t 4 >/dev/null
# AGAIN=1: split again, while merged PGs may still be in removal.
if [ -n "${AGAIN:-}" ]; then
  ceph osd pool set test pg_num 16
  wait_for 60 grown 16
  clean "16 PGs again"
  listed
fi
model_ends
wait_for 20 sh -c '[ "$(rados -p test ls | wc -l)" = "$(ceph df -f json | jq ".pools[] | select(.name == \"test\").stats.objects")" ]' \
  || { rados -p test ls | wc -l; ceph df; exit 1; }
cluster_down
