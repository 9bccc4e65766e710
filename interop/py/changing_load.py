#!/usr/bin/env python3
"""Load on a pool that `why` is asked about, until SIGTERM.

usage: changing_load.py POOL [steady | changing SEED]

steady: 300 operations a second, writes of 4 KiB and every second a read, over 400 objects; at most 8 in flight. changing:
every 3 to 12 seconds another size (512 B to 1 MiB), rate (20 to 600 a second, at most 20 MB), number of operations in
flight (1 to 32), part of reads and number of objects, and every fifth time none at all.
"""
import collections
import os
import random
import sys
import time

import rados

rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
changes = len(sys.argv) > 2 and sys.argv[2] == 'changing'
cluster = rados.Rados(conffile=os.environ['CEPH_CONF'])
cluster.connect()
io = cluster.open_ioctx(sys.argv[1])
queue = collections.deque()


def drain(most):
    while len(queue) > most:
        queue.popleft().wait_for_complete()


def once(size, reads, objects):
    name = f'load.{rng.randrange(objects)}'
    if rng.random() < reads:
        queue.append(io.aio_read(name, size, 0, lambda *_: None))
    else:
        queue.append(io.aio_write(name, bytes(size), 0))


while True:
    size, rate, depth, reads, objects = 4096, 300, 8, 0.5, 400
    end = float('inf')
    if changes:
        size, depth = 512 << rng.randrange(12), 1 << rng.randrange(6)
        rate = min(rng.uniform(20, 600), 20e6 / size)
        reads, objects = rng.random(), rng.choice([100, 200, 400])
        end = time.monotonic() + rng.uniform(3, 12)
        if rng.randrange(5) == 0:
            drain(0)
            time.sleep(end - time.monotonic())
            continue
        print(f'{time.strftime("%T")}: {size} B, {rate:.0f} a second, {depth} in flight, {reads:.0%} reads, {objects} objects', flush=True)
    due = time.monotonic()
    while due < end:
        once(size, reads, objects)
        drain(depth - 1)
        due = max(due + 1 / rate, time.monotonic() - 0.05)
        time.sleep(max(0.0, due - time.monotonic()))
    drain(0)
