#!/usr/bin/python3
"""Looks at the files of subvolumes by libcephfs.

usage: subvolumes_check.py FS layout PATH SIZE | fill PATH | spoil PATH | same PATH SIZE | many PATH N | count PATH N
       | names PATH | rmsnaps PATH
"""
import os
import stat
import sys

import cephfs

MIB = 1 << 20
TIME = 1_600_000_000


def connect(fs_name):
    fs = cephfs.LibCephFS(conffile=os.environ["CEPH_CONF"], auth_id="admin")
    fs.mount(filesystem_name=fs_name.encode())
    return fs


def names(fs, path):
    try:
        d = fs.opendir(path.encode())
    except cephfs.ObjectNotFound:
        return []
    out = []
    while e := fs.readdir(d):
        if e.d_name not in (b".", b".."):
            out.append(e.d_name.decode())
    fs.closedir(d)
    return sorted(out)


def write(fs, path, parts, mode=0o640):
    fd = fs.open(path.encode(), os.O_CREAT | os.O_TRUNC | os.O_WRONLY, mode)
    for at, data in parts:
        fs.write(fd, data, at)
    fs.fsync(fd, 0)
    fs.close(fd)


def read(fs, path):
    fd = fs.open(path.encode(), os.O_RDONLY)
    out = b""
    while part := fs.read(fd, len(out), 4 * MIB):
        out += part
    fs.close(fd)
    return out


def pattern(n, seed):
    return bytes((i * seed + (i >> 8)) & 255 for i in range(4096)) * (n // 4096)


FILES = {
    "empty": [],
    "small": [(0, b"hello")],
    "large": [(0, pattern(9 * MIB, 7))],
    "sparse": [(0, b"a"), (21 * MIB, b"z")],
    "d1/d2/deep": [(0, pattern(MIB, 3))],
}


def fill(fs, path):
    fs.mkdirs(f"{path}/d1/d2".encode(), 0o750)
    for name, parts in FILES.items():
        write(fs, f"{path}/{name}", parts)
    fd = fs.open(f"{path}/cut".encode(), os.O_CREAT | os.O_RDWR, 0o600)
    fs.write(fd, pattern(6 * MIB, 5), 0)
    fs.ftruncate(fd, MIB)
    fs.ftruncate(fd, 6 * MIB)
    fs.close(fd)
    fs.symlink(b"d1/d2/deep", f"{path}/link".encode())
    fs.setxattr(f"{path}/small".encode(), b"user.color", b"blue", 0)
    fs.setxattr(f"{path}/d1".encode(), b"user.kind", b"dir", 0)
    fs.chown(f"{path}/small".encode(), 12, 34)
    fs.chmod(f"{path}/small".encode(), 0o604)
    for name in ("small", "large", "d1/d2/deep"):
        fs.utimes(f"{path}/{name}".encode(), (TIME, TIME + 1))
    fs.sync_fs()


def spoil(fs, path):
    """Changes what `fill` has made, so that a clone that does not read the snapshot is noticed."""
    write(fs, f"{path}/large", [(0, pattern(MIB, 9))])
    write(fs, f"{path}/small", [(0, b"other")])
    fs.unlink(f"{path}/d1/d2/deep".encode())


def same(fs, path, quota):
    found = names(fs, path)
    want = sorted(["cut", "d1", "empty", "large", "link", "small", "sparse"])
    assert found == want, found
    for name, parts in FILES.items():
        size = max((at + len(d) for at, d in parts), default=0)
        data = bytearray(size)
        for at, d in parts:
            data[at:at + len(d)] = d
        assert read(fs, f"{path}/{name}") == bytes(data), name
    assert read(fs, f"{path}/cut") == pattern(6 * MIB, 5)[:MIB] + bytes(5 * MIB), "cut"
    assert fs.readlink(f"{path}/link".encode(), 100).rstrip(b"\0") == b"d1/d2/deep"
    assert fs.getxattr(f"{path}/small".encode(), "user.color") == b"blue"
    assert fs.getxattr(f"{path}/d1".encode(), "user.kind") == b"dir"
    st = fs.stat(f"{path}/small".encode())
    assert (st.st_uid, st.st_gid, stat.S_IMODE(st.st_mode)) == (12, 34, 0o604), st
    for name in ("small", "large", "d1/d2/deep"):
        st = fs.statx(f"{path}/{name}".encode(), cephfs.CEPH_STATX_MTIME | cephfs.CEPH_STATX_ATIME, 0)
        assert st["mtime"].timestamp() - TIME in (1, 1.0), (name, st)
    assert stat.S_IMODE(fs.stat(f"{path}/d1".encode()).st_mode) == 0o750
    assert fs.getxattr(path.encode(), "ceph.quota.max_bytes").decode() == quota
    # New files of clients go to the clone as to any directory.
    write(fs, f"{path}/new", [(0, b"new")])
    assert read(fs, f"{path}/new") == b"new"


def layout(fs, path, quota):
    assert fs.getxattr(path.encode(), "ceph.quota.max_bytes").decode() == quota
    assert fs.getxattr(path.encode(), "ceph.dir.layout.pool") == b"cephfs.home.data"
    base = os.path.dirname(path)
    meta = read(fs, f"{base}/.meta").decode()
    assert meta == f"[GLOBAL]\nversion = 2\ntype = subvolume\npath = {path}\nstate = complete\n\n", meta
    st = fs.stat(f"{base}/.meta".encode())
    assert stat.S_IMODE(st.st_mode) == 0o640, oct(st.st_mode)
    assert stat.S_IMODE(fs.stat(path.encode()).st_mode) == 0o777
    group, name = base.split("/")[2:4]
    assert f"_{group}:{name}.meta" in names(fs, "/volumes"), names(fs, "/volumes")


def many(fs, path, n):
    fs.mkdir(f"{path}/many".encode(), 0o755)
    for i in range(n):
        write(fs, f"{path}/many/{i}", [(0, pattern(64 << 10, i % 250 + 1))])


def count(fs, path, n):
    found = names(fs, f"{path}/many")
    assert len(found) == n, len(found)
    for i in range(n):
        assert read(fs, f"{path}/many/{i}") == pattern(64 << 10, i % 250 + 1), i


def main():
    fs_name, what, path, *rest = sys.argv[1:]
    fs = connect(fs_name)
    try:
        if what == "names":
            print("\n".join(names(fs, path)))
        elif what == "rmsnaps":
            snaps = path.rstrip("/") + "/.snap"
            for name in names(fs, snaps):
                fs.rmdir(f"{snaps}/{name}".encode())
        elif what in ("fill", "spoil"):
            {"fill": fill, "spoil": spoil}[what](fs, path)
        elif what in ("same", "layout"):
            {"same": same, "layout": layout}[what](fs, path, rest[0])
        else:
            {"many": many, "count": count}[what](fs, path, int(rest[0]))
    finally:
        fs.shutdown()


main()
