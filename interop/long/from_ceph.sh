# The migration described in docs/operate/from-ceph.md: a cluster of Debian's Ceph (monitor, manager, OSD, MDS and
# gateway), a Belemnite cluster, and the data moved from one to the other while clients of the first continue.
#
# Needs ceph-mon, ceph-mgr, ceph-osd, ceph-mds, ceph-fuse, radosgw, rbd-mirror and rsync. NEWER="chroot DIR" is a root
# with Ceph 20.2, whose `rbd` migrates images between clusters; SCRATCH is then a directory that is the same in both.
# Without it that part is skipped.
source "$(dirname "$0")/../lib.sh"
for c in rbd-mirror rsync ceph-mds ceph-fuse; do
  command -v $c >/dev/null || { echo "$c is not installed"; exit 77; }
done
: "${WAIT:=240}"
D=$W/old; mkdir -p "$D"/{run,log,mon.a,mgr.x,osd.0,mds.m,mnt} "$W/mnt"
OLD=$D/ceph.conf NEW=$W/c/ceph.conf
old() { CEPH_CONF=$OLD timeout 120 "$@"; }
new() { CEPH_CONF=$NEW timeout 120 "$@"; }

old_cluster() { # a cluster of Ceph with one of each daemon
  local port=$((PORT + 100)) fsid
  fsid=$(cat /proc/sys/kernel/random/uuid)
  cat >"$OLD" <<C
[global]
fsid = $fsid
mon_host = [v2:127.0.0.1:$port/0]
osd_pool_default_size = 1
osd_pool_default_min_size = 1
mon_allow_pool_size_one = true
mon_allow_pool_delete = true
run_dir = $D/run
log_file = $D/log/\$name.log
mon_cluster_log_file = $D/log/cluster.log
admin_socket = $D/run/\$name.\$pid.asok
keyring = $D/\$name.keyring
crash_dir = $D/crash
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_port_min = $((port + 20))
ms_bind_port_max = $((port + 60))
ms_bind_msgr1 = false
setuser_match_path =
[mon]
mon_data = $D/mon.\$id
mon_initial_members = a
paxos_propose_interval = 0.1
[mgr]
mgr_data = $D/mgr.\$id
mgr_initial_modules =
[client.admin]
keyring = $D/ceph.client.admin.keyring
[osd]
osd_data = $D/osd.\$id
osd_objectstore = memstore
memstore_device_bytes = 4294967296
[mds]
mds_data = $D/mds.\$id
C
  ceph-authtool --create-keyring "$D/mon.a.keyring" --gen-key -n mon. --cap mon 'allow *' >/dev/null
  ceph-authtool --create-keyring "$D/ceph.client.admin.keyring" --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *' --cap mgr 'allow *' --cap mds 'allow *' >/dev/null
  ceph-authtool "$D/mon.a.keyring" --import-keyring "$D/ceph.client.admin.keyring" >/dev/null
  monmaptool --create --clobber --fsid "$fsid" --addv a "[v2:127.0.0.1:$port/0]" "$D/monmap" >/dev/null
  ceph-mon -c "$OLD" --mkfs -i a --monmap "$D/monmap" --keyring "$D/mon.a.keyring"
  start() { "$@" -c "$OLD" -f >"$D/log/$1.out" 2>&1 & PIDS+=($!); }
  start ceph-mon -i a
  wait_for 60 old ceph --connect-timeout 5 mon stat
  old ceph auth get-or-create mgr.x mon 'allow profile mgr' osd 'allow *' mds 'allow *' -o "$D/mgr.x.keyring"
  start ceph-mgr -i x
  local uuid; uuid=$(cat /proc/sys/kernel/random/uuid)
  old ceph osd new "$uuid" >/dev/null
  old ceph auth get-or-create osd.0 mon 'allow profile osd' mgr 'allow profile osd' osd 'allow *' -o "$D/osd.0.keyring"
  ceph-osd -c "$OLD" -i 0 --mkfs --osd-uuid "$uuid" >"$D/log/mkfs.out" 2>&1
  start ceph-osd -i 0
  wait_for 60 sh -c "CEPH_CONF=$OLD ceph osd stat | grep -q '1 up'"
}

# --- images: rbd-mirror --------------------------------------------------------------------------------------------------
hash() { "$1" rbd export "data/$2" - 2>/dev/null | sha256sum; }
same() { [ "$(hash old "$1")" = "$(hash new "$1")" ]; }
write() { # write CLUSTER IMAGE
  "$1" rbd bench --io-type write --io-size 16K --io-threads 8 --io-total 6M --io-pattern rand "data/$2" >/dev/null
}
images_by_mirror() {
  old ceph osd pool create data 8
  old rbd pool init data
  new ceph osd pool create data 8
  new rbd pool init data
  old rbd create --size 64M --image-feature layering,exclusive-lock data/vm
  write old vm
  old rbd snap create data/vm@monday
  write old vm
  old rbd mirror pool enable --site-name old data image
  new rbd mirror pool enable --site-name new data image
  old rbd mirror pool peer bootstrap create --site-name old data >"$W/token"
  new rbd mirror pool peer bootstrap import --site-name new --direction rx-only data "$W/token"
  CEPH_CONF=$NEW setpriv --pdeathsig KILL rbd-mirror -f -n client.admin --admin-socket "$W/mirror.asok" --log-file "$W/mirror.log" \
    --rbd_mirror_pool_replayers_refresh_interval 3 --rbd_mirror_image_state_check_interval 2 >"$W/mirror.out" 2>&1 &
  PIDS+=("$!")
  # A mirror snapshot goes to the peers known at its creation; the daemon registers itself as a peer.
  peered() { old rbd mirror pool info data | grep -q 'Direction: tx-only'; }
  wait_for "$WAIT" peered
  old rbd mirror image enable data/vm snapshot
  wait_for "$WAIT" new rbd info data/vm
  wait_for "$WAIT" same vm || { tail -n 30 "$W/mirror.log"; new rbd mirror pool status data --verbose; return 1; }
  echo "images: the first copy equals"
  write old vm
  # The move: the client stops, its last writes are replicated, and it starts again with the other ceph.conf.
  old rbd mirror image demote data/vm
  promote() { new rbd mirror image promote data/vm; }
  wait_for "$WAIT" promote
  same vm
  expect "snapshots that moved" "$(new rbd snap ls data/vm | grep -c monday)" 1
  write new vm
  ! write old vm 2>/dev/null || { echo "the old image can still be written"; return 1; }
  new rbd mirror image disable --force data/vm
  echo "images: served by the new cluster after demote and promote"
}

