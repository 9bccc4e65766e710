# How long an OSD with many PGs takes from its start until all of them are active and clean again: three OSDs, three
# copies, PGS PGs on each (1,000), RUNS restarts (5). Nothing else should run on the machine.
source "$(dirname "$0")/../lib.sh"
pgs=${PGS:-1000}
: "${LIVE:=}" # not empty: objects are written while it is away
cluster_up --osds 3 --osd-size 4G --pool-size 3
ceph config set global mon_max_pg_per_osd 10000
ceph osd set noout
belemnite -c "$CEPH_CONF" pool create test "$pgs"
exec 3>&1
/usr/bin/python3 - "$W/c" "${RUNS:-5}" "$LIVE" <<'PY'
import json, os, rados, signal, subprocess, sys, time
dir, runs, live = sys.argv[1], int(sys.argv[2]), sys.argv[3]
c = rados.Rados(conffile=dir + "/ceph.conf")
c.connect()

def command(**what):
    code, out, err = c.mon_command(json.dumps({"format": "json", **what}), b"")
    assert code == 0, err
    return json.loads(out or "{}")

def mgr(**what):
    code, out, err = c.mgr_command(json.dumps({"format": "json", **what}), b"")
    assert code == 0, err
    return json.loads(out or "{}")

def states():
    s = command(prefix="status")
    return {x["state_name"]: x["count"] for x in s["pgmap"]["pgs_by_state"]}, s["osdmap"]["num_up_osds"]

def wait(what, limit=120):
    end = time.time() + limit
    while not what():
        assert time.time() < end, (states(),)
        time.sleep(0.02)

def whole():
    s, up = states()
    return up == 3 and set(s) == {"active+clean"}

wait(whole)
print(PY_NOTE, states()) if (PY_NOTE := os.environ.get("NOTE")) else None
took = []
for n in range(runs):
    pidfile = dir + "/run/osd.1.pid"
    pid = int(open(pidfile).read())
    os.kill(pid, signal.SIGKILL)
    start = time.time()
    # `up` starts it again a second later; its process is what time counts from.
    wait(lambda: os.path.exists(pidfile) and open(pidfile).read().strip() not in ("", str(pid)))
    started = time.time()
    wait(lambda: states()[1] < 3 or "active+clean" not in states()[0] or len(states()[0]) > 1, 60)
    wait(whole)
    took.append(time.time() - started)
    print(f"run {n}: {took[-1]:.2f} s after its start, {time.time() - start:.2f} s after the kill")
    time.sleep(3)
took.sort()
print(f"== restart of an OSD with {sum(states()[0].values())} PGs: {took[0]:.2f} to {took[-1]:.2f} s, median {took[len(took) // 2]:.2f} s")
PY
cluster_down
