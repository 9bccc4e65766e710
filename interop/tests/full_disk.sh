# Other processes fill the file system of one OSD's file: the OSD reports it to the cluster and stops, the others serve,
# and it returns when there is space. Needs root: the file system is mounted in a private namespace.
[ -n "${PRIVATE:-}" ] || PRIVATE=1 exec unshare --mount --propagation private bash "$0"
source "$(dirname "$0")/../lib.sh"
cluster_up --osds 3 --osd-size 1G
cluster_down
mkdir "$W/fs"
mount -t tmpfs -o size=600m none "$W/fs"
cp --sparse=always -r "$W/c/osd.2/." "$W/fs/"
mount --move "$W/fs" "$W/c/osd.2"
cluster_up
ceph osd pool create test 8
ceph osd pool application enable test rados
clean() { [ "$(ceph status -f json | jq -r '[.pgmap.pgs_by_state[].state_name] | join(" ")')" = "active+clean" ]; }
up() { expect up "$(ceph osd stat -f json | jq -r .num_up_osds)" "$1"; }
wait_for 60 clean
for i in $(seq 20); do head -c 100000 /dev/urandom >"$W/obj-$i"; rados -p test put "obj-$i" "$W/obj-$i"; done

# The OSD's capacity is limited by the free space, not by the size of its file.
free_kb() { ceph osd df -f json | jq ".nodes[$1].kb_avail"; }
less() { [ "$(free_kb 2)" -lt 620000 ] && [ "$(free_kb 1)" -gt 700000 ]; }
wait_for 20 less || { ceph osd df; false; }

# Fill the file system completely.
cat /dev/zero >"$W/c/osd.2/other" 2>/dev/null || true
expect "bytes free" "$(stat -f -c %a "$W/c/osd.2")" 0
fails() {
  timeout 20 rados -p test put "more-$RANDOM" "$W/obj-1" || true
  ceph health detail >"$W/health"
  # Once it was started again, the reason is what keeps it from starting.
  grep -q 'osd.2 on .* stopped: .*osd.2/block.*\(ENOSPC\|bytes free\)' "$W/health"
}
wait_for 60 fails || { ceph health detail; false; }
grep -q OSD_STORE_FAILED "$W/health"
wait_for 10 up 2
# Two OSDs serve at once without the full one.
start=$(date +%s%N)
for i in $(seq 20); do timeout 20 rados -p test put "after-$i" "$W/obj-$i"; done
echo "== 20 writes without the full OSD took $((($(date +%s%N) - start) / 1000000)) ms"
wait_for 30 grep -q 'osd.2 ended (exit status: 74: .*ENOSPC' "$W/up.out"
wait_for 30 grep -q 'osd.2 ended (exit status: 75: .*bytes free' "$W/up.out"
expect "times that the failure was logged" "$(ceph log last 1000 | grep -c 'osd.2 stops: its store failed')" 1
grep -q 'bytes free; this OSD starts when there are' "$W/c/log/osd.2.log"

# Free the space again.
rm "$W/c/osd.2/other"
wait_for 60 up 3
wait_for 60 clean
wait_for 10 sh -c '! ceph health detail | grep -q OSD_STORE_FAILED'
for i in $(seq 20); do
  rados -p test get "obj-$i" - | cmp - "$W/obj-$i"
  rados -p test get "after-$i" - | cmp - "$W/obj-$i"
done
ceph pg ls -f json | jq -r '.pg_stats[].pgid' | while read -r pg; do ceph pg deep-scrub "$pg" >/dev/null; done

# Full again, and SIGTERM while the store fails: the OSD ends nevertheless.
cat /dev/zero >"$W/c/osd.2/other" 2>/dev/null || true
puts=()
for i in $(seq 8); do timeout 5 rados -p test put "last-$i" "$W/obj-$i" >/dev/null 2>&1 & puts+=($!); done
kill -TERM "$(cat "$W/c/run/osd.2.pid" 2>/dev/null)" 2>/dev/null || true
for p in "${puts[@]}"; do wait "$p" || true; done
cluster_down
umount "$W/c/osd.2"
