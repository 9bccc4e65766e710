# Time from the start of an OSD with many PGs until all of them are active and clean: three OSDs, three copies, PGS PGs
# on each (1,000), RUNS restarts (5). Nothing else should run on the machine.
source "$(dirname "$0")/../lib.sh"
pgs=${PGS:-1000}
cluster_up --osds 3 --osd-size 4G --pool-size 3
ceph config set global mon_max_pg_per_osd 10000
ceph osd set noout
belemnite -c "$CEPH_CONF" pool create test "$pgs"
/usr/bin/python3 - "$W/c" "${RUNS:-5}" "$pgs" <<'PY'
import json, os, signal, socket, struct, sys, time

# The OSDs' own state: the manager's statistics are up to five seconds old.
dir, runs = sys.argv[1], int(sys.argv[2])


def ask(osd, **command):
    s = socket.socket(socket.AF_UNIX)
    s.connect(f"{dir}/run/osd.{osd}.asok")
    s.sendall(json.dumps(command).encode() + b"\0")
    f = s.makefile("rb")
    n = struct.unpack(">I", f.read(4))[0]
    return json.loads(f.read(n))


def clean():
    """PGs of which their primary says that they are active and clean."""
    n = 0
    for osd in range(3):
        try:
            n += ask(osd, prefix="status")["pgs_by_state"].get("active+clean", 0)
        except (OSError, ValueError, struct.error):
            pass
    return n


def pid():
    try:
        return int(open(f"{dir}/run/osd.1.pid").read())
    except (OSError, ValueError):
        return 0


def wait(what, limit=120):
    end = time.time() + limit
    while not what():
        assert time.time() < end, clean()
        time.sleep(0.01)


pgs = int(sys.argv[3])
wait(lambda: clean() >= pgs)
time.sleep(11)
all = clean()
took = []
for n in range(runs):
    old = pid()
    os.kill(old, signal.SIGKILL)
    killed = time.time()
    # `up` restarts the daemon.
    wait(lambda: pid() not in (0, old))
    started = time.time()
    wait(lambda: clean() < all)
    wait(lambda: clean() == all)
    took.append(time.time() - started)
    print(f"run {n}: {took[-1]:.2f} s after its start, {time.time() - killed:.2f} s after the kill")
    # A daemon that lived for ten seconds is restarted at once.
    time.sleep(11)
took.sort()
print(f"== restart of one of three OSDs with {all} PGs: {took[0]:.2f} to {took[-1]:.2f} s, median {took[len(took) // 2]:.2f} s")
PY
cluster_down
