"""Load of an archive, by Software Heritage's Winery: writers fill shards in PostgreSQL, packers move full shards into RBD
images, readers read objects of the images at random or in the order in which they lie there.

Runs with the Python of a virtual environment that has `swh.objstorage[winery]`; all work on objects is done by Winery's
own classes. The load is described by JSON in the first argument, and the result is JSON on standard output, in the form of
`belemnite load`. PostgreSQL is a new server in a temporary directory. A process of its own unmaps and removes the images and stops PostgreSQL
when this one ends, however it ends.
"""
import hashlib
import json
import math
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

LOAD = json.loads(sys.argv[1])
POOL, DATA_POOL = LOAD['pool'], LOAD['data_pool'] or LOAD['pool']
PORT = LOAD['port']
# Largest object; with small shards, no object fills more than a quarter of one.
LARGEST = min(100_000_000, LOAD['shard_size'] // 4)
# Standard deviation of the logarithm of an object's size, with which the mean is seven times the median.
SPREAD = 1.97
TICKS = os.sysconf('SC_CLK_TCK')


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def programs_of_postgres():
    found = shutil.which('pg_ctl')
    roots = sorted(os.listdir('/usr/lib/postgresql')) if os.path.isdir('/usr/lib/postgresql') else []
    if roots:
        return f'/usr/lib/postgresql/{roots[-1]}/bin'
    if found:
        return os.path.dirname(os.path.realpath(found))
    sys.exit('PostgreSQL is not installed')


def start_postgres(directory):
    """A server as the user postgres if this is root; returns its pid and the address of an empty database."""
    programs = programs_of_postgres()
    os.chmod(directory, 0o755)
    data = f'{directory}/db'
    os.mkdir(data, 0o700)
    user = []
    if os.getuid() == 0:
        shutil.chown(data, 'postgres')
        user = ['setpriv', '--reuid=postgres', '--regid=postgres', '--clear-groups', '--reset-env']
    os.chdir('/')
    run(*user, f'{programs}/initdb', '-D', data, '--auth=trust', '--username=winery', '--no-sync',
        '--encoding=UTF8', '--locale=C.UTF-8')
    server = subprocess.Popen([*user, f'{programs}/postgres', '-D', data, '-k', data, '-p', str(PORT), '-c',
                               'listen_addresses=', '-c', 'max_connections=400'], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, start_new_session=True)
    address = f'host={data} port={PORT} user=winery dbname=postgres'
    while subprocess.run([f'{programs}/psql', address, '-c', ''], capture_output=True).returncode:
        if server.poll() is not None:
            sys.exit('PostgreSQL ended')
        time.sleep(0.05)
    run(os.path.join(os.path.dirname(sys.executable), 'swh'), 'db', 'init', '--dbname', address, 'objstorage:winery')
    return server.pid, address


def devices():
    directory = f'/dev/rbd/{POOL}'
    return [f'{directory}/{name}' for name in os.listdir(directory)] if os.path.isdir(directory) else []


def remove_images():
    """Removes the images of the pool, if the cluster still answers."""
    try:
        listed = subprocess.run(['rbd', 'ls', POOL], capture_output=True, text=True, timeout=30)
        for image in listed.stdout.split():
            subprocess.run(['rbd', 'rm', '--no-progress', f'{POOL}/{image}'], capture_output=True, timeout=120)
    except subprocess.TimeoutExpired:
        pass


def guard(postgres, directory):
    """Starts the process that cleans up after this one. Returns a function that has it done now."""
    mine, its = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.close(its)
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, signal.SIG_IGN)
        os.read(mine, 1)
        for device in devices():
            subprocess.run(['rbd', 'device', 'unmap', '-o', 'force', device], capture_output=True)
        remove_images()
        try:
            os.kill(postgres, signal.SIGQUIT)
            while os.path.exists(f'/proc/{postgres}') and state_of(postgres) != 'Z':
                time.sleep(0.02)
        except ProcessLookupError:
            pass
        shutil.rmtree(directory, ignore_errors=True)
        os._exit(0)
    os.close(mine)
    os.set_inheritable(its, False)

    def clean_up():
        os.close(its)
        os.waitpid(child, 0)

    # Workers that are forked later must not keep the pipe open.
    os.register_at_fork(after_in_child=lambda: os.close(its))
    return clean_up


def fields_of(pid):
    with open(f'/proc/{pid}/stat') as status:
        return status.read().rpartition(')')[2].split()


def state_of(pid):
    try:
        return fields_of(pid)[0]
    except FileNotFoundError:
        return 'Z'


def cpu_of(pid, with_children=False):
    try:
        fields = fields_of(pid)
        return sum(int(n) for n in fields[11:15 if with_children else 13]) / TICKS
    except (FileNotFoundError, ProcessLookupError):
        return 0.0


