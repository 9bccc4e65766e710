#!/usr/bin/env python3
"""Permitted and refused operations on an erasure-coded pool, before and after it allows overwrites.

usage: coded_check.py POOL append|overwrite WIDTH
"""
import errno
import os
import sys

import rados

pool, mode, width = sys.argv[1], sys.argv[2], int(sys.argv[3])
cluster = rados.Rados(conffile=os.environ['CEPH_CONF'])
cluster.connect()
io = cluster.open_ioctx(pool)


def refused(what, call, code=errno.EOPNOTSUPP):
    try:
        call()
    except rados.Error as e:
        assert e.errno in (code, -code), f'{what}: {e}'
    else:
        sys.exit(f'{what}: allowed')


def omap(write):
    with rados.WriteOpCtx() as op:
        write(op)
        io.operate_write_op(op, 'o')


data = os.urandom(3 * width + 1000)
io.write_full('o', data)
assert io.read('o', 4 * width) == data
io.set_xattr('o', 'colour', b'blue')
assert io.get_xattr('o', 'colour') == b'blue' and [k for k, _ in io.get_xattrs('o')] == ['colour']
refused('omap', lambda: omap(lambda op: io.set_omap(op, ('k',), (b'v',))))
with rados.ReadOpCtx() as op:
    it, _ = io.get_omap_vals(op, '', '', 10)
    io.operate_read_op(op, 'o')
    assert list(it) == [], 'an object of a coded pool has no omap'

if mode == 'append':
    # Each write must append a whole number of stripes.
    refused('overwrite', lambda: io.write('o', b'x' * width, 0))
    refused('unaligned', lambda: io.write('o', b'x' * 10, len(data)))
    refused('truncate', lambda: io.trunc('o', width))
    io.write('a', data[:width], 0)
    io.write('a', data[width:], width)
    assert io.read('a', 4 * width) == data
    refused('after an odd end', lambda: io.append('a', b'x'))
    io.write_full('a', b'short')
    assert io.read('a', 100) == b'short'
else:
    want = bytearray(data)
    for at, n in [(0, 10), (width - 5, 10), (4096, 4096), (width, width), (2 * width + 77, 3000), (len(data), 5000), (9 * width, 1)]:
        b = os.urandom(n)
        io.write('o', b, at)
        want[len(want):] = bytes(max(0, at - len(want)))
        want[at:at + n] = b
        assert io.read('o', 1 << 24) == bytes(want), f'after {n} bytes at {at}'
    io.append('o', b'tail')
    want += b'tail'
    snap = bytes(want)
    # Self-managed snapshots: images cannot use a pool with pool snapshots.
    id = io.create_self_managed_snap()
    io.set_self_managed_snap_write([id])
    for size in (8 * width, 100, 2 * width + 1):
        io.trunc('o', size)
        del want[size:]
        want += bytes(size - len(want))
        assert io.read('o', 1 << 24) == bytes(want), f'truncated to {size}'
    io.set_read(id)
    assert io.read('o', 1 << 24) == snap, 'the snapshot'
    io.set_read(rados.LIBRADOS_SNAP_HEAD)
    io.rollback_self_managed_snap('o', id)
    assert io.read('o', 1 << 24) == snap, 'rolled back'
    io.remove_self_managed_snap(id)
cluster.shutdown()
print(f'{pool}: {mode} as expected')
