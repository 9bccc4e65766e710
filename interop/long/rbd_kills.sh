# RBD with failures: the owner of an exclusive lock is killed, and another client takes over within the watch timeout.
# An OSD is killed during rbd bench, which ends successfully, and earlier data is intact.
source "$(dirname "$0")/../lib.sh"
cluster_up --osds 2 --osd-size 3G
ceph osd pool create rbd 32
rbd pool init rbd

echo "== exclusive lock"
rbd create --size 64M --image-feature layering,exclusive-lock rbd/lock
export W
/usr/bin/python3 - rbd lock <<'P' &
import os, sys, time
import rados, rbd
c = rados.Rados(conffile=os.environ["CEPH_CONF"]); c.connect()
io = c.open_ioctx(sys.argv[1])
i = rbd.Image(io, sys.argv[2])
i.lock_acquire(rbd.RBD_LOCK_MODE_EXCLUSIVE)
i.write(b"owner one", 0); i.flush()
open(os.environ["W"] + "/locked", "w").close()
time.sleep(600)
P
holder=$!
wait_for 30 test -e "$W/locked"
kill -KILL "$holder"
start=$(date +%s)
# librbd breaks the dead owner's lock and blocklists the owner once its watch has timed out: 30 s.
timeout 90 rbd bench --io-type write --io-size 4K --io-total 16K --io-threads 1 rbd/lock >/dev/null
echo "taken over after $(($(date +%s) - start)) s"
[ "$(ceph osd blocklist ls 2>/dev/null | grep -c .)" -ge 1 ]

echo "== an OSD is killed during rbd bench"
head -c 40000000 /dev/urandom | rbd import - rbd/still 2>/dev/null
rbd export rbd/still - 2>/dev/null | sha256sum >"$W/before"
rbd create --size 128M rbd/bench
timeout 120 rbd bench --io-type write --io-size 16K --io-total 64M --io-pattern rand rbd/bench >"$W/bench" &
bench=$!
sleep 1.5
kill -KILL "$(cat "$W/c/run/osd.0.pid")"
wait "$bench" || { cat "$W/bench"; exit 1; }
rbd object-map check rbd/bench
rbd export rbd/still - 2>/dev/null | sha256sum >"$W/after"
cmp "$W/before" "$W/after"
cluster_down
