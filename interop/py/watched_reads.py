#!/usr/bin/env python3
"""Reads watched objects from any member of their PGs for longer than a watch timeout, then writes them.

usage: watched_reads.py POOL (CEPH_CONF names the cluster)

The writes must be answered: a member that timed out a watch on its own would refuse them. The watchers must still be registered.
"""
import ctypes as c
import os
import sys
import time

lib = c.CDLL('librados.so.2')
V, S, U = c.c_void_p, c.c_char_p, c.c_uint64
# librados pings every five seconds.
TIMEOUT, OBJECTS, BALANCE, LOCALIZE = 8, 16, 1, 2


def call(name, *types, res=c.c_int):
    f = getattr(lib, name)
    f.argtypes, f.restype = types, res
    return f


def ok(rc, what):
    if rc < 0:
        sys.exit(f'{what}: {rc}')


cluster, io = V(), V()
ok(call('rados_create', V, S)(c.byref(cluster), None), 'create')
ok(call('rados_conf_read_file', V, S)(cluster, os.environ['CEPH_CONF'].encode()), 'configuration')
# An operation without an answer in time is an error.
ok(call('rados_conf_set', V, S, S)(cluster, b'rados_osd_op_timeout', b'20'), 'timeout')
ok(call('rados_connect', V)(cluster), 'connect')
ok(call('rados_ioctx_create', V, S, V)(cluster, sys.argv[1].encode(), c.byref(io)), 'pool')
write_full = call('rados_write_full', V, S, S, c.c_size_t)
told, lost = c.CFUNCTYPE(None, V, U, U, U, V, c.c_size_t), c.CFUNCTYPE(None, V, U, c.c_int)
ends, pings = [], []
ack = call('rados_notify_ack', V, S, U, U, S, c.c_int)
names = [f'watched.{os.getpid()}.{i}'.encode() for i in range(OBJECTS)]
handles, keep = [], []
for n, name in enumerate(names):
    ok(write_full(io, name, b'0', 1), 'write')

    def on_notify(arg, notify, handle, by, data, size, name=name):
        pings.append(name)
        ack(io, name, notify, handle, b'', 0)

    keep += [told(on_notify), lost(lambda arg, handle, rc, name=name: ends.append((name, rc)))]
    h = U()
    ok(call('rados_watch3', V, S, V, told, lost, c.c_uint32, V)(io, name, c.byref(h), keep[-2], keep[-1], TIMEOUT, None), 'watch')
    handles.append(h)

create_op, release = call('rados_create_read_op', res=V), call('rados_release_read_op', V, res=None)
stat, operate = call('rados_read_op_stat', V, V, V, V, res=None), call('rados_read_op_operate', V, V, S, c.c_int)
reads, end = 0, time.monotonic() + 2.5 * TIMEOUT
while time.monotonic() < end:
    for n, name in enumerate(names):
        op = create_op()
        stat(op, None, None, None)
        ok(operate(op, io, name, BALANCE if reads % 3 else LOCALIZE), 'read')
        release(op)
        reads += 1
    time.sleep(0.05)
for name in names:
    ok(write_full(io, name, b'1', 1), f'write of {name.decode()} after reads')
notify = call('rados_notify2', V, S, S, c.c_int, U, V, V)
for name in names:
    ok(notify(io, name, b'x', 1, 10_000, None, None), 'notify')
deadline = time.monotonic() + 10
while len(set(pings)) < OBJECTS and time.monotonic() < deadline:
    time.sleep(0.05)
if len(set(pings)) != OBJECTS or ends:
    sys.exit(f'{len(set(pings))} of {OBJECTS} watchers were told, {ends} ended')
for h in handles:
    ok(call('rados_unwatch2', V, U)(io, h), 'unwatch')
for name in names:
    ok(call('rados_remove', V, S)(io, name), 'remove')
print(f'== {reads} reads of {OBJECTS} watched objects from all members, then writes and notifies')
os._exit(0)
