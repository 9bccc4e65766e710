# A real ceph-osd under our monitor.
source "$(dirname "$0")/../lib.sh"
cluster_up --osd-size 2G --osds 1
D=$W/c
ceph osd pool create ours 8
UUID=$(cat /proc/sys/kernel/random/uuid)
KEY=$(ceph-authtool --gen-print-key)
ID=$(echo "{\"cephx_secret\": \"$KEY\"}" | ceph osd new "$UUID" -i -)
expect "number of the OSD" "$ID" 1
R=$W/real; mkdir -p "$R"
sed '/^\[osd/,$d' "$CEPH_CONF" >"$R/ceph.conf"
cat >>"$R/ceph.conf" <<C
[osd]
osd_data = $R/osd
keyring = $R/keyring
osd_objectstore = bluestore
bluestore_block_size = 4294967296
bluestore_fsck_quick_fix_on_mount = false
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_port_min = $((PORT + 200))
ms_bind_port_max = $((PORT + 260))
run_dir = $R
admin_socket = $R/\$name.asok
log_file = $R/osd.log
crash_dir = $R/crash
setuser_match_path =
C
mkdir -p "$R/osd"
printf '[osd.1]\n\tkey = %s\n' "$KEY" >"$R/keyring"
ceph-osd -c "$R/ceph.conf" -i 1 --mkfs --osd-uuid "$UUID" >"$R/mkfs.out" 2>&1
ceph-osd -c "$R/ceph.conf" -f -i 1 >"$R/out" 2>&1 & PIDS+=($!)
wait_for 60 sh -c 'ceph osd stat | grep -q "2 up"' || { tail -n 40 "$R/osd.log"; exit 1; }
ceph osd tree
# A pool on the real OSD alone: a device class of its own and a rule for it.
ceph osd crush rm-device-class osd.1
ceph osd crush set-device-class real osd.1
ceph osd crush rule create-replicated real default osd real
ceph osd pool create real 16 16 replicated real
wait_for 60 sh -c 'ceph pg ls-by-pool real -f json | jq -e "[.pg_stats[] | select(.state == \"active+clean\")] | length == 16"' || { ceph pg ls-by-pool real; tail -n 40 "$R/osd.log"; exit 1; }
head -c 5000000 /dev/urandom >"$W/f"
rados -p real put f "$W/f"
rados -p real get f "$W/g"
cmp "$W/f" "$W/g"
rados -p real bench 2 write -t 4 --max-objects 256 --no-cleanup >/dev/null
ceph -s
ceph osd df
# Our manager role asks the real OSD what it did for an image.
rbd pool init real
image_counters real
