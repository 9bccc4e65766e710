"""Kills the active MDS under load again and again, OSDs and the monitor beside it, and checks what clients were promised.

usage: mds_kills.py FS RUN_DIR DIR KILLS SEED      load FS DIRECTORY FILE SECONDS and hold FS FILE are its clients
CEPH_CONF names the cluster, RUN_DIR holds the pid files of its OSDs and monitors, DIR gets logs and notes. Three MDS
daemons are started here (MDS names the program, `ceph-mds`): each that is killed starts again at once in one half of
the rounds, and after another has taken over in the other half, where only missing beacons tell of its end.

Clients write files, sync them, rename and unlink some, sync the directory, and note each step in a file outside. At the
end every noted file must have its content, and every noted removal must have been one. Somebody must be active again
within mds_beacon_grace + 15 s of each kill. Finally a client is stopped while it holds a file that another wants to
write: the other goes on, the stopped one is evicted and gets errors after it continues.
"""
import hashlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time

GRACE = 6  # mds_beacon_grace in seconds


def mount(fs):
    import cephfs
    c = cephfs.LibCephFS(conffile=os.environ["CEPH_CONF"], auth_id="admin")
    c.mount(filesystem_name=fs.encode())
    return c


def content(name):
    h = hashlib.sha256(name.encode()).digest()
    return h * (1 + h[0] * 20)  # up to 160 KiB


def load(fs, base, note, seconds):
    c = mount(fs)
    c.mkdirs(base, 0o755)

    def synced(directory):
        fd = c.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        c.fsync(fd, False)
        c.close(fd)

    end, n = time.time() + float(seconds), 0
    with open(note, "a", buffering=1) as out:
        while time.time() < end and not os.path.exists(note + ".enough"):
            directory = f"{base}/d{n // 50}"
            if n % 50 == 0:
                c.mkdir(directory, 0o755)
                synced(base)
            name = f"{directory}/f{n}"
            fd = c.open(name + ".new", os.O_CREAT | os.O_WRONLY, 0o644)
            c.write(fd, content(name), 0)
            c.fsync(fd, False)
            c.close(fd)
            print("file", name + ".new", name, file=out)
            if n % 3 != 1:
                print("maybe", name + ".new", file=out)
                c.rename(name + ".new", name)
                synced(directory)
                print("file", name, name, file=out)
            if n % 7 == 3:
                old = f"{directory}/f{n - 1}"
                for there in (old, old + ".new"):
                    print("maybe", there, file=out)
                    try:
                        c.unlink(there)
                    except Exception:
                        continue
                    synced(directory)
                    print("gone", there, file=out)
            n += 1
    c.shutdown()


def verify(fs, notes):
    """The last note about a name counts; after `maybe`, both states may be."""
    c = mount(fs)
    last, counts = {}, {"file": 0, "gone": 0}
    for note in notes:
        for line in open(note).read().splitlines():
            what, name, *of = line.split()
            last[name] = (what, of)
    for name, (what, of) in last.items():
        if what == "maybe":
            continue
        counts[what] += 1
        try:
            fd = c.open(name, os.O_RDONLY)
        except Exception:
            assert what == "gone", f"{name} is lost"
            continue
        assert what == "file", f"{name} was removed and is there again"
        data = content(of[0])
        assert c.read(fd, 0, len(data) + 1) == data, f"{name} differs"
        c.close(fd)
    c.shutdown()
    return counts


