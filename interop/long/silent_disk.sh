# A device does not answer for a minute: its OSD marks itself down, the others serve, SIGTERM ends it as soon as the
# device releases the process, and it returns when the device answers. The device is a file on a frozen file system
# (needs root and loop devices).
[ -n "${PRIVATE:-}" ] || PRIVATE=1 exec unshare --mount --propagation private bash "$0"
source "$(dirname "$0")/../lib.sh"
cluster_up --osds 3 --osd-size 1G
cluster_down
truncate -s 2G "$W/image"
mkfs.ext4 -q "$W/image"
mkdir "$W/fs"
mount -o loop "$W/image" "$W/fs"
cp --sparse=always -r "$W/c/osd.2/." "$W/fs/"
mount --move "$W/fs" "$W/c/osd.2"
cluster_up
ceph osd pool create test 8
ceph osd pool application enable test rados
clean() { [ "$(ceph status -f json | jq -r '[.pgmap.pgs_by_state[].state_name] | join(" ")')" = "active+clean" ]; }
up() { expect up "$(ceph osd stat -f json | jq -r .num_up_osds)" "$1"; }
wait_for 60 clean
rados -p test put before /etc/hostname
fsfreeze -f "$W/c/osd.2"
trap 'fsfreeze -u "$W/c/osd.2" 2>/dev/null || true; finish' EXIT
start=$(date +%s)
timeout 120 rados -p test put during /etc/hostname
took=$(($(date +%s) - start))
echo "== a write waited $took s for a device that says nothing"
[ "$took" -ge 50 ] && [ "$took" -le 75 ]
ceph health detail | grep -q 'osd.2 on .* stopped: .*osd.2/block: a request has no answer for'
wait_for 10 up 2
for i in $(seq 10); do timeout 10 rados -p test put "after-$i" /etc/hostname; done
fsfreeze -u "$W/c/osd.2"
wait_for 60 up 3
wait_for 60 clean
cluster_down
umount "$W/c/osd.2"
