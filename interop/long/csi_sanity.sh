# csi-sanity, the conformance test of Kubernetes' storage interface, against ceph-csi's RBD driver with its controller and
# its node service: Debian's kernel in QEMU maps, formats, mounts, resizes and unmaps the images. For volumes with a file
# system by the kernel's rbd client, as raw block devices, and with a file system by rbd-nbd (CASES). First on our cluster,
# then on real Ceph (CLUSTERS): what fails here must fail there, too, by the driver itself.
#
# CEPHCSI is ceph-csi's program `cephcsi`, built for Debian's librados and librbd. CSI_SANITY is csi-sanity
# (`go install github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity@v5.4.0`). Needs what guest.sh needs, and the packages
# ceph-common, rbd-nbd, e2fsprogs; ceph-mon, ceph-mgr, ceph-osd for CLUSTERS=ceph. Ten minutes without KVM: LIMIT=3000
# interop/run.sh csi_sanity.
source "$(dirname "$0")/../lib.sh"
: "${CEPHCSI:=$(type -P cephcsi || true)}" "${CSI_SANITY:=$(type -P csi-sanity || true)}"
: "${CASES:=mount block nbd}" "${CLUSTERS:=ours ceph}"
[ -x "$CEPHCSI" ] && [ -x "$CSI_SANITY" ] || { echo "needs CEPHCSI and CSI_SANITY"; exit 77; }
source "$(dirname "$0")/../guest.sh"
source "$(dirname "$0")/../real_ceph.sh"
chmod 755 "$W"
cd "$W"
PORT=3300

guest_root 9p 9pnet_virtio overlay rbd nbd ext4
job_on_host "$W/inside" '"$KEY"' >"$G/job"

cat >inside <<I
#!/bin/bash
set -uo pipefail
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 HOME=/root
unset CEPH_CONF
W=$W CEPHCSI=$CEPHCSI CSI_SANITY=$CSI_SANITY HOST=$GUEST_HOST FSID=\$(cat $W/fsid) KEY=\$1
hostname guest
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t tmpfs -o mode=755 run /run
mount -t tmpfs -o mode=755 kubelet /mnt
mount -t tmpfs -o mode=755 etc /etc/ceph
mkdir -p /etc/ceph-csi-config /tmp/csi/keys \$W/out
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 out $W/out
# Kubernetes names a file system for each volume, csi-sanity none: then the driver calls mkfs.
printf '#!/bin/sh\nexec mkfs.ext4 "\$@"\n' >/usr/local/sbin/mkfs
chmod 755 /usr/local/sbin/mkfs
echo "[{\"clusterID\": \"\$FSID\", \"monitors\": [\"\$HOST:3300\"]}]" >/etc/ceph-csi-config/config.json
mkdir /run/csi
cd /run/csi
for s in {Create,Delete,ControllerExpand,ControllerPublish,ControllerUnpublish,ControllerValidate,NodeStage,NodePublish}Volume \
  ControllerValidateVolumeCapabilities CreateSnapshot DeleteSnapshot ListSnapshots; do
  echo "\${s}Secret: { userID: csi, userKey: \$KEY }"
done >secrets.yaml
echo "{ clusterID: \$FSID, pool: csi }" >snapshots.yaml
\$CEPHCSI --type=rbd --drivername=rbd.csi.ceph.com --nodeid=guest --nodeserver=true --controllerserver=true \
  --endpoint=unix:///run/csi/csi.sock --pluginpath=/mnt --stagingpath=/mnt/staging --v=5 >$W/out/driver.log 2>&1 &
for case in $CASES; do
  parameters="clusterID: \$FSID, pool: csi, imageFeatures: layering"
  access=mount
  case \$case in
    nbd) parameters="\$parameters, mounter: rbd-nbd" ;;
    block) access=block ;;&
    *) parameters="\$parameters, mapOptions: 'krbd:ms_mode=prefer-crc'" ;;
  esac
  echo "{ \$parameters }" >parameters.yaml
  # A volume that grows has a file system that grows, so the sizes are real. The driver's smallest is 1 GiB.
  \$CSI_SANITY --csi.endpoint=unix:///run/csi/csi.sock --csi.secrets=secrets.yaml --csi.testvolumeparameters=parameters.yaml \
    --csi.testsnapshotparameters=snapshots.yaml --csi.testvolumeaccesstype=\$access --csi.mountdir=/mnt/target \
    --csi.stagingdir=/mnt/stage --csi.testvolumesize=1073741824 --csi.testvolumeexpandsize=2147483648 \
    --ginkgo.junit-report=$W/out/\$case.xml --ginkgo.no-color --ginkgo.v --ginkgo.skip='${SKIP:-}' >$W/out/\$case.log 2>&1
  echo "case \$case ended with \$?"
  ls /sys/bus/rbd/devices /sys/block | grep -E '^(rbd[0-9]+|[0-9]+)$' >$W/out/\$case.left
  for n in /sys/block/nbd*/pid; do [ ! -e "\$n" ] || echo "\$n" >>$W/out/\$case.left; done
  grep -E ' /mnt/.*(rbd|nbd)' /proc/mounts >>$W/out/\$case.left
