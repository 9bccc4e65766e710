#!/usr/bin/env python3
"""Operations of applications through python-rados. usage: rados_check.py POOL (CEPH_CONF names the cluster)."""
import os
import sys

import rados

pool = sys.argv[1]
cluster = rados.Rados(conffile=os.environ['CEPH_CONF'])
cluster.connect()
io = cluster.open_ioctx(pool)

io.write_full('py', b'0123456789')
assert io.read('py') == b'0123456789'
io.write('py', b'AB', 3)
assert io.read('py') == b'012AB56789'
io.append('py', b'!')
assert io.stat('py')[0] == 11
io.trunc('py', 4)
assert io.read('py') == b'012A'
io.set_xattr('py', 'a', b'1')
assert dict(io.get_xattrs('py')) == {'a': b'1'}

with rados.WriteOpCtx() as op:
    op.new(0)
    io.set_omap(op, ('k1', 'k2', 'k3'), (b'v1', b'v2', b'v3'))
    io.operate_write_op(op, 'py')
with rados.ReadOpCtx() as op:
    it, _ = io.get_omap_vals(op, 'k1', '', 10)
    io.operate_read_op(op, 'py')
    assert list(it) == [('k2', b'v2'), ('k3', b'v3')]

io.set_namespace('other')
assert [o.key for o in io.list_objects()] == []
io.write_full('ns', b'x')
assert [o.key for o in io.list_objects()] == ['ns']
io.set_namespace('')

for n in range(200):
    io.write_full(f'obj{n}', str(n).encode())
names = {o.key for o in io.list_objects()}
assert {f'obj{n}' for n in range(200)} <= names
done = [io.aio_read(f'obj{n}', 100, 0, None) for n in range(200)]
for n, c in enumerate(done):
    c.wait_for_complete()
    assert c.get_return_value() == len(str(n))

seen = []
watch = io.watch('py', lambda notify_id, notifier, watch_id, data: seen.append(data))
io.notify('py', 'ping')
assert seen == [b'ping'], seen
watch.close()

io.lock_exclusive('py', 'lock', 'cookie', 'test', 30, 0)
try:
    io.lock_exclusive('py', 'lock', 'other', 'test', 30, 0)
    raise AssertionError('a held lock was given out')
except rados.ObjectBusy:
    pass
io.unlock('py', 'lock', 'cookie')

try:
    io.read('absent')
    raise AssertionError('an absent object was read')
except rados.ObjectNotFound:
    pass
try:
    io.write_full('x' * 2049, b'')
    raise AssertionError('a name beyond the limit was taken')
except rados.Error as e:
    assert e.errno == 36, e
for o in list(io.list_objects()):
    if o.key.startswith('obj'):
        io.remove_object(o.key)
io.close()
cluster.shutdown()
print('ok')
