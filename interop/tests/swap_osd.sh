# A Belemnite OSD with a real ceph-mon and ceph-mgr.
source "$(dirname "$0")/../lib.sh"
source "$ROOT/interop/real_ceph.sh"
D=$W/c
real_cluster "$D" "$PORT"
export CEPH_CONF=$D/ceph.conf

UUID=$(cat /proc/sys/kernel/random/uuid)
KEY=$(ceph-authtool --gen-print-key)
ID=$(echo "{\"cephx_secret\": \"$KEY\"}" | ceph osd new "$UUID" -i -)
expect "number of the OSD" "$ID" 0
printf '[osd.0]\n\tkey = %s\n' "$KEY" >"$D/osd.0.keyring"
chmod 600 "$D/osd.0.keyring"
"$BIN" osd --conf "$CEPH_CONF" --id 0 --mkfs --osd-uuid "$UUID" --size 4G
"$BIN" osd --conf "$CEPH_CONF" --id 0 >"$D/log/osd.0.log" 2>&1 & OSD=$!; PIDS+=("$OSD")
wait_for 60 sh -c 'ceph osd stat | grep -q "1 up"'
ceph osd tree
ceph osd pool create test 16 16
ceph osd pool set test size 1 --yes-i-really-mean-it || true
wait_for 60 sh -c 'ceph pg stat | grep -q "active+clean"'
head -c 5000000 /dev/urandom >"$W/f"
rados -p test put f "$W/f"
rados -p test get f "$W/g"
cmp "$W/f" "$W/g"
rados -p test bench 3 write -t 8 --max-objects 256 --no-cleanup >/dev/null
rados -p test bench 2 rand -t 8 >/dev/null
echo "== the real manager asks our OSD what it did for an image"
rbd pool init test
image_counters test
echo "== a PG with too few copies: the client's operation waits and is answered once it serves"
ceph osd pool create few 1 1
ceph osd pool set few size 2
ceph osd pool set few min_size 2
wait_for 30 sh -c 'ceph pg stat | grep -q undersized'
rados -p few put f "$W/f" & PUT=$!; PIDS+=("$PUT")
ceph osd pool set few size 1 --yes-i-really-mean-it || true
ceph osd pool set few min_size 1
wait "$PUT"
rados -p few get f "$W/g3"
cmp "$W/f" "$W/g3"
echo "== restart of our OSD"
kill -TERM "$OSD"; wait "$OSD"
wait_for 20 sh -c 'ceph osd stat | grep -q "0 up"'
"$BIN" osd --conf "$CEPH_CONF" --id 0 >>"$D/log/osd.0.log" 2>&1 & PIDS+=($!)
wait_for 60 sh -c 'ceph osd stat | grep -q "1 up"'
rados -p test get f "$W/g2"
cmp "$W/f" "$W/g2"
wait_for 60 sh -c 'ceph df -f json | jq -e ".pools[] | select(.name==\"test\") | .stats.objects > 0"'
ceph -s
