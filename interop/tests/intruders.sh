# Attempts with restricted keys, by Ceph's own library: objects of other pools, namespaces and names; changes and class
# methods within reads; lists; commands of monitor, manager and OSD. All must be refused, and permitted operations must
# work.
source "$(dirname "$0")/../lib.sh"
cluster_up --osd-size 1G --osds 1
ceph osd pool create test 4
ceph osd pool create other 4
key() { local who=$1; shift; ceph auth get-or-create "$who" "$@" >"$W/$who.keyring"; }
key client.ns mon 'allow r' osd 'allow rwx pool=test namespace=n'
key client.nswild mon 'allow r' osd 'allow rwx pool=test namespace=n*'
key client.prefix mon 'allow r' osd 'allow rw pool=test object_prefix ab'
key client.r mon 'allow r' osd 'allow r pool=test'
key client.w mon 'allow r' osd 'allow w pool=test'
key client.none mon 'allow r'
key client.rbd mon 'profile rbd' mgr 'profile rbd pool=test' osd 'profile rbd pool=test'
key client.cls mon 'allow r' osd 'allow class-read pool=test'
/usr/bin/python3 - "$W" <<'P'
import errno, json, os, rados, sys
W = sys.argv[1]
DENIED = {errno.EPERM, errno.EACCES}
bad, tried = [], 0

def sign_in(who):
    conf = {} if who == 'client.admin' else {'keyring': f'{W}/{who}.keyring'}
    c = rados.Rados(name=who, conffile=os.environ['CEPH_CONF'], conf=conf)
    c.connect(timeout=20)
    return c

def denied(what, f):
    global tried
    tried += 1
    try:
        got = f()
    except rados.Error as e:
        if abs(e.errno or 0) not in DENIED:
            bad.append((what, 'failed otherwise', repr(e)))
        return
    bad.append((what, 'came through', repr(got)[:100]))

def fine(what, f):
    global tried
    tried += 1
    try:
        return f()
    except rados.Error as e:
        bad.append((what, 'was refused', repr(e)))

def nothing_listed(what, ioctx):
    # The library ends a refused listing as if it were complete.
    global tried
    tried += 1
    found = [o.key for o in ioctx.list_objects()]
    if found:
        bad.append((what, 'lists', found))

def write_op(ioctx, name, f):
    with rados.WriteOpCtx() as w:
        f(w)
        ioctx.operate_write_op(w, name)

admin = sign_in('client.admin')
a = admin.open_ioctx('test')
for ns in ('', 'n', 'n2', 'z'):
    a.set_namespace(ns)
    for o in ('abc', 'x', 'locked'):
        a.write_full(o, b'secret of ' + ns.encode())

c = sign_in('client.ns')
i = c.open_ioctx('test')
denied('another namespace', lambda: i.read('abc'))
nothing_listed('another namespace', i)
i.set_namespace(rados.LIBRADOS_ALL_NSPACES)
nothing_listed('all namespaces', i)
i.set_namespace('n')
fine('its namespace', lambda: i.read('abc'))
assert {o.nspace for o in i.list_objects()} == {'n'}
denied('a snapshot of the pool', lambda: i.create_snap('s'))
denied('another pool', lambda: c.open_ioctx('other').read('x'))
i = sign_in('client.nswild').open_ioctx('test')
i.set_namespace(rados.LIBRADOS_ALL_NSPACES)
nothing_listed('all namespaces, of some', i)
i.set_namespace('n2')
fine('one of its namespaces', lambda: i.read('abc'))

i = sign_in('client.prefix').open_ioctx('test')
fine('a name of its own', lambda: i.read('abc'))
denied('another name', lambda: i.read('x'))
denied('another name removed', lambda: i.remove_object('x'))
nothing_listed('names', i)

