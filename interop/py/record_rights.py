#!/usr/bin/env python3
"""Records what restricted keys may do on a running Ceph cluster: every command of monitor, manager, OSD and MDS.

usage: record_rights.py CEPH_CONF OUT_DIR [KIND...]    CEPH_CONF names the cluster and a keyring with client.admin and
osd.0; MON and MGR in the environment name the daemons (a, x). KEYS=profiles takes keys of all profiles instead. KIND: all of those below that the cluster has.

Each command that the daemons describe (`get_command_descriptions`) is sent by each key of KEYS with arguments that fit
its signature and name nothing that exists; those of CASES besides, whose arguments decide. All daemons check caps before
they look at what a command is to do, so a command that fails afterwards was allowed. Written are OUT_DIR/KIND-RELEASE.json
with KIND one of mon, mgr, osd, mds (what `ceph` sends as commands), mon-tell, mgr-tell (`ceph tell`), and osd-objects (what
profiles let clients do with objects): for each row its
daemon's answer to each key, "refused" (EACCES) or "allowed" (any other answer). A key
that can't reach a daemon at all is listed as "unreachable". The files go to vectors/rights.

The cluster must be disposable: an OSD's key can actually pause it, and pauses are undone only at the end.
"""
import errno
import json
import multiprocessing
import os
import subprocess
import sys

import rados

CONF, OUT = sys.argv[1], sys.argv[2]
MON, MGR = os.environ.get('MON', 'a'), os.environ.get('MGR', 'x')
UUID = '8d2a4c1e-0000-4000-8000-00000000000f'

# Name of a column: entity, and the caps it is created with (None: an existing entity).
KEYS = {
    'no-caps': ('client.m_none', {}),
    'no-grants': ('client.m_nothing', {'mon': 'allow command nosuch'}),
    'read-only': ('client.m_ro', {'mon': 'allow r'}),
    'reader': ('client.m_reader', {'mon': 'allow r', 'mgr': 'allow r', 'osd': 'allow r', 'mds': 'allow r'}),
    'profile-rbd': ('client.m_rbd', {'mon': 'profile rbd', 'mgr': 'profile rbd', 'osd': 'profile rbd'}),
    'bootstrap-osd': ('client.bootstrap-osd', {'mon': 'allow profile bootstrap-osd'}),
    'bootstrap-mds': ('client.bootstrap-mds', {'mon': 'allow profile bootstrap-mds'}),
    'bootstrap-rgw': ('client.bootstrap-rgw', {'mon': 'allow profile bootstrap-rgw'}),
    'bootstrap-mgr': ('client.bootstrap-mgr', {'mon': 'allow profile bootstrap-mgr'}),
    'bootstrap-rbd': ('client.bootstrap-rbd', {'mon': 'allow profile bootstrap-rbd'}),
    'bootstrap-rbd-mirror': ('client.bootstrap-rbd-mirror', {'mon': 'allow profile bootstrap-rbd-mirror'}),
    'osd-key': ('osd.0', None),
}
# Profiles of clients and daemons at the monitor and the manager, recorded separately (KEYS=profiles).
PROFILES = ('read-only', 'read-write', 'mon', 'mds', 'mgr', 'crash', 'fs-client', 'simple-rados-client', 'simple-rados-client-with-blocklist',
            'rbd', 'rbd-read-only', 'rbd-mirror', 'rbd-mirror-peer', 'cephfs-mirror', 'role-definer', 'ceph-exporter', 'nosuch')
WHICH = os.environ.get('KEYS', '')
if WHICH == 'profiles':
    KEYS = {f'profile {p}': (f'client.p_{p}', {'mon': f'profile {p}, allow command nosuch'}) for p in PROFILES}
    for p in ('crash', 'rbd', 'rbd-read-only', 'read-only', 'read-write'):
        KEYS[f'profile {p}'][1]['mgr'] = f'profile {p}'


