"""Operations of applications on a file system, by libcephfs, with every result checked.

usage: files_check.py basics FS | counted FS | coded FS POOL | shared FS | pinned FS | kept FS | back FS | evicted FS | load FS SECONDS FILE | verify FS FILE
CEPH_CONF names the cluster. `load` writes files, syncs each, and notes in FILE what was synced; it goes on through
failovers. `verify` reads back what FILE lists. `kept` writes files that `back` finds again, even when nothing is left of
them than their data.
"""
import errno
import faulthandler
import hashlib
import json
import os
import subprocess
import sys
import time

import cephfs

faulthandler.enable()


def mount(fs):
    c = cephfs.LibCephFS(conffile=os.environ["CEPH_CONF"], auth_id="admin")
    c.mount(filesystem_name=fs.encode())
    return c


def write(c, path, data, sync=True):
    fd = c.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
    c.write(fd, data, 0)
    if sync:
        c.fsync(fd, False)
    c.close(fd)


def read(c, path):
    fd = c.open(path, os.O_RDONLY)
    out, at = b"", 0
    while True:
        part = c.read(fd, at, 1 << 20)
        if not part:
            break
        out, at = out + part, at + len(part)
    c.close(fd)
    return out


def names(c, path):
    d = c.opendir(path)
    out = []
    while e := c.readdir(d):
        out.append(e.d_name.decode())
    c.closedir(d)
    return sorted(n for n in out if n not in (".", ".."))


def refused(code, what, f):
    try:
        f()
    except cephfs.Error as e:
        assert e.args[0] == code or getattr(e, "errno", None) == code, f"{what}: {e}"
        return
    raise AssertionError(f"{what} was not refused")


def basics(fs):
    c = mount(fs)
    big = hashlib.sha256(b"big").digest() * 200_000  # several objects
    c.mkdirs("/a/b/c", 0o755)
    write(c, "/a/b/c/one", b"1" * 5000)
    write(c, "/a/big", big)
    assert read(c, "/a/big") == big
    c.rename("/a/b/c/one", "/a/two")
    assert names(c, "/a") == ["b", "big", "two"] and names(c, "/a/b/c") == []
    c.symlink("two", "/a/link")
    c.link("/a/two", "/a/hard")
    assert c.stat("/a/hard").st_nlink == 2 and read(c, "/a/link") == b"1" * 5000
    c.setxattr("/a/two", "user.colour", b"red", 0)
    assert c.getxattr("/a/two", "user.colour") == b"red"
    refused(errno.ENOTEMPTY, "removal of a directory that holds something", lambda: c.rmdir("/a"))
    c.truncate("/a/big", 10)
    assert read(c, "/a/big") == big[:10]
    # Snapshots show the old state; their data is removed with them.
    write(c, "/a/two", b"before")
    c.mkdir("/a/.snap/s1", 0o755)
    write(c, "/a/two", b"after")
    c.unlink("/a/hard")
    assert read(c, "/a/.snap/s1/two") == b"before" and read(c, "/a/two") == b"after"
    assert "hard" in names(c, "/a/.snap/s1")
    c.rmdir("/a/.snap/s1")
    assert names(c, "/a/.snap") == []
    # Quotas.
    c.mkdir("/q", 0o755)
    c.setxattr("/q", "ceph.quota.max_files", b"5", 0)
    c.setxattr("/q", "ceph.quota.max_bytes", b"1048576", 0)

    def fill():
        for i in range(100):
            write(c, f"/q/f{i}", b"x")
            time.sleep(0.05)

    refused(errno.EDQUOT, "a file too many", fill)
    refused(errno.EDQUOT, "a byte too many", lambda: write(c, "/q/f0", b"x" * (8 << 20)))
    # Many entries, then none.
    c.mkdir("/many", 0o755)
    for i in range(300):
        c.close(c.open(f"/many/f{i}", os.O_CREAT | os.O_WRONLY, 0o644))
    assert len(names(c, "/many")) == 300
    for i in range(300):
        c.unlink(f"/many/f{i}")
    c.rmdir("/many")
    c.sync_fs()
    c.shutdown()
    again = mount(fs)
    assert read(again, "/a/two") == b"after" and {"a", "q"} <= set(names(again, "/"))
    again.shutdown()


