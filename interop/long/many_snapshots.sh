# One client makes and removes self-managed snapshots SNAPS times (26,000) in one pool, with an object that gets a clone
# of every hundredth. Meanwhile another client writes to the pool and new pools are made. No write may wait longer than
# 5 s, no OSD may be marked down or lose a turn, a new pool must be clean within 30 s, and the clones must be trimmed.
source "$(dirname "$0")/../lib.sh"
cluster_up --osds 3 --osd-size 4G --pool-size 3
belemnite -c "$CEPH_CONF" pool create snaps 32
/usr/bin/python3 - "${SNAPS:-26000}" "$W/c" <<'PY'
import glob, json, os, rados, sys, threading, time

snaps, data = int(sys.argv[1]), sys.argv[2]
conf = os.environ["CEPH_CONF"]
failures = []


def connect():
    c = rados.Rados(conffile=conf)
    c.connect()
    return c


def ask(c, **command):
    status, out, err = c.mon_command(json.dumps(dict(command, format="json")), b"")
    assert status == 0, (command, status, err)
    return json.loads(out) if out else None


main = connect()
done = threading.Event()
longest = [0.0, 0]


def bystander():
    """Puts one object after the other into the same pool."""
    c = connect()
    with c.open_ioctx("snaps") as io:
        while not done.is_set():
            start = time.monotonic()
            io.write_full("bystander-%d" % (longest[1] % 100), b"x" * 4096)
            longest[0] = max(longest[0], time.monotonic() - start)
            longest[1] += 1
            time.sleep(0.02)


def ups():
    """Epochs at which the OSDs came up: they change when one is marked down."""
    return [o["up_from"] for o in ask(main, prefix="osd dump")["osds"]]


peered = []


def new_pool():
    """Makes a pool and waits until its PGs are active and clean."""
    name = "new-%d" % len(peered)
    start = time.monotonic()
    ask(main, prefix="osd pool create", pool=name, pg_num=16)
    pool = next(p["pool"] for p in ask(main, prefix="osd dump")["pools"] if p["pool_name"] == name)
    while True:
        pgs = ask(main, prefix="pg ls", pool=pool)["pg_stats"]
        if len(pgs) == 16 and all(p["state"] == "active+clean" for p in pgs):
            break
        if time.monotonic() - start > 60:
            failures.append("%s is not clean after a minute" % name)
            break
        time.sleep(0.2)
    peered.append(time.monotonic() - start)


before = ups()
other = threading.Thread(target=bystander)
other.start()
start = time.monotonic()
with main.open_ioctx("snaps") as io:
    io.write_full("cloned", b"first")
    for n in range(snaps):
        snap = io.create_self_managed_snap()
        if n % 100 == 0:
            io.set_self_managed_snap_write([snap])
            io.write_full("cloned", b"%d" % n)
        io.remove_self_managed_snap(snap)
        if n % max(1, snaps // 5) == snaps // 10:
            new_pool()
    made = time.monotonic() - start
    new_pool()

    def queue():
        return sum(q["length"] for p in ask(main, prefix="osd dump")["removed_snaps_queue"]
                   if p["pool"] == io.get_pool_id() for q in p["snaps"])

    left, trimmed = queue(), time.monotonic()
    while queue():
        if time.monotonic() - trimmed > 60 + snaps / 50:
            failures.append("%d snapshots are left in the queue" % queue())
            break
        time.sleep(1)
    trimmed = time.monotonic() - trimmed
    io.set_read(rados.LIBRADOS_SNAP_HEAD)
    stats = io.get_stats()
    if stats["num_object_clones"]:
        failures.append("%d clones are left" % stats["num_object_clones"])
done.set()
other.join()
if ups() != before:
    failures.append("OSDs were marked down: %s, then %s" % (before, ups()))
if longest[0] > 5:
    failures.append("a write waited %.1f s" % longest[0])
if max(peered) > 30:
    failures.append("a new pool was clean after %.1f s" % max(peered))
lost = [l.strip() for f in glob.glob(data + "/log/*osd*.log") for l in open(f, errors="replace") if "did not run" in l]
failures += lost[:5]
rss = [int(open("/proc/%d/statm" % int(open(f).read())).read().split()[1]) // 256 for f in glob.glob(data + "/run/osd.*.pid")]
print("== %d snapshots made and removed in %.0f s (%.0f a second); %d were queued then, none %.0f s later" % (
    snaps, made, snaps / made, left, trimmed))
print("== longest of %d writes beside them %.2f s; new pools clean after %.1f to %.1f s; OSDs have %s MiB" % (
    longest[1], longest[0], min(peered), max(peered), rss))
assert not failures, failures
PY
cluster_down
