"""Fills RBD images with small immutable objects by Winery's own classes, and reads all of them back.

    archive_kept.py fill POOL OBJECTS SHARD_BYTES DIRECTORY
    archive_kept.py read POOL DIRECTORY

Runs with the Python of a virtual environment that has `swh.objstorage[winery]`. Sizes are drawn as the plan `archive` of
the laboratory draws them: a median of 3 KB, a mean of seven times that, at most a quarter of a shard. DIRECTORY has for
each image a file with the SHA-256 of its objects, which are also their names. `fill` prints the bytes of all objects,
`read` how many objects were read and were what they were; it fails if one is not.
"""
import hashlib
import math
import os
import random
import sys

from swh.objstorage.backends.winery.pools.rbd import RBDPool
from swh.objstorage.backends.winery.roshard import ROShard, ROShardCreator

MEDIAN, SPREAD = 3072, 1.97


def sizes_of(generator, most, room):
    """Sizes of the objects of the next image."""
    sizes, used = [], 0
    while len(sizes) < most and used < room:
        sizes.append(max(1, min(room // 4, int(MEDIAN * math.exp(generator.gauss(0.0, SPREAD))))))
        used += sizes[-1]
    return sizes


def fill(pool, objects, room, directory):
    generator, number, payload = random.Random(1), 0, 0
    while objects > 0:
        image, sizes = f'kept{number:04}', sizes_of(generator, objects, room)
        with open(f'{directory}/{image}', 'wb') as names, ROShardCreator(image, len(sizes), pool) as shard:
            for size in sizes:
                body = generator.randbytes(size)
                name = hashlib.sha256(body).digest()
                shard.add(body, name)
                names.write(name)
                names.flush()
        payload += sum(sizes)
        objects -= len(sizes)
        number += 1
    print(payload)


def read(pool, directory):
    good, bad = 0, 0
    for image in sorted(os.listdir(directory)):
        with open(f'{directory}/{image}', 'rb') as listed:
            names = listed.read()
        shard = ROShard(image, pool)
        for at in range(0, len(names), 32):
            name = names[at:at + 32]
            if hashlib.sha256(shard.get(name)).digest() == name:
                good += 1
            else:
                bad += 1
                print(f'{image}: {name.hex()} is another content', file=sys.stderr)
        shard.close()
    print(good)
    sys.exit(1 if bad else 0)


def main():
    command, name, *rest = sys.argv[1:]
    room = int(rest[1]) if command == 'fill' else 1 << 20
    pool = RBDPool(shard_max_size=room, rbd_use_sudo=False, rbd_pool_name=name, rbd_data_pool_name=f'{name}-data')
    if command == 'fill':
        fill(pool, int(rest[0]), room, rest[2])
    else:
        read(pool, rest[0])


main()
