#!/usr/bin/env python3
"""Random test of snapshots through librados: every answer and its user version must equal those of a model.

usage: snap_model.py POOL MODE STEPS [SEED]

MODE is `self` (self-managed snapshots) or `pool` (pool snapshots). One client works on few objects: writes of several kinds, removals,
snapshots made and removed, rollback, `copy_from` of heads and snapshots, reads at the head and at snapshots (also balanced and
localised ones), `assert_version` on reads and writes, `list_snaps`. CEPH_CONF names the cluster. The model was made by running it against
Ceph 16.2. Prints a line of figures; exit status 1 means a difference, described with its seed and step.
"""
import ctypes as c
import errno
import os
import random
import sys
import time

POOL, MODE, STEPS = sys.argv[1].encode(), sys.argv[2], int(sys.argv[3])
SEED = int(sys.argv[4]) if len(sys.argv) > 4 else random.SystemRandom().randrange(1 << 31)
OBJECTS = [f'snap.{SEED}.{os.getpid()}.{i}'.encode() for i in range(6)]
SNAPS_MAX = 6
HEAD, SNAPDIR = (1 << 64) - 2, (1 << 64) - 1
BALANCE, LOCALIZE = 1, 2
SIZE = 40_000

lib = c.CDLL('librados.so.2')
V, S, U, I = c.c_void_p, c.c_char_p, c.c_uint64, c.c_int


def call(name, *types, res=c.c_int):
    f = getattr(lib, name)
    f.argtypes, f.restype = types, res
    return f


create_write_op = call('rados_create_write_op', res=V)
release_write_op = call('rados_release_write_op', V, res=None)
create_read_op = call('rados_create_read_op', res=V)
release_read_op = call('rados_release_read_op', V, res=None)
w_operate = call('rados_write_op_operate', V, V, S, V, I)
r_operate = call('rados_read_op_operate', V, V, S, I)
w_assert = call('rados_write_op_assert_version', V, U, res=None)
r_assert = call('rados_read_op_assert_version', V, U, res=None)
w_write = call('rados_write_op_write', V, S, c.c_size_t, U, res=None)
w_full = call('rados_write_op_write_full', V, S, c.c_size_t, res=None)
w_append = call('rados_write_op_append', V, S, c.c_size_t, res=None)
w_trunc = call('rados_write_op_truncate', V, U, res=None)
w_zero = call('rados_write_op_zero', V, U, U, res=None)
w_setxattr = call('rados_write_op_setxattr', V, S, S, c.c_size_t, res=None)
w_create = call('rados_write_op_create', V, I, S, res=None)
w_remove = call('rados_write_op_remove', V, res=None)
r_read = call('rados_read_op_read', V, U, c.c_size_t, V, V, V, res=None)
r_stat = call('rados_read_op_stat', V, V, V, V, res=None)
getxattr = call('rados_getxattr', V, S, S, V, c.c_size_t)
last_version = call('rados_get_last_version', V, res=U)
set_read = call('rados_ioctx_snap_set_read', V, U, res=None)
self_create = call('rados_ioctx_selfmanaged_snap_create', V, V)
self_remove = call('rados_ioctx_selfmanaged_snap_remove', V, U)
self_context = call('rados_ioctx_selfmanaged_snap_set_write_ctx', V, U, V, I)
self_rollback = call('rados_ioctx_selfmanaged_snap_rollback', V, S, U)
pool_create = call('rados_ioctx_snap_create', V, S)
pool_remove = call('rados_ioctx_snap_remove', V, S)
pool_lookup = call('rados_ioctx_snap_lookup', V, S, V)
pool_rollback = call('rados_ioctx_snap_rollback', V, S, S)
# Functions of the C++ interface only; their classes consist of a pointer or two.
N, STR = '_ZN8librados7v14_2_0', 'NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE'
op_init = call(N + '15ObjectOperationC2Ev', V, res=None)
op_copy = call(N + '20ObjectWriteOperation9copy_fromERK' + STR + 'RKNS0_5IoCtxEmj', V, V, V, U, c.c_uint32, res=None)
io_from = call(N + '5IoCtx18from_rados_ioctx_tEPvRS1_', V, V, res=None)
io_operate = call(N + '5IoCtx7operateERK' + STR + 'PNS0_20ObjectWriteOperationE', V, V, V)
io_snaps = call(N + '5IoCtx10list_snapsERK' + STR + 'PNS_10snap_set_tE', V, V, V)


