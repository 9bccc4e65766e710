# Images and objects as docs/operate/from-ceph.md moves them: a cluster of Debian's Ceph (monitor, manager, OSD), a
# Belemnite cluster, and the data moved from one to the other while clients of the first continue. File systems are in
# from_ceph_files.sh.
#
# Needs ceph-mon, ceph-mgr, ceph-osd and rbd-mirror. NEWER="chroot DIR" is a root with Ceph 20.2, whose `rbd` migrates
# images between clusters; SCRATCH is then a directory that is the same in both. Without it that part is skipped.
source "$(dirname "$0")/../lib.sh"
source "$ROOT/interop/real_ceph.sh"
command -v rbd-mirror >/dev/null || { echo "rbd-mirror is not installed"; exit 77; }
: "${WAIT:=240}"
D=$W/old
OLD=$D/ceph.conf NEW=$W/c/ceph.conf
old() { CEPH_CONF=$OLD timeout 120 "$@"; }
new() { CEPH_CONF=$NEW timeout 120 "$@"; }

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

real_cluster "$D" $((PORT + 100))
real_cluster_osd "$D"
cluster_up --osds 1 --osd-size 4G
images_by_mirror
images_by_migration
objects_by_export
echo "from Ceph: all walked through"
