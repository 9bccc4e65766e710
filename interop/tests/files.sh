# A file system: Debian's unmodified ceph-mds on Belemnite's monitor and OSDs; libcephfs and, if /dev/fuse exists,
# ceph-fuse as clients. Two ranks with pins, takeovers under load, eviction, volumes, a restart. MDS_ROOT=DIR uses
# ceph-mds of another release in a root directory (tested: 20.2).
source "$(dirname "$0")/../lib.sh"
check() { timeout 120 /usr/bin/python3 "$ROOT/interop/py/files_check.py" "$@"; }
cluster_up --osds 3 --osd-size 2G --fs home --mds 3 ${MDS_ROOT:+--ceph-root "$MDS_ROOT"}
# Silent daemons are replaced after this many seconds; shorter, so that work on their tick is done sooner.
ceph config set global mds_beacon_grace 6
ceph config set mds mds_tick_interval 1

# Two ranks, with directories pinned to each.
active() { ceph mds stat | grep -Eq "$1"; }
ceph fs set home max_mds 2
wait_for 60 active '0=.=up:active,1=.=up:active'
check pinned home
# Meanwhile the second rank is stopped and exports its subtrees.
ceph fs set home max_mds 1
check basics home
check shared home
check counted home

# Data in an erasure-coded pool, which must allow overwrites first.
ceph osd erasure-code-profile set small k=2 m=1 crush-failure-domain=osd
ceph osd pool create coded 8 8 erasure small
! ceph fs add_data_pool home coded 2>/dev/null
ceph osd pool set coded allow_ec_overwrites true
ceph fs add_data_pool home coded
check coded home coded
ceph fs rm_data_pool home coded
ceph osd pool rm coded coded --yes-i-really-really-mean-it
wait_for 90 active '^home:1 \{0=.=up:active\} 2 up:standby$'

# Takeovers under load: synced data survives. A killed daemon returns at once and claims its rank. A hanging daemon is
# replaced by a standby when its beacons are overdue, and is blocklisted at the OSDs.
serving() { ceph fs get home -f json | jq -r '.mdsmap.info[] | select(.rank == 0 and .state == "up:active").name'; }
check load home 18 "$W/synced" & LOAD=$!
wait_for 20 test -s "$W/synced"
gid() { ceph fs get home -f json | jq -r '.mdsmap.info[] | select(.rank == 0 and .state == "up:active").gid'; }
anew() { local g; g=$(gid) && [ -n "$g" ] && [ "$g" != "$was" ] && active '\{0=.=up:active\} 2 up:standby'; }
for _ in 1 2; do
  was=$(gid)
  kill -KILL "$(cat "$W/c/run/mds.$(serving).pid")"
  wait_for 30 anew
done
before=$(serving) hung=$(cat "$W/c/run/mds.$(serving).pid")
kill -STOP "$hung"
taken() { local now; now=$(serving) && [ -n "$now" ] && [ "$now" != "$before" ]; }
wait_for 40 taken
kill -CONT "$hung"
wait_for 40 active '\{0=.=up:active\} 2 up:standby'
wait "$LOAD"
check verify home "$W/synced"
[ "$(ceph osd blocklist ls 2>/dev/null | grep -c /)" -ge 6 ] # two addresses for each

check evicted home

# The kernel's FUSE, if it exists: each client sees the other's changes.
if [ -c /dev/fuse ] && command -v ceph-fuse >/dev/null && mkdir "$W/mnt" && ceph-fuse --client_fs home "$W/mnt" 2>"$W/fuse.out"; then
  trap 'status=$?; umount "$W/mnt" || true; finish $status' EXIT
  (cd "$W/mnt" && mkdir src && tar -C "$ROOT/interop" -cf - py tests | tar -C src -xf - && diff -r src/py "$ROOT/interop/py" && sync)
  grep -q usage "$W/mnt/src/py/files_check.py"
  mkdir "$W/mnt/src/.snap/s" && rm -r "$W/mnt/src/py" && ls "$W/mnt/src/.snap/s/py/files_check.py" >/dev/null && rmdir "$W/mnt/src/.snap/s"
  umount "$W/mnt"
  trap finish EXIT
else
  echo "== without ceph-fuse: $(tail -n 1 "$W/fuse.out" 2>/dev/null || true)"
fi

# Volumes are created and removed with their pools; a key for one file system sees only that one.
ceph fs volume create vol
wait_for 30 active 'vol:0=.=up:active'
ceph fs authorize vol client.v / rw >"$W/v.keyring"
expect "file systems of client.v" "$(ceph -n client.v -k "$W/v.keyring" fs ls -f json | jq -c 'map(.name)')" '["vol"]'
ceph fs volume rm vol --yes-i-really-mean-it >/dev/null
expect "file systems" "$(ceph fs ls -f json | jq -c 'map(.name)')" '["home"]'
expect "pools" "$(ceph osd pool ls | sort | tr '\n' ' ')" 'cephfs.home.data cephfs.home.meta '

# The whole cluster is stopped and started again.
check kept home
cluster_down
cluster_up
check verify home "$W/synced"
ceph fs status home >/dev/null

# All directories and the journal are lost: Ceph's tools rebuild them from the data objects, which contain their paths.
ceph tell mds.home:0 flush journal
ceph fs fail home
rados -p cephfs.home.meta ls | grep -E '^[0-9a-f]+\.[0-9a-f]{8}' >"$W/meta"
grep -Ev '^[2-6]' "$W/meta" | xargs -r rados -p cephfs.home.meta rm
cephfs-journal-tool --rank=home:0 journal reset
cephfs-table-tool home:0 reset session
data_scan() { cephfs-data-scan "$@" 2>"$W/scan.out" || { cat "$W/scan.out"; return 1; }; }
data_scan init
data_scan scan_extents cephfs.home.data
# Objects that already have the tag are skipped.
data_scan scan_inodes --filter-tag none cephfs.home.data
data_scan scan_links
ceph fs set home joinable true
wait_for 60 active '0=.=up:active'
check back home
check verify home "$W/synced"
ceph fs fail home && ceph fs rm home --yes-i-really-mean-it
expect "file systems" "$(ceph fs ls -f json | jq -c .)" '[]'
cluster_down
