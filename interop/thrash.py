#!/usr/bin/env python3
"""Three hosts with two OSDs each, in network namespaces, under load, with faults; no acknowledged data may be lost or wrong.

usage: sudo [FOR=1800] [SEED=n] [COPIES=3] [CODE=4+2] interop/thrash.py

OSDs are killed, stopped (SIGSTOP), cut off from each other or from the monitor (routes that swallow packets, one way),
whole hosts lose their link, and disks are replaced by empty ones. Meanwhile run interop/py/model_load.py, `rados bench` and fio
on an RBD image with verification. At the end all faults are repaired; all PGs must become active+clean and every
byte must be what was acknowledged. FOR is the duration of the faults in seconds (default 180). The seed names the order of faults.
With COPIES=1 no disk is replaced.

With CODE=K+M all data but the image's metadata is in erasure-coded pools that allow overwrites. Faults are then also OSDs that
are stopped in order, changes of pg_num, and deep scrubs; one disk is replaced at least. At the end a deep scrub of all
pools must find nothing; then bits rot on M shards of an object, which a deep scrub must find and a repair mend.

Needs root, iproute2, ceph-common, python3-rados, fio with rbd. Addresses are those of namespaces made here (10.213.0.0/24);
all of it is removed at the end. KEEP=1 keeps the directory.
"""
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.environ.get('BELEMNITE', f'{ROOT}/target/release/belemnite')
SECONDS = int(os.environ.get('FOR', '180'))
COPIES = int(os.environ.get('COPIES', '3'))
CODE = os.environ.get('CODE', '')
K, M = (int(n) for n in CODE.split('+')) if CODE else (0, 0)
SEED = int(os.environ.get('SEED', random.randrange(1 << 30)))
SIZE = os.environ.get('OSD_SIZE', '3G')
HOSTS, PER_HOST, NET = 3, 2, '10.213.0.'
MON = NET + '1'
HEAL = 900 if CODE else 300
rng = random.Random(SEED)
tag = f'bm{os.getpid() % 100000}'
W = tempfile.mkdtemp(prefix='belemnite-thrash.', dir=os.environ.get('DIR', '/tmp'))
procs = []
t0 = time.time()


def say(text):
    print(f'{time.time() - t0:7.1f}  {text}', flush=True)


def sh(*cmd, **kw):
    return subprocess.run(cmd, check=True, capture_output=True, text=True, **kw).stdout


def ns(where, *cmd):
    return ['ip', 'netns', 'exec', f'{tag}{where}', *cmd]


def host_ip(h):
    return f'{NET}{11 + h}'