def auth_cases():
    """Commands that create keys: those that each bootstrap key permits, and slight variations."""
    kinds = {
        'osd': ('osd.71', ['mon', 'allow profile osd', 'osd', 'allow *']),
        'osd-client': ('client.osd71', ['mon', 'allow profile osd']),
        'mds': ('mds.m71', ['mon', 'allow profile mds', 'osd', 'allow rwx', 'mds', 'allow']),
        'mds-no-osd': ('mds.m72', ['mon', 'allow profile mds', 'mds', 'allow']),
        'mds-osd-all': ('mds.m73', ['mon', 'allow profile mds', 'osd', 'allow *', 'mds', 'allow']),
        'mgr': ('mgr.m71', ['mon', 'allow profile mgr', 'osd', 'allow *', 'mds', 'allow *']),
        'mgr-mon': ('mgr.m72', ['mon', 'allow profile mgr']),
        'rgw': ('client.rgw.m71', ['mon', 'allow rw', 'osd', 'allow rwx']),
        'rgw-mgr': ('client.rgw.m72', ['mon', 'allow rw', 'osd', 'allow rwx', 'mgr', 'allow rw']),
        'rgw-all': ('client.rgw.m73', ['mon', 'allow *', 'osd', 'allow *']),
        'rbd': ('client.m71', ['mon', 'profile rbd', 'osd', 'profile rbd pool=x']),
        'rbd-mgr': ('client.m72', ['mon', 'profile rbd', 'mgr', 'profile rbd', 'osd', 'profile rbd pool=x']),
        'rbd-no-osd': ('client.m73', ['mon', 'profile rbd']),
        'rbd-osd-all': ('client.m74', ['mon', 'profile rbd', 'osd', 'allow *']),
        'rbd-mirror': ('client.rbd-mirror.m71', ['mon', 'profile rbd-mirror', 'osd', 'profile rbd']),
        'rbd-mirror-peer': ('client.rbd-mirror-peer.m71', ['mon', 'profile rbd-mirror-peer', 'osd', 'profile rbd']),
        'all': ('client.m75', ['mon', 'allow *', 'osd', 'allow *', 'mgr', 'allow *', 'mds', 'allow *']),
        'admin': ('client.admin', ['mon', 'allow *', 'osd', 'allow *', 'mgr', 'allow *', 'mds', 'allow *']),
        'none': ('client.m76', []),
    }
    for name, (entity, caps) in kinds.items():
        for prefix in ('auth get-or-create', 'auth add'):
            yield f'{prefix} #{name}', {'prefix': prefix, 'entity': entity, 'caps': caps}
    for name in ('osd', 'rbd', 'rgw'):
        entity, caps = kinds[name]
        yield f'auth get-or-create-key #{name}', {'prefix': 'auth get-or-create-key', 'entity': entity, 'caps': caps}
    for name in ('client.admin', 'client.m_none', 'osd.0', 'mon.', 'client.bootstrap-osd', 'client.rgw.x', 'mds.x', 'mgr.x'):
        for prefix in ('auth get', 'auth print-key', 'auth rm'):
            entity = name if prefix != 'auth rm' else name.replace('admin', 'gone').replace('m_none', 'gone') \
                .replace('osd.0', 'osd.99').replace('bootstrap-osd', 'gone2').replace('mgr.x', 'mgr.gone')
            yield f'{prefix} #{name}', {'prefix': prefix, 'entity': entity}