class Str(c.Structure):
    _fields_ = [('p', S), ('n', c.c_size_t), ('cap', c.c_size_t), ('rest', c.c_size_t)]


class Vec(c.Structure):
    _fields_ = [('begin', c.c_size_t), ('end', c.c_size_t), ('cap', c.c_size_t)]


class Clone(c.Structure):
    _fields_ = [('id', U), ('snaps', Vec), ('overlap', Vec), ('size', U)]


class SnapSet(c.Structure):
    _fields_ = [('clones', Vec), ('seq', U)]


def text(b):
    return c.byref(Str(b, len(b), len(b), 0))


def items(vec, kind):
    n = (vec.end - vec.begin) // c.sizeof(kind)
    return (kind * n).from_address(vec.begin) if n else []


step, what = 0, ''


def check(got, want, of):
    if got != want:
        short = [x if len(repr(x)) < 200 else repr(x)[:200] + '…' for x in (got, want)]
        print(f'seed {SEED} step {step} ({what}): {of}: got {short[0]}, expected {short[1]}', file=sys.stderr)
        os._exit(1)


def ok(rc, of='result'):
    check(rc, 0, of)


cluster, io, source = V(), V(), V()
ok(call('rados_create', V, S)(c.byref(cluster), None))
ok(call('rados_conf_read_file', V, S)(cluster, os.environ['CEPH_CONF'].encode()))
ok(call('rados_connect', V)(cluster))
for x in (io, source):
    ok(call('rados_ioctx_create', V, S, V)(cluster, POOL, c.byref(x)))
cxx, cxx_source = (V * 1)(), (V * 1)()
io_from(io, cxx)
io_from(source, cxx_source)


class Object:
    """State of an object; `version` is the user version in replies to its reads."""

    def __init__(self, data=b'', attr=None, version=0):
        self.data, self.attr, self.version = data, attr, version

    def copy(self):
        return Object(self.data, self.attr, self.version)


rng = random.Random(SEED)
head = {}       # name -> Object
clones = {}     # name -> [[newest snapshot, snapshots, Object]], oldest first
seq_of = {}     # name -> newest snapshot in the context of its last change
snaps = []      # (id, name), oldest first
seq = 0
figures = {k: 0 for k in ('writes', 'reads', 'at snapshots', 'elsewhere', 'rollbacks', 'copies', 'asserts', 'lists')}


def at(name, snap):
    """The object at a snapshot, if it existed."""
    for newest, of, o in clones.get(name, []):
        if newest >= snap:
            return o if snap in of else None
    return head.get(name) if snap > seq_of.get(name, 0) else None


def changes(name):
    """Before a change: the object becomes a clone if there are snapshots newer than its last change."""
    known = seq_of.get(name, 0)
    if seq > known:
        new = [s for s, _ in snaps if s > known]
        if name in head and new:
            clones.setdefault(name, []).append([seq, new, head[name].copy()])
        seq_of[name] = seq


def data(n):
    return bytes([rng.randrange(1, 256)]) * n


def write(name, build, apply, assert_version=None):
    """A change by a vector; `apply` changes a copy of the object, or returns an errno."""
    op = create_write_op()
    have = head.get(name)
    want = 0
    if assert_version is not None:
        figures['asserts'] += 1
        w_assert(op, assert_version)
        v = have.version
        want = -errno.ERANGE if assert_version < v else -errno.EOVERFLOW if assert_version > v else 0
    build(op)
    after = have.copy() if have else None
    if want == 0:
        want, after = apply(after)
    rc = w_operate(op, io, name, None, 0)
    version = last_version(io)
    release_write_op(op)
    check(rc, want, 'result')
    figures['writes'] += 1
    if rc < 0:
        return
    if have is None and after is None:
        return
    changes(name)
    if after is None:
        del head[name]
        return
    if have:
        check(version > have.version, True, f'version {version} of the write, after {have.version}')
    after.version = version
    head[name] = after


