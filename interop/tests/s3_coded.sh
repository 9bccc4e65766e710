# S3 with bucket data in an erasure-coded pool, by Ceph's radosgw; indexes and multipart metadata are in replicated
# pools. An OSD is killed during writes, and one is missing for reads.
source "$(dirname "$0")/../lib.sh"
cluster_up --osds 3 --osd-size 3G --s3 ${GATEWAY_ROOT:+--ceph-root "$GATEWAY_ROOT"}
wait_for 60 grep -q '^secret key' "$W/up.out" || { cat "$W/up.out"; exit 1; }
AK=$(sed -n 's/^access key: //p' "$W/up.out") SK=$(sed -n 's/^secret key: //p' "$W/up.out")
s3() { /usr/bin/python3 "$ROOT/interop/py/s3.py" "127.0.0.1:$((PORT + 5))" "$AK" "$SK" "$@"; }

# The gateway uses the existing pool of this name.
ceph osd erasure-code-profile set small k=2 m=1 crush-failure-domain=osd
ceph osd pool create default.rgw.buckets.data 8 8 erasure small
ceph osd pool application enable default.rgw.buckets.data rgw
s3 all
expect "kind of the pool" "$(ceph osd pool ls detail -f json | jq -r '.[] | select(.pool_name == "default.rgw.buckets.data") | .erasure_code_profile')" small
[ "$(rados -p default.rgw.buckets.data ls | wc -l)" -gt 10 ]

echo "== an OSD killed amid writes"
s3 put killed 1000 1
s3 load killed 6 "${SEED:-$RANDOM}" >"$W/load" 2>"$W/load.err" & LOAD=$!
sleep 2
kill -KILL "$(cat "$W/c/run/osd.1.pid")"
wait $LOAD || { cat "$W/load.err"; exit 1; }
s3 verify killed "$W/load"

echo "== an OSD is missing"
kill -STOP "$(cat "$W/c/run/osd.2.pid")"
ceph osd down 2
s3 verify killed "$W/load"
s3 put missing 0 20
kill -CONT "$(cat "$W/c/run/osd.2.pid")"
pool_clean default.rgw.buckets.data 8
expect "objects" "$(s3 check missing 20)" 20
s3 verify killed "$W/load"
cluster_down
