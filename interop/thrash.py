#!/usr/bin/env python3
"""Three hosts with two OSDs each, in network namespaces, under load, with faults; no acknowledged data may be lost or wrong.

usage: sudo [FOR=1800] [SEED=n] [COPIES=3] interop/thrash.py

OSDs are killed, stopped (SIGSTOP), cut off from each other or from the monitor (routes that swallow packets, one way),
whole hosts lose their link, and disks are replaced by empty ones. Meanwhile run interop/py/model_load.py, `rados bench` and fio
on an RBD image with verification. At the end all faults are repaired; all PGs must become active+clean and every
byte must be what was acknowledged. FOR is the duration of the faults in seconds (default 180). The seed names the order of faults.
With COPIES=1 no disk is replaced.

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
SEED = int(os.environ.get('SEED', random.randrange(1 << 30)))
SIZE = os.environ.get('OSD_SIZE', '3G')
HOSTS, PER_HOST, NET = 3, 2, '10.213.0.'
MON = NET + '1'
HEAL = 300
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
                       text=True, timeout=120, **kw)
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

    def check(self):
        """An OSD that ended by itself is a failure, whatever the reason."""
        if self.p.poll() is not None:
            raise RuntimeError(f'osd.{self.n} ended by itself with status {self.p.returncode}; see {W}/osd.{self.n}.log')


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
    ceph('osd', 'pool', 'create', 'model', '32')
    ceph('osd', 'pool', 'create', 'bench', '16')
    ceph('osd', 'pool', 'create', 'rbd', '16')
    ceph('osd', 'pool', 'application', 'enable', 'rbd', 'rbd')
    wait_clean(60)


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


FAULTS = [(fault_kill, 5), (fault_kill_host, 2), (fault_pause, 3), (fault_link, 2), (fault_one_way, 2)]
if COPIES > 1:
    FAULTS.append((fault_disk, 1))


def thrash(load):
    """One host at a time, so that each PG keeps two copies; a second fault is added occasionally."""
    end = time.time() + SECONDS
    counts = {}
    while time.time() < end:
        f = rng.choices([f for f, _ in FAULTS], [w for _, w in FAULTS])[0]
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


def main():
    say(f'seed {SEED}, {SECONDS} s, {W}')
    make_network()
    make_cluster()
    say('the cluster is up')
    sh(*ns('n', 'rbd', '-c', f'{W}/ceph.conf', 'create', 'img', '--size', '512M'))
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
    say('clean')
    model.terminate()
    for name, p in [('model', model), ('bench', bench), ('fio', fio)]:
        p.wait(timeout=HEAL)
        if p.returncode != 0:
            raise RuntimeError(f'{name} ended with status {p.returncode}; see {W}/{name}.log')
    # Reads compare the data that bench wrote.
    sh(*ns('n', 'rados', '-c', f'{W}/ceph.conf', '-p', 'bench', 'bench', '60', 'seq', '-t', '8'))
    say(open(f'{W}/model.log').read().strip().splitlines()[-1])
    say(f'ok: {counts}')


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