i = sign_in('client.r').open_ioctx('test')
reader = i
for what, f in {
    'write': lambda: i.write('x', b'1'), 'write_full': lambda: i.write_full('x', b'1'), 'append': lambda: i.append('x', b'1'),
    'truncate': lambda: i.trunc('x', 0), 'remove': lambda: i.remove_object('x'), 'set an attribute': lambda: i.set_xattr('x', 'a', b'1'),
    'remove an attribute': lambda: i.rm_xattr('x', 'a'), 'a method that changes': lambda: i.execute('x', 'lock', 'lock', b''),
    'a method that reads': lambda: i.execute('x', 'lock', 'get_info', b''), 'a lock': lambda: i.lock_exclusive('x', 'l', 'c'),
    'omap': lambda: write_op(i, 'x', lambda w: i.set_omap(w, ('k',), (b'v',))), 'create': lambda: write_op(i, 'fresh', lambda w: w.new(0)),
    'a snapshot of its own': lambda: i.create_self_managed_snap(),
}.items():
    denied('reader: ' + what, f)
fine('reader: read', lambda: i.read('x'))
fine('reader: stat', lambda: i.stat('x'))

i = sign_in('client.w').open_ioctx('test')
for what, f in {'read': lambda: i.read('x'), 'stat': lambda: i.stat('x'), 'an attribute': lambda: i.get_xattr('x', 'a'),
                'a method within a write': lambda: write_op(i, 'x', lambda w: (w.append(b'x'), w.execute('lock', 'get_info', b'')))}.items():
    denied('writer: ' + what, f)
nothing_listed('writer', i)
fine('writer: write', lambda: i.write('w', b'1'))

i = sign_in('client.none').open_ioctx('test')
denied('nobody: read', lambda: i.read('x'))
denied('nobody: watch', lambda: i.watch('x', lambda *_: 0))
denied('nobody: notify', lambda: i.notify('x', 'm', 2000))
nothing_listed('nobody', i)
i = sign_in('client.cls').open_ioctx('test')
denied('class-read: read', lambda: i.read('x'))
denied('class-read: a method that changes', lambda: i.execute('locked', 'lock', 'lock', b''))

def command(c, cmd, target='mon'):
    text = json.dumps(cmd)
    if target == 'mon':
        r = c.mon_command(text, b'', timeout=10)
    elif target == 'mgr':
        r = c.mgr_command(text, b'', timeout=10)
    else:
        r = c.osd_command(target, text, b'', timeout=10)
    if r[0]:
        raise rados.OSError(r[2], errno=-r[0])
    return r[1]

def p(prefix, **more):
    return {'prefix': prefix, **more}

AT_MON = [
    p('osd pool rm', pool='other', pool2='other', yes_i_really_really_mean_it=True), p('osd pool set', pool='other', var='size', val='1'), p('osd down', ids=['0']),
    p('config set', who='osd', name='debug_osd', value='20'), p('config-key get', key='rbd/mirror/x'), p('auth get', entity='client.admin'),
    p('osd blocklist', blocklistop='add', addr='127.0.0.1'), p('osd blocklist clear'), p('osd pool application rm', pool='other', app='rbd'), p('log', logtext=['x']),
    p('fs authorize', filesystem='x', entity='client.y', caps=['/', 'rw']), p('osd new', uuid='8d2a4c1e-0000-4000-8000-00000000000f'),
    p('auth rotate', entity='client.admin'), p('mon add', name='z', addr='1.2.3.4'), p('osd setcrushmap'),
]
AT_MGR = [p('rbd task add flatten', image_spec='other/x'), p('pg dump'), p('osd df'), p('rbd perf image stats')]
AT_OSD = [p('config show'), p('get_command_descriptions'), p('perf dump')]
for who in ('client.rbd', 'client.r'):
    c = sign_in(who)
    for target, all_of in (('mon', AT_MON), ('mgr', AT_MGR), (0, AT_OSD)):
        for cmd in all_of:
            denied(f'{who} at {target}: {cmd}', lambda: command(c, cmd, target))
    assert command(c, p('osd stat'))
assert not bad, '\n'.join(map(str, bad))
print(f'== {tried} attempts, each ended as it should')
P
cluster_down
