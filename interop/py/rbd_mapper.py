#!/usr/bin/python3
"""`rbd device map`, `unmap` and `list` without a kernel client: librbd under FUSE and a loop device above.

For tests on machines whose kernel has no rbd. Put a link named `rbd` to this file first in PATH: it answers the
commands of `device` and hands all others to the real program. As with the kernel's client, a mapped image has the
device /dev/rbd/POOL/IMAGE, a device mapped with `-o ro` needs no right to write and has no permission to write in its
mode, and a device that is open cannot be unmapped, unless RBD_UNMAP_LAZILY is set: then it ends when it is closed.
Other map options, which are the kernel's, are ignored. Needs root, /dev/fuse, the loop driver, and the packages
python3-fuse, python3-rbd and ceph-common. Python is the system's, not that of a virtual environment. `rbd device
unmap-all` removes everything that was mapped.

State is in RBD_MAPPER_DIR (default /run/rbd-mapper): for each mapped device a directory with the mounted file, its log and `state`.
"""
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time

REAL = os.environ.get('REAL_RBD', '/usr/bin/rbd')
STATE = os.environ.get('RBD_MAPPER_DIR', '/run/rbd-mapper')
DEVICES = '/dev/rbd'


def fail(code, text):
    print(f'rbd: {text}', file=sys.stderr)
    sys.exit(code)


def options(arguments, strict=True):
    """The options that both Ceph's programs and this one know, and the positional arguments."""
    known, positional, left = {}, [], list(arguments)
    names = {'-p': 'pool', '--pool': 'pool', '-o': 'options', '--options': 'options', '--id': 'id', '--user': 'id',
             '-c': 'conf', '--conf': 'conf', '--keyring': 'keyring', '-n': 'name', '--name': 'name', '--image': 'image'}
    while left:
        word = left.pop(0)
        name, has_value, value = word.partition('=')
        if name in names:
            known[names[name]] = value if has_value else left.pop(0)
        elif word == '--read-only':
            known['options'] = 'ro'
        elif word.startswith("-") and strict:
            fail(22, f'unknown option {word}')
        else:
            positional.append(word)
    return known, positional


def serve(pool, image_name, read_only, known, mount):
    """Serves one image as the file `image` below `mount` until it is unmounted."""
    import errno

    import fuse
    import rados
    import rbd

    fuse.fuse_python_api = (0, 2)
    # CEPH_ARGS are read by librados, but the user's name has to be known before.
    extra = options(os.environ.get("CEPH_ARGS", "").split(), strict=False)[0]
    known = {**extra, **known}
    name = known.get('name') or 'client.' + known.get('id', 'admin')
    cluster = rados.Rados(name=name, conffile=known.get('conf', os.environ.get('CEPH_CONF', rados.Rados.DEFAULT_CONF_FILES)))
    if 'keyring' in known:
        cluster.conf_set('keyring', known['keyring'])
    cluster.connect()
    pool_handle = cluster.open_ioctx(pool)
    image = rbd.Image(pool_handle, image_name, read_only=read_only)
    size = image.size()

    class Images(fuse.Fuse):
        def getattr(self, path):
            found = fuse.Stat()
            for field in ('st_ino', 'st_dev', 'st_uid', 'st_gid', 'st_size', 'st_atime', 'st_mtime', 'st_ctime'):
                setattr(found, field, 0)
            found.st_nlink = 1
            if path == '/':
                found.st_mode = stat.S_IFDIR | 0o700
            elif path == '/image':
                found.st_mode, found.st_size = stat.S_IFREG | (0o400 if read_only else 0o600), size
            else:
                return -errno.ENOENT
            return found

        def readdir(self, path, offset):
            for entry in ('.', '..', 'image'):
                yield fuse.Direntry(entry)

        def open(self, path, flags):
            return 0

        def read(self, path, length, offset):
            return image.read(offset, max(0, min(length, size - offset)))

        def write(self, path, data, offset):
            return image.write(data, offset)

        def fsync(self, path, only_data):
            return image.flush()

        def flush(self, path):
            return 0

        def truncate(self, path, length):
            return 0 if length == size else -errno.EINVAL

    server = Images()
    server.parse(['-f', '-o', 'big_writes,direct_io,fsname=rbd,max_read=131072', mount], errex=1)
    server.multithreaded = True
    server.main()
    image.close()
    pool_handle.close()
    cluster.shutdown()


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def is_mounted(path):
    with open('/proc/self/mounts') as mounts:
        return any(line.split()[1] == path for line in mounts)


class Mapping:
    """A mapped image: the directory of its state, and what the files there say."""

    def __init__(self, directory):
        self.directory, self.mount = directory, f'{directory}/mount'
        with open(f'{directory}/state') as state:
            self.pool, self.image, self.device, server = state.read().split()
        self.server = int(server)
        self.link = f'{DEVICES}/{self.pool}/{self.image}'


def mappings():
    """All mapped images, the last one first."""
    if not os.path.isdir(STATE):
        return []
    directories = [f'{STATE}/{d}' for d in os.listdir(STATE) if os.path.exists(f'{STATE}/{d}/state')]
    return [Mapping(d) for d in sorted(directories, key=os.path.getmtime, reverse=True)]


