# Records what restricted keys may do on a real Ceph cluster, with one monitor, manager, OSD and MDS made for it, with
# py/record_rights.py. OUT is the directory for the recordings. REAL="chroot DIR" uses Ceph of another release in a root
# directory; SCRATCH is then a directory that is the same in both. KINDS limits what is recorded; `auth`: the output of
# commands on keys (NEWER=newer: also of 18.2 and later). About 15 minutes for a release.
source "$(dirname "$0")/../lib.sh"
: "${OUT:?directory for the recordings}"
real() { ${REAL:-command} "$@"; }
D=$W/real; mkdir -p "$D"/{run,log,mon.a,mgr.x,osd.0,mds.m}
cp "$ROOT/interop/py/record_rights.py" "$W"
FSID=$(cat /proc/sys/kernel/random/uuid)
cat >"$D/ceph.conf" <<C
[global]
fsid = $FSID
mon_host = [v2:127.0.0.1:$PORT/0]
osd_pool_default_size = 1
osd_pool_default_min_size = 1
mon_allow_pool_size_one = true
mon_allow_pool_delete = true
run_dir = $D/run
log_file = $D/log/\$name.log
mon_cluster_log_file = $D/log/cluster.log
admin_socket = $D/run/\$name.asok
pid_file = $D/run/\$name.pid
keyring = $D/\$name.keyring
crash_dir = $D/crash
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_port_min = $((PORT + 20))
ms_bind_port_max = $((PORT + 60))
ms_bind_msgr1 = false
setuser_match_path =
[mon]
mon_data = $D/mon.\$id
mon_initial_members = a
paxos_propose_interval = 0.1
mon_max_mds_wait = 1
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
ceph_real() { real ceph -c "$D/ceph.conf" "$@"; }
real ceph-authtool --create-keyring "$D/mon.a.keyring" --gen-key -n mon. --cap mon 'allow *'
real ceph-authtool --create-keyring "$D/ceph.client.admin.keyring" --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *' --cap mgr 'allow *' --cap mds 'allow *'
real ceph-authtool "$D/mon.a.keyring" --import-keyring "$D/ceph.client.admin.keyring"
real monmaptool --create --clobber --fsid "$FSID" --addv a "[v2:127.0.0.1:$PORT/0]" "$D/monmap"
real ceph-mon -c "$D/ceph.conf" --mkfs -i a --monmap "$D/monmap" --keyring "$D/mon.a.keyring"
start() { ${REAL:-} "$@" -c "$D/ceph.conf" -f >"$D/log/$1.out" 2>&1 & PIDS+=($!); }
start ceph-mon -i a
wait_for 60 ceph_real --connect-timeout 5 mon stat
ceph_real auth get-or-create mgr.x mon 'allow profile mgr' osd 'allow *' mds 'allow *' -o "$D/mgr.x.keyring"
start ceph-mgr -i x
UUID=$(cat /proc/sys/kernel/random/uuid)
ceph_real osd new "$UUID"
ceph_real auth get-or-create osd.0 mon 'allow profile osd' osd 'allow *' mgr 'allow profile osd' -o "$D/osd.0.keyring"
real ceph-osd -c "$D/ceph.conf" -i 0 --mkfs --osd-uuid "$UUID" >"$D/log/mkfs.out" 2>&1
start ceph-osd -i 0
ceph_real auth get-or-create mds.m mon 'allow profile mds' osd 'allow rwx' mds 'allow' mgr 'allow profile mds' -o "$D/mds.m.keyring"
ceph_real osd pool create fsmeta 1
ceph_real osd pool create fsdata 1
ceph_real fs new home fsmeta fsdata
start ceph-mds -i m
is_serving() { ceph_real mds stat | grep -q 'm=up:active'; }
wait_for 120 is_serving
mkdir -p "$OUT" "$W/out" "$W/t"
if [ "${KINDS:-}" = auth ]; then
  # Texts of `ceph auth` and `ceph-authtool`.
  ceph() { ceph_real "$@"; }
  ceph-authtool() { real ceph-authtool "$@"; }
  source "$ROOT/interop/py/auth_transcript.sh" "$W/t" ${NEWER:-} >"$OUT/auth.txt"
  exit
fi
# shellcheck disable=SC2086
real /usr/bin/python3 "$W/record_rights.py" "$D/ceph.conf" "$W/out" ${KINDS:-}
cp "$W"/out/*.json "$OUT"; cp "$W"/out/*.log "$OUT" 2>/dev/null || true