# --- images: migration from another cluster -------------------------------------------------------------------------------
images_by_migration() {
  [ -n "${NEWER:-}" ] || { echo "images: no Ceph 20.2, no migration from cluster to cluster"; return 0; }
  old rbd create --size 64M --image-feature layering data/disk
  write old disk
  old rbd snap create data/disk@move
  local before; before=$(hash old disk)
  # The other cluster is named by its ceph.conf and keyring in /etc/ceph of the user of the command.
  local etc=${NEWER#chroot }/etc/ceph
  mkdir -p "$etc"
  cp "$OLD" "$etc/old.conf"; cp "$D/ceph.client.admin.keyring" "$etc/old.client.admin.keyring"
  sed -i "s|^keyring = .*admin.keyring|keyring = /etc/ceph/old.client.admin.keyring|" "$etc/old.conf"
  newer() { CEPH_CONF=$NEW timeout 300 $NEWER "$@"; }
  newer rbd migration prepare --import-only --source-spec \
    '{"type": "native", "cluster_name": "old", "client_name": "client.admin", "pool_name": "data", "image_name": "disk", "snap_name": "move"}' data/disk
  expect "what is read while it is in the old cluster" "$(newer rbd export data/disk - 2>/dev/null | sha256sum)" "$before"
  newer rbd bench --io-type write --io-size 16K --io-total 1M --io-pattern seq data/disk >/dev/null
  local changed; changed=$(newer rbd export data/disk - 2>/dev/null | sha256sum)
  newer rbd migration execute data/disk --no-progress
  newer rbd migration commit data/disk --no-progress
  expect "what is read once it is here" "$(hash new disk)" "$changed"
  expect "what the old cluster has" "$(hash old disk)" "$before"
  rm -f "$etc/old.conf" "$etc/old.client.admin.keyring"
  echo "images: migrated while they were used"
}

# --- files ------------------------------------------------------------------------------------------------------------------
mount_of() { # mount_of CONF DIR
  ceph-fuse -f -c "$1" -n client.admin -k "$(dirname "$1")/ceph.client.admin.keyring" --client_mountpoint / "$2" >"$2.out" 2>&1 &
  PIDS+=("$!"); FUSE+=("$2")
  wait_for 60 mountpoint -q "$2"
}
FUSE=()
files_by_rsync() {
  old ceph osd pool create fs.meta 8
  old ceph osd pool create fs.data 8
  old ceph fs new home fs.meta fs.data
  old ceph auth get-or-create mds.m mon 'allow profile mds' osd 'allow *' mds 'allow *' mgr 'allow profile mds' -o "$D/mds.m.keyring"
  start ceph-mds -i m
  wait_for 60 sh -c "CEPH_CONF=$OLD ceph fs status -f json | grep -q '\"state\": \"active\"'"
  mount_of "$OLD" "$D/mnt"
  mount_of "$NEW" "$W/mnt"
  mkdir "$D/mnt/project"
  cp -r "$ROOT/interop" "$D/mnt/project/"
  ln -s interop/lib.sh "$D/mnt/project/link"
  rsync -aHAX "$D/mnt/" "$W/mnt/"
  # Clients continued meanwhile; the second run, without writers, copies their changes.
  echo changed >"$D/mnt/project/interop/lib.sh"
  rm "$D/mnt/project/interop/run.sh"
  rsync -aHAX --delete "$D/mnt/" "$W/mnt/"
  diff -r --no-dereference "$D/mnt" "$W/mnt"
  for m in "${FUSE[@]}"; do fusermount -u "$m" 2>/dev/null || umount "$m"; done
  echo "files: copied in two runs"
}

# --- objects ----------------------------------------------------------------------------------------------------------------
objects_by_export() {
  local c i
  for c in old new; do $c ceph osd pool create things 8; done
  for i in $(seq 20); do
    old rados -p things put "thing$i" "$ROOT/interop/lib.sh"
    old rados -p things setxattr "thing$i" colour "red$i"
    old rados -p things setomapval "thing$i" key "value$i"
  done
  old rados -p things export "$W/things.dump"
  new rados -p things import "$W/things.dump"
  expect "names" "$(new rados -p things ls | sort)" "$(old rados -p things ls | sort)"
  for i in 1 20; do
    new rados -p things get "thing$i" - | cmp - "$ROOT/interop/lib.sh"
    expect "attribute" "$(new rados -p things getxattr "thing$i" colour)" "red$i"
    expect "omap" "$(new rados -p things listomapvals "thing$i")" "$(old rados -p things listomapvals "thing$i")"
  done
  echo "objects: exported and imported"
}

old_cluster
cluster_up --osds 1 --osd-size 4G --fs
images_by_mirror
images_by_migration
files_by_rsync
objects_by_export
echo "from Ceph: all walked through"