def pinned(fs):
    c = mount(fs)
    for rank in (0, 1):
        c.mkdir(f"/rank{rank}", 0o755)
        c.setxattr(f"/rank{rank}", "ceph.dir.pin", str(rank).encode(), 0)
        for i in range(20):
            write(c, f"/rank{rank}/f{i}", b"%d" % i)
    end = time.time() + 60
    while c.getxattr("/rank1", "ceph.dir.pin") != b"1" and time.time() < end:
        time.sleep(0.1)
    c.rename("/rank0/f1", "/rank1/moved")  # involves two ranks
    assert read(c, "/rank1/moved") == b"1" and "f1" not in names(c, "/rank0")
    c.mkdir("/rank1/.snap/s", 0o755)
    c.unlink("/rank1/moved")
    assert read(c, "/rank1/.snap/s/moved") == b"1"
    c.rmdir("/rank1/.snap/s")
    c.shutdown()


def load(fs, seconds, note):
    c = mount(fs)
    base = f"/load{os.getpid()}"
    c.mkdir(base, 0o755)
    end, n = time.time() + float(seconds), 0
    with open(note, "a", buffering=1) as out:
        while time.time() < end:
            data = hashlib.sha256(b"%d" % n).digest() * 300
            write(c, f"{base}/new", data)
            c.rename(f"{base}/new", f"{base}/f{n}")
            fd = c.open(base, os.O_RDONLY | os.O_DIRECTORY)
            c.fsync(fd, False)  # includes the rename
            c.close(fd)
            print(f"{base}/f{n} {n}", file=out)
            n += 1
    c.shutdown()
    assert n > 0


def verify(fs, note):
    c = mount(fs)
    lines = open(note).read().splitlines()
    for line in lines:
        path, n = line.split()
        assert read(c, path) == hashlib.sha256(b"%d" % int(n)).digest() * 300, path
    c.shutdown()
    print(f"{len(lines)} synced files are there")


def shared(fs):
    """Two clients write one file, so neither may buffer data: each write goes to the OSDs at once."""
    a, b = mount(fs), mount(fs)
    fa = a.open("/shared", os.O_CREAT | os.O_RDWR, 0o644)
    fb = b.open("/shared", os.O_RDWR, 0o644)
    for i in range(8):
        assert a.write(fa, b"from a", i * 12) == 6
        assert b.write(fb, b"from b", i * 12 + 6) == 6
        assert a.read(fa, 0, 1000) == b.read(fb, 0, 1000) == b"from afrom b" * (i + 1)
    a.ftruncate(fa, 20)
    assert b.write(fb, b"!", 20) == 1
    assert a.read(fa, 0, 1000) == b"from afrom bfrom afr!"
    for c, fd in ((a, fa), (b, fb)):
        c.close(fd)
        c.shutdown()


def counted(fs):
    """The manager tells what a client does, and who it is."""
    c = mount(fs)
    write(c, "/counted", b"x" * 4096)
    me = f"client.{c.get_instance_id()}"
    stats = lambda *a: json.loads(subprocess.run(["ceph", "fs", "perf", "stats", *a], check=True, capture_output=True).stdout)
    end = time.time() + 60
    while True:
        assert read(c, "/counted") == b"x" * 4096
        s = stats()
        mine = dict(zip(s["global_counters"], s["global_metrics"].get(fs, {}).get(me, [])))
        # Clients report every few seconds, their MDS likewise. Releases count different things; all count hits of caps.
        if sum(mine.get("cap_hit", [])) > 0:
            break
        assert time.time() < end, s
        time.sleep(0.5)
    about = s["client_metadata"][fs][me]
    assert about["hostname"] == os.uname().nodename and about["root"] == "/" and "127.0.0.1" in about["IP"], about
    assert "cap_hit" in about["valid_metrics"] and me in s["metrics"]["mds.0"], s
    assert me in stats("0", me[len("client."):])["global_metrics"][fs]
    assert not stats("0", "1")["global_metrics"], "another client's are left out"
    c.shutdown()