def hold(fs, note):
    """Holds unwritten data of a file, is stopped from outside, and then must get an error."""
    c = mount(fs)
    fd = c.open("/held", os.O_CREAT | os.O_WRONLY, 0o644)
    c.write(fd, b"synced", 0)
    c.fsync(fd, False)
    c.write(fd, b"unsynced", 6)
    with open(note, "w") as out:
        print("held", file=out, flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
        try:
            for _ in range(200):
                c.write(fd, b"later", 20)
                c.fsync(fd, False)
                time.sleep(0.1)
            print("went on", file=out, flush=True)
        except Exception as e:
            print("error", e, file=out, flush=True)
    c.abort_conn()
    os._exit(0)


class Kills:
    def __init__(self, fs, run_dir, directory, seed):
        import rados
        self.fs, self.run_dir, self.dir, self.rng = fs, run_dir, directory, random.Random(seed)
        self.rados = rados.Rados(conffile=os.environ["CEPH_CONF"])
        self.rados.connect()
        self.daemons = {}

    def command(self, **args):
        status, out, text = self.rados.mon_command(json.dumps({**args, "format": "json"}), b"", timeout=60)
        assert status == 0, (args, status, text)
        return json.loads(out) if out else None

    def start(self, name):
        key = f"{self.dir}/mds.{name}.key"
        if not os.path.exists(key):
            caps = ["mon", "allow profile mds", "osd", "allow rwx tag cephfs *=*", "mds", "allow", "mgr", "allow profile mds"]
            e = self.command(prefix="auth get-or-create", entity=f"mds.{name}", caps=caps)[0]
            with open(key, "w") as f:
                f.write(f"[mds.{name}]\n\tkey = {e['key']}\n")
            os.makedirs(f"{self.dir}/mds.{name}", exist_ok=True)
        out = open(f"{self.dir}/mds.{name}.out", "a")
        program = os.environ.get("MDS", "ceph-mds").split()
        args = ["-f", "-i", name, "-c", os.environ["CEPH_CONF"], "--keyring", key, "--mds-data", f"{self.dir}/mds.{name}",
                "--log-file", f"{self.dir}/mds.{name}.log", "--pid-file", "", "--admin-socket", f"{self.dir}/mds.{name}.asok"]
        self.daemons[name] = subprocess.Popen(program + args, stdout=out, stderr=out)

    def active(self):
        """(gid, name) of the active daemon, and the number of standbys."""
        m = self.command(prefix="fs dump")
        info = [i for f in m["filesystems"] if f["mdsmap"]["fs_name"] == self.fs for i in f["mdsmap"]["info"].values()]
        now = [(i["gid"], i["name"]) for i in info if i["rank"] == 0 and i["state"] == "up:active"]
        return (now[0] if now else None), len(m["standbys"])

    def wait(self, seconds, what, condition):
        end = time.time() + seconds
        while not condition():
            assert time.time() < end, f"gave up waiting: {what}; {self.active()}"
            time.sleep(0.1)

    def kill(self, kind):
        """Kills a daemon that `belemnite up` then starts again."""
        files = sorted(f for f in os.listdir(self.run_dir) if f.startswith(kind + ".") and f.endswith(".pid"))
        os.kill(int(open(f"{self.run_dir}/{self.rng.choice(files)}").read()), signal.SIGKILL)

    def round(self, n):
        """Returns how long nobody was active, in seconds."""
        self.wait(90, "a standby", lambda: self.active()[0] and self.active()[1] >= 1)
        time.sleep(self.rng.random() * 2)  # load at another point
        (gid, name), _ = self.active()
        beside = [k for k, when in (("osd", n % 3 == 1), ("mon", n % 4 == 2)) if when]
        self.daemons[name].kill()
        self.daemons[name].wait()
        at = time.time()
        for k in beside:
            self.kill(k)
        if n % 2 == 0:
            self.start(name)
        anew = lambda: (self.active()[0] or (gid,))[0] != gid
        self.wait(GRACE + 15, "another active MDS", anew)
        took = time.time() - at
        print(f"kill {n}: mds.{name}{''.join(', ' + k for k in beside)}; back {'at once' if n % 2 == 0 else 'later'}; "
              f"mds.{self.active()[0][1]} active after {took:.1f} s", flush=True)
        if n % 2:
            self.start(name)
        return took


def main(fs, run_dir, directory, kills, seed):
    print(f"seed {seed}", flush=True)
    k = Kills(fs, run_dir, directory, int(seed))
    k.command(prefix="config set", who="global", name="mds_beacon_grace", value=str(GRACE))
    for name in "xyz":
        k.start(name)
    k.wait(60, "an active MDS", lambda: k.active()[0])
    notes = [f"{directory}/synced.{i}" for i in range(3)]
    me = [sys.executable, os.path.abspath(__file__)]
    clients = [subprocess.Popen(me + ["load", fs, f"/load{i}", n, "3600"]) for i, n in enumerate(notes)]
    written = lambda: [os.path.getsize(n) if os.path.exists(n) else 0 for n in notes]
    took, stalls = [], []
    for n in range(int(kills)):
        k.wait(60, "load", lambda: all(written()))
        took.append(k.round(n))
        before, at = written(), time.time()
        k.wait(60, "each client writes again", lambda: all(a > b for a, b in zip(written(), before)))
        stalls.append(took[-1] + time.time() - at)
        assert all(c.poll() is None for c in clients), "a client ended"
    for n in notes:
        open(n + ".enough", "w").close()
    for c in clients:
        assert c.wait(timeout=120) == 0, "a client failed"
    counts = verify(fs, notes)
    print(f"== {len(took)} kills: active again after {min(took):.1f} to {max(took):.1f} s, median {statistics.median(took):.1f}; "
          f"all clients write again after at most {max(stalls):.1f} s; "
          f"{counts['file']} synced files are there, {counts['gone']} removed ones are not", flush=True)

    # A client that is cut off.
    k.command(prefix="fs set", fs_name=fs, var="session_timeout", val="30")
    k.command(prefix="fs set", fs_name=fs, var="session_autoclose", val="35")
    held = f"{directory}/held"
    holder = subprocess.Popen(me + ["hold", fs, held])
    k.wait(60, "a client that holds data", lambda: os.path.exists(held) and os.path.getsize(held))
    blocked = len(k.command(prefix="osd blocklist ls") or [])
    c, at = mount(fs), time.time()
    fd = c.open("/held", os.O_RDWR)
    assert c.read(fd, 0, 6) == b"synced"
    c.write(fd, b"theirs", 0)
    c.fsync(fd, False)
    print(f"== a file of a client that is cut off is written by another after {time.time() - at:.1f} s", flush=True)
    assert len(k.command(prefix="osd blocklist ls") or []) > blocked, "the client was not shut out"
    holder.send_signal(signal.SIGCONT)
    holder.wait(timeout=120)
    said = open(held).read().splitlines()
    assert said[1].startswith("error"), said
    assert c.read(fd, 0, 6) == b"theirs" and c.stat("/held").st_size in (6, 14)
    c.close(fd)
    c.shutdown()

    # Nothing is damaged.
    out = subprocess.run(["ceph", "tell", f"mds.{fs}:0", "scrub", "start", "/", "recursive"], capture_output=True, text=True, check=True).stdout
    assert json.loads(out)["return_code"] == 0, out
    ask = lambda *a: subprocess.run(["ceph", "tell", f"mds.{fs}:0", *a], capture_output=True, text=True, check=True).stdout
    k.wait(120, "the scrub", lambda: "no active scrubs" in ask("scrub", "status"))
    assert json.loads(ask("damage", "ls")) == [], ask("damage", "ls")
    for d in k.daemons.values():
        d.terminate()
        d.wait(timeout=60)


if __name__ == "__main__":
    {"load": load, "hold": hold}.get(sys.argv[1], lambda *a: main(sys.argv[1], *a))(*sys.argv[2:])
