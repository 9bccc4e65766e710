# What class calls cost: CPU of the OSD per call with 64 in flight. Nothing else should run on the machine.
source "$(dirname "$0")/../lib.sh"
cluster_up --osds 1 --osd-size 3G
ceph osd pool create test 64
/usr/bin/python3 "$ROOT/interop/py/class_cost.py" test "$(cat "$W/c/run/osd.0.pid")" "${CALLS:-20000}" | tee "$W/cost"
! grep -v 'failures 0$' "$W/cost"
cluster_down