def coded(fs, pool):
    """A directory with data in an erasure-coded pool: written, truncated, overwritten, with a snapshot."""
    c = mount(fs)
    c.mkdir("/coded", 0o755)
    c.setxattr("/coded", "ceph.dir.layout.pool", pool.encode(), 0)
    data = bytearray(os.urandom(9 << 20))
    write(c, "/coded/f", bytes(data))
    c.mkdir("/coded/.snap/s", 0o755)
    before = bytes(data)
    fd = c.open("/coded/f", os.O_RDWR, 0)
    for at in (1, 4095, 16384, (4 << 20) - 3, 5_000_000):
        c.write(fd, b"small", at)
        data[at:at + 5] = b"small"
    c.ftruncate(fd, 6_000_001)
    c.fsync(fd, False)
    c.close(fd)
    c.shutdown()
    c = mount(fs)
    assert read(c, "/coded/f") == bytes(data[:6_000_001])
    assert read(c, "/coded/.snap/s/f") == before
    c.rmdir("/coded/.snap/s")
    c.unlink("/coded/f")
    c.shutdown()


KEPT = {  # path: (start of the data, data)
    "/kept/small": (0, b"small"),
    "/kept/deep/er/large": (0, bytes(range(256)) * (9 << 12)),
    "/kept/deep/holes": (21 << 20, b"end"),
    "/kept/link": None,
}


def kept(fs):
    c = mount(fs)
    c.mkdirs("/kept/deep/er", 0o755)
    for path, what in KEPT.items():
        if what is None:
            c.link("/kept/small", path)
            continue
        fd = c.open(path, os.O_CREAT | os.O_WRONLY, 0o644)
        c.write(fd, what[1], what[0])
        c.fsync(fd, False)
        c.utimes(path, (1e9, 1e9))
        c.close(fd)
    c.sync_fs()
    c.shutdown()


def back(fs):
    """Hard links of a file are lost: its data objects contain one path."""
    c = mount(fs)
    for path, what in KEPT.items():
        if what is not None:
            assert read(c, path) == bytes(what[0]) + what[1], path
    assert names(c, "/kept/deep") == ["er", "holes"]
    write(c, "/kept/deep/new", b"new")
    c.unlink("/kept/deep/holes")
    c.shutdown()


def evicted(fs):
    """A client that is evicted while it holds unsynced data is blocklisted; another client continues."""
    c, other = mount(fs), mount(fs)
    c.mkdirs("/evict", 0o755)
    write(c, "/evict/synced", b"synced")
    fd = c.open("/evict/open", os.O_CREAT | os.O_WRONLY, 0o644)
    c.write(fd, b"held", 0)
    rank0 = f"mds.{fs}:0"
    run = lambda *a: subprocess.run(["ceph", *a], check=True, capture_output=True, text=True).stdout
    run("tell", rank0, "client", "evict", f"id={c.get_instance_id()}")
    blocked = [line for line in run("osd", "blocklist", "ls").splitlines() if "/" in line]
    assert blocked, "nobody is blocklisted"
    try:
        c.fsync(fd, False)
        write(c, "/evict/later", b"x")
    except cephfs.Error:
        pass
    else:
        raise AssertionError("an evicted client wrote on")
    assert read(other, "/evict/synced") == b"synced"
    write(other, "/evict/other", b"other")
    other.shutdown()
    c.abort_conn()


{"basics": basics, "counted": counted, "shared": shared, "coded": coded, "pinned": pinned, "load": load, "verify": verify, "evicted": evicted, "kept": kept, "back": back}[sys.argv[1]](*sys.argv[2:])