def family(pid):
    """The process and its children."""
    found = [pid]
    for other in os.listdir('/proc'):
        if other.isdigit():
            try:
                if int(fields_of(other)[1]) == pid:
                    found.append(int(other))
            except (FileNotFoundError, ProcessLookupError):
                pass
    return found


def cpu_of_family(pid):
    """CPU of a process, its ended children, and its children."""
    return cpu_of(pid, True) + sum(cpu_of(child) for child in family(pid)[1:])


def mappers():
    """Processes that serve mapped images where the kernel does not."""
    found = []
    for pid in os.listdir('/proc'):
        if pid.isdigit():
            try:
                with open(f'/proc/{pid}/cmdline', 'rb') as line:
                    words = line.read().split(b'\0')
                if b'serve' in words and POOL.encode() in words:
                    found.append(int(pid))
            except (FileNotFoundError, ProcessLookupError):
                pass
    return found


def storage(readonly):
    from swh.objstorage.factory import get_objstorage
    return get_objstorage('winery', database={'db': DSN}, shards_pools=[SHARDS], shards_active_pool=POOL, readonly=readonly)


def content(generator):
    size = max(1, min(LARGEST, int(LOAD['median'] * math.exp(generator.gauss(0.0, SPREAD))))) if LOAD['archive_sizes'] else LOAD['median']
    body = generator.randbytes(size)
    return body, {'sha256': hashlib.sha256(body).digest()}


def pack(shard, throttled):
    """Packs a full shard and drops its table. Throttled as the study did: packers wait after what they have written."""
    from swh.objstorage.backends.winery import housekeeping, roshard
    begin, written = time.monotonic(), 0
    add = roshard.ROShardCreator.add

    def wait_and_add(self, body, name):
        nonlocal written
        ahead = written / LOAD['pack_rate'] - (time.monotonic() - begin)
        if ahead > 0:
            time.sleep(ahead)
        written += len(body)
        return add(self, body, name)

    try:
        if throttled and LOAD['pack_rate'] > 0:
            roshard.ROShardCreator.add = wait_and_add
        housekeeping.pack(shard=shard, base_dsn=DSN, packer_settings={'create_images': True}, shards_pool_settings=SHARDS)
    finally:
        roshard.ROShardCreator.add = add
    housekeeping.cleanup_rw_shard(shard, base_dsn=DSN)


def fill():
    """Objects in images, before anything is measured: for each image its objects as they lie there, and their bytes."""
    from swh.objstorage.backends.winery.sharedbase import ShardState
    archive, generator, sizes = storage(False), random.Random(LOAD['seed']), {}
    left = LOAD['objects']
    while left > 0:
        batch = [content(generator) for _ in range(min(100, left))]
        archive.add_batch([(name, body) for body, name in batch], check_presence=False)
        sizes.update((name['sha256'], len(body)) for body, name in batch)
        left -= len(batch)
    if archive.writer._shard:
        archive.writer.release_shard(new_state=ShardState.FULL)
    base, images = archive.writer.base, []
    from swh.objstorage.backends.winery.rwshard import RWShard
    for shard, state in list(base.list_shards()):
        if state == ShardState.FULL:
            names = [bytes(key) for key, _ in RWShard(shard, shard_max_size=0, base_dsn=DSN, readonly=True).all()]
            base.set_shard_state(name=shard, new_state=ShardState.PACKING)
            pack(shard, False)
            images.append(names)
    archive.on_shutdown()
    return images, sizes


def forget_what_was_read(ended):
    """Mapped images are larger than memory in an archive: what was read is dropped from the page cache once a second."""
    while not ended.wait(1.0):
        for device in devices():
            try:
                handle = os.open(device, os.O_RDONLY)
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(handle)
            except OSError:
                pass


class Pace:
    """Times at which one of several equal workers starts its operations."""

    def __init__(self, rate, workers, number):
        self.interval = workers / rate if rate > 0 else 0.0
        self.next = BEGIN.value + self.interval * number / workers

    def start(self):
        if self.interval:
            due = self.next
            self.next += self.interval
            time.sleep(max(0.0, due - time.monotonic()))
            return due
        return time.monotonic()


def write(number):
    archive, generator = storage(False), random.Random(f"{LOAD['seed']} writer {number}")
    pace, done = wait_for_all(LOAD['write_rate'], LOAD['writers'], number), []
    while time.monotonic() < END.value:
        body, name = content(generator)
        start = pace.start()
        archive.add(body, name)
        done.append((start, time.monotonic() - start, len(body)))
    archive.on_shutdown()
    return done