CASES = dict(auth_cases())
CASES.update({
    'config-key get #rbd/': {'prefix': 'config-key get', 'key': 'rbd/x'},
    'config-key get #mgr/': {'prefix': 'config-key get', 'key': 'mgr/x'},
    'config-key get #dm-crypt': {'prefix': 'config-key get', 'key': f'dm-crypt/osd/{UUID}/luks'},
    'config-key exists #dm-crypt': {'prefix': 'config-key exists', 'key': f'dm-crypt/osd/{UUID}/luks'},
    'config-key set #dm-crypt': {'prefix': 'config-key set', 'key': f'dm-crypt/osd/{UUID}/luks', 'val': 'x'},
    'config-key set #daemon-private/osd.0': {'prefix': 'config-key set', 'key': 'daemon-private/osd.0/x', 'val': 'x'},
    'config-key set #daemon-private/osd.1': {'prefix': 'config-key set', 'key': 'daemon-private/osd.1/x', 'val': 'x'},
    'config-key get #daemon-private/osd.0': {'prefix': 'config-key get', 'key': 'daemon-private/osd.0/x'},
    'config-key get #daemon-private/osd.1': {'prefix': 'config-key get', 'key': 'daemon-private/osd.1/x'},
    'config-key get #rbd/mirror/': {'prefix': 'config-key get', 'key': 'rbd/mirror/x'},
    'config-key get #rbd/mirror/peer/': {'prefix': 'config-key get', 'key': 'rbd/mirror/peer/2/x'},
    'config-key set #rbd/mirror/peer/': {'prefix': 'config-key set', 'key': 'rbd/mirror/peer/2/x', 'val': 'x'},
    'config-key set #rbd/mirror/': {'prefix': 'config-key set', 'key': 'rbd/mirror/x', 'val': 'x'},
    'config-key get #cephfs/mirror/peer/': {'prefix': 'config-key get', 'key': 'cephfs/mirror/peer/2/x'},
    'config-key set #cephfs/mirror/peer/': {'prefix': 'config-key set', 'key': 'cephfs/mirror/peer/2/x', 'val': 'x'},
    'config-key get #daemon-private of a client': {'prefix': 'config-key get', 'key': 'daemon-private/client.p_mds/x'},
    'config-key set #daemon-private of a client': {'prefix': 'config-key set', 'key': 'daemon-private/client.p_mgr/x', 'val': 'x'},
    'osd blocklist #add': {'prefix': 'osd blocklist', 'blocklistop': 'add', 'addr': '192.0.2.1:0/9'},
    'osd blocklist #add range': {'prefix': 'osd blocklist', 'range': 'range', 'blocklistop': 'add', 'addr': '192.0.2.0/24'},
    'osd blocklist #rm': {'prefix': 'osd blocklist', 'blocklistop': 'rm', 'addr': '192.0.2.1:0/9'},
    'osd blacklist #add': {'prefix': 'osd blacklist', 'blacklistop': 'add', 'addr': '192.0.2.1:0/9'},
    'osd new #secrets': {'prefix': 'osd new', 'uuid': UUID},
    'osd crush set-device-class #own': {'prefix': 'osd crush set-device-class', 'class': 'hdd', 'ids': ['0']},
    'osd crush create-or-move #own': {'prefix': 'osd crush create-or-move', 'id': 0, 'weight': 1.0, 'args': ['host=node0', 'root=default']},
    'osd crush create-or-move #other': {'prefix': 'osd crush create-or-move', 'id': 1, 'weight': 1.0, 'args': ['host=node1', 'root=default']},
    'osd pool create #bootstrap-rgw': {'prefix': 'osd pool create', 'pool': 'x.rgw.nosuch', 'pool_type': 'nonsense'},
    'config get #own': {'prefix': 'config get', 'who': 'osd.0'},
    'config generate-minimal-conf #': {'prefix': 'config generate-minimal-conf'},
})
# Arguments of single commands for which generated ones would do harm or never return.
FIXED = {
    'osd set': {'key': 'nosuchflag'}, 'osd unset': {'key': 'nosuchflag'},
    'osd down': {'ids': ['99']}, 'osd out': {'ids': ['99']}, 'osd in': {'ids': ['99']}, 'osd stop': {'ids': ['99']},
    'osd set-group': {'flags': 'nosuch', 'who': ['osd.99']}, 'osd unset-group': {'flags': 'nosuch', 'who': ['osd.99']},
    'mgr fail': {'who': 'nosuch'}, 'osd reweight-by-utilization': {'oload': 1}, 'osd reweight-by-pg': {'oload': 1},
}
# Commands that are sent only if they will be refused: they stop a daemon, or never answer.
NEVER = {'injectfull', 'bench', 'cluster_log', 'exit', 'respawn', 'damage ls', 'scrub start', 'flush journal', 'heap', 'abort', 'assert'}
# For profiles: one command of each kind of permission, and the cases above. All rows with many profiles would take
# hours.
SAMPLE = {
    'mon dump', 'mon getmap', 'mon metadata', 'mon scrub', 'quorum_status', 'status', 'health', 'df', 'osd dump', 'osd tree', 'osd set', 'osd pool create',
    'osd pool rm', 'osd pool rmsnap', 'osd new', 'osd purge-new', 'osd blocklist', 'osd blacklist', 'osd out', 'osd crush tree', 'pg dump_stuck', 'pg map', 'auth ls', 'auth get',
    'auth add', 'auth get-or-create', 'auth caps', 'auth rm', 'auth rotate', 'config dump', 'config get', 'config set', 'config-key ls', 'config-key get',
    'config-key set', 'config-key rm', 'config-key exists', 'log', 'log last', 'fs ls', 'fs dump', 'fs set', 'mds stat', 'mds fail', 'mds compat show', 'mgr dump', 'mgr fail',
    'mgr module ls', 'mgr module enable', 'nvme-gw show', 'get_command_descriptions', 'nosuch command', 'versions', 'features', 'node ls', 'service dump', 'telemetry show',
}
if WHICH == 'profiles':
    # These commands would end the quorum of a single monitor.
    NEVER |= {'mon add', 'mon rm', 'mon remove', 'mon set-addrs', 'mon set-rank', 'mon enable_stretch_mode', 'quorum enter', 'quorum exit'}


