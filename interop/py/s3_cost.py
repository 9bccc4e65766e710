"""CPU of daemons per S3 request of 4 KiB: PUT of new objects, GET of random ones, lists of 100, DELETE.

usage: s3_cost.py ENDPOINT_HOST:PORT ACCESS SECRET SECONDS CLIENTS NAME=PID[,PID...]...

Each client is a process with one connection. PUT, GET and list run for SECONDS each, DELETE removes what was written, for
at most that time. Prints requests per second, latencies, and for each NAME microseconds of its processes' CPU per request;
and at first what they use in five seconds without requests.
"""

import multiprocessing
import os
import random
import sys
import time

from s3 import Failed, S3

SIZE = 4096
BUCKET = "cost"
LIST = 100


def cpu(pids):
    """Seconds of CPU of processes."""
    ticks = 0
    for p in pids:
        with open(f"/proc/{p}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def client(job, number, written, seconds, args, begin, out):
    s = S3(*args)
    r = random.Random(number)
    data = r.randbytes(SIZE)
    begin.wait()
    end = time.monotonic() + seconds
    took, n = [], 0
    while time.monotonic() < end:
        if job in ("delete", "get") and written == 0 or job == "delete" and n == written:
            break
        start = time.monotonic()
        if job == "put":
            s.put(BUCKET, f"{number:03}/{n:08}", data)
        elif job == "get":
            s.get(BUCKET, f"{number:03}/{r.randrange(written):08}")
        elif job == "list":
            s.page(BUCKET, **{"max-keys": LIST, "marker": f"{number:03}/{r.randrange(max(1, written)):08}"})
        else:
            s.delete(BUCKET, f"{number:03}/{n:08}")
        took.append(time.monotonic() - start)
        n += 1
    out.put((number, n, took))


def main():
    endpoint, access, secret, seconds, clients, *groups = sys.argv[1:]
    args, seconds, clients = (endpoint, access, secret), float(seconds), int(clients)
    groups = {k: v.split(",") for k, v in (g.split("=") for g in groups)}
    try:
        S3(*args).call("PUT", f"/{BUCKET}")
    except Failed as e:
        if e.code != "BucketAlreadyOwnedByYou":
            raise
    time.sleep(3)
    used = {k: cpu(p) for k, p in groups.items()}
    time.sleep(5)
    print("idle:", *(f"{k} {(cpu(p) - used[k]) * 200:.1f} ms/s" for k, p in groups.items()), flush=True)
    written = [0] * clients
    for job in ("put", "get", "list", "delete"):
        begin, out = multiprocessing.Barrier(clients + 1), multiprocessing.Queue()
        ps = [multiprocessing.Process(target=client, args=(job, i, written[i], seconds, args, begin, out)) for i in range(clients)]
        for p in ps:
            p.start()
        begin.wait()
        used, start = {k: cpu(p) for k, p in groups.items()}, time.monotonic()
        results = [out.get() for _ in ps]
        time_s, used = time.monotonic() - start, {k: cpu(p) - used[k] for k, p in groups.items()}
        for p in ps:
            p.join()
            if p.exitcode:
                raise SystemExit(f"a client ended with status {p.exitcode}")
        if job == "put":
            for i, n, _ in results:
                written[i] = n
        took = sorted(t for _, _, all_of_it in results for t in all_of_it)
        count = len(took)
        if not count:
            raise SystemExit(f"{job}: no requests")
        each = " ".join(f"{k} {v * 1e6 / count:.1f} us" for k, v in used.items())
        print(f"{job}: {count / time_s:.0f}/s, p50 {took[count // 2] * 1000:.2f} ms, p99 {took[count * 99 // 100] * 1000:.2f} ms; {each}", flush=True)


if __name__ == "__main__":
    main()
