#!/usr/bin/env python3
"""Writes objects while daemons are killed, and checks that nothing acknowledged is lost or changed.

usage: ack_checker.py POOL RUN_DIR KILLS SEED
RUN_DIR holds the pid files of the daemons. Each round kills one daemon with SIGKILL and measures the interruption: the time
from the kill until writes to 32 objects, which between them use every OSD, are acknowledged. Shortest, median and longest are
printed for each kind of daemon; the longest must stay below 2 s in a release build, which the test does not enforce: a
busy machine would fail it. At the end every object must hold the content of its last
acknowledged write, or of the one after it that was in flight.
"""
import glob
import hashlib
import os
import random
import signal
import sys
import threading
import time

import rados

pool, run_dir, kills, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
print(f'seed {seed}', flush=True)
rng = random.Random(seed)
cluster = rados.Rados(conffile=os.environ['CEPH_CONF'])
cluster.connect()
WRITERS, OBJECTS = 8, 24
stop = threading.Event()
acked = [dict() for _ in range(WRITERS)]
tried = [dict() for _ in range(WRITERS)]
counts = [0] * WRITERS
errors = []


def content(w, o, n):
    h = hashlib.sha256(f'{seed}.{w}.{o}.{n}'.encode()).digest()
    size = 1 + int.from_bytes(h[:4], 'little') % (8192 if o % 3 else 200000)
    return (h * (size // 32 + 1))[:size]


def writer(w):
    io = cluster.open_ioctx(pool)
    n = 0
    while not stop.is_set():
        o = n % OBJECTS
        tried[w][o] = n
        try:
            io.write_full(f'ack.{w}.{o}', content(w, o, n))
        except rados.Error as e:
            errors.append(f'write of ack.{w}.{o}: {e}')
            return
        acked[w][o] = n
        counts[w] += 1
        n += 1


threads = [threading.Thread(target=writer, args=(w,)) for w in range(WRITERS)]
for t in threads:
    t.start()
probe = cluster.open_ioctx(pool)
interruptions = {}
for i in range(kills):
    time.sleep(0.2 + rng.random() * 0.6)
    f = rng.choice(sorted(glob.glob(f'{run_dir}/*.pid')))
    try:
        pid = int(open(f).read())
        os.kill(pid, signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError, ValueError):
        continue
    t = time.time()
    for k in range(32):
        probe.write_full(f'probe.{k}', b'x')
    took = time.time() - t
    interruptions.setdefault(os.path.basename(f).split('.')[0], []).append(took)
    print(f'kill {i + 1}: {os.path.basename(f)[:-4]}, back after {took:.2f} s', flush=True)
stop.set()
for t in threads:
    t.join()
if errors:
    sys.exit('\n'.join(errors))
io = cluster.open_ioctx(pool)
checked = 0
for w in range(WRITERS):
    for o, n in acked[w].items():
        got = io.read(f'ack.{w}.{o}', 1 << 20)
        allowed = {n, tried[w][o]}
        if not any(got == content(w, o, m) for m in allowed):
            sys.exit(f'ack.{w}.{o}: acknowledged write {n} is lost or changed (seed {seed})')
        checked += 1
total = sum(counts)
print(f'== {checked} objects hold what was acknowledged of {total} writes (seed {seed})')
for kind, all_of in sorted(interruptions.items()):
    all_of.sort()
    print(f'== {len(all_of)} kills of a {kind}: interruption min {all_of[0]:.2f}, median {all_of[len(all_of) // 2]:.2f}, '
          f'max {all_of[-1]:.2f} s')
cluster.shutdown()
