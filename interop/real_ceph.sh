# A cluster of real Ceph beside, or instead of, one of ours; sourced after lib.sh.
#
# Provides: real_cluster DIR PORT (monitor a and manager x; DIR/ceph.conf and DIR/ceph.client.admin.keyring),
# real_cluster_osd DIR (osd.0 in memory), real_cluster_fs DIR NAME (mds.m, and a file system), real_ceph DIR ARGS… (the
# `ceph` command). REAL="chroot ROOT" takes Ceph's programs of another release; DIR is then the same directory in both.
# Daemons are ended with the test. Ports: PORT, and PORT + 20 to PORT + 60, of REAL_IP (127.0.0.1).
: "${REAL_IP:=127.0.0.1}"

real() { ${REAL:-command} "$@"; }

real_ceph() { local d=$1; shift; real timeout 180 ceph -c "$d/ceph.conf" "$@"; }

# real_daemon DIR COMMAND…: starts a daemon.
real_daemon() {
  local d=$1; shift
  # shellcheck disable=SC2086
  ${REAL:-} "$@" -c "$d/ceph.conf" -f >"$d/log/$1.out" 2>&1 & PIDS+=($!)
}

real_conf() { # real_conf DIR PORT FSID
  cat <<C
[global]
fsid = $3
mon_host = [v2:$REAL_IP:$2/0]
auth_cluster_required = cephx
auth_service_required = cephx
auth_client_required = cephx
osd_pool_default_size = 1
osd_pool_default_min_size = 1
mon_allow_pool_size_one = true
mon_allow_pool_delete = true
run_dir = $1/run
log_file = $1/log/\$name.log
mon_cluster_log_file = $1/log/cluster.log
admin_socket = $1/run/\$name.asok
pid_file = $1/run/\$name.pid
keyring = $1/\$name.keyring
crash_dir = $1/crash
public_addr = $REAL_IP
cluster_addr = $REAL_IP
ms_bind_port_min = $(($2 + 20))
ms_bind_port_max = $(($2 + 60))
ms_bind_msgr1 = false
setuser_match_path =
[mon]
mon_data = $1/mon.\$id
mon_initial_members = a
mon_max_mds_wait = 1
mon_data_avail_warn = 2
mon_data_avail_crit = 1
paxos_propose_interval = 0.1
[mgr]
mgr_data = $1/mgr.\$id
mgr_initial_modules =
[client]
admin_socket = $1/run/\$name.\$pid.asok
pid_file =
[client.admin]
keyring = $1/ceph.client.admin.keyring
[osd]
osd_data = $1/osd.\$id
osd_objectstore = memstore
memstore_device_bytes = 4294967296
[mds]
mds_data = $1/mds.\$id
C
}

real_cluster() { # real_cluster DIR PORT
  local d=$1 port=$2 fsid
  fsid=$(cat /proc/sys/kernel/random/uuid)
  mkdir -p "$d"/{run,log,mon.a,mgr.x,osd.0,mds.m}
  real_conf "$d" "$port" "$fsid" >"$d/ceph.conf"
  real ceph-authtool --create-keyring "$d/mon.a.keyring" --gen-key -n mon. --cap mon 'allow *' >/dev/null
  real ceph-authtool --create-keyring "$d/ceph.client.admin.keyring" --gen-key -n client.admin \
    --cap mon 'allow *' --cap osd 'allow *' --cap mgr 'allow *' --cap mds 'allow *' >/dev/null
  real ceph-authtool "$d/mon.a.keyring" --import-keyring "$d/ceph.client.admin.keyring" >/dev/null
  real monmaptool --create --clobber --fsid "$fsid" --addv a "[v2:$REAL_IP:$port/0]" "$d/monmap" >/dev/null
  real ceph-mon -c "$d/ceph.conf" --mkfs -i a --monmap "$d/monmap" --keyring "$d/mon.a.keyring"
  real_daemon "$d" ceph-mon -i a
  wait_for 60 real_ceph "$d" --connect-timeout 5 mon stat
  real_ceph "$d" auth get-or-create mgr.x mon 'allow profile mgr' osd 'allow *' mds 'allow *' -o "$d/mgr.x.keyring"
  real_daemon "$d" ceph-mgr -i x
}

real_cluster_osd() { # real_cluster_osd DIR
  local d=$1 uuid
  uuid=$(cat /proc/sys/kernel/random/uuid)
  real_ceph "$d" osd new "$uuid" >/dev/null
  real_ceph "$d" auth get-or-create osd.0 mon 'allow profile osd' osd 'allow *' mgr 'allow profile osd' -o "$d/osd.0.keyring"
  real ceph-osd -c "$d/ceph.conf" -i 0 --mkfs --osd-uuid "$uuid" >"$d/log/mkfs.out" 2>&1
  real_daemon "$d" ceph-osd -i 0
  is_up_there() { real_ceph "$d" osd stat | grep -q '1 up'; }
  wait_for 60 is_up_there
}

real_cluster_fs() { # real_cluster_fs DIR NAME
  local d=$1
  real_ceph "$d" auth get-or-create mds.m mon 'allow profile mds' osd 'allow rwx' mds allow mgr 'allow profile mds' -o "$d/mds.m.keyring"
  real_ceph "$d" osd pool create fsmeta 1
  real_ceph "$d" osd pool create fsdata 1
  real_ceph "$d" fs new "$2" fsmeta fsdata
  real_daemon "$d" ceph-mds -i m
  serves_files() { real_ceph "$d" mds stat | grep -q 'm=up:active'; }
  wait_for 120 serves_files
}
