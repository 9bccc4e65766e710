#!/usr/bin/env python3
"""The cluster of rendered manifests, as processes by kubelet.py.

usage: chart_cluster.py CASE DIR NAME PROGRAM WORK      as root, below unshare -n -m; NAME is the chart's full name

DIR has the manifests for one, three and five monitors: 1.yaml, 3.yaml, 5.yaml. CASE is `grows`: one monitor and three
OSDs serve, with Ceph's daemons also a gateway and a file system; all pods are replaced by others at other addresses; then
three monitors, five, and a refusal of one. Or `three`: three monitors from the start; monitors and members of etcd die,
also with their volumes, while the cluster goes on.
"""
import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request

from kubelet import NAMESPACE, Kubelet, wait

TEXT = b'kept' * 300_000


def status(mon):
    return json.loads(mon.execute('belemnite', 'status', '--format', 'json'))


def seen(mon, test):
    """For `wait`: whether the status passes a test; not while monitors change."""
    def ready():
        try:
            return test(status(mon))
        except subprocess.SubprocessError:
            return False
    return ready


def osds_up(mon, n):
    return seen(mon, lambda s: s['osdmap']['num_up_osds'] == n)


def quorum(mon, *names):
    wait(60, f'no quorum of {names}', seen(mon, lambda s: sorted(s['quorum_names']) == sorted(names)))


def keys(k, *secrets):
    """Runs the Job twice: the second one leaves the Secrets as they are. One that was there stays, too."""
    name = secrets[0]
    before = dict(k.secrets)
    k.job(name)
    made = {s: dict(k.secrets[s]) for s in k.secrets}
    assert sorted(made) == sorted(secrets), made.keys()
    assert all(made[s] == before[s] for s in before)
    k.job(name)
    assert made == k.secrets
    assert len(set(made[name].values())) == len(made[name]) == 6, made[name].keys()
    return made[name]


def gateway(k, name):
    k.start('Deployment', f'{name}-rgw')
    ip = k.names[f'{name}-rgw']
    with urllib.request.urlopen(f'http://{ip}/', timeout=10) as r:
        assert b'ListAllMyBucketsResult' in r.read()
    try:
        urllib.request.urlopen(urllib.request.Request(f'http://{ip}/bucket', method='PUT'), timeout=10)
        raise AssertionError('a bucket was made without a key')
    except urllib.error.HTTPError as e:
        assert e.code == 403, e
    print('the gateway serves')


def file_system(k, name, mon):
    k.start('StatefulSet', f'{name}-mds')
    k.job(f'{name}-fs')
    k.job(f'{name}-fs')
    wait(60, 'no active MDS', seen(mon, lambda s: s['fsmap'].get('up', 0) == 1))
    print('a file system is served')


def monitors(k, name):
    """etcd and the monitors, which all start at the same time."""
    etcd = k.begin('StatefulSet', f'{name}-etcd')
    mons = k.begin('StatefulSet', f'{name}-mon') + k.begin('StatefulSet', f'{name}-mons')
    k.await_ready(etcd + mons)
    return etcd, mons


def certificates(k, name):
    """Members of etcd accept clients with a client's certificate, and peers with a peer's; nobody else."""
    host = f'{name}-etcd-0.{name}-etcd.{NAMESPACE}.svc'
    tls = f'{k.scratch}/tls'
    os.makedirs(tls, mode=0o700)
    for file, text in k.secrets[f'{name}-etcd'].items():
        with open(f'{tls}/{file}', 'wb') as f:
            f.write(text)

    def answers(url, authority, own=None):
        args = ['curl', '-s', '--http1.1', '-m', '5', '--resolve', f'{host}:{url[:4]}:{k.names[host]}', '--cacert', f'{tls}/{authority}']
        args += ['--cert', f'{tls}/{own}.crt', '--key', f'{tls}/{own}.key'] if own else []
        return subprocess.run([*args, f'https://{host}:{url}'], capture_output=True).returncode == 0

    client, peer = '2379/health', '2380/members'
    assert answers(client, 'ca.crt', 'mon') and answers(client, 'ca.crt', 'etcd') and answers(peer, 'peer-ca.crt', 'peer')
    assert not answers(client, 'ca.crt') and not answers(client, 'ca.crt', 'peer')
    assert not answers(peer, 'peer-ca.crt') and not answers(peer, 'peer-ca.crt', 'mon')
    assert not answers(peer, 'peer-ca.crt', 'etcd')


def kept(mon, name='first'):
    assert mon.execute('belemnite', 'get', 'data', name, '-') == TEXT


def write(mon, name):
    """A change of maps and a write, by one monitor's pod."""
    mon.execute('belemnite', 'pool', 'create', name, '1')
    mon.execute('belemnite', 'put', 'data', name, '-', text=TEXT)
    kept(mon, name)


def begin(k, name, mon, fsid):
    osds = k.start('StatefulSet', f'{name}-osd')
    wait(60, 'three OSDs are not up', osds_up(mon, 3))
    assert status(mon)['fsid'] == fsid
    mon.execute('belemnite', 'pool', 'create', 'data', '8')
    mon.execute('belemnite', 'put', 'data', 'first', '-', text=TEXT)
    print('three OSDs serve')
    return osds


