"""Fills RBD images with small immutable objects, one behind the other, and reads all of them back.

    archive_kept.py fill POOL OBJECTS IMAGE_BYTES DIRECTORY
    archive_kept.py read POOL DIRECTORY
    archive_kept.py scan POOL DIRECTORY

The image format of an archive: objects without gaps, written once, in order. Sizes are drawn as the plan `archive` of the
laboratory draws them: a median of 3 KB, a mean of seven times that, at most a quarter of an image. The data goes to the
pool POOL-data. DIRECTORY has for each image a file with SHA-256, offset and length of its objects. `fill` prints the
bytes of all objects, `read` how many objects were read and were what they were; it fails if one is not. It reads one object
after another in random order, and `scan` the whole images in order, in large pieces.
"""
import concurrent.futures
import hashlib
import math
import os
import random
import struct
import sys

import rados
import rbd

MEDIAN, SPREAD = 3072, 1.97
RECORD = struct.Struct('<32sQI')
CHUNK = 4 << 20


def sizes_of(generator, most, room):
    """Sizes of the objects of the next image."""
    sizes, used = [], 0
    while len(sizes) < most and used < room:
        size = max(1, min(room // 4, int(MEDIAN * math.exp(generator.gauss(0.0, SPREAD)))))
        sizes.append(size)
        used += size
    return sizes


def fill_image(io, name, sizes, generator, listed):
    """Writes one image, and a record of each object once it is written."""
    length = sum(sizes)
    rbd.RBD().create(io, name, length, old_format=False, data_pool=f'{io.name}-data')
    with rbd.Image(io, name) as image:
        at, chunk, records = 0, bytearray(), bytearray()

        def flush():
            if chunk:
                image.write(bytes(chunk), at - len(chunk))
                image.flush()
            listed.write(bytes(records))
            listed.flush()
            chunk.clear()
            records.clear()

        for size in sizes:
            body = generator.randbytes(size)
            records.extend(RECORD.pack(hashlib.sha256(body).digest(), at, size))
            chunk.extend(body)
            at += size
            if len(chunk) >= CHUNK:
                flush()
        flush()


def fill(io, objects, room, directory):
    generator, number, payload = random.Random(1), 0, 0
    while objects > 0:
        name, sizes = f'kept{number:04}', sizes_of(generator, objects, room)
        with open(f'{directory}/{name}', 'wb') as listed:
            fill_image(io, name, sizes, generator, listed)
        payload += sum(sizes)
        objects -= len(sizes)
        number += 1
    print(payload)


class Scan:
    """Reads an image in order, in large pieces."""

    def __init__(self, image):
        self.image, self.begin, self.data = image, 0, b''

    def read(self, at, size):
        if at + size > self.begin + len(self.data):
            rest = self.data[at - self.begin:]
            more = min(max(CHUNK, size), self.image.size() - at - len(rest))
            self.begin, self.data = at, rest + self.image.read(at + len(rest), more)
        return self.data[at - self.begin:at - self.begin + size]


def read_image(io, directory, name, scans):
    """The numbers of objects that are what they were, and of others."""
    good, bad = 0, 0
    with open(f'{directory}/{name}', 'rb') as listed:
        records = list(RECORD.iter_unpack(listed.read()))
    if not scans:
        random.Random(name).shuffle(records)
    with rbd.Image(io, name, read_only=True) as image:
        source = Scan(image) if scans else image
        for digest, at, size in records:
            if hashlib.sha256(source.read(at, size)).digest() == digest:
                good += 1
            else:
                bad += 1
                print(f'{name}: the object of {size} bytes at {at} is another one', file=sys.stderr)
    return good, bad


def read(io, directory, scans):
    names = sorted(os.listdir(directory))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda name: read_image(io, directory, name, scans), names))
    print(sum(good for good, _ in results))
    sys.exit(1 if any(bad for _, bad in results) else 0)


def main():
    command, pool, *rest = sys.argv[1:]
    with rados.Rados(conffile=os.environ['CEPH_CONF']) as cluster, cluster.open_ioctx(pool) as io:
        if command == 'fill':
            fill(io, int(rest[0]), int(rest[1]), rest[2])
        else:
            read(io, rest[0], command == 'scan')


main()
