# Winery's own tests, unmodified, with images mapped by the kernel's rbd client: Debian's kernel in QEMU runs those that
# map images, which are the tests of its RBD pools and of its mixed pools, on a cluster of six OSDs and 4+2 shards
# outside of the guest. The other tests, which map none, would take an hour more there; winery.sh runs them. Tests that
# are skipped are named. TESTS selects by pytest's -k. Half an hour without KVM: LIMIT=5000 interop/run.sh
# winery_kernel.
#
# The guest has the host's files, read-only by 9p under a layer in its memory, and its own udev, PostgreSQL and sudo.
# Two tests unmap an image that they still read. The kernel refuses that (EBUSY), whatever the cluster is, and is then
# told to do it by force; the number of such cases is shown. test_winery_add_concurrent depends on how threads are
# scheduled, see winery.sh.
#
# Needs what ../guest.sh and ../winery.sh need, and the packages sudo and udev; 4 GiB of memory are the guest's.
source "$(dirname "$0")/../winery.sh"
source "$(dirname "$0")/../lib.sh"
source "$(dirname "$0")/../guest.sh"
cd "$W"
chmod 755 "$W"
# Into the cache, where the guest finds it.
winery_venv "$W/found" testing,winery
rm found
mkdir out

guest_root 9p 9pnet_virtio overlay rbd
job_on_host "$W/inside" >"$G/job"

# What the guest's first process does there. The rules for udev are Ceph's, which make links, and that of
# docs/start/archive.md; the group is for the user of the tests.
cat >inside <<I
#!/bin/bash
set -uo pipefail
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 HOME=/root
export CEPH_CONF=$W/c/ceph.conf CACHE=$CACHE RBD_MAP_OPTIONS=ms_mode=prefer-crc TESTS='${TESTS:-}'
W=$W ROOT=$ROOT
run_tests() {
  hostname localhost
  mkdir -p /dev/pts /dev/shm
  mount -t devpts devpts /dev/pts
  mount -t tmpfs -o mode=1777 shm /dev/shm
  mount -t tmpfs -o mode=755 run /run
  mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 out $W/out
  mkdir -p /run/udev/rules.d
  echo 'SUBSYSTEM=="block", KERNEL=="rbd*", GROUP="postgres", MODE="0660"' >/run/udev/rules.d/59-group.rules
  echo 'SUBSYSTEM=="block", KERNEL=="rbd*", ATTR{ro}=="1", MODE="0440"' >/run/udev/rules.d/60-winery.rules
  /lib/systemd/systemd-udevd --daemon
  udevadm trigger --action=add
  udevadm settle
  source $ROOT/interop/winery.sh
  suite_here
  suite swh/objstorage/tests/winery/{test_objstorage_winery_rbd,test_winery_mixedpools}.py >$W/out/tests.out 2>&1
  echo \$? >$W/out/status
  cp $W/tests/results.xml $W/out/
  cp $W/forced $W/out/ 2>/dev/null
  dmesg >$W/out/dmesg
}
run_tests
[ "\$(cat $W/out/status)" = 0 ] && echo GUEST PASSED
busybox poweroff -f
I
chmod 755 inside
unmap_what_is_read

guest_network
cluster_up --osds 6 --osd-size 4G --ip "$GUEST_HOST"
GUEST_MEMORY=4096 GUEST_CPUS=2 GUEST_OPTIONS="mitigations=off" guest_start \
  -virtfs local,path=/,mount_tag=host,security_model=passthrough,readonly=on,multidevs=remap \
  -virtfs "local,path=$W/out,mount_tag=out,security_model=passthrough"
wait_for 7200 ended || { tail -n 20 out/tests.out; exit 1; }
guest_ends 5 || { grep -v '^WARNING' out/tests.out | tail -n 150; tail -n 30 out/dmesg; exit 1; }
suite_figures out/tests.out kernel
maps=$(grep -c 'rbd: rbd[0-9]*: capacity' out/dmesg) forced=$(cat out/forced 2>/dev/null | wc -l)
echo "== the kernel mapped an image $maps times, and unmapped one by force $forced times"
if grep -E 'libceph: .*(bad|corrupt|error|invalid|unexpected)|rbd: .*(error|fail)|Call Trace' out/dmesg; then exit 1; fi
suite_has_passed out/results.xml test_objstorage_winery_rbd=40 test_winery_mixedpools=40
cluster_down
