# The active MDS is killed KILLS times (20) under load, OSDs and the monitor beside it; see mds_kills.py. SEED is for the
# order; MDS names another program than ceph-mds, such as "chroot DIR ceph-mds", where SCRATCH is the same in both.
source "$(dirname "$0")/../lib.sh"
cluster_up --osds 3 --osd-size 2G
ceph fs volume create home
mkdir "$W/mds"
/usr/bin/python3 "$ROOT/interop/py/mds_kills.py" home "$W/c/run" "$W/mds" "${KILLS:-20}" "${SEED:-$RANDOM}" || {
  tail -n 20 "$W"/mds/*.log
  exit 1
}
cluster_down
