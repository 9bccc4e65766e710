"""Operations on metadata of a file system: how many per second, and the CPU time of the OSDs for each.

usage: fs_metadata.py FS [--entries N] [--clients N] [--cpu-of PID,PID…] [--json FILE]
CEPH_CONF names the cluster. Clients (4), each a process with mounts of its own and a directory of its own, together
create N files (100,000), stat, list, rename and unlink them; every step begins with empty caches of the clients. The rate is from the
first call to the last answer. CPU time is that of the processes --cpu-of, from the first call until the MDS has written
back all directories (`flush journal`). At the end the directories are removed, and the time until the MDS has purged all
of it (`num_strays` is 0) is printed.
"""
import argparse
import json
import multiprocessing
import os
import time

import cephfs

STEPS = ("create", "stat", "readdir", "rename", "unlink")
TICK = os.sysconf("SC_CLK_TCK")


def mount(fs):
    c = cephfs.LibCephFS(conffile=os.environ["CEPH_CONF"], auth_id="admin")
    c.mount(filesystem_name=fs.encode())
    return c


def step(c, what, base, entries):
    """Does one step for all entries of a directory and returns how many there were."""
    if what == "create":
        for i in range(entries):
            c.close(c.open(f"{base}/f{i}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    elif what == "stat":
        for i in range(entries):
            assert c.stat(f"{base}/f{i}").st_size == 0
    elif what == "readdir":
        d, n = c.opendir(base), 0
        while e := c.readdir(d):
            n += e.d_name not in (b".", b"..")
        c.closedir(d)
        return n
    elif what == "rename":
        for i in range(entries):
            c.rename(f"{base}/f{i}", f"{base}/g{i}")
    else:
        for i in range(entries):
            c.unlink(f"{base}/g{i}")
    return entries


def client(fs, base, entries, pipe, barrier):
    c = mount(fs)
    c.mkdir(base, 0o755)
    c.shutdown()
    for what in STEPS:
        c = mount(fs)
        c.stat(base)
        barrier.wait()
        start = time.monotonic()
        done = step(c, what, base, entries)
        pipe.send((what, start, time.monotonic(), done))
        c.shutdown()
        barrier.wait()


class Asked:
    """What the MDS and the kernel tell."""

    def __init__(self, fs, pids):
        self.c, self.fs, self.pids = mount(fs), fs, pids

    def mds(self, **args):
        status, out, text = self.c.mds_command(f"{self.fs}:0", json.dumps({**args, "format": "json"}), "")
        assert status == 0, (args, status, text)
        return json.loads(out)

    def strays(self):
        return self.mds(prefix="perf dump")["mds_cache"]["num_strays"]

    def cpu(self):
        """Seconds that the processes have used."""
        total = 0
        for p in self.pids:
            fields = open(f"/proc/{p}/stat").read().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
        return total / TICK


def main():
    a = argparse.ArgumentParser()
    a.add_argument("fs")
    a.add_argument("--entries", type=int, default=100_000)
    a.add_argument("--clients", type=int, default=4)
    a.add_argument("--cpu-of", default="")
    a.add_argument("--json")
    a = a.parse_args()
    multiprocessing.set_start_method("fork")
    each = a.entries // a.clients
    barrier = multiprocessing.Barrier(a.clients + 1)
    bases = [f"/metadata.{os.getpid()}.{i}" for i in range(a.clients)]
    pipes = []
    for base in bases:
        mine, theirs = multiprocessing.Pipe()
        multiprocessing.Process(target=client, args=(a.fs, base, each, theirs, barrier), daemon=True).start()
        pipes.append(mine)
    # Only after the fork: a mount has threads.
    asked = Asked(a.fs, [int(p) for p in a.cpu_of.split(",") if p])
    results = {}
    for what in STEPS:
        asked.mds(prefix="flush journal")
        barrier.wait()
        before = asked.cpu()
        told = [p.recv() for p in pipes]
        barrier.wait()
        asked.mds(prefix="flush journal")
        done = sum(t[3] for t in told)
        assert done == each * a.clients, f"{what}: {done} entries"
        rate = done / (max(t[2] for t in told) - min(t[1] for t in told))
        results[what] = {"rate": rate, "cpu_us": (asked.cpu() - before) * 1e6 / done}
        print(f"{what:8} {rate:9.0f}/s   {results[what]['cpu_us']:8.1f} us of the OSDs", flush=True)
    start = time.monotonic()
    for base in bases:
        asked.c.rmdir(base)
    while left := asked.strays():
        assert time.monotonic() - start < 600, f"{left} strays are left"
        time.sleep(0.2)
    results["purged"] = time.monotonic() - start
    print(f"num_strays is 0 after {results['purged']:.1f} s", flush=True)
    if a.json:
        with open(a.json, "w") as f:
            json.dump(results, f)
    asked.c.shutdown()


if __name__ == "__main__":
    main()
