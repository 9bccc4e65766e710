# A device does not answer: after ten seconds its OSD is out of service and the others serve. If the device answers soon, the OSD is back
# without a restart; if not, it marks itself down after twenty seconds, SIGTERM ends it as soon as the device releases the
# process, and it returns when the device answers. The device is a file on a frozen file system (needs root and loop
# devices).
[ -n "${PRIVATE:-}" ] || PRIVATE=1 exec unshare --mount --propagation private bash "$0"
source "$(dirname "$0")/../lib.sh"
cluster_up --osds 3 --osd-size 1G
cluster_down
disk "$W/image" 2G "$W/fs"
cp --sparse=always -r "$W/c/osd.2/." "$W/fs/"
mount --move "$W/fs" "$W/c/osd.2"
cluster_up
ceph osd pool create test 8
ceph osd pool application enable test rados
clean() { [ "$(ceph status -f json | jq -r '[.pgmap.pgs_by_state[].state_name] | join(" ")')" = "active+clean" ]; }
up() { expect up "$(ceph osd stat -f json | jq -r .num_up_osds)" "$1"; }
names() { ceph health detail | grep -q "$1"; }
wait_for 60 clean
rados -p test put before /etc/hostname
trap 'status=$?; fsfreeze -u "$W/c/osd.2" 2>/dev/null || true; umount -l "$W/c/osd.2" 2>/dev/null || true; finish $status' EXIT
# put OBJECT: writes it, and notes the seconds that it took.
put() {
  local start
  start=$(date +%s)
  timeout 120 rados -p test put "$1" /etc/hostname
  echo "$(($(date +%s) - start)) $1, led by osd.$(ceph osd map test "$1" -f json | jq .acting_primary)" >>"$W/took"
}
# freeze WHAT: the device stops, and writes wait for it, 25 seconds at most.
freeze() {
  local i puts=()
  : >"$W/took"
  fsfreeze -f "$W/c/osd.2"
  for i in $(seq 8); do put "$1.$i" & puts+=($!); done
  wait "${puts[@]}"
  sort -n "$W/took" | sed 's/^/== seconds that a write waited for a device that says nothing: /'
  [ "$(sort -n "$W/took" | awk 'END { print $1 }')" -le 25 ]
  wait_for 10 up 2
  for i in $(seq 10); do timeout 10 rados -p test put "$1-$i" /etc/hostname; done
}
pid=$(cat "$W/c/run/osd.2.pid")
freeze short
names 'osd.2 on .*: .*osd.2/block: a request has no answer for [0-9]* s; it is out of service until the device answers'
fsfreeze -u "$W/c/osd.2"
wait_for 60 up 3
wait_for 60 clean
expect "process of osd.2" "$(cat "$W/c/run/osd.2.pid")" "$pid"
! names OSD_DEVICE_SILENT

freeze long
wait_for 30 names 'osd.2 on .* stopped: .*osd.2/block: a request has no answer for'
fsfreeze -u "$W/c/osd.2"
wait_for 60 up 3
wait_for 60 clean
! names OSD_STORE_FAILED
cluster_down
umount "$W/c/osd.2"
