# CPU of the OSDs and of the gateway per S3 request of 4 KiB (interop/py/s3_cost.py), three copies. Nothing else should
# run on the machine. SECS (20) is the time of each kind of request, CLIENTS (8) the number of clients
# GATEWAY_ROOT, a directory, selects the radosgw of the system in it.
source "$(dirname "$0")/../lib.sh"
: "${SECS:=20}" "${CLIENTS:=8}" "${OSDS:=3}"
cluster_up --osds "$OSDS" --osd-size 6G --s3 ${GATEWAY_ROOT:+--ceph-root "$GATEWAY_ROOT"}
wait_for 120 grep -q '^secret key' "$W/up.out" || { cat "$W/up.out"; exit 1; }
AK=$(sed -n 's/^access key: //p' "$W/up.out") SK=$(sed -n 's/^secret key: //p' "$W/up.out")
osds=$(cat "$W"/c/run/osd.*.pid | paste -sd,)
gateway=$(pgrep -P "$(cat "$W/c/run/rgw.a.pid")")
/usr/bin/python3 "$ROOT/interop/py/s3_cost.py" "127.0.0.1:$((PORT + 5))" "$AK" "$SK" "$SECS" "$CLIENTS" "OSDs=$osds" \
  "gateway=$gateway" "monitor=$(cat "$W"/c/run/mon.*.pid | paste -sd,)" | sed 's/^/== /'
cluster_down
