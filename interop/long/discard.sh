# An OSD on a block device with `bdev_enable_discard`: the device (a loop device, so root is needed) takes back the blocks
# of removed objects, and what stays reads as it was.
source "$(dirname "$0")/../lib.sh"
truncate -s 4G "$W/disk"
LOOP=$(losetup -f --show "$W/disk")
blockdev --setrw "$LOOP"
# The device ends with its last user.
trap 'status=$?; losetup -d "$LOOP" || true; finish $status' EXIT
[ "$(cat "/sys/block/$(basename "$LOOP")/queue/discard_max_bytes")" -gt 0 ] || { echo "$LOOP has no discard"; exit 1; }
cluster_up --device "$LOOP" --pool-size 1
ceph config set osd bdev_enable_discard true
in_force() { [ "$(ceph tell osd.0 config get bdev_enable_discard | jq -r .bdev_enable_discard)" = true ]; }
wait_for 30 in_force
ceph osd pool create test 16
ceph osd pool application enable test rados
clean() { ceph status -f json | jq -e '[.pgmap.pgs_by_state[].state_name] == ["active+clean"]'; }
taken() { echo $((512 * $(stat -c %b "$W/disk"))); }
head -c 4194304 /dev/urandom >"$W/object"
wait_for 60 clean
rados -p test put stays "$W/object"
before=$(taken)
rados -p test bench 600 write -b 4194304 -t 8 --max-objects 256 --no-cleanup --run-name much >"$W/bench.out"
sync "$W/disk"
filled=$(taken)
[ $((filled - before)) -gt 800000000 ] || { echo "only $((filled - before)) bytes more in the file"; false; }
rados -p test cleanup --run-name much >"$W/bench.out"
back() { [ "$(taken)" -lt $((before + (128 << 20))) ]; }
wait_for 60 back || { echo "before $before, with objects $filled, without $(taken)"; false; }
echo "== the device has $((before >> 20)) MiB, with 1 GiB of objects $((filled >> 20)) MiB, without them $(($(taken) >> 20)) MiB"
rados -p test get stays - | cmp - "$W/object"
cluster_down
belemnite store fsck --deep "$LOOP" >"$W/fsck.out" || { cat "$W/fsck.out"; false; }