def make_network():
    sh('ip', 'netns', 'add', f'{tag}n')
    sh(*ns('n', 'ip', 'link', 'add', 'br0', 'type', 'bridge'))
    sh(*ns('n', 'ip', 'addr', 'add', f'{MON}/24', 'dev', 'br0'))
    for d in ['lo', 'br0']:
        sh(*ns('n', 'ip', 'link', 'set', d, 'up'))
    for h in range(HOSTS):
        sh('ip', 'netns', 'add', f'{tag}h{h}')
        sh(*ns('n', 'ip', 'link', 'add', f'v{h}', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', f'{tag}h{h}'))
        sh(*ns('n', 'ip', 'link', 'set', f'v{h}', 'master', 'br0', 'up'))
        sh(*ns(f'h{h}', 'ip', 'addr', 'add', f'{host_ip(h)}/24', 'dev', 'eth0'))
        for d in ['lo', 'eth0']:
            sh(*ns(f'h{h}', 'ip', 'link', 'set', d, 'up'))


def remove_network():
    for n in ['n'] + [f'h{h}' for h in range(HOSTS)]:
        subprocess.run(['ip', 'netns', 'del', tag + n], capture_output=True)


def start(where, log, *cmd):
    p = subprocess.Popen(ns(where, *cmd), stdout=open(f'{W}/{log}.log', 'a'), stderr=subprocess.STDOUT, cwd=W,
                         env={**os.environ, 'CEPH_CONF': f'{W}/ceph.conf'})
    procs.append(p)
    return p


def ceph(*args, ok=True, **kw):
    r = subprocess.run(ns('n', 'ceph', '-c', f'{W}/ceph.conf', '--connect-timeout', '30', *args), capture_output=True,
                       text=True, timeout=300, **kw)
    if ok and r.returncode != 0:
        raise RuntimeError(f'ceph {" ".join(args)}: {r.stderr}')
    return r.stdout


class Osd:
    def __init__(self, n):
        self.n, self.host, self.p, self.stopped = n, n // PER_HOST, None, False
        self.dir = f'{W}/osd.{n}'

    def make(self):
        """Makes an empty disk for this OSD id."""
        shutil.rmtree(self.dir, ignore_errors=True)
        os.makedirs(self.dir)
        u = str(uuid.uuid4())
        key = sh('ceph-authtool', '--gen-print-key').strip()
        ceph('osd', 'new', u, str(self.n), '-i', '-', input=json.dumps({'cephx_secret': key}))
        with open(f'{self.dir}/keyring', 'w') as f:
            f.write(f'[osd.{self.n}]\n\tkey = {key}\n')
        sh(*ns(f'h{self.host}', BIN, '-c', f'{W}/ceph.conf', 'osd', '-i', str(self.n), '--mkfs', '--osd-uuid', u, '--size',
               SIZE))

    def start(self):
        self.p = start(f'h{self.host}', f'osd.{self.n}', BIN, '-c', f'{W}/ceph.conf', 'osd', '-i', str(self.n))

    def kill(self):
        self.p.kill()
        self.p.wait()

    def stop(self):
        self.p.terminate()
        self.p.wait(timeout=120)

    def check(self):
        """An OSD that ended by itself is a failure, whatever the reason."""
        if self.p.poll() is not None:
            raise RuntimeError(f'osd.{self.n} ended by itself with status {self.p.returncode}; see {W}/osd.{self.n}.log')


CODED = ['model', 'bench', 'data'] if CODE else []
osds = [Osd(n) for n in range(HOSTS * PER_HOST)]


def make_cluster():
    fsid = str(uuid.uuid4())
    os.makedirs(f'{W}/mon.a')
    conf = f'''[global]
fsid = {fsid}
mon_host = [v2:{MON}:3300/0]
auth_cluster_required = cephx
auth_service_required = cephx
auth_client_required = cephx
osd_pool_default_size = {COPIES}
osd_pool_default_pg_num = 32
[client.admin]
keyring = {W}/admin.keyring
[mon]
mon_data = {W}/mon.$id
keyring = {W}/mon.$id/keyring
mon_allow_pool_delete = true
mon_osd_down_out_interval = 60
mon_min_osdmap_epochs = 30
[osd]
osd_data = {W}/osd.$id
keyring = {W}/osd.$id/keyring
osd_count_on_host = {HOSTS * PER_HOST}
osd_reactors = 1
'''
    for o in osds:
        conf += (f'[osd.{o.n}]\npublic_addr = {host_ip(o.host)}\ncluster_addr = {host_ip(o.host)}\n'
                 f'ms_bind_port_min = {6800 + 20 * o.n}\nms_bind_port_max = {6819 + 20 * o.n}\n'
                 f'crush_location = root=default host=h{o.host}\n')
    with open(f'{W}/ceph.conf', 'w') as f:
        f.write(conf)
    sh('ceph-authtool', '--create-keyring', f'{W}/mon.a/keyring', '--gen-key', '-n', 'mon.', '--cap', 'mon', 'allow *')
    sh('ceph-authtool', '--create-keyring', f'{W}/admin.keyring', '--gen-key', '-n', 'client.admin', '--cap', 'mon', 'allow *',
       '--cap', 'osd', 'allow *', '--cap', 'mgr', 'allow *', '--cap', 'mds', 'allow *')
    sh(BIN, '-c', f'{W}/ceph.conf', 'mon', '-i', 'a', '--mkfs')
    start('n', 'mon.a', BIN, '-c', f'{W}/ceph.conf', 'mon', '-i', 'a')
    for o in osds:
        o.make()
        o.start()
    ceph('config', 'set', 'global', 'mon_warn_on_pool_no_app', 'false')
    if CODE:
        ceph('osd', 'erasure-code-profile', 'set', 'code', f'k={K}', f'm={M}', 'crush-failure-domain=osd')
        for pool in CODED:
            ceph('osd', 'pool', 'create', pool, '16', '16', 'erasure', 'code')
            ceph('osd', 'pool', 'set', pool, 'allow_ec_overwrites', 'true')
            ceph('osd', 'pool', 'set', pool, 'pg_autoscale_mode', 'off')
            ceph('osd', 'pool', 'application', 'enable', pool, 'rbd')
    else:
        ceph('osd', 'pool', 'create', 'model', '32')
        ceph('osd', 'pool', 'create', 'bench', '16')
    ceph('osd', 'pool', 'create', 'rbd', '16')
    ceph('osd', 'pool', 'application', 'enable', 'rbd', 'rbd')
    wait_clean(HEAL)
    if CODE:
        stripe = [p for p in json.loads(ceph('osd', 'pool', 'ls', 'detail', '-f', 'json')) if p['pool_name'] == 'model'][0]['stripe_width']
        check = subprocess.run(ns('n', '/usr/bin/python3', f'{ROOT}/interop/py/coded_check.py', 'model', 'overwrite', str(stripe)),
                               capture_output=True, text=True, timeout=300, env={**os.environ, 'CEPH_CONF': f'{W}/ceph.conf'})
        if check.returncode != 0:
            raise RuntimeError(f'coded_check.py: {check.stdout}{check.stderr}')


def states():
    s = json.loads(ceph('status', '-f', 'json'))
    return {x['state_name']: x['count'] for x in s['pgmap']['pgs_by_state']}, s


def wait_clean(limit):
    end = time.time() + limit
    while True:
        by, s = states()
        want = {'active+clean', 'active+clean+scrubbing', 'active+clean+scrubbing+deep', 'active+clean+snaptrim'}
        up = s['osdmap']['num_up_osds']
        if by and set(by) <= want and up == len(osds):
            return
        if time.time() > end:
            raise RuntimeError(f'not clean after {limit} s: {by}, {up} OSDs up\n' + ceph('health', 'detail'))
        time.sleep(1)


def wait_sized():
    """Waits until all pools have the PGs they are to have, and those are clean."""
    def sized(p):
        return (p['pg_num'], p['pg_placement_num']) == (p['pg_num_target'], p['pg_placement_num_target'])
    end = time.time() + HEAL
    while not all(sized(p) for p in json.loads(ceph('osd', 'pool', 'ls', 'detail', '-f', 'json'))):
        if time.time() > end:
            raise RuntimeError('pg_num does not become what it is to be: ' + ceph('osd', 'pool', 'ls', 'detail'))
        time.sleep(1)
    wait_clean(HEAL)


# Each fault is a generator: it starts the fault, yields its duration in seconds, then repairs it.
def fault_kill(h):
    o = rng.choice(osds[h * PER_HOST:(h + 1) * PER_HOST])
    say(f'kill osd.{o.n}')
    o.kill()
    yield rng.uniform(0.5, 15)
    o.start()


def fault_kill_host(h):
    mine = osds[h * PER_HOST:(h + 1) * PER_HOST]
    say(f'kill host h{h}')
    for o in mine:
        o.kill()
    yield rng.uniform(1, 20)
    for o in mine:
        o.start()


def fault_pause(h):
    o = rng.choice(osds[h * PER_HOST:(h + 1) * PER_HOST])
    t = rng.choice([2, 10, 30, 45])
    say(f'stop osd.{o.n} for {t} s')
    o.p.send_signal(signal.SIGSTOP)
    yield t
    o.p.send_signal(signal.SIGCONT)


def fault_link(h):
    t = rng.choice([3, 15, 35])
    say(f'link of h{h} down for {t} s')
    sh(*ns(f'h{h}', 'ip', 'link', 'set', 'eth0', 'down'))
    yield t
    sh(*ns(f'h{h}', 'ip', 'link', 'set', 'eth0', 'up'))


def fault_one_way(h):
    to = rng.choice([MON] + [host_ip(x) for x in range(HOSTS) if x != h])
    t = rng.choice([5, 25, 40])
    say(f'h{h} cannot send to {"the monitor and clients" if to == MON else to} for {t} s')
    sh(*ns(f'h{h}', 'ip', 'route', 'add', 'blackhole', f'{to}/32'))
    yield t
    sh(*ns(f'h{h}', 'ip', 'route', 'del', 'blackhole', f'{to}/32'))


def fault_disk(h):
    wait_clean(HEAL)
    o = rng.choice(osds[h * PER_HOST:(h + 1) * PER_HOST])
    say(f'replace the disk of osd.{o.n}')
    o.kill()
    ceph('osd', 'down', str(o.n))
    ceph('osd', 'destroy', str(o.n), '--force', '--yes-i-really-mean-it')
    yield rng.uniform(0, 5)
    ceph('auth', 'del', f'osd.{o.n}')
    o.make()
    o.start()
    wait_clean(HEAL)


def fault_stop(h):
    o = rng.choice(osds[h * PER_HOST:(h + 1) * PER_HOST])
    say(f'stop osd.{o.n} in order')
    o.stop()
    yield rng.uniform(0.5, 30)
    o.start()


def fault_pg_num(_):
    pool, n = rng.choice(CODED), rng.choice([4, 8, 16, 24, 32])
    say(f'pool {pool} is to have {n} PGs')
    ceph('osd', 'pool', 'set', pool, 'pg_num', str(n))
    yield rng.uniform(0, 20)


def fault_scrub(_):
    pool = rng.choice(CODED)
    say(f'deep scrub of pool {pool}')
    ceph('osd', 'pool', 'deep-scrub', pool)
    yield rng.uniform(0, 10)


FAULTS = [(fault_kill, 5), (fault_kill_host, 2), (fault_pause, 3), (fault_link, 2), (fault_one_way, 2)]
if COPIES > 1:
    FAULTS.append((fault_disk, 1))
if CODE:
    FAULTS += [(fault_stop, 4), (fault_pg_num, 3), (fault_scrub, 2)]


def thrash(load):
    """One host at a time, so that each PG keeps two copies; a second fault is added occasionally."""
    end = time.time() + SECONDS
    counts = {}
    while time.time() < end:
        f = rng.choices([f for f, _ in FAULTS], [w for _, w in FAULTS])[0]
        if CODE and 'fault_disk' not in counts and end - time.time() < SECONDS / 2:
            f = fault_disk
        h = rng.randrange(HOSTS)
        active = [f(h)]
        if f is not fault_disk and rng.random() < 0.2:
            active.append(fault_kill(rng.choice([x for x in range(HOSTS) if x != h])))
        counts[f.__name__] = counts.get(f.__name__, 0) + 1
        ends = [(time.time() + next(a), a) for a in active]
        for at, a in sorted(ends, key=lambda e: e[0]):
            while time.time() < at:
                time.sleep(min(0.5, max(0, at - time.time())))
                for p in load:
                    if p.poll() not in (None, 0):
                        raise RuntimeError('the load found something wrong or ended; see its log')
            next(a, None)
        for o in osds:
            o.check()
        if rng.random() < 0.5:
            wait_clean(HEAL)
            say('clean')
        else:
            time.sleep(rng.uniform(0, 8))
    return counts


def deep_scrub(pools):
    """Scrubs all PGs of the pools; returns those that are inconsistent."""
    def stamps():
        return {p['pgid']: p['last_deep_scrub_stamp'] for pool in pools
                for p in json.loads(ceph('pg', 'ls-by-pool', pool, '-f', 'json'))['pg_stats']}
    before = stamps()
    for pool in pools:
        ceph('osd', 'pool', 'deep-scrub', pool)
    end = time.time() + HEAL
    while True:
        now = stamps()
        waits = [pg for pg, at in before.items() if now.get(pg) == at]
        if not waits:
            break
        if time.time() > end:
            raise RuntimeError(f'deep scrubs do not end: {waits}')
        time.sleep(1)
    return [pg for pool in pools
            for pg in json.loads(sh(*ns('n', 'rados', '-c', f'{W}/ceph.conf', 'list-inconsistent-pg', pool)))]


def spoil(path, pattern):
    """Changes a byte wherever the pattern is in a sparse file; returns how often."""
    n, fd = 0, os.open(path, os.O_RDWR)
    at, size = 0, os.fstat(fd).st_size
    while at < size:
        try:
            at = os.lseek(fd, at, os.SEEK_DATA)
        except OSError:
            break
        end = os.lseek(fd, at, os.SEEK_HOLE)
        while at < end:
            b = os.pread(fd, min(1 << 22, end - at) + len(pattern), at)
            i = b.find(pattern)
            while i >= 0 and i < 1 << 22:
                os.pwrite(fd, b'X', at + i)
                n += 1
                i = b.find(pattern, i + 1)
            at += 1 << 22
        at = end
    os.fsync(fd)
    os.close(fd)
    return n


def rot():
    """Bits rot on a data shard and, with two coding shards, on the first of them, which has the same bytes where all other data is zero."""
    pattern = f'rot of {tag} {SEED}'.encode()
    data = bytearray(1 << 18)
    data[1000:1000 + len(pattern)] = pattern
    data[1 << 17:] = random.Random(SEED).randbytes(1 << 17)
    with open(f'{W}/rot', 'wb') as f:
        f.write(data)
    rados = ['rados', '-c', f'{W}/ceph.conf', '-p', 'model']
    sh(*ns('n', *rados, 'put', 'rot', f'{W}/rot'))
    where = json.loads(ceph('osd', 'map', 'model', 'rot', '-f', 'json'))
    shards = [0, K][:M]
    for s in shards:
        if spoil(f'{W}/osd.{where["acting"][s]}/block', pattern) == 0:
            raise RuntimeError(f'the bytes of shard {s} are not on osd.{where["acting"][s]}')
    pg = where['pgid']
    bad = deep_scrub(['model'])
    found = json.loads(sh(*ns('n', 'rados', '-c', f'{W}/ceph.conf', 'list-inconsistent-obj', pg)))['inconsistents']
    wrong = [sorted(s['shard'] for s in o['shards'] if s['errors']) for o in found]
    if bad != [pg] or wrong != [shards]:
        raise RuntimeError(f'rot of shards {shards} of {pg}: the scrub finds {bad}, {found}')
    ceph('pg', 'repair', pg)
    end = time.time() + HEAL
    while 'OSD_SCRUB_ERRORS' in ceph('health', 'detail'):
        if time.time() > end:
            raise RuntimeError(f'{pg} is not repaired: ' + ceph('health', 'detail'))
        time.sleep(1)
    wait_clean(HEAL)
    if deep_scrub(['model']):
        raise RuntimeError('there are errors after the repair')
    sh(*ns('n', *rados, 'get', 'rot', f'{W}/rot.got'))
    if open(f'{W}/rot.got', 'rb').read() != data:
        raise RuntimeError('the object is not what was written')
    say(f'rot of shards {shards} of {pg} was found and repaired')


def main():
    say(f'seed {SEED}, {SECONDS} s, {W}')
    make_network()
    make_cluster()
    say('the cluster is up')
    sh(*ns('n', 'rbd', '-c', f'{W}/ceph.conf', 'create', 'img', '--size', '512M', *(['--data-pool', 'data'] if CODE else [])))
    model = start('n', 'model', '/usr/bin/python3', f'{ROOT}/interop/py/model_load.py', 'model', str(SEED))
    bench = start('n', 'bench', 'rados', '-c', f'{W}/ceph.conf', '-p', 'bench', 'bench', str(SECONDS), 'write', '-b', '65536', '-t',
                  '4', '--no-cleanup', '--max-objects', '4000')
    fio = start('n', 'fio', 'fio', '--name=t', '--ioengine=rbd', '--clientname=admin', '--pool=rbd', '--rbdname=img',
                '--rw=randwrite', '--bsrange=4k-64k', '--bs_unaligned=0', '--iodepth=8', '--size=512M', '--time_based',
                f'--runtime={SECONDS}', '--verify=crc32c', '--verify_backlog=512', '--verify_fatal=1', f'--randseed={SEED}',
                '--rate_iops=200')
    counts = thrash([model, bench, fio])
    say(f'healing; faults: {counts}')
    wait_clean(HEAL)
    wait_sized()
    say('clean')
    model.terminate()
    for name, p in [('model', model), ('bench', bench), ('fio', fio)]:
        p.wait(timeout=HEAL)
        if p.returncode != 0:
            raise RuntimeError(f'{name} ended with status {p.returncode}; see {W}/{name}.log')
    # Reads compare the data that bench wrote.
    sh(*ns('n', 'rados', '-c', f'{W}/ceph.conf', '-p', 'bench', 'bench', '60', 'seq', '-t', '8'))
    say(open(f'{W}/model.log').read().strip().splitlines()[-1])
    say(fio_figures())
    if CODE:
        bad = deep_scrub([*CODED, 'rbd'])
        if bad or 'PG_DAMAGED' in ceph('health', 'detail'):
            raise RuntimeError(f'the deep scrub finds errors in {bad}: ' + ceph('health', 'detail'))
        say('a deep scrub of all pools finds nothing')
        rot()
    say(f'ok: {counts}')


def fio_figures():
    lines = [x.strip() for x in open(f'{W}/fio.log', errors='replace') if x.strip().startswith(('read:', 'write:'))]
    return 'fio: ' + '; '.join(lines)


def finish():
    for p in reversed(procs):
        if p.poll() is None:
            p.send_signal(signal.SIGCONT)
            p.terminate()
    end = time.time() + 10
    for p in procs:
        try:
            p.wait(timeout=max(0.1, end - time.time()))
        except subprocess.TimeoutExpired:
            p.kill()
    remove_network()


failed = True
try:
    main()
    failed = False
except Exception as e:
    say(f'FAILED: {e} (seed {SEED})')
    for f in sorted(os.listdir(W)):
        if f.endswith('.log'):
            print(f'--- {f}\n' + ''.join(open(f'{W}/{f}', errors='replace').readlines()[-12:]))
finally:
    finish()
    if not failed and 'KEEP' not in os.environ:
        shutil.rmtree(W, ignore_errors=True)
sys.exit(failed)
