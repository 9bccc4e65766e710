# OSDs of a host by `belemnite osd create`, with the bootstrap key alone: interrupted after each step and run again, on
# targets that hold something, listed, drained, destroyed, replaced, removed. No systemd: the daemons are processes.
source "$(dirname "$0")/../lib.sh"
unset CEPH_CONF
cat >"$W/host.conf" <<END
[global]
fsid = $(cat /proc/sys/kernel/random/uuid)
mon_host = [v2:127.0.0.1:$PORT/0]
mgr_port = $((PORT + 1))
ms_bind_port_min = $((PORT + 10))
ms_bind_port_max = $((PORT + 150))
osd_pool_default_size = 2
osd_crush_chooseleaf_type = 0
mon_data = $W/mon
osd_data = $W/osds/ceph-\$id
osd_reactors = 1
[client.bootstrap-osd]
keyring = $W/bootstrap.keyring
END
{ cat "$W/host.conf"; printf '[client.admin]\nkeyring = %s/admin.keyring\n' "$W"; } >"$W/admin.conf"
ceph-authtool -C "$W/admin.keyring" --gen-key -n client.admin >/dev/null
belemnite --conf "$W/admin.conf" mon -i a --mkfs
"$BIN" --conf "$W/admin.conf" mon -i a 2>"$W/mon.log" &
PIDS+=($!)
adm() { belemnite --conf "$W/admin.conf" "$@"; }
c() { ceph --conf "$W/admin.conf" "$@"; }
wait_for 30 adm status
c auth get client.bootstrap-osd -o "$W/bootstrap.keyring" 2>/dev/null
create() { belemnite --conf "$W/host.conf" osd create "$@"; }
osds() { c osd dump -f json | jq "[.osds[]$1] | length"; }
# refused TEXT COMMAND…: the command fails, and says why.
refused() {
  local text=$1 out; shift
  if out=$("$@" 2>&1); then echo "not refused: $*" >&2; return 1; fi
  grep -qF -- "$text" <<<"$out" || { echo "refused with: $out; expected: $text" >&2; return 1; }
}

n=0
for step in note id directory store finished; do
  sed "s|^\[client.boot|[osd]\ntest_end_create_after = $step\n&|" "$W/host.conf" >"$W/cut.conf"
  if belemnite --conf "$W/cut.conf" osd create --size 1G "$W/disk.$step" 2>/dev/null; then echo "not cut short: $step"; exit 1; fi
  create --size 1G "$W/disk.$step" >/dev/null
  create --size 1G "$W/disk.$step" | grep -q "osd.$n: is on"
  n=$((n + 1))
  expect "OSDs after the cut after $step" "$(osds '')" $n
  expect "data directories and notes after $step" "$(ls -A "$W/osds" | wc -l)" $n
done
expect "keys of OSDs" "$(c auth ls -f json 2>/dev/null | jq '[.auth_dump[] | select(.entity | startswith("osd."))] | length')" $n
[ -z "$(find "$W/osds" -name keyring -perm /077)" ] || { echo "others can read a keyring"; exit 1; }

echo "targets that hold something, or are none"
truncate -s 1G "$W/ext4"; mkfs.ext4 -q "$W/ext4"
refused "holds an ext2, ext3 or ext4 file system" create "$W/ext4"
refused "holds an ext2, ext3 or ext4 file system; --force" adm osd zap "$W/ext4"
refused "no such device" create "$W/none"
refused "neither a file nor a block device" create /dev/null
refused "is a file, and dm-crypt needs a block device" create --encrypt --size 1G "$W/none"
echo "of the operator" >"$W/text"
refused "holds something else" create --size 1G "$W/text"
expect "OSDs after refusals" "$(osds '')" $n
[ ! -e "$W/osds/.new" ]
refused "No such file" adm osd zap "$W/none"
adm osd zap --force "$W/ext4" | grep -q erased
create "$W/ext4" >/dev/null
n=$((n + 1))

echo "started"
create --start "$W"/disk.* "$W/ext4" >"$W/out"
for p in $(sed -n 's/.*runs as process //p' "$W/out"); do PIDS+=("$p"); done
expect "OSDs that are up" "$(osds '|select(.up==1)')" $n
expect "places that are printed" "$(grep -c "up at host=$(hostname -s) root=default" "$W/out")" $n
list() { adm osd list -f json | jq -r ".devices[] | select(.path == \"$(realpath "$1")\") | $2"; }
expect "the list" "$(list "$W/disk.note" '"\(.osd) \(.running) \(.state)"')" "0 true up, in"
adm osd list | grep -q "^$W/disk.note .*osd.0, running, up, in"
refused "in use" adm osd zap "$W/disk.note"
pid_of() { for p in "${PIDS[@]}"; do if cat "/proc/$p/cmdline" 2>/dev/null | tr '\0' ' ' | grep -q "osd -i $1 "; then echo "$p"; fi; done; }
stop() { local p; p=$(pid_of "$1"); kill -TERM "$p"; wait_for 20 bash -c "! kill -0 $p"; }
is_down_one() { [ "$(osds '|select(.up==0)')" = 1 ]; }
is_on_other() { [ "$(list "$W/other" '"\(.osd) \(.running)"')" = "0 true" ]; }
is_clean() { c pg stat | grep -q "16 active+clean;"; }
c osd pool create data 16 >/dev/null 2>&1
head -c 5000000 /dev/urandom >"$W/f"
for i in $(seq 20); do adm put data "o$i" "$W/f"; done
wait_for 60 is_clean

echo "nothing goes while its data is needed"
refused "is not safe to destroy" adm osd destroy 0
refused "is not safe to destroy" adm osd replace 0
stop 0
wait_for 30 is_down_one
refused "osd.0 is not safe to destroy" adm osd zap "$W/disk.note"
expect "a store of an OSD that is down" "$(list "$W/disk.note" '"\(.running) \(.state)"')" "false down, in"
create --start "$W/disk.note" >"$W/out"
PIDS+=("$(sed -n 's/.*runs as process //p' "$W/out")")
wait_for 60 is_clean

echo "drained, destroyed, replaced under its id, removed"
refused "without its unit; stop it" adm osd destroy 0 --drain
stop 0
adm osd destroy 0 | grep -q "osd.0 is destroyed"
[ ! -e "$W/osds/ceph-0" ] && [ ! -e "$W/disk.note" ]
expect "destroyed OSDs" "$(osds '|select(.state|index("destroyed"))')" 1
# A new OSD does not take the id that waits, and not the replaced one's disk.
refused "no such device" adm osd replace 0 --device "$W/other"
refused "no store here; name one" adm osd replace 0 --size 1G
truncate -s 1G "$W/other"
adm osd replace 0 --device "$W/other" | grep -q "start it with"
"$BIN" --conf "$W/host.conf" osd -i 0 2>"$W/osd0.log" &
PIDS+=($!)
wait_for 30 is_on_other
c osd in 0 2>/dev/null
wait_for 60 is_clean
expect "OSDs that are up again" "$(osds '|select(.up==1)')" $n
refused "without its unit; stop it" adm osd remove 1
stop 1
adm osd remove 1 | grep -q "osd.1 is removed"
expect "OSDs at the end" "$(osds '')" $((n - 1))
expect "data directories at the end" "$(ls -A "$W/osds" | wc -l)" $((n - 1))
for i in 1 20; do adm get data "o$i" - | cmp - "$W/f"; done
echo "OSDs were made once, and went only when their data was elsewhere"
