#!/usr/bin/env python3
"""Works on objects of a pool and compares every answer with a model, until SIGTERM; then checks all objects again.

usage: model_load.py POOL SEED [THREADS]

Each thread owns its objects, and librados repeats an operation until it is answered, so after each operation the model
knows exactly what must be there: a write that was acknowledged and is lost, done twice or out of order is found, and so is a
stale read. A pool that is erasure-coded must allow overwrites, and has no omap. Prints a line of figures at the end; exit status 1 means a difference, which is described with its seed.
"""
import hashlib
import json
import os
import random
import signal
import sys
import threading
import time

import rados

pool, seed = sys.argv[1], int(sys.argv[2])
THREADS = int(sys.argv[3]) if len(sys.argv) > 3 else 8
OBJECTS, BYTES_MAX = 40, 300_000
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
signal.signal(signal.SIGINT, lambda *_: stop.set())
cluster = rados.Rados(conffile=os.environ['CEPH_CONF'])
cluster.connect()
get = json.dumps({'prefix': 'osd pool get', 'pool': pool, 'var': 'erasure_code_profile'})
coded = cluster.mon_command(get, b'')[0] == 0
KINDS = {'full': 3, 'write': 5, 'append': 4, 'truncate': 1, 'omap': 0 if coded else 2, 'remove': 1, 'check': 6}
wrong, ops, longest = [], [0] * THREADS, [0.0] * THREADS


def noise(rng, n):
    h = hashlib.sha256(rng.getrandbits(64).to_bytes(8, 'little')).digest()
    return (h * (n // 32 + 1))[:n]


class Worker:
    def __init__(self, w):
        self.w, self.rng = w, random.Random(f'{seed}.{w}')
        self.io = cluster.open_ioctx(pool)
        self.data, self.omap = {}, {}

    def name(self, o):
        return f'model.{seed}.{self.w}.{o}'

    def fail(self, o, what):
        wrong.append(f'{self.name(o)}: {what} (seed {seed}, after {ops[self.w]} operations, {time.strftime("%H:%M:%S")})')
        stop.set()

    def check(self, o):
        want = self.data.get(o)
        try:
            got = self.io.read(self.name(o), BYTES_MAX * 2)
        except rados.ObjectNotFound:
            got = None
        if got != want:
            at = next((i for i, (a, b) in enumerate(zip(got or b'', want or b'')) if a != b), 'the end')
            self.fail(o, f'read {None if got is None else len(got)} bytes, expected {None if want is None else len(want)}; '
                         f'they differ at {at}')
        if want is not None and self.omap.get(o):
            with rados.ReadOpCtx() as op:
                it, _ = self.io.get_omap_vals(op, '', '', 1000)
                self.io.operate_read_op(op, self.name(o))
                got = {k: v or b'' for k, v in it}
            if got != self.omap[o]:
                self.fail(o, f'omap has {len(got)} keys, expected {len(self.omap[o])}')

    def step(self):
        rng, o = self.rng, self.rng.randrange(OBJECTS)
        n, have = self.name(o), self.data.get(o)
        kind = rng.choices(list(KINDS), KINDS.values())[0]
        if kind == 'check':
            return self.check(o)
        if kind == 'full' or have is None:
            b = noise(rng, rng.choice([10, 4096, 20_000, 100_000]))
            self.io.write_full(n, b)
            self.data[o] = b
        elif kind == 'write':
            at, b = rng.randrange(BYTES_MAX // 2), noise(rng, rng.choice([1, 512, 4096, 70_000]))
            self.io.write(n, b, at)
            d = have.ljust(at, b'\0')
            self.data[o] = d[:at] + b + d[at + len(b):]
        elif kind == 'append' and len(have) < BYTES_MAX:
            b = noise(rng, rng.choice([3, 1000, 9000]))
            self.io.append(n, b)
            self.data[o] = have + b
        elif kind == 'truncate':
            at = rng.randrange(len(have) + 5000)
            self.io.trunc(n, at)
            self.data[o] = have[:at].ljust(at, b'\0')
        elif kind == 'omap':
            k, v = f'k{rng.randrange(50)}', noise(rng, rng.randrange(200))
            with rados.WriteOpCtx() as op:
                self.io.set_omap(op, (k,), (v,))
                self.io.operate_write_op(op, n)
            self.omap.setdefault(o, {})[k] = v
        elif kind == 'remove':
            self.io.remove_object(n)
            self.data.pop(o)
            self.omap.pop(o, None)

    def run(self):
        try:
            while not stop.is_set():
                t = time.time()
                self.step()
                longest[self.w] = max(longest[self.w], time.time() - t)
                ops[self.w] += 1
            for o in range(OBJECTS):
                self.check(o)
        except Exception as e:
            wrong.append(f'thread {self.w}: {e!r} (seed {seed})')
            stop.set()


threads = [threading.Thread(target=Worker(w).run) for w in range(THREADS)]
for t in threads:
    t.start()
while not stop.wait(0.2):
    pass
for t in threads:
    t.join()
if wrong:
    sys.exit('\n'.join(wrong[:10]))
print(f'{sum(ops)} operations as the model has them, longest {max(longest):.1f} s')
cluster.shutdown()
