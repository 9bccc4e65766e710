"""What ceph-csi asks of a cluster for volumes on CephFS, in its order and as it sends it, each with its answer.

usage: csi_calls.py FS GROUP
CEPH_CONF names the cluster; GROUP is a new group of subvolumes, the only one. Prints each call, its status and its
output, with times, ids and addresses left out, so that the outputs of two clusters can be compared. `fs quiesce` is among
them where the manager knows it.
"""
import json
import os
import re
import sys
import time

import rados

FS, GROUP = sys.argv[1:]
VARIES = re.compile(r"^(epoch|gid|inc|incarnation|addr|addrs|addrvec|nonce|created|created_at|modified|btime|[acm]time|last_failure"
                    r"|last_failure_osd_epoch|mon_addrs|state_seq|rank_gid|metadata_pool|data_pools|metadata_pool_id|data_pool_ids"
                    r"|until|bytes_used|age_ref|timeout_sec|version|set_version|db_epoch|at_age|age|leader|members|qdb_cluster|qdb_leader"
                    r"|standbys|features|progress_report|source_ctime|used_size|avail)$")
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def plain(value, key=""):
    if VARIES.match(key):
        return "*"
    if isinstance(value, dict):
        return {re.sub(r"^gid_\d+$", "gid_*", k): plain(v, "gid" if k.startswith("mds_") else k) for k, v in sorted(value.items())}
    if isinstance(value, list):
        return [plain(v, key) for v in value]
    return UUID.sub("UUID", value) if isinstance(value, str) else value


def text(out):
    try:
        value = json.loads(out)
        if isinstance(value, dict) and "filesystems" in value:
            value.pop("compat")  # of no file system: what the monitor's release knows
        return json.dumps(plain(value), sort_keys=True, indent=1)
    except ValueError:
        out = re.sub(r"epoch \d+", "epoch *", out)
        out = re.sub(r"\d{4}-\d\d-\d\d[T ][\d:.+]+", "TIME", out)
        return UUID.sub("UUID", re.sub(r"0x[0-9a-f]+", "0x*", out)).strip()


cluster = rados.Rados(conffile=os.environ["CEPH_CONF"])
cluster.connect()


def ask(send, shown=True, **args):
    status, out, err = send(json.dumps(args), b"", timeout=120)
    if shown:
        print("#", json.dumps(args))
        print("status", status)
        for part in (out.decode(errors="replace"), err):
            if part := text(part):
                print(part)
        print(flush=True)
    return status, out.decode(errors="replace")


mon = lambda prefix, **a: ask(cluster.mon_command, prefix=prefix, **a)
mgr = lambda prefix, **a: ask(cluster.mgr_command, prefix=prefix, vol_name=FS, format="json", **a)
sub = lambda what, name, **a: mgr(f"fs subvolume {what}", sub_name=name, group_name=GROUP, **a)
snap = lambda what, name, of, **a: sub(f"snapshot {what}", of, snap_name=name, **a)


def cloned(name):
    end = time.time() + 120
    while True:
        _, out = ask(cluster.mgr_command, shown=False, prefix="fs clone status", vol_name=FS, clone_name=name, group_name=GROUP, format="json")
        if out and json.loads(out)["status"]["state"] in ("complete", "failed"):
            break
        assert time.time() < end, out
        time.sleep(0.2)
    mgr("fs clone status", clone_name=name, group_name=GROUP)


# Which file system and pools there are.
mon("fs dump", format="json")
mon("fs ls", format="json")
mgr("fs subvolumegroup create", group_name=GROUP)
mgr("fs subvolumegroup create", group_name=GROUP)
mgr("fs subvolumegroup ls")

# A volume: created, and once more, as after a restart of the caller; grown; not shrunk.
for _ in range(2):
    sub("create", "v", size=1 << 30, mode="777")