def grows(k, name, manifests):
    made = keys(k, f'{name}-keys')
    (mon,) = k.start('StatefulSet', f'{name}-mon')
    begin(k, name, mon, made['fsid'].decode().strip())
    if shutil.which('radosgw'):
        gateway(k, name)
    if shutil.which('ceph-mds'):
        file_system(k, name, mon)
    before = [p.ip for p in k.pods]
    k.stop()
    (mon,) = k.start('StatefulSet', f'{name}-mon')
    osds = k.start('StatefulSet', f'{name}-osd')
    assert not {p.ip for p in k.pods} & set(before)
    wait(60, 'three OSDs are not up again', osds_up(mon, 3))
    assert status(mon)['osdmap']['num_osds'] == 3
    kept(mon)
    print('other pods at other addresses serve the same data')

    k.apply(f'{manifests}/3.yaml')
    keys(k, f'{name}-keys', f'{name}-etcd')
    etcd = k.begin('StatefulSet', f'{name}-etcd')
    k.stop([mon])
    k.snapshot(mon, 'data')
    mons = k.begin('StatefulSet', f'{name}-mon') + k.begin('StatefulSet', f'{name}-mons')
    k.await_ready(etcd + mons)
    quorum(mons[0], 'a', 'b', 'c')
    wait(60, 'three OSDs are not up with three monitors', osds_up(mons[0], 3))
    kept(mons[2])
    write(mons[1], 'three')
    # The first monitor's volume as it was before: the state in etcd stays.
    k.stop(mons[:1])
    k.restore(mons[0], 'data')
    mons[:1] = k.begin('StatefulSet', f'{name}-mon')
    k.await_ready(mons)
    quorum(mons[0], 'a', 'b', 'c')
    kept(mons[0], 'three')
    print('three monitors go on with the state of one')

    k.apply(f'{manifests}/5.yaml')
    keys(k, f'{name}-keys', f'{name}-etcd')
    more = k.begin('StatefulSet', f'{name}-etcd', 3)
    k.await_ready(more)
    mons = k.again('StatefulSet', mons) + k.begin('StatefulSet', f'{name}-mons', 2)
    etcd += more
    k.await_ready(mons)
    quorum(mons[4], 'a', 'b', 'c', 'd', 'e')
    k.stop(etcd[:2] + mons[:2])
    quorum(mons[4], 'c', 'd', 'e')
    wait(60, 'three OSDs are not up with three of five monitors', osds_up(mons[4], 3))
    write(mons[3], 'five')
    print('five monitors go on without two of them, and without two members of etcd')

    k.stop()
    k.apply(f'{manifests}/1.yaml')
    assert k.pod('StatefulSet', f'{name}-mon', 0).refuses('monitor.replicas cannot become 1 again')
    k.apply(f'{manifests}/5.yaml')
    etcd, mons = monitors(k, name)
    k.start('StatefulSet', f'{name}-osd')
    wait(60, 'three OSDs are not up at the end', osds_up(mons[3], 3))
    for n in ('first', 'three', 'five'):
        kept(mons[3], n)
    assert len(osds) == status(mons[3])['osdmap']['num_osds'] == 3
    print('one monitor is refused; five serve the same data')


def three(k, name, _):
    made = keys(k, f'{name}-keys', f'{name}-etcd')
    etcd, mons = monitors(k, name)
    quorum(mons[0], 'a', 'b', 'c')
    certificates(k, name)
    begin(k, name, mons[0], made['fsid'].decode().strip())

    # The node of the first monitor and of a member is gone.
    k.stop([etcd[0], mons[0]])
    quorum(mons[1], 'b', 'c')
    write(mons[1], 'without-a')
    print('a monitor and a member of etcd die, the cluster goes on')

    # The volumes were on that node.
    k.lose(etcd[0], 'data')
    k.lose(mons[0], 'data')
    etcd[0], mons[0] = k.again('StatefulSet', [etcd[0], mons[0]])
    k.await_ready([etcd[0], mons[0]])
    quorum(mons[0], 'a', 'b', 'c')
    # So the new member counts: without another one there is still a majority.
    k.stop([etcd[1], mons[1]])
    quorum(mons[0], 'a', 'c')
    write(mons[0], 'without-b')
    print('a member without its volume is replaced')

    # Processes die, of the pods that serve.
    for p in (etcd[2], mons[2]):
        p.kill()
    etcd[1], mons[1] = k.again('StatefulSet', [etcd[1], mons[1]])
    k.await_ready(etcd + mons)
    quorum(mons[2], 'a', 'b', 'c')

    # Two pods of a name: one on a node that is cut off, and the one that replaces it.
    (twin,) = k.begin('StatefulSet', f'{name}-mons', 1)
    k.await_ready([twin])
    write(twin, 'twins')
    k.stop([mons[2]])
    quorum(twin, 'a', 'b', 'c')
    write(mons[0], 'one-twin')

    # All at once, without the first monitor: the others need no monitor that answers.
    k.stop()
    k.begin('StatefulSet', f'{name}-etcd')
    mons = k.start('StatefulSet', f'{name}-mons')
    k.start('StatefulSet', f'{name}-osd')
    wait(60, 'three OSDs are not up again', osds_up(mons[1], 3))
    for n in ('first', 'without-a', 'without-b', 'twins', 'one-twin'):
        kept(mons[1], n)
    print('other pods at other addresses serve the same data, without the first monitor')


def main():
    case, manifests, name, program, work = sys.argv[1:]
    cases = {'grows': (grows, 1), 'three': (three, 3)}
    run, first = cases[case]
    k = Kubelet(work, f'{manifests}/{first}.yaml', program, {})
    try:
        run(k, name, manifests)
    finally:
        k.end()


main()
