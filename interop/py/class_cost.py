"""CPU of an OSD per class call with 64 in flight: class_cost.py POOL OSD-PID [CALLS]"""

import os
import struct
import sys
import threading
import time

import rados

DEPTH = 64
HEAD = 2**64 - 2


def cpu(pid):
    """Microseconds that all threads of a process have run."""
    return sum(int(open(f"/proc/{pid}/task/{t}/schedstat").read().split()[0]) for t in os.listdir(f"/proc/{pid}/task")) / 1e3


def string(b):
    return struct.pack("<I", len(b)) + b


def versioned(b):
    return b"\1\1" + struct.pack("<I", len(b)) + b


def main():
    pool, pid, n = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 20000
    cluster = rados.Rados(conffile=os.environ["CEPH_CONF"])
    cluster.connect()
    io = cluster.open_ioctx(pool)
    objects = [f"o{i}" for i in range(DEPTH)]
    for o in objects:
        io.execute(o, "rbd", "create", struct.pack("<QBQ", 1 << 30, 22, 61) + string(b"prefix") + struct.pack("<q", -1))

    def bench(cls, method, data):
        slots, bad = threading.Semaphore(DEPTH), []

        def done(completion, *_):
            if completion.get_return_value() < 0:
                bad.append(completion.get_return_value())
            slots.release()

        def run(count):
            for i in range(count):
                slots.acquire()
                io.aio_execute(objects[i % DEPTH], cls, method, data, 256, done)
            for _ in range(DEPTH):
                slots.acquire()
            for _ in range(DEPTH):
                slots.release()

        run(n // 10)
        before, start = cpu(pid), time.time()
        run(n)
        rate = n / (time.time() - start)
        print(f"{cls + '.' + method:24} {(cpu(pid) - before) / n:6.1f} us   {rate:7.0f}/s   failures {len(bad)}", flush=True)

    lock = string(b"l") + b"\1" + string(b"c") + string(b"t") + string(b"") + struct.pack("<II", 0, 0) + b"\1"
    bench("lock", "lock", versioned(lock))
    bench("lock", "get_info", versioned(string(b"l")))
    bench("rbd", "get_size", struct.pack("<Q", HEAD))
    bench("rbd", "get_features", struct.pack("<QB", HEAD, 1))
    bench("rbd", "metadata_set", struct.pack("<I", 1) + string(b"k") + string(b"v"))
    bench("rbd", "set_flags", struct.pack("<QQQ", 0, 1, HEAD))


main()
