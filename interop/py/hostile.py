#!/usr/bin/env python3
"""Sends bytes that violate the protocol, some only slightly, to the daemons' ports. usage: hostile.py SEED HOST:PORT...

Every connection must end by the daemon closing it (or staying silent until its handshake limit), never by the daemon
dying: the caller checks that the cluster still serves.
"""
import random
import socket
import struct
import sys

BANNER = b'ceph v2\n' + struct.pack('<HQQ', 16, 1, 0)


def crc32c(data, crc):
    for b in data:
        crc ^= b
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82f63b78 if crc & 1 else 0)
    return crc


def preamble(tag, lengths):
    p = struct.pack('<BB', tag, max(1, len(lengths)))
    for i in range(4):
        p += struct.pack('<IH', lengths[i] if i < len(lengths) else 0, 8)
    p += b'\0\0'
    return p + struct.pack('<I', crc32c(p, 0))


def frame(tag, payload):
    return preamble(tag, [len(payload)]) + payload + struct.pack('<I', crc32c(payload, 0xffffffff))


HELLO = frame(1, b'\x08' + b'\x01\x01\x01' + struct.pack('<I', 28) + struct.pack('<III', 2, 0, 16) + b'\x02\0' + b'\0' * 14)
CASES = [
    b'GET / HTTP/1.1\r\n\r\n',
    b'ceph v027' + b'\0' * 136,
    b'\x16\x03\x01' + bytes(200),
    b'ceph v2\n' + struct.pack('<H', 0xffff),
    b'ceph v2\n' + struct.pack('<HQQ', 16, 0, 0),
    b'ceph v2\n' + struct.pack('<HQQ', 16, 1, 1 << 40),
    BANNER + preamble(1, [0xffffffff]),
    BANNER + preamble(17, [41, 0x7fffffff, 0x7fffffff, 0x7fffffff]),
    BANNER + preamble(200, [4]) + b'abcd' + struct.pack('<I', 0),
    BANNER + frame(17, bytes(41)),
    BANNER + HELLO + frame(2, struct.pack('<II', 7, 0xffffffff)),
    BANNER + HELLO + frame(2, struct.pack('<III', 2, 1, 2) + struct.pack('<I', 9) + b'\x0a' + struct.pack('<II', 8, 0xffffff)),
    BANNER + HELLO + frame(2, struct.pack('<III', 99, 1, 2) + struct.pack('<I', 0)),
    BANNER + HELLO + frame(8, bytes(300)),
    BANNER + HELLO + frame(11, bytes(64)),
    BANNER + HELLO[:20],
    BANNER + HELLO[:-1] + b'\xff',
]


def main():
    seed = int(sys.argv[1])
    print(f'seed {seed}')
    rng = random.Random(seed)
    for target in sys.argv[2:]:
        host, port = target.rsplit(':', 1)
        rounds = CASES + [BANNER + HELLO + rng.randbytes(rng.randrange(1, 4000)) for _ in range(20)]
        for case in list(CASES) + [bytes(b ^ (1 << rng.randrange(8)) if rng.random() < 0.02 else b for b in c) for c in rounds]:
            s = socket.create_connection((host, int(port)), timeout=5)
            s.settimeout(0.3)
            try:
                s.sendall(case)
                while s.recv(65536):
                    pass
            except (socket.timeout, ConnectionError):
                pass
            s.close()
    print('ok')


if __name__ == '__main__':
    main()