def random_write(name):
    kind = rng.randrange(8)
    off, n = rng.randrange(SIZE), rng.randrange(1, 6000)
    b = data(n)

    def put(o, d):
        o = o or Object()
        o.data = d
        return 0, o

    def old(o):
        return o.data if o else b''

    def over(o):
        d = old(o).ljust(off, b'\0')
        return put(o, d[:off] + b + d[off + n:])

    def attr(o):
        o = o or Object()
        o.attr = b[:40]
        return 0, o

    def exclusive(o):
        return (-errno.EEXIST, o) if o else (0, Object())

    def remove(o):
        return (0, None) if o else (-errno.ENOENT, None)

    # A vector changes the object if it writes; truncating or zeroing an existing object always does here.
    builds = [
        (lambda op: w_write(op, b, n, off), over),
        (lambda op: w_full(op, b, n), lambda o: put(o, b)),
        (lambda op: w_append(op, b, n), lambda o: put(o, old(o) + b)),
        (lambda op: (w_write(op, b, n, 0), w_trunc(op, n // 2)), lambda o: put(o, b[:n // 2])),
        (lambda op: w_setxattr(op, b'a', b[:40], len(b[:40])), attr),
        (lambda op: w_create(op, 1, None), exclusive),
        (lambda op: w_remove(op), remove),
        (lambda op: (w_append(op, b, n), w_setxattr(op, b'a', b[:40], len(b[:40]))), lambda o: attr(put(o, old(o) + b)[1])),
    ]
    build, apply = builds[kind]
    v = None
    # The comparison with an absent object depends on earlier operations.
    if rng.random() < 0.2 and name in head:
        # Zero is not a version.
        v = max(1, head[name].version + rng.choice([-1, 0, 0, 0, 1]))
    write(name, build, apply, v)


def read(name, snap, flags=0, assert_version=None):
    want = head.get(name) if snap is None else at(name, snap)
    set_read(io, HEAD if snap is None else snap)
    op = create_read_op()
    expect = 0 if want else -errno.ENOENT
    if assert_version is not None and want:
        figures['asserts'] += 1
        r_assert(op, assert_version)
        if assert_version != want.version:
            expect = -errno.ERANGE if assert_version < want.version else -errno.EOVERFLOW
    buf, n, rv, size = c.create_string_buffer(4 * SIZE), c.c_size_t(), c.c_int(), U()
    r_read(op, 0, len(buf), buf, c.byref(n), c.byref(rv))
    r_stat(op, c.byref(size), None, None)
    rc = r_operate(op, io, name, flags)
    version = last_version(io)
    release_read_op(op)
    check(rc, expect, 'result of a read')
    figures['reads'] += 1
    figures['at snapshots'] += snap is not None
    figures['elsewhere'] += flags != 0
    if rc == 0:
        check(buf.raw[:n.value], want.data, 'data')
        check(size.value, len(want.data), 'size')
        check(version, want.version, 'version of a read')
        got = getxattr(io, name, b'a', buf, 100)
        check(buf.raw[:got] if got >= 0 else got, want.attr if want.attr is not None else -errno.ENODATA, 'attribute')
    set_read(io, HEAD)


def random_read(name):
    snap = rng.choice(snaps)[0] if snaps and rng.random() < 0.6 else None
    o = head.get(name) if snap is None else at(name, snap)
    v = max(1, o.version + rng.choice([-1, 0, 0, 1])) if o and rng.random() < 0.3 else None
    read(name, snap, rng.choice([0, 0, BALANCE, LOCALIZE]), v)


def make_snapshot():
    global seq
    if MODE == 'self':
        s = U()
        ok(self_create(io, c.byref(s)), 'making a snapshot')
        check(s.value > seq, True, f'snapshot {s.value} after {seq}')
        snaps.append((s.value, None))
        seq = s.value
        context()
    else:
        name = f's{SEED}.{os.getpid()}.{step}'.encode()
        ok(pool_create(io, name), 'making a snapshot')
        s = U()
        ok(pool_lookup(io, name, c.byref(s)), 'looking a snapshot up')
        snaps.append((s.value, name))
        seq = s.value


def context():
    newest_first = [s for s, _ in reversed(snaps)]
    ok(self_context(io, seq, (U * len(newest_first))(*newest_first), len(newest_first)), 'setting the context')


def remove_snapshot():
    global seq
    s, name = snaps.pop(rng.randrange(len(snaps)))
    if MODE == 'self':
        ok(self_remove(io, s), 'removing a snapshot')
        context()
    else:
        ok(pool_remove(io, name), 'removing a snapshot')
        # The pool counts this snapshot, too.
        seq += 1
    for of in clones.values():
        for x in of:
            x[1] = [y for y in x[1] if y != s]


def rollback(name):
    s, label = rng.choice(snaps)
    o = at(name, s)
    have = head.get(name)
    rc = self_rollback(io, name, s) if MODE == 'self' else pool_rollback(io, name, label)
    figures['rollbacks'] += 1
    check(rc, 0, 'result of a rollback')
    if o is None:
        if have:
            changes(name)
            del head[name]
        return
    changes(name)
    head[name] = o.copy()
    # librados does not return the version here.
    op = create_read_op()
    r_stat(op, None, None, None)
    ok(r_operate(op, io, name, 0))
    release_read_op(op)
    version = last_version(io)
    old = have.version if have else o.version
    check(version > old, True, f'version {version} after a rollback, {old} before')
    head[name].version = version


def copy_from(name):
    src = rng.choice([x for x in OBJECTS if x != name])
    snap = rng.choice(snaps)[0] if snaps and rng.random() < 0.5 else None
    o = head.get(src) if snap is None else at(src, snap)
    set_read(source, HEAD if snap is None else snap)
    op = (V * 8)()
    op_init(op)
    v = o.version if o and rng.random() < 0.5 else 0
    op_copy(op, text(src), cxx_source, v, 0)
    rc = io_operate(cxx, text(name), op)
    version = last_version(io)
    figures['copies'] += 1
    check(rc, 0 if o else -errno.ENOENT, 'result of copy_from')
    if not o:
        return
    changes(name)
    head[name] = o.copy()
    # The copy gets the version of its source.
    check(version, o.version, 'version of copy_from')


def list_snaps(name):
    set_read(io, SNAPDIR)
    got = SnapSet()
    rc = io_snaps(cxx, text(name), c.byref(got))
    set_read(io, HEAD)
    figures['lists'] += 1
    alive = {s for s, _ in snaps}
    there = [x for x in clones.get(name, []) if x[1]]
    if rc == -errno.ENOENT:
        check((there, name in head), ([], False), 'nothing to list')
        return
    ok(rc, 'result of list_snaps')
    # Objects that are being trimmed may still exist.
    shown = [(sorted(set(items(k.snaps, U)) & alive), k.size) for k in items(got.clones, Clone) if k.id != HEAD]
    check([x for x in shown if x[0]], [(sorted(x[1]), len(x[2].data)) for x in there], 'clones')
    heads = [k.size for k in items(got.clones, Clone) if k.id == HEAD]
    check(heads, [len(head[name].data)] if name in head else [], 'the head in the list')


def all_reads():
    for name in OBJECTS:
        for snap in [None] + [s for s, _ in snaps]:
            read(name, snap, rng.choice([0, BALANCE, LOCALIZE]))
        list_snaps(name)


began = time.monotonic()
for step in range(1, STEPS + 1):
    name = rng.choice(OBJECTS)
    x = rng.random()
    if x < 0.06 and len(snaps) < SNAPS_MAX:
        what = 'make a snapshot'
        make_snapshot()
    elif x < 0.09 and len(snaps) > 1:
        what = 'remove a snapshot'
        remove_snapshot()
    elif x < 0.14 and snaps:
        what = f'roll {name.decode()} back'
        rollback(name)
    elif x < 0.20:
        what = f'copy to {name.decode()}'
        copy_from(name)
    elif x < 0.24:
        what = f'list snapshots of {name.decode()}'
        list_snaps(name)
    elif x < 0.55:
        what = f'read {name.decode()}'
        random_read(name)
    else:
        what = f'write {name.decode()}'
        random_write(name)
    if step % 200 == 0:
        what = 'read all'
        all_reads()
what = 'read all'
all_reads()
for name in OBJECTS:
    if name in head:
        call('rados_remove', V, S)(io, name)
while snaps:
    remove_snapshot()
print(f'== snapshots, {MODE}: {STEPS} steps from seed {SEED} in {time.monotonic() - began:.1f} s: '
      + ', '.join(f'{v} {k}' for k, v in figures.items()))
os._exit(0)