done
dmesg >$W/out/dmesg
echo GUEST PASSED
busybox poweroff -f
I
chmod 755 inside

guest_network
# run_guest CLUSTER: the cases in a guest; what they printed is in out.CLUSTER.
run_guest() {
  ceph osd pool create csi 16
  in_ns rbd -c "$CONF" pool init csi
  ceph fsid >fsid
  # As docs/operate/kubernetes.md has it.
  ceph auth get-or-create client.csi mon 'profile rbd' mgr 'profile rbd' osd 'profile rbd' >/dev/null
  rm -f in guest.out
  mkdir "out.$1"
  GUEST_MEMORY=3072 GUEST_CPUS=2 GUEST_OPTIONS="mitigations=off" guest_start \
    -virtfs local,path=/,mount_tag=host,security_model=passthrough,readonly=on,multidevs=remap \
    -virtfs "local,path=$W/out.$1,mount_tag=out,security_model=passthrough"
  wait_for 3000 ended || { tail -n 20 "out.$1"/*.log; exit 1; }
  guest_ends 5 || { tail -n 40 "out.$1/driver.log"; exit 1; }
}
# The guest's key is that of the driver.
ceph() {
  if [ "$*" = "auth print-key client.admin" ]; then set -- auth print-key client.csi; fi
  in_ns timeout 180 "$(type -P ceph)" -c "$CONF" "$@"
}
# failed CLUSTER: the cases that failed.
failed() {
  for c in $CASES; do grep -a '^ *\[FAIL\]' "out.$1/$c.log" | sed "s/^ */$c: /" | sort -u || true; done
}

for cluster in $CLUSTERS; do
  if [ "$cluster" = ours ]; then
    cluster_up --osds 3 --osd-size 4G --ip "$GUEST_HOST"
    CONF=$CEPH_CONF
    run_guest ours
    # What the test made, it removed: images, mappings, mounts, the driver's records.
    wait_for 60 sh -c "! ip netns exec $ns rbd -c $CONF ls csi | grep ."
    left=$(in_ns rados -c "$CONF" -p csi ls | grep -Ec '^(rbd_data|rbd_header|csi\.(volume|snap)\.)' || true)
    expect "objects that are left" "$left" 0
    for c in $CASES; do [ ! -s "out.ours/$c.left" ] || { echo "$c: left mapped or mounted:"; cat "out.ours/$c.left"; exit 1; }; done
    cluster_down
  else
    REAL="ip netns exec $ns" REAL_IP=$GUEST_HOST CONF=$W/real/ceph.conf
    real_cluster "$W/real" $PORT
    real_cluster_osd "$W/real"
    run_guest ceph
  fi
  for c in $CASES; do
    echo "== $cluster, $c: $(grep -aE '^(FAIL|SUCCESS)! +--|^Ran ' "out.$cluster/$c.log" | tr '\n' ' ')"
  done
  echo "== $cluster: the kernel mapped an image $(grep -c 'rbd: rbd[0-9]*: capacity' "out.$cluster/dmesg") times"
  failed "$cluster" | sort >"failed.$cluster"
done
[ ! -e failed.ceph ] || { echo "on real Ceph:"; cat failed.ceph; }
if [ -e failed.ours ]; then
  if grep -E 'libceph: .*(bad|corrupt|error|invalid|unexpected)|rbd: .*(error|fail)|Call Trace' out.ours/dmesg; then exit 1; fi
  for c in $CASES; do grep -qE '^Ran [1-9]' "out.ours/$c.log"; done
  touch failed.ceph
  comm -23 failed.ours failed.ceph >only
  [ ! -s only ] || { echo "fail on our cluster only:"; cat only; exit 1; }
fi
