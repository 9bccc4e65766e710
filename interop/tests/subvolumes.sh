# Subvolumes of CephFS in the built-in manager role, with Debian's ceph-mds: groups, subvolumes, quotas, keys, snapshots,
# clones and the trash, as ceph-csi, Manila and Rook use them; libcephfs looks at the files. The role is killed in the
# middle of a clone, and the MDS under it.
source "$(dirname "$0")/../lib.sh"
check() { timeout 120 /usr/bin/python3 "$ROOT/interop/py/subvolumes_check.py" home "$@"; }
cluster_up --osds 3 --osd-size 2G --fs home --mds 2
ceph config set mds mds_tick_interval 1
ceph config set global mds_beacon_grace 6
sub() { ceph fs subvolume "$@"; }
fails() { # fails ERRNO COMMAND…
  local want=$1 out; shift
  if out=$("$@" 2>&1); then echo "succeeded: $*: $out" >&2; return 1; fi
  [[ $out = *"Error $want"* ]] || { echo "$*: got '$out', expected $want" >&2; return 1; }
}

# Groups.
expect groups "$(ceph fs subvolumegroup ls home)" "[]"
ceph fs subvolumegroup create home csi
ceph fs subvolumegroup create home csi # again
expect path "$(ceph fs subvolumegroup getpath home csi)" /volumes/csi
expect groups "$(ceph fs subvolumegroup ls home | jq -c .)" '[{"name":"csi"}]'
fails ENOENT ceph fs subvolumegroup getpath home none
fails ENOENT ceph fs subvolumegroup ls none
fails EPERM ceph fs subvolumegroup create home _nogroup
fails EINVAL ceph fs subvolumegroup create home _deleting
ceph fs subvolumegroup create home limited --size 1000000 --mode 700 --uid 7 --gid 8
expect group "$(ceph fs subvolumegroup info home limited | jq -c '[.bytes_quota, .mode, .uid, .gid, .data_pool]')" \
  '[1000000,16832,7,8,"cephfs.home.data"]'
ceph fs subvolumegroup resize home limited 2000000 >/dev/null
expect quota "$(ceph fs subvolumegroup info home limited | jq .bytes_quota)" 2000000
ceph fs subvolumegroup pin home csi distributed 1
ceph fs subvolumegroup rm home limited
fails ENOENT ceph fs subvolumegroup rm home limited
ceph fs subvolumegroup rm home limited --force

# Subvolumes.
expect none "$(sub exist home --group_name csi)" "no subvolume exists"
sub create home pvc --group_name csi --size 104857600 --mode 777
sub create home plain
path=$(sub getpath home pvc --group_name csi)
[[ $path =~ ^/volumes/csi/pvc/[0-9a-f-]{36}$ ]]
expect info "$(sub info home pvc --group_name csi | jq -c '[.bytes_quota, .bytes_used, .bytes_pcent, .type, .state, .path, .data_pool, .pool_namespace, .features]')" \
  "[104857600,0,\"0.00\",\"subvolume\",\"complete\",\"$path\",\"cephfs.home.data\",\"\",[\"snapshot-clone\",\"snapshot-autoprotect\",\"snapshot-retention\"]]"
expect infinite "$(sub info home plain | jq -r .bytes_quota)" infinite
expect list "$(sub ls home csi | jq -c .)" '[{"name":"pvc"}]'
check layout "$path" 104857600
sub create home apart --namespace_isolated
expect namespace "$(sub info home apart | jq -r .pool_namespace)" fsvolumens_apart
fails EINVAL sub create home bad --pool_layout none
fails ENOENT sub info home bad
sub resize home pvc 209715200 --group_name csi >/dev/null
fails EINVAL sub resize home pvc x --group_name csi
expect resized "$(sub resize home plain inf | jq -c .)" '[{"bytes_used":0},{"bytes_quota":0},{"bytes_pcent":"undefined"}]'
sub metadata set home pvc csi.storage/name "a b" --group_name csi
expect key "$(sub metadata get home pvc csi.storage/name --group_name csi)" "a b"
expect keys "$(sub metadata ls home pvc --group_name csi | jq -c .)" '{"csi.storage/name":"a b"}'
sub metadata rm home pvc csi.storage/name --group_name csi
fails ENOENT sub metadata get home pvc csi.storage/name --group_name csi
sub earmark set home plain --earmark nfs
expect earmark "$(sub earmark get home plain)" nfs
sub earmark rm home plain
sub pin home plain export 0 >/dev/null

# Access.
sub authorize home pvc guest --group_name csi --access_level r --tenant_id t >"$W/key"
[ -s "$W/key" ]
expect caps "$(ceph auth get client.guest -f json | jq -r '.[0].caps.mds')" "allow r path=$path"
expect list "$(sub authorized_list home pvc --group_name csi | jq -c .)" '[{"guest":"r"}]'
sub authorize home pvc guest --group_name csi --tenant_id t >/dev/null
expect caps "$(ceph auth get client.guest -f json | jq -r '.[0].caps.mds')" "allow rw path=$path"
fails EPERM sub authorize home pvc admin --group_name csi
fails EPERM sub authorize home pvc admin --group_name csi --tenant_id t --allow_existing_id
expect "the caps of admin" "$(ceph auth get client.admin -f json | jq -r '.[0].caps.mds')" "allow *"
# The client of one subvolume still reads the maps when it has lost another.
sub authorize home plain guest --tenant_id t >/dev/null
sub deauthorize home plain guest
expect "its right to the maps" "$(ceph auth get client.guest -f json | jq -r '.[0].caps.mon')" "allow r"
sub evict home pvc guest --group_name csi
sub deauthorize home pvc guest --group_name csi
fails ENOENT ceph auth get client.guest
fails ENOENT sub deauthorize home pvc guest --group_name csi

