#!/usr/bin/env python3
"""Keeps connections open that never authenticate. usage: strangers.py COUNT SECONDS HOST:PORT...

A third of them stay silent, a third send bytes that violate the protocol, a third request authentication repeatedly and prove
nothing. Closed connections are opened again at once. Prints at the end the connections and bytes of each kind.
FROM: addresses of this host that the connections come from in turn, with a blank between them.
"""
import os
import random
import selectors
import socket
import struct
import sys
import time

from hostile import BANNER, HELLO, frame

COUNT, END = int(sys.argv[1]), time.time() + float(sys.argv[2])
FROM = os.environ.get('FROM', '').split()
TARGETS = [(h, int(p)) for h, p in (t.rsplit(':', 1) for t in sys.argv[3:])]
KINDS = ('silent', 'garbage', 'asking')


# Method cephx, modes crc and secure; to a monitor: client.admin, without a global id.
ASK = frame(2, struct.pack('<IIII', 2, 2, 1, 2) + struct.pack('<IBII', 22, 10, 8, 5) + b'admin' + bytes(8))

selector = selectors.DefaultSelector()
opened, sent, refused = dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS, 0), 0


def open_one(n):
    global refused
    s = socket.socket()
    s.setblocking(False)
    try:
        if FROM:
            s.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
            s.bind((FROM[n // len(TARGETS) % len(FROM)], 0))
        s.connect(TARGETS[n % len(TARGETS)])
    except BlockingIOError:
        pass
    except OSError:
        refused += 1
        return
    kind = KINDS[n % 3]
    opened[kind] += 1
    events = selectors.EVENT_READ if kind == 'silent' else selectors.EVENT_READ | selectors.EVENT_WRITE
    selector.register(s, events, (n, kind))


def reopen(s, n):
    selector.unregister(s)
    s.close()
    if time.time() < END:
        open_one(n)


for n in range(COUNT):
    open_one(n)
while time.time() < END:
    for key, events in selector.select(0.2):
        s, (n, kind) = key.fileobj, key.data
        try:
            if events & selectors.EVENT_WRITE:
                s.send(os.urandom(random.randrange(1, 4000)) if kind == 'garbage' else BANNER + HELLO + ASK)
                sent[kind] += 1
                selector.modify(s, selectors.EVENT_READ, (n, kind))
            if events & selectors.EVENT_READ:
                if not s.recv(65536):
                    raise ConnectionError
                if kind == 'asking':
                    s.send(ASK)
                    sent[kind] += 1
        except BlockingIOError:
            pass
        except OSError:
            reopen(s, n)
print(f'opened {opened}, sent {sent}, not opened {refused}')
