# ceph-csi's calls (csi_calls.py) on our cluster with Ceph's manager, and on a real cluster with a file system `a` whose
# ceph.conf is REFERENCE: equal answers. It must be fresh. MDS_ROOT=DIR takes ceph-mds, ceph-mgr and librados of another release in a root
# directory, where SCRATCH must be the same path; the real cluster is of that release.
source "$(dirname "$0")/../lib.sh"
[ -n "${REFERENCE:-}" ] || { echo "needs REFERENCE"; exit 77; }
run=${MDS_ROOT:+chroot $MDS_ROOT}
cp "$ROOT/interop/py/csi_calls.py" "$W/"
cluster_up --osds 3 --osd-size 2G --fs a --mds 1 --mgr ceph ${MDS_ROOT:+--ceph-root "$MDS_ROOT"}
conf=$W/conf
sed "s#^keyring = .*#keyring = $W/keyring#" "$CEPH_CONF" >"$conf"
ceph auth get client.admin >"$W/keyring" 2>/dev/null
calls() { $run env "CEPH_CONF=$1" /usr/bin/python3 "$W/csi_calls.py" a "csi$$" >"$2" 2>&1 || { tail -n 20 "$2"; return 1; }; }
calls "$conf" "$W/ours"
calls "$REFERENCE" "$W/theirs"
diff "$W/theirs" "$W/ours"
echo "== $(grep -c '^# ' "$W/ours") calls with equal answers"
cluster_down
