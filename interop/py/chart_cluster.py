#!/usr/bin/env python3
"""The cluster of rendered manifests (FILE), as processes by kubelet.py: keys are made once; the monitor and three OSDs
serve; with Ceph's daemons also a gateway and a file system; all pods are replaced by others at other addresses, and the
data is there.

usage: chart_cluster.py FILE NAME PROGRAM WORK       as root, below unshare -n -m; NAME is the chart's full name
"""
import json
import shutil
import sys
import urllib.error
import urllib.request

from kubelet import Kubelet, wait


def status(mon):
    return json.loads(mon.execute('belemnite', 'status', '--format', 'json'))


def osds_up(mon, n):
    return lambda: status(mon)['osdmap']['num_up_osds'] == n


def keys(k, name):
    """Runs the Job twice: the second one leaves the Secret as it is."""
    k.job(f'{name}-keys')
    made = dict(k.secrets[f'{name}-keys'])
    k.job(f'{name}-keys')
    assert k.secrets[f'{name}-keys'] == made
    assert len(set(made.values())) == len(made) == 6, made.keys()
    return made


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
    active = lambda: status(mon)['fsmap'].get('up', 0) == 1
    wait(60, 'no active MDS', active)
    print('a file system is served')


def main():
    path, name, program, work = sys.argv[1:]
    secrets = {}
    k = Kubelet(work, path, program, secrets)
    try:
        made = keys(k, name)
        (mon,) = k.start('StatefulSet', f'{name}-mon')
        osds = k.start('StatefulSet', f'{name}-osd')
        wait(60, 'three OSDs are not up', osds_up(mon, 3))
        assert status(mon)['fsid'] == made['fsid'].decode().strip()
        mon.execute('belemnite', 'pool', 'create', 'data', '8')
        text = b'kept' * 300_000
        mon.execute('belemnite', 'put', 'data', 'first', '-', text=text)
        print('three OSDs serve')
        if shutil.which('radosgw'):
            gateway(k, name)
        if shutil.which('ceph-mds'):
            file_system(k, name, mon)
        before = [p.ip for p in k.pods]
        k.stop()
        (mon,) = k.start('StatefulSet', f'{name}-mon')
        again = k.start('StatefulSet', f'{name}-osd')
        assert not {p.ip for p in k.pods} & set(before)
        wait(60, 'three OSDs are not up again', osds_up(mon, 3))
        assert status(mon)['osdmap']['num_osds'] == 3
        assert mon.execute('belemnite', 'get', 'data', 'first', '-') == text
        assert len(again) == len(osds) == 3
        print('other pods at other addresses serve the same data')
    finally:
        k.end()


main()
