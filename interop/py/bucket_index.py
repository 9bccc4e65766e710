"""A bucket index of many entries, put there by calls of class `rgw`; and what a page of its listing costs.

usage: bucket_index.py CONF POOL SHARDS COMMAND [ARGUMENTS...]
commands: init                make the shards
          fill FIRST LAST     entries with these numbers, in calls of 500, 32 in flight; one of SHARDS shards has each
          stats               compares the sums of the headers with the entries that `bucket_check_index` counts: prints both
          page ADMIN PID TOTAL N
                              N pages of 1000 entries from one shard each, and N / 8 pages as a gateway asks for them (a
                              part from each shard), at random places among TOTAL entries; ADMIN is the OSD's admin socket,
                              PID its process. Prints milliseconds, metadata pages and bytes read from the device per list
                              page, and entries and bytes of the replies
"""

import json
import random
import struct
import subprocess
import sys
import time

import rados

BATCH, IN_FLIGHT = 500, 32
PAGE = 1000


def blob(b):
    return struct.pack("<I", len(b)) + b


def versioned(v, compat, body):
    return struct.pack("<BBI", v, compat, len(body)) + body


def name(n):
    return b"directory-%04d/object-%09d" % (n % 1000, n)


def entry(n):
    """`rgw_cls_bi_entry` of a plain object of 4096 bytes, as a gateway leaves it."""
    key = name(n)
    meta = versioned(7, 3, b"\x01" + struct.pack("<QII", 4096, 1_700_000_000, n) + blob(b"0123456789abcdef0123456789abcdef")
        + blob(b"alice") + blob(b"Alice") + blob(b"application/octet-stream") + struct.pack("<Q", 4096) + blob(b"") * 2 + b"\0")
    e = versioned(8, 3, blob(key) + struct.pack("<Q?", n, True) + meta + struct.pack("<I", 0) + blob(b"")
        + versioned(1, 1, b"\x07\x84" + struct.pack("<I", n)) + b"\x01" + blob(b"defe9084-35bb.4155.%019d" % n) + blob(b"") + struct.pack("<HQ", 0, 0))
    return versioned(1, 1, b"\x01" + blob(key) + blob(e))


class Shards:
    def __init__(self, ioctx, count):
        self.io, self.count = ioctx, count

    def oid(self, n):
        return f".dir.bucket.{n % self.count}"

    def call(self, shard, method, data=b"", size=8 << 20):
        rc, out = self.io.execute(self.oid(shard), "rgw", method, data, size)
        if rc < 0:
            raise SystemExit(f"{method}: {rc}")
        return out

    def fill(self, first, last):
        waiting, batches = [], [[] for _ in range(self.count)]

        def send(shard):
            body = struct.pack("<I", len(batches[shard])) + b"".join(batches[shard]) + b"\0"
            batches[shard].clear()
            if len(waiting) >= IN_FLIGHT:
                done(waiting.pop(0))
            waiting.append(self.io.aio_execute(self.oid(shard), "rgw", "bi_put_entries", versioned(1, 1, body), 64))

        def done(c):
            c.wait_for_complete()
            if c.get_return_value() < 0:
                raise SystemExit(f"bi_put_entries: {c.get_return_value()}")

        for n in range(first, last):
            shard = n // 7 % self.count
            batches[shard].append(entry(n))
            if len(batches[shard]) == BATCH:
                send(shard)
        for shard in range(self.count):
            if batches[shard]:
                send(shard)
        for c in waiting:
            done(c)

    def list(self, shard, start, most):
        """Number of entries of a page, and its bytes."""
        key = versioned(1, 1, blob(start) + blob(b""))
        out = self.call(shard, "bucket_list", versioned(6, 4, struct.pack("<I", most) + blob(b"") + key + b"\0" + blob(b"")))
        # rgw_cls_list_ret, of it rgw_bucket_dir, of it the header; then the number of entries.
        at = 6 + 6
        (header,) = struct.unpack_from("<I", out, at + 2)
        (count,) = struct.unpack_from("<I", out, at + 6 + header)
        return count, len(out)

    def stats(self):
        """Objects by the headers, and counted from the entries."""
        sums = [0, 0]
        for shard in range(self.count):
            out = self.call(shard, "bucket_check_index")
            # rgw_cls_check_index_ret: two headers, each beginning with a map of statistics by category.
            at = 6
            for which in range(2):
                _, _, size = struct.unpack_from("<BBI", out, at)
                p = at + 6
                (categories,) = struct.unpack_from("<I", out, p)
                p += 4
                for _ in range(categories):
                    _, _, stats = struct.unpack_from("<BBI", out, p + 1)
                    sums[which] += struct.unpack_from("<Q", out, p + 7 + 16)[0]
                    p += 7 + stats
                at += 6 + size
        return sums


def counters(admin, pid):
    """Metadata pages and bytes that the OSD has read from its device."""
    text = subprocess.run(["ceph", "--admin-daemon", admin, "perf", "dump"], check=True, capture_output=True, text=True).stdout
    with open(f"/proc/{pid}/io") as f:
        read = next(int(line.split()[1]) for line in f if line.startswith("read_bytes"))
    return json.loads(text)["store"]["page_reads"], read


def measured(what, osd, count, f):
    before, start, total = counters(*osd), time.monotonic(), [0, 0]
    for _ in range(count):
        got = f()
        total = [a + b for a, b in zip(total, got)]
    ms = (time.monotonic() - start) * 1000 / count
    pages, read = ((a - b) / count for a, b in zip(counters(*osd), before))
    print(f"{what} {ms:.2f} ms, {pages:.2f} pages read ({read / 1024:.1f} KiB), {total[0] / count:.0f} entries in {total[1] / count:.0f} bytes", flush=True)


def main():
    conf, pool, shards, command, *args = sys.argv[1:]
    with rados.Rados(conffile=conf) as c, c.open_ioctx(pool) as io:
        s = Shards(io, int(shards))
        if command == "init":
            for n in range(s.count):
                s.call(n, "bucket_init_index")
        elif command == "fill":
            s.fill(int(args[0]), int(args[1]))
        elif command == "stats":
            print(*s.stats())
        elif command == "page":
            osd, total, count = args[:2], int(args[2]), int(args[3])
            r = random.Random(total)
            place = lambda: name(r.randrange(total))
            shard = iter(range(count * 2))
            measured("one shard:", osd, count, lambda: s.list(next(shard), place(), PAGE))

            def all_shards():
                start = place()
                parts = [s.list(n, start, PAGE // s.count + 8) for n in range(s.count)]
                return [sum(p[i] for p in parts) for i in (0, 1)]

            measured("all shards:", osd, max(1, count // 8), all_shards)
        else:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
