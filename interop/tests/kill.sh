# kill -9 of daemons under load: no acknowledged write is lost, and service resumes. KILLS=50 selects the long form.
source "$(dirname "$0")/../lib.sh"
cluster_up --osd-size 4G
ceph osd pool create test 32
/usr/bin/python3 "$ROOT/interop/py/ack_checker.py" test "$W/c/run" "${KILLS:-12}" "${SEED:-$RANDOM}"
cluster_down