def read(number):
    archive, generator = storage(True), random.Random(f"{LOAD['seed']} reader {number}")
    names = [name for image in IMAGES for name in image]
    pace, done = wait_for_all(LOAD['read_rate'], LOAD['readers'], number), []
    while time.monotonic() < END.value:
        name = generator.choice(names)
        start = pace.start()
        body = archive.get({'sha256': name})
        done.append((start, time.monotonic() - start, len(body)))
        if hashlib.sha256(body).digest() != name:
            raise ValueError(f'{name.hex()}: another content was read')
    archive.on_shutdown()
    return done


def read_in_order(number):
    archive, done, at = storage(True), [], number
    wait_for_all(0, 1, 0)
    while time.monotonic() < END.value:
        for name in IMAGES[at % len(IMAGES)]:
            start = time.monotonic()
            if start >= END.value:
                break
            body = archive.get({'sha256': name})
            done.append((start, time.monotonic() - start, len(body)))
        at += LOAD['sequential_readers']
    archive.on_shutdown()
    return done


def pack_shards(_number):
    from swh.objstorage.backends.winery.sharedbase import ShardState, SharedBase
    base, done = SharedBase(base_dsn=DSN, active_pool_name=POOL), []
    wait_for_all(0, 1, 0)
    while time.monotonic() < END.value:
        locked = base.maybe_lock_one_shard(current_state=ShardState.FULL, new_state=ShardState.PACKING, from_pool=POOL)
        if not locked:
            time.sleep(0.1)
            continue
        start = time.monotonic()
        with base.pool.connection() as db:
            size = db.execute(f'SELECT coalesce(sum(length(content)), 0) FROM shard_{locked.name}').fetchone()[0]
        pack(locked.name, True)
        done.append((start, time.monotonic() - start, int(size)))
    return done


def wait_for_all(rate, workers, number):
    READY.wait()
    while BEGIN.value == 0.0:
        time.sleep(0.001)
    return Pace(rate, workers, number)


def worker(kind, number, results):
    try:
        done = {'put': write, 'get': read, 'sequential': read_in_order, 'pack': pack_shards}[kind](number)
        results.put((kind, done, cpu_of(os.getpid(), True), None))
    except BaseException as error:
        READY.abort()
        results.put((kind, [], 0.0, f'{type(error).__name__}: {error}'))
        raise


def quantiles(latencies):
    """Latencies in microseconds, in order, as `belemnite load` prints them."""
    if not latencies:
        return {'mean': 0, 'max': 0, 'histogram': []}
    bins = {}
    for value in latencies:
        scale = 10 ** max(0, int(math.log10(max(value, 1.0))) - 2)
        key = round(value / scale) * scale
        bins[key] = bins.get(key, 0) + 1
    out = {'mean': sum(latencies) / len(latencies), 'max': latencies[-1], 'histogram': sorted(bins.items())}
    for percent in (1, 10, 25, 50, 75, 90, 99, 99.9, 99.99):
        at = math.ceil(len(latencies) * percent / 100) - 1
        out[f'p{percent:g}'] = latencies[max(0, at)]
    return out


def micros(done):
    return sorted(latency * 1e6 for _, latency, _ in done)


def csv_of(measured, begin):
    """A line for each second and kind of operation."""
    lines = ['second,kind,objects,bytes,mean_us,p99_us,max_us,over_100ms']
    for kind, done in measured.items():
        by = {}
        for start, latency, size in done:
            by.setdefault(int(start - begin), []).append((start, latency, size))
        for second, of in sorted(by.items()):
            all_of = micros(of)
            lines.append(f"{second},{kind},{len(of)},{sum(size for *_, size in of)},{sum(all_of) / len(all_of):.0f},"
                         f"{quantiles(all_of)['p99']:.0f},{all_of[-1]:.0f},{sum(value > 1e5 for value in all_of)}")
    return '\n'.join(lines) + '\n'


def used_by_data():
    """Bytes that the images' data takes on the OSDs, by their last reports."""
    pools = json.loads(run('ceph', 'df', '--format', 'json'))['pools']
    return sum(pool['stats']['bytes_used'] for pool in pools if pool['name'] == DATA_POOL)


def emptied():
    """Bytes of the data pool before anything is written: those of removed images are given back after a while."""
    for _ in range(30):
        if not used_by_data():
            break
        time.sleep(1)
    return used_by_data()


def stored():
    """Bytes that the images' data takes on the OSDs, once their reports no longer change."""
    last = used_by_data()
    for _ in range(10):
        time.sleep(3)
        last, before = used_by_data(), last
        if last == before:
            break
    return last


