# Rates of metadata operations on a file system, and the OSDs' CPU time for each (see fs_metadata.py): ENTRIES (100,000)
# of CLIENTS (4). MDS_ROOT=DIR uses ceph-mds and libcephfs of another release in a root directory, where SCRATCH must be
# the same path. With REFERENCE=ceph.conf and REFERENCE_OSDS=PID,PID… (OSDs) of a real cluster with a file system `a`,
# the same is done there, and the two are compared.
source "$(dirname "$0")/../lib.sh"
run=${MDS_ROOT:+chroot $MDS_ROOT}
cp "$ROOT/interop/py/fs_metadata.py" "$W/"
cluster_up --osds 3 --osd-size "${OSD_SIZE:-8G}" --fs a --mds 1 ${MDS_ROOT:+--ceph-root "$MDS_ROOT"}
args=(a --entries "${ENTRIES:-100000}" --clients "${CLIENTS:-4}")
conf=$W/conf
sed "s#^keyring = .*#keyring = $W/keyring#" "$CEPH_CONF" >"$conf"
ceph auth get client.admin >"$W/keyring" 2>/dev/null
wait_for 60 sh -c "ceph mds stat | grep -q 'a=up:active'"
$run env "CEPH_CONF=$conf" /usr/bin/python3 "$W/fs_metadata.py" "${args[@]}" --cpu-of "$(cat "$W"/c/run/osd.*.pid | paste -sd,)" --json "$W/ours.json"
cluster_down
[ -n "${REFERENCE:-}" ] || exit 0
echo "the reference:"
$run env "CEPH_CONF=$REFERENCE" /usr/bin/python3 "$W/fs_metadata.py" "${args[@]}" --cpu-of "$REFERENCE_OSDS" --json "$W/theirs.json"
/usr/bin/python3 - "$W/ours.json" "$W/theirs.json" <<'P'
import json, sys
ours, theirs = (json.load(open(f)) for f in sys.argv[1:])
for what in (w for w in ours if w != "purged"):
    a, b = ours[what], theirs[what]
    print(f"== {what}: {a['rate'] / b['rate']:.2f} times the rate, {a['cpu_us'] / max(b['cpu_us'], .1):.2f} of the OSDs' CPU time")
P