def value(a):
    """A value for an argument of a command description."""
    kind = a.get('type')
    if kind == 'CephInt':
        low = a.get('range', '0').split('|')[0]
        v = int(low or 0)
    elif kind == 'CephFloat':
        v = float(a.get('range', '0.5').split('|')[0] or 0)
    elif kind == 'CephBool':
        v = False
    elif kind == 'CephChoices':
        v = a.get('strings', 'x').split('|')[0]
    elif kind == 'CephPoolname':
        v = 'nosuchpool'
    elif kind == 'CephPgid':
        v = '99.0'
    elif kind == 'CephOsdName':
        v = 99
    elif kind == 'CephUUID':
        v = UUID
    elif kind in ('CephEntityAddr', 'CephIPAddr'):
        v = '192.0.2.9:0/9'
    elif kind == 'CephName':
        v = 'osd.99'
    else:
        v = 'nosuch'
    return [v] if a.get('n') == 'N' else v


def rows(described):
    """(row, command) of the descriptions; each signature of a prefix is a row."""
    seen = {}
    for c in described.values():
        prefix = ' '.join(w for w in c['sig'] if isinstance(w, str))
        args = [w for w in c['sig'] if isinstance(w, dict)]
        cmd = {'prefix': prefix}
        for a in args:
            if a.get('req', True) in (True, 'true', 'True', ''):
                cmd[a['name']] = value(a)
        cmd.update(FIXED.get(prefix, {}))
        seen.setdefault(prefix, cmd)
    return seen


def open_as(entity, key, daemon):
    if daemon == 'mds':
        import cephfs
        c = cephfs.LibCephFS(auth_id=entity.partition('.')[2], conffile=CONF, conf={'key': key, 'keyring': '/dev/null'})
        c.init()
        return c
    c = rados.Rados(name=entity, conffile=CONF, conf={'key': key, 'keyring': '/dev/null', 'admin_socket': '',
                                                      'rados_mon_op_timeout': '20', 'rados_osd_op_timeout': '10'})
    c.connect(timeout=20)
    return c


def send(c, daemon, cmd, secret=b''):
    text = json.dumps(cmd)
    if daemon == 'mon':
        r = c.mon_command(text, secret, timeout=20)
    elif daemon == 'mgr':
        r = c.mgr_command(text, secret, timeout=20)
    elif daemon == 'mon-tell':
        r = c.mon_command(text, secret, timeout=20, target=MON)
    elif daemon == 'mgr-tell':
        r = c.mgr_command(text, secret, timeout=20, target=MGR)
    elif daemon == 'mds':
        r = c.mds_command('*', text, secret)
    elif daemon == 'osd':
        r = c.osd_command(0, text, secret, timeout=20)
    else:
        raise ValueError(daemon)
    return r[0], r[1], r[2]


def judge(ret, text):
    # Commands that require another option or a confirmation answer EPERM.
    if ret in (-errno.EACCES, errno.EACCES):
        return 'refused'
    if ret in (-errno.ETIMEDOUT, errno.ETIMEDOUT, -errno.ENXIO, errno.ENXIO) and not text:
        return None
    return 'allowed'


def column(args):
    """All rows of one key at one daemon, in a process of its own; a hanging process loses only the remaining rows."""
    entity, key, daemon, todo, path = args
    with open(path, 'a') as out:
        try:
            c = open_as(entity, key, daemon)
        except Exception as e:
            out.write(json.dumps(['*', f'cannot connect: {e}']) + '\n')
            return
        silent = 0
        for name, cmd in todo:
            out.write(json.dumps([name, None]) + '\n')
            out.flush()
            try:
                ret, _, text = send(c, daemon, cmd)
                text = text if isinstance(text, str) else (text or b'').decode(errors='replace')
                verdict = judge(ret, text)
            except Exception as e:
                ret, text, verdict = None, str(e), None
            out.write(json.dumps([name, verdict, ret, (text or '')[:100]]) + '\n')
            out.flush()
            silent = silent + 1 if verdict is None else 0
            if silent == 3:
                out.write(json.dumps(['*', 'no answer to three commands']) + '\n')
                break
        out.flush()
        os._exit(0)