sub("getpath", "v")
sub("info", "v")
sub("metadata set", "v", key_name="csi.storage.k8s.io/pvc/name", value="claim")
sub("metadata set", "v", key_name="csi.ceph.com/cluster/name", value="k8s")
sub("metadata ls", "v")
sub("metadata get", "v", key_name="csi.ceph.com/cluster/name")
sub("resize", "v", new_size=str(2 << 30), no_shrink=True)
sub("resize", "v", new_size=str(1 << 20), no_shrink=True)
sub("info", "v")
mgr("fs subvolume ls", group_name=GROUP)

# Snapshots and clones.
for _ in range(2):
    snap("create", "s", "v")
snap("protect", "s", "v")
snap("info", "s", "v")
snap("metadata set", "s", "v", key_name="csi.storage.k8s.io/volumesnapshot/name", value="snap")
snap("metadata ls", "s", "v")
snap("metadata rm", "s", "v", key_name="csi.storage.k8s.io/volumesnapshot/name")
sub("snapshot ls", "v")
snap("clone", "s", "v", target_sub_name="w", target_group_name=GROUP)
cloned("w")
snap("clone", "s", "v", target_sub_name="w", target_group_name=GROUP)
snap("clone", "none", "v", target_sub_name="x", target_group_name=GROUP)
sub("info", "w")
sub("getpath", "w")
snap("info", "s", "v")
snap("unprotect", "s", "v")

# Removal with the snapshot kept, then of the snapshot.
sub("rm", "v", force=True)
sub("rm", "v", retain_snapshots=True)
sub("info", "v")
sub("getpath", "v")
snap("clone", "s", "v", target_sub_name="x", target_group_name=GROUP)
cloned("x")
snap("rm", "s", "v", force=True)
snap("rm", "s", "v", force=True)
sub("info", "v")

# A group snapshot: several subvolumes are quiesced together.
status, _ = ask(cluster.mgr_command, shown=False, prefix="fs quiesce", vol_name=FS, format="json", members=[], set_id="none", query=True)
if status != -22:
    members = [f"{GROUP}/w", f"{GROUP}/x"]
    mgr("fs quiesce", members=members, set_id="g", timeout=180, expiration=180, **{"await": True})
    snap("create", "g", "w")
    snap("create", "g", "x")
    mgr("fs quiesce", members=[], set_id="g", release=True, **{"await": True})
    mgr("fs quiesce", members=[], set_id="unknown", release=True)
    snap("rm", "g", "w")
    snap("rm", "g", "x")

# What is not there.
sub("rm", "none")
sub("rm", "none", force=True)
sub("resize", "none", new_size="1000")
snap("create", "s", "none")
snap("rm", "none", "w")
sub("metadata rm", "w", key_name="none")
mgr("fs clone status", clone_name="none", group_name=GROUP)
sub("rm", "w")
sub("rm", "x")
mgr("fs subvolume ls", group_name=GROUP)
mgr("fs subvolumegroup rm", group_name=GROUP)
ask(cluster.mgr_command, prefix="fs subvolumegroup rm", vol_name="none", group_name=GROUP, format="json")

# Nodes that are lost are fenced, for five years.
block = lambda op, addr, **a: mon("osd blocklist", blocklistop=op, addr=addr, **a)
block("add", "10.1.2.9", expire=157784760.0)
block("add", "10.1.2.9:0/3710147553", expire=157784760.0)
block("add", "10.1.3.0/24", range="range", expire=157784760.0)
block("add", "10.1.3.0/99", range="range", expire=157784760.0)
block("add", "nonsense")
_, out = ask(cluster.mon_command, shown=False, prefix="osd blocklist ls", format="json")
told = []
for e in re.findall(r'\{[^{}]*\}', out):  # two lists one after the other where there are ranges
    e = json.loads(e)
    if e.get("addr", "").startswith("10.1."):
        until = time.mktime(time.strptime(e["until"][:19], "%Y-%m-%dT%H:%M:%S"))
        told.append(f"{e['addr']} {'for five years' if abs(until - time.time() - 157784760) < 86400 else e['until']}")
print(*sorted(told), "", sep="\n")
block("rm", "10.1.3.0/24", range="range")
block("rm", "10.1.3.0/24", range="range")
block("rm", "10.1.2.9")
block("rm", "10.1.2.9:0/3710147553")