def show_link(pool, image):
    """The image's link leads to the device that was mapped last, if there is one."""
    link = f'{DEVICES}/{pool}/{image}'
    left = [m.device for m in mappings() if m.link == link]
    if os.path.lexists(link):
        os.unlink(link)
    if left:
        os.makedirs(os.path.dirname(link), exist_ok=True)
        os.symlink(left[0], link)


def map_image(known, positional):
    pool, _, image = (known.get('image') or positional[0]).rpartition('/')
    pool = pool or known.get('pool', 'rbd')
    read_only = 'ro' in known.get('options', '').split(',')
    for mapping in mappings():
        if (mapping.pool, mapping.image) == (pool, image):
            print(f'rbd: warning: image already mapped as {mapping.device}', file=sys.stderr)
    os.makedirs(STATE, exist_ok=True)
    directory = tempfile.mkdtemp(dir=STATE)
    mount = f'{directory}/mount'
    os.mkdir(mount)
    with open(f'{directory}/log', 'w') as log:
        server = subprocess.Popen([sys.executable, __file__, 'serve', pool, image, str(int(read_only)), mount] +
                                  [f'--{k}={v}' for k, v in known.items() if k in ('id', 'name', 'conf', 'keyring')],
                                  stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    while not is_mounted(mount):
        if server.poll() is not None:
            with open(f'{directory}/log') as log:
                text = log.read()
            shutil.rmtree(directory)
            fail(1, f'map failed: {text.strip()}')
        time.sleep(0.01)
    device = run('losetup', '--find', '--show', *(['--read-only'] if read_only else []), f'{mount}/image')
    run('blockdev', '--setro' if read_only else '--setrw', device)
    os.chmod(device, 0o440 if read_only else 0o660)
    group = os.environ.get('RBD_DEVICE_GROUP')
    if group:
        shutil.chown(device, group=group)
    with open(f'{directory}/state', 'w') as state:
        state.write(f'{pool} {image} {device} {server.pid}')
    show_link(pool, image)
    print(device)


def is_open(device):
    """True if a process has the device open."""
    for process in os.listdir('/proc'):
        if process.isdigit():
            try:
                for descriptor in os.listdir(f'/proc/{process}/fd'):
                    if os.readlink(f'/proc/{process}/fd/{descriptor}') == device:
                        return True
            except OSError:
                pass
    return False


def unmap(known, positional):
    target = positional[0] if positional[0].startswith('/') else f"{DEVICES}/{known.get('pool', 'rbd')}/{positional[0]}"
    found = [m for m in mappings() if m.device == os.path.realpath(target)]
    if not found:
        fail(22, f'{target}: not a mapped image or snapshot\nrbd: unmap failed: (22) Invalid argument')
    mapping = found[0]
    lazily = is_open(mapping.device)
    if lazily and 'force' not in known.get('options', '').split(',') and not os.environ.get('RBD_UNMAP_LAZILY'):
        fail(16, 'sysfs write failed\nrbd: unmap failed: (16) Device or resource busy')
    run('blockdev', '--flushbufs', mapping.device)
    os.chmod(mapping.device, 0o660)
    run('losetup', '--detach', mapping.device)
    # The loop device lets go of its file a moment after it was detached.
    deadline = time.monotonic() + 10
    while subprocess.run(['umount', mapping.mount], capture_output=True).returncode:
        if lazily or time.monotonic() > deadline:
            run('umount', '--lazy', mapping.mount)
            break
        time.sleep(0.02)
    while not lazily and time.monotonic() < deadline and is_running(mapping.server):
        time.sleep(0.01)
    shutil.rmtree(mapping.directory, ignore_errors=True)
    show_link(mapping.pool, mapping.image)


def is_running(pid):
    try:
        with open(f'/proc/{pid}/stat') as status:
            return status.read().rpartition(')')[2].split()[0] != 'Z'
    except FileNotFoundError:
        return False


def main():
    arguments = sys.argv[1:]
    if arguments[:1] == ['serve']:
        known, (_, pool, image, read_only, mount) = options(arguments)
        return serve(pool, image, read_only == '1', known, mount)
    words = [a for a in arguments if not a.startswith('-')]
    if words[:1] != ['device'] and words[:1] not in (['map'], ['unmap'], ['showmapped']):
        os.execv(REAL, [REAL] + arguments)
    known, positional = options(arguments)
    verb, positional = (positional[1], positional[2:]) if positional[0] == 'device' else (positional[0], positional[1:])
    if verb == 'map':
        map_image(known, positional)
    elif verb == 'unmap':
        unmap(known, positional)
    elif verb == 'unmap-all':
        for mapping in mappings():
            unmap({'options': 'force'}, [mapping.device])
    elif verb in ('list', 'ls', 'showmapped'):
        print('id pool namespace image snap device')
        for number, mapping in enumerate(mappings()):
            print(number, mapping.pool, '', mapping.image, '-', mapping.device)
    else:
        fail(22, f'device {verb} is not played without a kernel client')


if __name__ == '__main__':
    main()
