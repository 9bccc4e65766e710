# OSDs on dm-crypt, by `belemnite osd create --encrypt` in a guest with Debian's kernel and cryptsetup: made although
# cut short after each step, served from and closed by the lines of the unit, read again, replaced, zapped, destroyed. The
# host has the monitor, and looks at the keys.
#
# Needs what guest.sh needs, and the package cryptsetup-bin.
source "$(dirname "$0")/../lib.sh"
source "$(dirname "$0")/../guest.sh"
guest_root virtio_blk dm_crypt xts aes_generic sha256_generic algif_skcipher
strip -o "$W/belemnite" "$BIN"
guest_copy cryptsetup "$W/belemnite"
cp "$ROOT/packaging/systemd/belemnite-osd@.service" "$G/unit"
echo 'ceph:x:64045:64045:Ceph:/:/bin/sh' >"$G/etc/passwd"
cat >"$G/job" <<'I'
export PATH=/e2:$PATH
hostname guest
ulimit -l unlimited
[ -e /dev/mapper/control ] || fail "no device-mapper"
D=/osds/ceph-3
line() { sed -n "s/^$2=[+-]*//p" /unit | sed "s/%i/$1/g; s|/usr/bin/||"; }
serve() {
  $(line "$1" ExecStartPre) || fail "before the start of osd.$1"
  su ceph -c "exec $(line "$1" ExecStart)" 2>>/tmp/osd.log &
  P=$!
}
end() { kill $P; wait $P; $(line "$1" ExecStopPost) || fail "after the stop of osd.$1"; }
shows() { belemnite osd list 2>&1 | grep -qF -- "$1"; }
wait_shows() {
  i=0
  until shows "$1"; do
    i=$((i + 1))
    [ $i -lt 60 ] || { tail -n 5 /tmp/osd.log; fail "not shown: $1; $(belemnite osd list 2>&1)"; }
    sleep 1
  done
}
refused() {
  text=$1; shift
  if out=$("$@" 2>&1); then fail "not refused: $*"; fi
  echo "$out" | grep -qF -- "$text" || fail "$* said: $out"
}
is_free() { belemnite osd list | grep -q "^/dev/$1 .* free$"; }
has_text() { tr -d '\000' <"$1" | grep -qF TEXT-OF-AN-OBJECT; }
open_mappings() { ls /dev/mapper | grep -c dmcrypt; }

echo "made, although cut short"
refused "is a file, and dm-crypt needs a block device" belemnite osd create --encrypt --size 1G /tmp/file
for step in note id directory store finished; do
  sed "s/^\[osd\]/&\ntest_end_create_after = $step/" /etc/ceph/ceph.conf >/etc/ceph/cut.conf
  belemnite --conf /etc/ceph/cut.conf osd create --encrypt --class locked /dev/vda && fail "not cut short: $step"
  [ $step = finished ] || refused "begun there with --encrypt" belemnite osd create /dev/vda
done
belemnite osd create --encrypt /dev/vda | grep -q "activate 3 --account root && belemnite osd -i 3" || fail "no line"
[ "$(ls -A /osds)" = ceph-3 ] || fail "left: $(ls -A /osds)"
ask MADE; key=$go
[ -n "$key" ] || fail "no key"
if grep -rlF "$key" /osds /etc /tmp /run; then fail "the key is in a file"; fi
M=$(readlink $D/block)
[ "$(readlink $D/block.luks)" = /dev/vda ] && [ -b "$M" ] || fail "links: $(ls -l $D)"
[ "$(stat -c %a $D/lockbox.keyring)" = 600 ] || fail "others can read the keyring"
cryptsetup luksDump /dev/vda | grep -q "Label:.*osd.3" || fail "no label"
printf %s "$key" | cryptsetup open --test-passphrase --key-file - /dev/vda || fail "the monitors' key does not open it"
belemnite osd deactivate 3 || fail deactivate
[ ! -e "$M" ] || fail "open after deactivate"
shows "osd.3, not running, encrypted, down" || fail "$(belemnite osd list)"

echo "served from"
serve 3
wait_shows "osd.3, running, encrypted, up, in"
[ "$(stat -Lc %u $D/block) $(stat -Lc %u $D/block.luks)" = "64045 0" ] || fail "owners"
if belemnite osd list | grep -q dm-; then fail "the mapping is listed"; fi
ask WRITE
refused "in use by a daemon" belemnite osd zap /dev/vda
refused "in use by a daemon" belemnite osd deactivate 3
end 3
[ ! -e "$M" ] || fail "open after the stop"
if has_text /dev/vda; then fail "text on the device"; fi
ask SPOIL
refused "No key available with this passphrase" belemnite osd activate 3
ask MEND
ln -sf /dev/vdb $D/block.luks
refused "holds no container of an OSD" belemnite osd activate 3
ln -sf /dev/vda $D/block.luks
belemnite osd activate 3 || fail activate
has_text "$M" || fail "no text in the mapping"
serve 3
wait_shows "osd.3, running, encrypted, up, in"
ask READ

