# kill -9 of daemons under load: no acknowledged write is lost, and service resumes. KILLS=50 selects the long form. Then the
# monitor's state is lost and made anew from the OSDs: clients that were connected go on.
source "$(dirname "$0")/../lib.sh"
cluster_up --osd-size 4G
ceph osd pool create test 32
/usr/bin/python3 "$ROOT/interop/py/ack_checker.py" test "$W/c/run" "${KILLS:-12}" "${SEED:-$RANDOM}"

model_begins
wait_for 30 sh -c "rados -p test ls | grep -q '^model'"
cluster_down
rm "$W/c/mon.a/state.redb"
belemnite --conf "$CEPH_CONF" state rebuild --osd "$W"/c/osd.0/block --osd "$W"/c/osd.1/block --osd "$W"/c/osd.2/block
cluster_up
ceph health detail | grep -q 'MON_TICKETS_LOST.*until 20' || { ceph health detail; exit 1; }
# The clients go on, and do not only end.
pool_clean test 32
writes() { rados df -f json | jq '.pools[] | select(.name == "test") | .write_ops'; }
before=$(writes)
goes_on() { [ "$(writes)" -gt $((before + 50)) ]; }
wait_for 60 goes_on
model_ends
cluster_down