def report(measured, cpu, seconds, begin, own, postgres, mapping, payload, disk):
    gets = measured['get'] + measured['sequential']
    done = measured['put'] + gets
    size = sum(size for *_, size in done)
    latencies = micros(gets or done)
    series = []
    for second in range(int(seconds)):
        of = [latency for start, latency, _ in done if int(start - begin) == second]
        series.append({'at': second + 1, 'ops': len(of), 'mean_us': sum(of) / max(1, len(of)) * 1e6})
    out = {
        'ops': len(done), 'seconds': seconds, 'iops': len(done) / seconds, 'bytes': size, 'mib_s': size / seconds / 2**20,
        'not_started': 0, 'latency_us': quantiles(latencies), 'kinds': {}, 'series': series, 'ops_of_clients': [len(done)],
        'osds': [], 'cpu_seconds': cpu, 'own_cpu_seconds': own,
        'figures': {
            'postgres_us_per_op': postgres / max(1, len(done)) * 1e6,
            'mapper_us_per_op': mapping / max(1, len(done)) * 1e6,
            'packed_mb_s': sum(size for *_, size in measured['pack']) / seconds / 1e6,
            'disk_per_payload': disk / payload,
        },
        'worst_us': latencies[-100:],
    }
    if measured['get']:
        out['first_byte_us'] = quantiles(micros(measured['get']))
    for kind, of in measured.items():
        if of and kind != 'pack':
            out['kinds'][kind] = {'iops': len(of) / seconds, 'latency_us': quantiles(micros(of))}
            out['figures'][f'{kind}_mb_s'] = sum(size for *_, size in of) / seconds / 1e6
    return out


def main():
    global DSN, SHARDS, IMAGES, READY, BEGIN, END
    os.environ.pop('CEPH_ARGS', None)
    directory = tempfile.mkdtemp(prefix='belemnite-archive-')
    if LOAD['mapper']:
        os.mkdir(f'{directory}/bin')
        os.symlink(os.path.realpath(LOAD['mapper']), f'{directory}/bin/rbd')
        os.environ['PATH'] = f"{directory}/bin:{os.environ['PATH']}"
    postgres, DSN = start_postgres(directory)
    clean_up = guard(postgres, directory)
    SHARDS = {'type': 'rbd', 'pool_name': POOL, 'data_pool_name': DATA_POOL, 'shard_max_size': LOAD['shard_size'],
              'use_sudo': False, 'map_options': LOAD['map_options']}
    disk = emptied()
    IMAGES, sizes = fill()
    if not IMAGES and LOAD['readers'] + LOAD['sequential_readers'] > 0:
        sys.exit('no object is in an image: load.objects is too small')
    payload = sum(sizes.values())
    kinds = [('put', LOAD['writers']), ('get', LOAD['readers']), ('sequential', LOAD['sequential_readers']), ('pack', LOAD['packers'])]
    workers = [(kind, number) for kind, count in kinds for number in range(count)]
    READY, results = multiprocessing.Barrier(len(workers) + 1), multiprocessing.Queue()
    BEGIN, END = multiprocessing.Value('d', 0.0), multiprocessing.Value('d', 0.0)
    processes = [multiprocessing.Process(target=worker, args=(*w, results)) for w in workers]
    for process in processes:
        process.start()
    READY.wait()
    start = time.monotonic()
    END.value = start + LOAD['warm_up'] + LOAD['seconds']
    BEGIN.value = start
    begin, ended = start + LOAD['warm_up'], threading.Event()
    threading.Thread(target=forget_what_was_read, args=(ended,), daemon=True).start()
    time.sleep(LOAD['warm_up'])
    if LOAD['begun']:
        open(LOAD['begun'], 'w').close()

    def used():
        own = sum(cpu_of(process.pid, True) for process in processes)
        return {pid: cpu_of(pid) for pid in LOAD['cpu_of']}, own, cpu_of_family(postgres), sum(cpu_of(pid) for pid in mappers())

    before = used()
    time.sleep(max(0.0, END.value - time.monotonic()))
    after = used()
    ended.set()
    measured = {kind: [] for kind, _ in kinds}
    for _ in workers:
        kind, done, _, error = results.get()
        if error:
            sys.exit(f'{kind}: {error}')
        measured[kind] += [one for one in done if begin <= one[0]]
        payload += sum(size for *_, size in done) if kind == 'pack' else 0
    for process in processes:
        process.join()
    # A process that was killed meanwhile has no time any more.
    cpu = {pid: max(0.0, after[0][pid] - before[0][pid]) for pid in LOAD['cpu_of']}
    out = report(measured, cpu, LOAD['seconds'], begin, *(max(0.0, a - b) for a, b in zip(after[1:], before[1:])), payload,
                 stored() - disk)
    if LOAD['csv']:
        with open(LOAD['csv'], 'w') as csv:
            csv.write(csv_of(measured, begin))
    print(json.dumps(out))
    sys.stdout.flush()
    clean_up()


if __name__ == '__main__':
    main()