echo "replaced: another container with another key"
kill $P; wait $P
refused "is not safe to destroy" belemnite osd replace 3
[ -e "$M" ] || fail "closed by a refusal"
belemnite osd replace 3 --yes-i-really-mean-it || fail replace
[ ! -e "$M" ] && [ "$(open_mappings)" = 1 ] || fail "mappings: $(ls /dev/mapper)"
opens() { printf %s "$1" | cryptsetup open --test-passphrase --key-file - /dev/vda 2>/dev/null; }
if opens "$key"; then fail "opened by the old key"; fi
serve 3
wait_shows "osd.3, running, encrypted, up, in"
ask REPLACED

echo "zapped, removed, destroyed"
belemnite osd create --encrypt /dev/vdb >/dev/null || fail "create the second"
[ "$(open_mappings)" = 2 ] || fail "mappings: $(ls /dev/mapper)"
refused "osd.4 is not safe to destroy" belemnite osd zap /dev/vdb
[ "$(open_mappings)" = 2 ] || fail "closed by a refusal"
belemnite osd zap --yes-i-really-mean-it /dev/vdb || fail zap
[ "$(open_mappings)" = 1 ] || fail "open after zap"
[ "$(head -c 16777216 /dev/vdb | tr -d '\000' | wc -c)" = 0 ] || fail "left of the container"
belemnite osd remove 4 --yes-i-really-mean-it || fail remove
is_free vdb || fail "$(belemnite osd list)"
kill $P; wait $P
belemnite osd destroy 3 --yes-i-really-mean-it || fail destroy
[ "$(open_mappings)" = 0 ] || fail "open after destroy"
[ ! -e $D ] && is_free vda || fail "$(belemnite osd list)"
ask GONE
I

guest_network
cluster_up --osds 3 --osd-size 2G --ip "$GUEST_HOST"
cat >"$G/etc/ceph/ceph.conf" <<END
[global]
fsid = $(ceph fsid)
mon_host = [v2:$GUEST_HOST:$PORT/0]
public_addr = 10.99.7.2
[osd]
osd_data = /osds/ceph-\$id
osd_reactors = 1
[client.admin]
keyring = /etc/ceph/admin.keyring
[client.bootstrap-osd]
keyring = /etc/ceph/bootstrap.keyring
END
ceph auth get client.admin >"$G/etc/ceph/admin.keyring" 2>/dev/null
ceph auth get client.bootstrap-osd >"$G/etc/ceph/bootstrap.keyring" 2>/dev/null
for d in vda vdb; do truncate -s 160M "$W/$d"; done
DISKS=()
for d in vda vdb; do DISKS+=(-drive "file=$W/$d,format=raw,if=virtio,cache=unsafe"); done
uuid_of() { ceph osd dump -f json | jq -r ".osds[] | select(.osd == $1).uuid"; }
# on WORD: waits until the guest asks for this; shows its output if it has ended.
on() { asks "$1" || { guest_ends; exit 1; }; }
# keys: the names of the keys of dm-crypt, and of the entities that may read them.
keys() { ceph config-key ls -f json | jq -r '.[] | select(startswith("dm-crypt/"))'; }
lockboxes() {
  ceph auth ls -f json 2>/dev/null | jq -r '.auth_dump[].entity | select(startswith("client.osd-lockbox."))'
}

GUEST_MEMORY=2048 guest_start "${DISKS[@]}"
on MADE
expect "OSDs" "$(ceph osd ls | wc -l)" 4
U=$(uuid_of 3)
expect "keys" "$(keys)" "dm-crypt/osd/$U/luks"
expect "lockboxes" "$(lockboxes)" "client.osd-lockbox.$U"
LUKS=$(ceph config-key get "dm-crypt/osd/$U/luks" 2>/dev/null)
answer "$LUKS"
on WRITE
ceph osd crush rule create-replicated locked default osd locked
ceph osd pool create locked 8 8 replicated locked --size 1 --yes-i-really-mean-it 2>/dev/null ||
  { ceph osd pool create locked 8 8 replicated locked; ceph osd pool set locked size 1 --yes-i-really-mean-it; }
head -c 1000000 < <(yes TEXT-OF-AN-OBJECT) >"$W/text"
for i in $(seq 10); do belemnite put locked "o$i" "$W/text"; done
answer
on SPOIL
ceph config-key set "dm-crypt/osd/$U/luks" "${LUKS}x"
answer
on MEND
ceph config-key set "dm-crypt/osd/$U/luks" "$LUKS"
answer
on READ
for i in 1 10; do belemnite get locked "o$i" - | cmp - "$W/text"; done
answer
on REPLACED
N=$(uuid_of 3)
[ "$N" != "$U" ]
expect "keys after replace" "$(keys) $(lockboxes)" "dm-crypt/osd/$N/luks client.osd-lockbox.$N"
answer
on GONE
expect "keys at the end" "$(keys)$(lockboxes)" ""
answer
guest_ends
cluster_down