def run_column(entity, key, daemon, todo, path):
    left, result, hung = list(todo), {}, 0
    while left:
        if os.path.exists(path):
            os.unlink(path)
        p = multiprocessing.Process(target=column, args=((entity, key, daemon, left, path),))
        p.start()
        before, started = -1, None
        while p.is_alive():
            p.join(25)
            now = os.path.getsize(path) if os.path.exists(path) else 0
            if now == before and p.is_alive():
                p.kill()
                p.join()
            before = now
        started = None
        for line in open(path):
            e = json.loads(line)
            if e[0] == '*':
                return {}, e[1]
            if e[1] is None and len(e) == 2:
                started = e[0]
                continue
            result[e[0]] = e[1:]
            started = None
        hung = hung + 1 if started is not None else 0
        if started is not None:
            result[started] = [None, None, 'no answer']
        if hung == 3 and not any(r[0] for r in result.values()):
            return {}, 'no answer to three commands'
        done = set(result)
        if not any(n in done for n, _ in left):
            return result, 'no answers'
        left = [(n, c) for n, c in left if n not in done]
    return result, None


# Operations tried on objects: the client's operations, by names that the test also uses.
OBJECTS = ('rbd_info', 'rbd_children', 'rbd_mirroring', 'rbd_trash', 'rbd_directory', 'rbd_header.1', 'rbd_data.1', 'other')
OPS = {
    'read': lambda i, o: i.read(o, 1),
    'write': lambda i, o: i.write(o, b'x'),
    'rbd.metadata_list': lambda i, o: i.execute(o, 'rbd', 'metadata_list', b''),
    'rbd.get_id': lambda i, o: i.execute(o, 'rbd', 'get_id', b''),
    'rbd.child_attach': lambda i, o: i.execute(o, 'rbd', 'child_attach', b''),
    'rbd.child_detach': lambda i, o: i.execute(o, 'rbd', 'child_detach', b''),
    'lock.get_info': lambda i, o: i.execute(o, 'lock', 'get_info', b''),
    'lock.lock': lambda i, o: i.execute(o, 'lock', 'lock', b''),
}
OSD_CAPS = [f'profile {p}{place}' for p in ('rbd', 'rbd-read-only', 'read-only', 'read-write', 'osd', 'rbd-mirror', 'crash', 'nosuch')
            for place in ('', ' pool=a', ' pool=a namespace=n')]


def objects(admin, ask, release):
    """The operations that the OSD accepts, for each caps and place; all others got EPERM."""
    for pool in ('a', 'b'):
        ask({'prefix': 'osd pool create', 'pool': pool, 'pg_num': 1})
        ask({'prefix': 'osd pool application enable', 'pool': pool, 'app': 'rbd', 'yes_i_really_mean_it': True})
    allowed = {}
    for n, caps in enumerate(OSD_CAPS):
        entity = f'client.o_{n}'
        ask({'prefix': 'auth get-or-create', 'entity': entity, 'caps': ['mon', 'allow r', 'osd', caps]})
        key = json.loads(ask({'prefix': 'auth get', 'entity': entity, 'format': 'json'}))[0]['key']
        c = open_as(entity, key, 'osd')
        rows = allowed[caps] = {}
        for pool in ('a', 'b'):
            i = c.open_ioctx(pool)
            for ns in ('', 'n'):
                i.set_namespace(ns)
                for o in OBJECTS:
                    rows[f'{pool}/{ns}/{o}'] = [op for op, f in OPS.items() if passes(f, i, o)]
            i.close()
        c.shutdown()
        print('osd-objects', caps, sum(len(r) for r in rows.values()), flush=True)
    with open(f'{OUT}/osd-objects-{release}.json', 'w') as out:
        lines = [f'  {json.dumps(c)}: {json.dumps(r)}' for c, r in allowed.items()]
        head = f' "release": {json.dumps(release)},\n "ops": {json.dumps(list(OPS))},\n "allowed": {{\n'
        out.write('{\n' + head + ',\n'.join(lines) + '\n }\n}\n')


def passes(op, ioctx, name):
    try:
        op(ioctx, name)
    except rados.TimedOut:
        raise
    except rados.Error as e:
        return getattr(e, 'errno', None) not in (errno.EPERM, -errno.EPERM)
    return True


