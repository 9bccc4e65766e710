#!/usr/bin/env python3
"""Asks each monitor for the newest OSD map again and again, while another client changes it, until SIGTERM.

usage: newest_epoch.py ADDRESS...

Whatever one client has seen, no monitor may answer a later question of another client with an older map: two monitors that
both believe to lead would. Each monitor has a client of its own, which asks another monitor only if its session ends. Prints
the number of answers of each; exit status 1 means an older answer, which is described.
"""
import json
import os
import signal
import sys
import threading
import time

import rados

stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
signal.signal(signal.SIGINT, lambda *_: stop.set())
lock = threading.Lock()
newest, wrong, answers = 0, [], {}


def connect(address=None):
    conf = {'rados_mon_op_timeout': '5', 'client_mount_timeout': '10'}
    if address:
        conf['mon_host'] = address
    c = rados.Rados(conffile=os.environ['CEPH_CONF'], conf=conf)
    c.connect()
    return c


def session(address, work):
    """Repeats `work` with a connection, which is made anew after a failure."""
    c = None
    while not stop.is_set():
        try:
            c = c or connect(address)
            work(c)
        except (rados.Error, json.JSONDecodeError):
            if c:
                c.shutdown()
            c = None
            time.sleep(0.2)


def ask(address):
    def work(c):
        global newest
        with lock:
            known = newest
        begun = time.time()
        rc, out, _ = c.mon_command(json.dumps({'prefix': 'osd stat', 'format': 'json'}), b'')
        if rc != 0:
            raise rados.Error(f'status {rc}')
        epoch = json.loads(out)['epoch']
        with lock:
            answers[address] = answers.get(address, 0) + 1
            newest = max(newest, epoch)
            if epoch < known:
                wrong.append(f'{time.strftime("%T")} the client of {address} was told epoch {epoch} after {known} was known '
                             f'({time.time() - begun:.3f} s)')
        time.sleep(0.02)
    session(address, work)


def change():
    n = 0

    def work(c):
        nonlocal n
        n += 1
        c.mon_command(json.dumps({'prefix': 'osd set' if n % 2 else 'osd unset', 'key': 'noscrub'}), b'')
        time.sleep(0.1)
    session(None, work)


threads = [threading.Thread(target=ask, args=(a,), daemon=True) for a in sys.argv[1:]]
threads.append(threading.Thread(target=change, daemon=True))
for t in threads:
    t.start()
while not stop.is_set():
    time.sleep(0.2)
time.sleep(0.5)
with lock:
    for w in wrong[:20]:
        print(w)
    print('answers of monitors about the newest epoch: ' + ', '.join(f'{a} {n}' for a, n in sorted(answers.items()))
          + f'; newest {newest}, older than known: {len(wrong)}', flush=True)
    os._exit(1 if wrong or len(answers) < len(sys.argv) - 1 else 0)
