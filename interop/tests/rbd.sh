# RBD with Ceph's own clients: an ext4 file system on an image through snapshot, clone, flatten, export and import;
# QEMU's driver in both directions; fio with verification while snapshots are taken; the manager role's background
# tasks.
source "$(dirname "$0")/../lib.sh"
cluster_up --osds 2 --osd-size 6G
ceph osd pool create rbd 32
rbd pool init rbd
# Progress goes to stderr, which is shown only if a command fails.
r() { rm -f "$W/out"; rbd "$@" 2>"$W/rbd.err" || { echo "rbd $* failed:"; tail -c 600 "$W/rbd.err"; return 1; }; }
sum() { sha256sum "$1" | cut -d' ' -f1; }

echo "== ext4 on images"
truncate -s 96M "$W/fs"
mkfs.ext4 -q -F "$W/fs"
mkdir "$W/files"
for i in $(seq 40); do head -c $((i * 7000)) /dev/urandom >"$W/files/f$i"; done
for f in "$W"/files/*; do echo "write $f $(basename "$f")"; done | debugfs -w -f - "$W/fs" >/dev/null 2>&1
e2fsck -f -n "$W/fs" >/dev/null
want=$(sum "$W/fs")
r import "$W/fs" rbd/fs
r export rbd/fs "$W/out"
expect "export of what was imported" "$(sum "$W/out")" "$want"
r snap create rbd/fs@one
r snap protect rbd/fs@one
r clone rbd/fs@one rbd/clone
# Another file is written to the clone; its parent is unchanged.
r export rbd/clone "$W/clone"
head -c 3000000 /dev/urandom >"$W/new"
debugfs -w -R "write $W/new new" "$W/clone" >/dev/null 2>&1
cloned=$(sum "$W/clone")
qemu-img convert -n -f raw -O raw "$W/clone" "rbd:rbd/clone:conf=$CEPH_CONF"
r export rbd/clone "$W/out"
expect "the clone" "$(sum "$W/out")" "$cloned"
r export rbd/fs "$W/out"
expect "its parent" "$(sum "$W/out")" "$want"
r flatten rbd/clone
r snap unprotect rbd/fs@one
r snap purge rbd/fs
r rm rbd/fs
r export rbd/clone "$W/out"
expect "the flattened clone, parent gone" "$(sum "$W/out")" "$cloned"
e2fsck -f -n "$W/out" >/dev/null
r snap create rbd/clone@a
r export --export-format 2 rbd/clone "$W/v2"
r import --export-format 2 "$W/v2" rbd/again
r export rbd/again@a "$W/out"
expect "export format 2" "$(sum "$W/out")" "$cloned"
r deep cp rbd/clone rbd/deep
r export rbd/deep@a "$W/out"
expect "deep copy" "$(sum "$W/out")" "$cloned"
r object-map check rbd/clone

echo "== QEMU"
rbd create --size 64M rbd/qemu
io() { qemu-io -f raw "$@" "rbd:rbd/qemu:conf=$CEPH_CONF" | tee "$W/io"; ! grep -qi 'pattern verification failed\|error\|i/o' "$W/io"; }
io -c 'write -P 0xab 0 4M' -c 'write -P 0xcd 4190208 65536' -c 'write -z 1M 64k' -c 'discard 8M 4M' -c flush >/dev/null
io -c 'read -P 0xab 0 1M' -c 'read -P 0 1M 64k' -c 'read -P 0xcd 4190208 65536' -c 'read -P 0 8M 4M' >/dev/null
qemu-img convert -f raw -O raw "$W/fs" "rbd:rbd/fromqemu:conf=$CEPH_CONF"
qemu-img convert -f raw -O raw "rbd:rbd/fromqemu:conf=$CEPH_CONF" "$W/out"
expect "an image through QEMU" "$(sum "$W/out")" "$want"
qemu-img compare -f raw -F raw "$W/fs" "rbd:rbd/fromqemu:conf=$CEPH_CONF" >/dev/null

echo "== fio"
rbd create --size 64M rbd/fio
fio_run() {
  fio --name=v --verify_state_save=0 --ioengine=rbd --pool=rbd --rbdname=fio --clientname=admin --direct=1 --verify=crc32c \
    --verify_fatal=1 --randrepeat=0 "$@" >"$W/fio.out" 2>&1 || { tail -n 30 "$W/fio.out"; return 1; }
}
(for i in 1 2 3; do sleep 0.7; r snap create "rbd/fio@s$i"; done) &
snaps=$!
fio_run --rw=randwrite --bs=4k --iodepth=32 --size=64M --io_size=24M --do_verify=1
wait "$snaps"
fio_run --rw=write --bs=4M --iodepth=4 --size=64M --do_verify=1
r snap purge rbd/fio

echo "== background tasks of the manager role"
task() { ceph rbd task add "$@" | /usr/bin/python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])'; }
ended() { ! ceph rbd task list "$1" >/dev/null 2>&1; }
head -c 9000000 /dev/urandom >"$W/random"
r import "$W/random" rbd/parent
r snap create rbd/parent@s
r snap protect rbd/parent@s
r clone --rbd-default-clone-format 1 rbd/parent@s rbd/child1
r clone --rbd-default-clone-format 2 rbd/parent@s rbd/child2
for c in child1 child2; do
  rbd bench --io-type write --io-size 4K --io-total 64K --io-pattern rand "rbd/$c" >/dev/null 2>&1
  r export "rbd/$c" "$W/$c"
  t=$(task flatten "rbd/$c")
  wait_for 30 ended "$t"
  r export "rbd/$c" "$W/out"
  expect "$c, flattened by a task" "$(sum "$W/out")" "$(sum "$W/$c")"
  expect "its parent" "$(rbd info --format json "rbd/$c" | grep -c '"parent"' || true)" 0
  r object-map check "rbd/$c"
done
expect "children of the parent" "$(rbd children rbd/parent@s)" ""
r snap unprotect rbd/parent@s
r snap purge rbd/parent
t=$(task remove rbd/parent)
wait_for 30 ended "$t"
expect "the same again" "$(task remove rbd/parent)" "$t"
r trash mv rbd/child1
t=$(task trash remove "rbd/$(rbd trash ls rbd | cut -d' ' -f1)")
wait_for 30 ended "$t"
expect "trash" "$(rbd trash ls rbd)" ""
expect "objects left of removed images" "$(rados -p rbd ls | grep -c 'parent\|child1' || true)" 0
rbd create --size 1T rbd/large
t=$(task remove rbd/large)
ceph rbd task cancel "$t"
wait_for 30 ended "$t"
rbd info rbd/large >/dev/null
echo "== tasks on images with snapshots, stripes, journals, and a client at work"
r import --image-feature layering,exclusive-lock,object-map,fast-diff "$W/random" rbd/origin
r snap create rbd/origin@s
some() { rbd bench --io-type write --io-size 4K --io-total 64K --io-pattern rand "$1" >/dev/null 2>&1; }
v2() { r clone --rbd-default-clone-format 2 "$@"; }
v2 --image-feature layering,exclusive-lock,object-map,fast-diff rbd/origin@s rbd/shallow
v2 --image-feature layering,exclusive-lock,object-map,fast-diff,deep-flatten rbd/origin@s rbd/deepest
v2 --image-feature layering,striping --stripe-unit 64K --stripe-count 3 --object-size 1M rbd/origin@s rbd/stripes
v2 --image-feature layering,exclusive-lock rbd/origin@s rbd/busy
declare -A before
for c in shallow deepest stripes; do
  some rbd/$c; r snap create rbd/$c@mine; some rbd/$c
  for i in $c $c@mine; do r export "rbd/$i" "$W/out"; before[$i]=$(sum "$W/out"); done
done
/usr/bin/python3 - rbd busy "$W" <<'P' &
import os, sys, time, rados, rbd
c = rados.Rados(conffile=os.environ["CEPH_CONF"]); c.connect()
with rbd.Image(c.open_ioctx(sys.argv[1]), sys.argv[2]) as i:
    i.lock_acquire(rbd.RBD_LOCK_MODE_EXCLUSIVE)
    open(sys.argv[3] + "/holds", "w").close()
    while not os.path.exists(sys.argv[3] + "/enough"):
        time.sleep(0.1)
P
holder=$!
wait_for 30 test -e "$W/holds"
for c in shallow deepest stripes busy; do
  t=$(task flatten "rbd/$c")
  wait_for 60 ended "$t"
  expect "the parent of $c" "$(rbd info --format json "rbd/$c" | grep -c '"parent"' || true)" 0
done
touch "$W/enough"
wait "$holder"
for i in "${!before[@]}"; do
  r export "rbd/$i" "$W/out"
  expect "$i, flattened by a task" "$(sum "$W/out")" "${before[$i]}"
done
r export rbd/busy "$W/out"
expect "a clone flattened by who has its lock" "$(sum "$W/out")" "$(sum "$W/random")"
for i in shallow shallow@mine deepest deepest@mine; do r object-map check "rbd/$i"; done
# Without deep-flatten, snapshots keep the parent, so the parent still lists the child.
expect "children" "$(rbd children rbd/origin@s | tr '\n' ' ')" "rbd/shallow rbd/stripes "
r snap rm rbd/origin@s
r snap purge rbd/stripes
t=$(task remove rbd/stripes)
wait_for 60 ended "$t"
expect "with snapshots" "$(ceph rbd task add remove rbd/shallow 2>&1 | grep -c 'has snapshots')" 1
r snap purge rbd/shallow
expect "the parent's snapshot after its last child" "$(rbd snap ls --all rbd/origin)" ""
for c in origin shallow; do t=$(task remove rbd/$c); wait_for 60 ended "$t"; done
r create --size 8M --image-feature layering,exclusive-lock,journaling rbd/journal
some rbd/journal
t=$(task remove rbd/journal)
wait_for 60 ended "$t"
expect "objects left of a journal" "$(rados -p rbd ls | grep -c journal || true)" 0
r trash mv rbd/deepest
t=$(task trash remove "rbd/$(rbd trash ls rbd | cut -d' ' -f1)")
waits() { ceph rbd task list "$t" | grep -q 'RBD image has snapshots'; }
wait_for 30 waits
ceph rbd task cancel "$t"

echo "== a clone with a snapshot migrates by tasks, and another one goes back"
r import --image-feature layering "$W/random" rbd/base
r snap create rbd/base@s
for i in there back; do
  v2 --image-feature layering,exclusive-lock,object-map,fast-diff rbd/base@s rbd/$i
  some rbd/$i; r snap create rbd/$i@one; some rbd/$i
  before[$i@one]=$(r export rbd/$i@one - | sha256sum)
  r migration prepare --rbd-default-clone-format 2 rbd/$i rbd/new-$i
  some rbd/new-$i
  before[$i]=$(r export rbd/new-$i - | sha256sum)
done
for t in $(task migration execute rbd/new-there) $(task migration abort rbd/new-back); do wait_for 60 ended "$t"; done
t=$(task migration commit rbd/new-there); wait_for 60 ended "$t"
for i in there back; do
  at=$([ $i = back ] || echo new-)$i
  expect "$at" "$(r export rbd/$at - | sha256sum)" "${before[$i]}"
  expect "$at@one" "$(r export rbd/$at@one - | sha256sum)" "${before[$i@one]}"
  for s in "" @one; do r object-map check rbd/$at$s; done
done
expect "what is left of the others" "$(rbd ls rbd | grep -cx 'there\|new-back' || true)$(rbd trash ls --all rbd | grep -c 'there\|back' || true)" 00

# A caller with caps for another pool is refused.
ceph auth get-or-create client.other mon 'profile rbd' osd 'profile rbd pool=other' mgr 'profile rbd pool=other' >"$W/keyring"
expect "without the right" "$(ceph -k "$W/keyring" --id other rbd task add remove rbd/large 2>&1 | grep -c EACCES)" 1

cluster_down