# Snapshots and clones.
check fill "$path"
sub snapshot create home pvc s1 --group_name csi
check spoil "$path"
expect snapshots "$(sub snapshot ls home pvc --group_name csi | jq -c .)" '[{"name":"s1"}]'
expect snapshot "$(sub snapshot info home pvc s1 --group_name csi | jq -c '[.data_pool, .has_pending_clones]')" '["cephfs.home.data","no"]'
fails ENOENT sub snapshot info home pvc s2 --group_name csi
sub snapshot protect home pvc s1 --group_name csi 2>/dev/null
sub snapshot metadata set home pvc s1 k v --group_name csi
expect key "$(sub snapshot metadata get home pvc s1 k --group_name csi)" v
fails ENOTEMPTY sub rm home pvc --group_name csi
sub snapshot clone home pvc s1 copy --group_name csi --target_group_name csi
state() { ceph fs clone status home "$1" --group_name csi | jq -r .status.state; }
is_in() { [ "$(state "$1")" = "$2" ]; }
wait_for 60 is_in copy complete || { ceph fs clone status home copy --group_name csi; exit 1; }
check same "$(sub getpath home copy --group_name csi)" 209715200
expect no_index "$(check names /volumes/_index/clone)" ""
fails EINVAL ceph fs clone cancel home copy --group_name csi
fails ENOTSUP ceph fs clone status home pvc --group_name csi

# A clone goes on after the monitor with the role was killed, and after the MDS was.
check many "$path" 2500
sub snapshot create home pvc s2 --group_name csi
sub snapshot clone home pvc s2 big --group_name csi --target_group_name csi
wait_for 20 is_in big in-progress
fails EAGAIN sub snapshot rm home pvc s2 --group_name csi
kill -KILL "$(cat "$W/c/run/mon.a.pid")"
wait_for 60 ceph -s
wait_for 60 is_in big in-progress || is_in big complete
serving() { ceph fs get home -f json | jq -r '.mdsmap.info[] | select(.rank == 0).name'; }
kill -KILL "$(cat "$W/c/run/mds.$(serving).pid")"
wait_for 120 is_in big complete || { ceph fs clone status home big --group_name csi; ceph mds stat; exit 1; }
check count "$(sub getpath home big --group_name csi)" 2500
sub snapshot clone home pvc s2 over --group_name csi --target_group_name csi
ceph fs clone cancel home over --group_name csi
wait_for 60 is_in over canceled
sub rm home over --group_name csi --force

# Snapshots by schedule: of a directory, and of a subvolume.
expect schedules "$(ceph fs snap-schedule status /)" ""
fails ENOENT ceph fs snap-schedule list /
fails ENOENT ceph fs snap-schedule add / 1m
fails EINVAL ceph fs snap-schedule add / 1h --fs none
ceph config set mgr mgr/snap_schedule/allow_m_granularity true
soon=$(date -u -d '-55 seconds' +%Y-%m-%dT%H:%M:%S)
expect set "$(ceph fs snap-schedule add / 1m "$soon")" "Schedule set for path /"
ceph fs snap-schedule add . 1h --subvol pvc --group csi >/dev/null
ceph fs snap-schedule retention add / 2m >/dev/null
ceph fs snap-schedule add /none 1m "$soon" >/dev/null
expect list "$(ceph fs snap-schedule list / --format json | jq -c '[.path, .schedule, .retention]')" '["/",["1m"],[{"m":2}]]'
expect subvolume "$(ceph fs snap-schedule status . --subvol pvc --group csi --format json | jq -r '.[0] | .path, .subvol')" "$path/..
pvc"
scheduled() { [ "$(ceph fs snap-schedule status / --format json | jq '.[0].created_count')" -ge "$1" ]; }
wait_for 30 scheduled 1
[[ $(check names /.snap) = scheduled-*_UTC ]]
off() { [ "$(ceph fs snap-schedule status /none --format json | jq '.[0].active')" = false ]; }
wait_for 10 off
ceph fs snap-schedule deactivate / 1m >/dev/null
expect off "$(ceph fs snap-schedule status / --format json | jq '.[0].active')" false
for p in / /none; do ceph fs snap-schedule remove "$p" >/dev/null; done
ceph fs snap-schedule remove . --subvol pvc --group csi >/dev/null
fails ENOENT ceph fs snap-schedule remove /
check rmsnaps /

# Removal: at once for those who list, later from the disks.
sub rm home pvc --group_name csi --retain-snapshots
fails ENOENT sub getpath home pvc --group_name csi
expect retained "$(sub info home pvc --group_name csi | jq -r .state)" snapshot-retained
sub snapshot rm home pvc s1 --group_name csi
purged() { [ -z "$(check names /volumes/_deleting)" ]; }
wait_for 60 purged
sub snapshot rm home pvc s2 --group_name csi
fails ENOENT sub info home pvc --group_name csi
for s in copy big; do sub rm home "$s" --group_name csi; done
for s in plain apart; do sub rm home "$s"; done
fails ENOENT sub rm home plain
sub rm home plain --force
wait_for 60 purged || { check names /volumes/_deleting; exit 1; }
ceph fs subvolumegroup rm home csi
expect groups "$(ceph fs subvolumegroup ls home)" "[]"
cluster_down
