# The kernel client: Debian's kernel in QEMU maps an image with ms_mode=prefer-crc, makes a file system, and finds it
# intact after a remap, and after the OSD was killed in between. Then rbd-nbd in that guest: a file system, a snapshot
# while mapped, trim, and both mapped again. MSGR1=yes: without ms_mode, so by msgr1.
#
# Needs what guest.sh needs, and the packages e2fsprogs and rbd-nbd.
source "$(dirname "$0")/../lib.sh"
source "$(dirname "$0")/../guest.sh"
guest_root rbd nbd ext4
guest_copy mke2fs e2fsck rbd-nbd
cat >"$G/job" <<'I'
map() { echo "$AT name=admin,secret=$KEY,$MODE rbd $1 -" >/sys/bus/rbd/add_single_major || fail "map $1"; }
map krbd
[ -b /dev/rbd0 ] || fail "no device"
echo "size $(cat /sys/block/rbd0/size)"
/e2/mke2fs -q -t ext4 -F /dev/rbd0 || fail mke2fs
mount -t ext4 /dev/rbd0 /mnt || fail mount
dd if=/dev/urandom of=/mnt/big bs=1M count=48 2>/dev/null || fail write
i=0; while [ $i -lt 200 ]; do echo "file $i" >/mnt/f$i; i=$((i + 1)); done
rm /mnt/f1[0-9]*; sync
sum=$(md5sum </mnt/big)
ask KILL-OSD
dd if=/dev/urandom of=/mnt/more bs=1M count=16 conv=fsync 2>/dev/null || fail "write over the restart"
more=$(md5sum </mnt/more)
fstrim /mnt 2>/dev/null && echo trimmed
umount /mnt || fail umount
echo 0 >/sys/bus/rbd/remove_single_major || fail unmap
map krbd
/e2/e2fsck -f -n /dev/rbd0 || fail fsck
mount -t ext4 -o ro /dev/rbd0 /mnt || fail "mount again"
[ "$(md5sum </mnt/big)" = "$sum" ] || fail "big differs"
[ "$(md5sum </mnt/more)" = "$more" ] || fail "more differs"
[ "$(cat /mnt/f42)" = "file 42" ] || fail "f42 differs"
umount /mnt; echo 0 >/sys/bus/rbd/remove_single_major
# A snapshot and a clone, mapped: copy-up in the kernel.
map clone
mount -t ext4 /dev/rbd0 /mnt || fail "mount the clone"
dd if=/dev/zero of=/mnt/new bs=1M count=4 conv=fsync 2>/dev/null || fail "write to the clone"
umount /mnt
/e2/e2fsck -f -n /dev/rbd0 || fail "fsck of the clone"
echo 0 >/sys/bus/rbd/remove_single_major
# The same with rbd-nbd. A snapshot is taken from outside while the image is mapped.
nbd() { echo "rbd-nbd map $*"; D=$(/e2/rbd-nbd map "$@") || fail "rbd-nbd map $*"; [ -b "$D" ] || fail "no device $D"; }
unmap() { /e2/rbd-nbd unmap "$D" || fail "rbd-nbd unmap $D"; }
nbd rbd/nbd
/e2/mke2fs -q -t ext4 -F "$D" || fail "mke2fs by nbd"
mount -t ext4 "$D" /mnt || fail "mount by nbd"
dd if=/dev/urandom of=/mnt/one bs=1M count=24 2>/dev/null || fail "write by nbd"
one=$(md5sum </mnt/one)
umount /mnt || fail "umount by nbd"
ask SNAPSHOT
mount -t ext4 "$D" /mnt || fail "mount by nbd after the snapshot"
dd if=/dev/urandom of=/mnt/one bs=1M count=24 conv=fsync,notrunc 2>/dev/null || fail "write by nbd after the snapshot"
dd if=/dev/urandom of=/mnt/two bs=1M count=8 conv=fsync 2>/dev/null || fail "write by nbd"
new=$(md5sum </mnt/one); two=$(md5sum </mnt/two)
dd if=/dev/zero of=/mnt/gone bs=1M count=16 conv=fsync 2>/dev/null; rm /mnt/gone
fstrim /mnt && echo "trimmed by nbd"
umount /mnt || fail "umount by nbd"
unmap
nbd --read-only rbd/nbd@s
/e2/e2fsck -f -n "$D" || fail "fsck of the snapshot"
mount -t ext4 -o ro "$D" /mnt || fail "mount the snapshot"
[ "$(md5sum </mnt/one)" = "$one" ] || fail "the snapshot differs"
[ ! -e /mnt/two ] || fail "the snapshot shows what is newer"
umount /mnt; unmap
nbd rbd/nbd
/e2/e2fsck -f -n "$D" || fail "fsck by nbd"
mount -t ext4 -o ro "$D" /mnt || fail "mount by nbd again"
[ "$(md5sum </mnt/one)" = "$new" ] && [ "$(md5sum </mnt/two)" = "$two" ] || fail "files differ by nbd"
umount /mnt; unmap
I

guest_network
cluster_up --osds 1 --osd-size 3G --ip "$GUEST_HOST"
ceph osd pool create rbd 16
rbd pool init rbd
rbd create --size 256M rbd/krbd --image-feature layering,exclusive-lock,object-map,fast-diff
rbd create --size 256M rbd/parent --image-feature layering
# The parent has a file system made here, so that the guest's writes to the clone cause copy-up.
truncate -s 256M "$W/fs"; mke2fs -q -t ext4 -F "$W/fs"
rbd create --size 192M rbd/nbd
rbd import --dest-pool rbd "$W/fs" base --image-feature layering
rbd snap create rbd/base@s; rbd snap protect rbd/base@s; rbd clone rbd/base@s rbd/clone --image-feature layering
cp "$W/c/ceph.conf" "$G/etc/ceph/"
ceph auth get client.admin >"$G/etc/ceph/ceph.client.admin.keyring" 2>/dev/null
sed -i '/keyring/d' "$G/etc/ceph/ceph.conf"
guest_start
if asks KILL-OSD; then
  kill -KILL "$(cat "$W"/c/run/osd.0.pid)"
  answer
fi
if asks SNAPSHOT; then
  rbd snap create rbd/nbd@s
  answer
fi
guest_ends
cluster_down