def main():
    os.makedirs(OUT, exist_ok=True)
    admin = rados.Rados(name='client.admin', conffile=CONF)
    admin.connect(timeout=20)

    def ask(cmd, daemon='mon'):
        ret, out, text = send(admin, daemon, cmd)
        if ret != 0:
            raise SystemExit(f'{cmd}: {ret} {text}')
        return out

    release = json.loads(ask({'prefix': 'version', 'format': 'json'}))['version'].split()[2]
    if not sys.argv[3:] or 'osd-objects' in sys.argv[3:]:
        objects(admin, ask, release)
        if sys.argv[3:] == ['osd-objects']:
            return
    secrets = {}
    for name, (entity, caps) in KEYS.items():
        if caps is not None:
            list_ = [w for s, t in caps.items() for w in (s, t)]
            send(admin, 'mon', {'prefix': 'auth add', 'entity': entity, 'caps': []})
            ask({'prefix': 'auth caps', 'entity': entity, 'caps': list_})
        secrets[name] = json.loads(ask({'prefix': 'auth get', 'entity': entity, 'format': 'json'}))[0]['key']
    # At the monitor, an OSD's key may do things to the OSD that it does not survive.
    daemons = ['osd', 'mon-tell', 'mgr-tell', 'mgr', 'mon']
    described = {d: json.loads(ask({'prefix': 'get_command_descriptions'}, d)) for d in daemons}
    mds = subprocess.run(['ceph', '-c', CONF, 'tell', 'mds.*', 'get_command_descriptions'], capture_output=True).stdout
    if mds.strip():
        described['mds'] = json.loads(mds)
        daemons.insert(0, 'mds')
    for daemon in [d for d in daemons if d in sys.argv[3:] or len(sys.argv) == 3]:
        table = rows(described[daemon])
        if daemon == 'mon':
            table.update({k: v for k, v in CASES.items() if v['prefix'] in table})
        table['get_command_descriptions'] = {'prefix': 'get_command_descriptions'}
        table['nosuch command'] = {'prefix': 'nosuch command'}
        keep = set(table) if WHICH != 'profiles' or daemon != 'mon' else SAMPLE | {n for n in table if '#' in n}
        todo = sorted((n, c) for n, c in table.items() if n not in NEVER and n in keep)
        cells, unreachable = {n: {} for n, _ in todo}, {}
        stem = '-'.join(w for w in (daemon, WHICH, release) if w)
        log = open(f'{OUT}/{stem}.log', 'w')
        for name, (entity, _) in KEYS.items():
            result, why = run_column(entity, secrets[name], daemon, todo, f'{OUT}/.column')
            if why:
                unreachable[name] = why
            for row, r in result.items():
                cells[row][name] = r[0]
                log.write(json.dumps([row, name] + r) + '\n')
            print(daemon, name, len(result), why or '', flush=True)
            if name == 'osd-key' and daemon == 'mon':
                for p in ('osd unpause', 'osd unset'):
                    send(admin, 'mon', {'prefix': p, 'key': 'noout'})
        log.close()
        write(f'{OUT}/{stem}.json', release, daemon, cells, unreachable, dict(todo))
    if os.path.exists(f'{OUT}/.column'):
        os.unlink(f'{OUT}/.column')


def write(path, release, daemon, cells, unreachable, commands):
    """One line per row: the arguments, and the keys that were refused, allowed, or not answered."""
    with open(path, 'w') as out:
        out.write('{\n')
        out.write(f' "release": {json.dumps(release)},\n "daemon": {json.dumps(daemon)},\n')
        keys = {n: {'entity': e, 'caps': c} for n, (e, c) in KEYS.items()}
        out.write(f' "keys": {json.dumps(keys)},\n "unreachable": {json.dumps(unreachable)},\n "rows": {{\n')
        lines = []
        for row in sorted(cells):
            c = cells[row]
            r = {'send': commands[row]}
            for verdict in ('allowed', 'refused'):
                r[verdict] = [k for k in KEYS if c.get(k) == verdict]
            lines.append(f'  {json.dumps(row)}: {json.dumps(r)}')
        out.write(',\n'.join(lines))
        out.write('\n }\n}\n')


# Each column's process starts as a copy of this one.
multiprocessing.set_start_method('fork')
main()
