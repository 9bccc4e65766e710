# S3 and Swift by Ceph's radosgw on a Belemnite cluster, as `up --s3` starts it: objects, listings, multipart uploads,
# versions; a bucket that is resharded during writes; gateway and OSD killed during writes. At the end the statistics of
# every bucket equal those of its entries, and every object has the contents reported to clients. GATEWAY_ROOT, a
# directory, selects the radosgw of the system in it.
source "$(dirname "$0")/../lib.sh"
cluster_up --osds 1 --osd-size 6G --s3 ${GATEWAY_ROOT:+--ceph-root "$GATEWAY_ROOT"}
wait_for 60 grep -q '^secret key' "$W/up.out" || { cat "$W/up.out"; exit 1; }
AK=$(sed -n 's/^access key: //p' "$W/up.out") SK=$(sed -n 's/^secret key: //p' "$W/up.out")
URL=127.0.0.1:$((PORT + 5))
s3() { /usr/bin/python3 "$ROOT/interop/py/s3.py" "$URL" "$AK" "$SK" "$@"; }
if [ -n "${GATEWAY_ROOT:-}" ]; then
  admin() { chroot "$GATEWAY_ROOT" radosgw-admin -c "/run/belemnite/$(awk '/^fsid/{print $3}' "$CEPH_CONF")/ceph.conf" -n client.rgw.a "$@" 2>>"$W/admin.err"; }
else
  admin() { radosgw-admin "$@" 2>>"$W/admin.err"; }
fi

# The statistics in the index equal those counted from its entries.
consistent() {
  admin bucket check --bucket "$1" >"$W/check"
  exact_usage "$W/check"
}
gateway_pid() { pgrep -P "$(cat "$W/c/run/rgw.a.pid")"; }

echo "== a session"
s3 all
for b in plain parts; do consistent $b; done
ceph service dump | jq -e '.services.rgw.daemons | length > 1' >/dev/null
ceph -s | grep -q 'rgw: 1 daemon active'
# radosgw sends this when it makes its pools, and depends on the answer.
/usr/bin/python3 - "$CEPH_CONF" <<'PY'
import rados, sys
with rados.Rados(conffile=sys.argv[1]) as c:
    text = '{"prefix": "osd pool set", "pool": ".rgw.root", "var": "recovery_priority": "5"}'
    rc, _, status = c.mon_command(text, b"")
    assert rc == -22, (rc, status)
PY

echo "== Swift"
swift_key=$(admin subuser create --uid s3 --subuser s3:swift --key-type swift --access full --gen-secret | jq -r '.swift_keys[0].secret_key')
curl -sf -D "$W/auth" -o /dev/null -H 'X-Auth-User: s3:swift' -H "X-Auth-Key: $swift_key" "http://$URL/auth/v1.0"
header() { sed -n "s/^$1: \(.*\)\r$/\1/Ip" "$W/auth"; }
swift() { curl -sf -H "X-Auth-Token: $(header X-Auth-Token)" "$@"; }
store=$(header X-Storage-Url)
swift -X PUT "$store/container" && echo hello | swift -T - "$store/container/object" >/dev/null
expect "an object by Swift" "$(swift "$store/container/object")" hello
expect "its listing" "$(swift "$store/container")" object
swift -X DELETE "$store/container/object"
swift -X DELETE "$store/container"

echo "== resharded while it is written"
s3 put many 0 50
s3 put many 50 150 & WRITER=$!
admin bucket reshard --bucket many --num-shards 7 --yes-i-really-mean-it >/dev/null
wait $WRITER
expect "objects" "$(s3 check many 200)" 200
consistent many

echo "== gateway and OSD killed"
s3 put killed 1000 1
s3 load killed 12 "${SEED:-$RANDOM}" >"$W/load" 2>"$W/load.err" & LOAD=$!
for n in 1 2 3; do
  sleep 2
  kill -KILL "$(gateway_pid)" 2>/dev/null || true
  [ $n = 2 ] && kill -KILL "$(cat "$W/c/run/osd.0.pid")"
done
wait $LOAD || { cat "$W/load.err"; exit 1; }
wait_for 60 curl -sf -o /dev/null "http://$URL"
s3 verify killed "$W/load"
consistent killed
admin bucket rm --bucket many --purge-objects
cluster_down
