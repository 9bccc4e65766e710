# The kernel client: Debian's kernel in QEMU maps an image with ms_mode=prefer-crc, makes a file system, and finds it
# intact after a remap, and after the OSD was killed in between. Then rbd-nbd in that guest: a file system, a snapshot
# while mapped, trim, and both mapped again.
#
# Needs root (network namespace and tap device) and the packages qemu-system-x86, busybox-static, kmod, iproute2, cpio,
# e2fsprogs, rbd-nbd. The kernel comes from a package that is only unpacked; KERNEL_DEB names an existing file.
source "$(dirname "$0")/../lib.sh"
[ "$(id -u)" = 0 ] || { echo "needs root for a network namespace"; exit 77; }

deb=${KERNEL_DEB:-}
if [ -z "$deb" ]; then
  name=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image/{print $2; exit}')
  (cd "$W" && apt-get download -o APT::Sandbox::User=root "$name" >/dev/null)
  deb=$(ls "$W"/linux-image-*.deb)
fi
dpkg-deb -x "$deb" "$W/kernel"
version=$(ls "$W/kernel/lib/modules")
depmod -b "$W/kernel" "$version"

# The guest: busybox, the modules with their dependencies, and ext4's tools with their libraries.
G=$W/guest
mkdir -p "$G"/{bin,e2,proc,sys,dev,mnt,mod,run,tmp,etc/ceph,var/log/ceph,var/run/ceph}
cp "$(command -v busybox)" "$G/bin/busybox"
for t in mke2fs e2fsck rbd-nbd; do
  cp "$(command -v "$t" || echo "/sbin/$t")" "$G/e2/"
  ldd "$G/e2/$t" | grep -o '/[^ ]*' | sort -u | while read -r l; do mkdir -p "$G$(dirname "$l")"; cp -L "$l" "$G$l"; done
done
: >"$G/mod/order"
for m in virtio_pci virtio_net libcrc32c rbd nbd ext4; do
  modprobe -d "$W/kernel" -S "$version" --show-depends "$m" 2>/dev/null | awk '$1 == "insmod" {print $2}' |
    while read -r f; do
      grep -qx "$(basename "$f")" "$G/mod/order" || { cp "$f" "$G/mod/"; basename "$f" >>"$G/mod/order"; }
    done
done
cat >"$G/init" <<'I'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
exec </dev/console >/dev/console 2>&1
while read -r m; do insmod /mod/$m || echo "insmod $m failed"; done </mod/order
ip link set lo up; ip link set eth0 up; ip addr add 10.99.7.2/24 dev eth0
. /job
fail() { echo "GUEST FAILED: $*"; dmesg | tail -n 30; poweroff -f; }
map() { echo "$MON name=admin,secret=$KEY,ms_mode=prefer-crc rbd $1 -" >/sys/bus/rbd/add_single_major || fail "map $1"; }
map krbd
[ -b /dev/rbd0 ] || fail "no device"
echo "size $(cat /sys/block/rbd0/size)"
/e2/mke2fs -q -t ext4 -F /dev/rbd0 || fail mke2fs
mount -t ext4 /dev/rbd0 /mnt || fail mount
dd if=/dev/urandom of=/mnt/big bs=1M count=48 2>/dev/null || fail write
i=0; while [ $i -lt 200 ]; do echo "file $i" >/mnt/f$i; i=$((i + 1)); done
rm /mnt/f1[0-9]*; sync
sum=$(md5sum </mnt/big)
echo "KILL-OSD"; read -r go
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
echo "SNAPSHOT"; read -r go
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
echo "GUEST PASSED"
poweroff -f
I
chmod +x "$G/init"

ns=belemnite-krbd-$$
ip netns add "$ns"
trap 'status=$?; set +e; ip netns del "$ns" 2>/dev/null; (exit $status); finish' EXIT
in_ns() { ip netns exec "$ns" "$@"; }
in_ns ip link set lo up
in_ns ip tuntap add tap0 mode tap
in_ns ip addr add 10.99.7.1/24 dev tap0
in_ns ip link set tap0 up
real=$BIN
printf '#!/bin/sh\nexec ip netns exec %s %s "$@"\n' "$ns" "$real" >"$W/bin"; chmod +x "$W/bin"; BIN=$W/bin
ceph() { in_ns ceph "$@"; }
rbd() { in_ns rbd "$@"; }
cluster_up --osds 1 --osd-size 3G --ip 10.99.7.1
ceph osd pool create rbd 16
rbd pool init rbd
rbd create --size 256M rbd/krbd --image-feature layering,exclusive-lock,object-map,fast-diff
rbd create --size 256M rbd/parent --image-feature layering
# The parent has a file system made here, so that the guest's writes to the clone cause copy-up.
truncate -s 256M "$W/fs"; mke2fs -q -t ext4 -F "$W/fs"
rbd create --size 192M rbd/nbd
rbd import --dest-pool rbd "$W/fs" base --image-feature layering
rbd snap create rbd/base@s; rbd snap protect rbd/base@s; rbd clone rbd/base@s rbd/clone --image-feature layering
{ echo "MON=10.99.7.1:$PORT"; echo "KEY=$(ceph auth print-key client.admin)"; } >"$G/job"
cp "$W/c/ceph.conf" "$G/etc/ceph/"
ceph auth get client.admin >"$G/etc/ceph/ceph.client.admin.keyring" 2>/dev/null
sed -i '/keyring/d' "$G/etc/ceph/ceph.conf"
(cd "$G" && find . | cpio -o -H newc --quiet | gzip -1) >"$W/initrd"
accel=${ACCEL:-tcg} # kvm where it works; nested virtualisation often does not
mkfifo "$W/in"
in_ns qemu-system-x86_64 -machine q35,accel="$accel" -cpu max -m 1024 -smp 1 -nographic -no-reboot \
  -kernel "$W/kernel/boot/vmlinuz-$version" -initrd "$W/initrd" -append "console=ttyS0 panic=-1 quiet" \
  -netdev tap,id=n,ifname=tap0,script=no,downscript=no -device virtio-net-pci,netdev=n \
  <"$W/in" >"$W/guest.out" 2>&1 &
Q=$!
PIDS+=("$Q")
exec 9>"$W/in"
ended() { ! kill -0 "$Q" 2>/dev/null; }
asks() { grep -q "$1" "$W/guest.out" || ended; }
wait_for 400 asks KILL-OSD
if ! ended; then
  kill -KILL "$(cat "$W"/c/run/osd.0.pid)"
  echo go >&9
fi
wait_for 400 asks SNAPSHOT
if ! ended; then
  rbd snap create rbd/nbd@s
  echo go >&9
fi
wait_for 400 ended || { cat "$W/guest.out"; exit 1; }
grep -v '^$' "$W/guest.out" | tail -n 40
grep -q "GUEST PASSED" "$W/guest.out"
cluster_down
