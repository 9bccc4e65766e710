# 33,000 snapshots of a pool made and removed, each removed before the next is made by the same client: the monitor goes on to
# mark OSDs out, the OSDs purge them, and neither map nor state keeps a trace of each.
source "$(dirname "$0")/../lib.sh"
PAIRS=${PAIRS:-33000}
cluster_up --osds 3 --osd-size 1G
ceph osd pool create p 8 >/dev/null
pool_clean p 8
before=$(stat -c %s "$W"/c/mon.a/state.redb)
begun=$(date +%s)
/usr/bin/python3 - "$PAIRS" <<'P'
import os, rados, sys, threading
pairs, threads = int(sys.argv[1]), 50
c = rados.Rados(conffile=os.environ['CEPH_CONF']); c.connect()
failed = []
def run():
    io = c.open_ioctx('p')
    try:
        for _ in range(pairs // threads):
            io.remove_self_managed_snap(io.create_self_managed_snap())
    except Exception as e:
        failed.append(e)
all = [threading.Thread(target=run) for _ in range(threads)]
for t in all: t.start()
for t in all: t.join()
assert not failed, failed[0]
P
echo "== $PAIRS snapshots made and removed in $(($(date +%s) - begun)) s"
purged() { ceph osd dump -f json | jq -e '.removed_snaps_queue | length == 0'; }
wait_for 120 purged || { ceph osd dump -f json | jq '.removed_snaps_queue | length'; exit 1; }
map=$(ceph osd getmap 2>/dev/null | wc -c)
grown=$((($(stat -c %s "$W"/c/mon.a/state.redb) - before) >> 20))
echo "== afterwards a full map has $map bytes, and the state has grown by $grown MiB"
[ "$map" -lt 20000 ]
[ "$grown" -lt 64 ]
! grep -h 'failed a proposal' "$W"/c/log/mon.a.log || exit 1

ceph config set mon mon_osd_down_out_interval 5
# One of three OSDs: fewer than the share that stays in by default.
ceph config set mon mon_osd_min_in_ratio 0.3
kill -STOP "$(cat "$W/c/run/osd.0.pid")"
out() { ceph osd dump -f json | jq -e '.osds[] | select(.osd == 0) | .in == 0'; }
wait_for 90 out || { ceph osd dump; kill -CONT "$(cat "$W/c/run/osd.0.pid")"; exit 1; }
kill -CONT "$(cat "$W/c/run/osd.0.pid")"
ceph osd in 0
pool_clean p 8
cluster_down
