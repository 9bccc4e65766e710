# Features of rbd, one by one, with checks of contents: diffs, groups, namespaces, metadata, QoS, trash and its
# schedule, all forms of migration, encryption, sparsify, journaling, locks, statistics.
#
# CLIENT="chroot DIR" runs the tools of another release; SCRATCH is a directory that is the same in both.
source "$(dirname "$0")/../lib.sh"
set -E
trap 'echo "line $LINENO: $BASH_COMMAND" >&2' ERR
cluster_up --osds 3 --osd-size 6G
ceph config set global mon_max_pg_per_osd 1000
ceph osd pool create rbd 16
ceph osd pool create other 8
rbd pool init rbd
rbd pool init other
rbd --version
r() { rbd "$@" 2>"$W/rbd.err" || { echo "rbd $* failed:"; tail -c 800 "$W/rbd.err"; return 1; }; }
refused() { ! rbd "$@" >"$W/refused" 2>&1 || { echo "rbd $* should have failed"; return 1; }; }
sum() { rm -f "$W/out"; r export "$1" "$W/out" >/dev/null; sha256sum <"$W/out" | cut -d' ' -f1; }
bench() { r bench --io-type write --io-size 16K --io-threads 8 --io-total "${2:-4M}" --io-pattern rand "$1" >/dev/null; }
json() { jq -e "$@" >/dev/null; }

echo "-- trash with a schedule, looked at in the end"
r create --size 16M rbd/expired
r trash mv rbd/expired
r create --size 16M rbd/kept
r trash mv --expires-at "tomorrow" rbd/kept 2>/dev/null || r trash mv rbd/kept --expires-at "$(date -d tomorrow +%F)"
r trash purge schedule add -p rbd 1m
r trash purge schedule ls -p rbd --format json | json '.[0].interval == "1m" or (.[0].items[0].interval == "1m") or (tostring | contains("1m"))'

echo "-- export, import, diffs"
head -c 20000000 /dev/urandom >"$W/a"
r import "$W/a" rbd/a
r snap create rbd/a@one
bench rbd/a
r snap create rbd/a@two
bench rbd/a
r resize --size 24M rbd/a
bench rbd/a
head=$(sum rbd/a)
r export-diff rbd/a@one "$W/d0"
r export-diff --from-snap one rbd/a@two "$W/d1"
r export-diff --from-snap two rbd/a "$W/d2"
r merge-diff "$W/d0" "$W/d1" "$W/m1"
r merge-diff "$W/m1" "$W/d2" "$W/m2"
r create --size 1M rbd/merged
r import-diff "$W/m2" rbd/merged
expect "merged diffs" "$(sum rbd/merged)" "$head"
r create --size 1M rbd/b
r import-diff "$W/m1" rbd/b
r import-diff "$W/d2" rbd/b
expect "diffs one after the other" "$(sum rbd/b)" "$head"
expect "a snapshot by merged diffs" "$(sum rbd/b@two)" "$(sum rbd/a@two)"
r diff --from-snap one rbd/a --format json | json 'length > 0'
r diff --whole-object --from-snap one rbd/a --format json | json 'length > 0'
r export --export-format 2 rbd/a - 2>/dev/null | r import --export-format 2 - rbd/c
expect "format 2 by pipe" "$(sum rbd/c@one)" "$(sum rbd/a@one)"
r deep cp rbd/a other/a
expect "deep copy into another pool" "$(sum other/a@two)" "$(sum rbd/a@two)"
r snap rollback rbd/c@one
expect "rollback" "$(sum rbd/c)" "$(sum rbd/a@one)"
r snap rename rbd/c@one rbd/c@uno
r snap limit set --limit 2 rbd/c
refused snap create rbd/c@toomany
r object-map rebuild rbd/c
r object-map check rbd/c
r du rbd/a --format json | json '[.images[].used_size] | add > 0'

echo "-- clones"
r snap create rbd/a@base
r clone --rbd-default-clone-format 2 rbd/a@base other/child
r snap rm rbd/a@base
r snap ls --all rbd/a --format json | json 'any(.[]; .namespace.type == "trash")'
r children --all --snap-id "$(rbd snap ls --all rbd/a --format json | jq '.[] | select(.namespace.type == "trash") | .id')" rbd/a --format json |
  json 'any(.[]; .image == "child")'
bench other/child
child=$(sum other/child)
r flatten other/child
expect "a flattened clone" "$(sum other/child)" "$child"
expect "its parent's snapshot goes with it" "$(rbd snap ls --all rbd/a --format json | jq '[.[] | select(.namespace.type == "trash")] | length')" 0
r create --size 32M --stripe-unit 64K --stripe-count 4 --object-size 1M rbd/striped
bench rbd/striped
r create --size 32M --data-pool other rbd/split
bench rbd/split
r sparsify --sparse-size 4K rbd/striped

echo "-- sparsify"
{ head -c 8388608 /dev/urandom; head -c 25165824 /dev/zero; } >"$W/zeros"
r create --size 32M --object-size 4M rbd/zeros
if command -v qemu-img >/dev/null; then
  qemu-io -f raw -c 'write -P 0 0 32M' -c flush "rbd:rbd/zeros:conf=$CEPH_CONF" >/dev/null
fi
objects() { rados -p rbd ls | grep -c "$(rbd info --format json rbd/zeros | jq -r .block_name_prefix)" || true; }
before=$(objects)
r sparsify rbd/zeros
after=$(objects)
if command -v qemu-img >/dev/null; then
  expect "objects before sparsify" "$before" 8
  expect "objects after sparsify" "$after" 0
fi

echo "-- groups"
r group create rbd/g
for i in 1 2; do r create --size 16M rbd/g$i; bench rbd/g$i 1M; r group image add rbd/g rbd/g$i; done
one=$(sum rbd/g1)$(sum rbd/g2)
r group snap create rbd/g@s
bench rbd/g1 1M; bench rbd/g2 1M
[ "$(sum rbd/g1)$(sum rbd/g2)" != "$one" ]
r group snap rollback rbd/g@s
expect "a group rolled back" "$(sum rbd/g1)$(sum rbd/g2)" "$one"
r group snap rename rbd/g@s t
r group snap ls rbd/g --format json | json '.[0].snapshot == "t" or .[0].name == "t"'
r group image ls rbd/g --format json | json 'length == 2'
r group snap rm rbd/g@t
r group rename rbd/g rbd/h
r group rm rbd/h
r info rbd/g1 --format json | json '.group == null or .group == ""'

echo "-- namespaces"
r namespace create rbd/tenant
r create --size 8M rbd/tenant/mine
bench rbd/tenant/mine 1M
ceph auth get-or-create client.tenant mon 'profile rbd' osd 'profile rbd pool=rbd namespace=tenant' mgr 'profile rbd pool=rbd namespace=tenant' >"$W/tenant.keyring"
tenant() { rbd --id tenant --keyring "$W/tenant.keyring" "$@"; }
tenant info rbd/tenant/mine >/dev/null
expect "the tenant's images" "$(tenant ls rbd/tenant)" mine
expect "another namespace" "$(tenant info rbd/a >/dev/null 2>&1 || echo refused)" refused
expect "an image elsewhere" "$(tenant create --size 1M rbd/foreign >/dev/null 2>&1 || echo refused)" refused
refused namespace rm rbd/tenant
r rm rbd/tenant/mine
r namespace rm rbd/tenant

echo "-- metadata, configuration, QoS"
r image-meta set rbd/a colour red
expect "metadata" "$(rbd image-meta get rbd/a colour)" red
r image-meta list rbd/a --format json | json '.colour == "red"'
r image-meta rm rbd/a colour
refused image-meta get rbd/a colour
r config pool set other rbd_cache false
r config pool get other rbd_cache | grep -q false
r create --size 16M rbd/slow
r config image set rbd/slow rbd_qos_write_iops_limit 20
start=$(date +%s%N)
r bench --io-type write --io-size 4K --io-threads 4 --io-total 400K rbd/slow --rbd-cache=false >/dev/null
took=$((($(date +%s%N) - start) / 1000000))
echo "100 writes at 20 a second took $took ms"
[ "$took" -ge 3000 ]
r config image rm rbd/slow rbd_qos_write_iops_limit
r feature disable rbd/slow object-map fast-diff exclusive-lock 2>/dev/null || r feature disable rbd/slow fast-diff object-map exclusive-lock
r feature enable rbd/slow exclusive-lock object-map fast-diff
r object-map rebuild rbd/slow
for t in read write readwrite; do
  r bench --io-type $t --io-size 4K --io-threads 4 --io-total 2M --io-pattern rand rbd/slow | grep -q 'elapsed\|ops'
done

echo "-- locks and watchers"
r create --size 8M --image-feature layering rbd/plain
r lock add rbd/plain mylock
locker=$(rbd lock ls rbd/plain --format json | jq -r '.[0].locker')
refused lock add rbd/plain otherlock
r lock rm rbd/plain mylock "$locker"
r lock add --shared tag rbd/plain l1
r lock add --shared tag rbd/plain l2
r lock ls rbd/plain --format json | json 'length == 2'
r status rbd/plain --format json | json '.watchers | length == 0'

echo "-- journaling"
r create --size 16M --image-feature layering,exclusive-lock,journaling rbd/j
bench rbd/j 2M
r journal info --pool rbd --image j >/dev/null
r journal status --pool rbd --image j >/dev/null
r journal inspect --pool rbd --image j >/dev/null
r journal export --pool rbd --image j --path "$W/journal"
r feature disable rbd/j journaling
r feature enable rbd/j journaling
bench rbd/j 1M
r rm rbd/j
expect "objects left of a journal" "$(rados -p rbd ls | grep -c journal || true)" 0

echo "-- migration"
r snap limit clear rbd/c
r snap create rbd/c@more
r migration prepare rbd/c other/c2
whole=$(sum other/c2)$(sum other/c2@uno)
bench other/c2 1M
now=$(sum other/c2)
r migration execute other/c2
expect "a migrated image" "$(sum other/c2)" "$now"
r migration commit other/c2
expect "a migrated snapshot" "$(sum other/c2@uno)" "$(sum rbd/a@one)"
expect "the whole was there before" "${#whole}" 128
refused info rbd/c
r migration prepare rbd/b other/b2
r migration abort other/b2 2>/dev/null || r migration abort rbd/b
expect "an aborted migration" "$(sum rbd/b)" "$head"
r migration prepare --import-only --source-spec "{\"type\":\"raw\",\"stream\":{\"type\":\"file\",\"file_path\":\"$W/a\"}}" rbd/raw
r migration execute rbd/raw
r migration commit rbd/raw
expect "imported from a file" "$(sum rbd/raw)" "$(sha256sum <"$W/a" | cut -d' ' -f1)"
if command -v qemu-img >/dev/null; then
  qemu-img convert -f raw -O qcow2 "$W/a" "$W/a.qcow2"
  r migration prepare --import-only --source-spec "{\"type\":\"qcow\",\"stream\":{\"type\":\"file\",\"file_path\":\"$W/a.qcow2\"}}" rbd/qcow
  r migration execute rbd/qcow
  r migration commit rbd/qcow
  rm -f "$W/out"; r export rbd/qcow "$W/out"
  expect "imported from qcow2" "$(head -c 20000000 "$W/out" | sha256sum | cut -d' ' -f1)" "$(sha256sum <"$W/a" | cut -d' ' -f1)"
fi

echo "-- encryption"
printf 'a secret of sixteen' >"$W/pass"
for f in luks1 luks2; do
  r create --size 48M rbd/$f
  timeout 300 ${CLIENT:-} rbd encryption format rbd/$f $f "$W/pass" >/dev/null 2>"$W/rbd.err"
  rm -f "$W/out"; r export rbd/$f "$W/out"
  expect "$f begins as such" "$(head -c 4 "$W/out")" LUKS
  if command -v cryptsetup >/dev/null; then
    expect "$f" "$(cryptsetup luksDump "$W/out" | awk '/^Version/ {print $2}')" "${f#luks}"
    cryptsetup --test-passphrase open "$W/out" --key-file "$W/pass" || { echo "the passphrase does not open $f"; exit 1; }
  fi
  cat >"$W/enc.py" <<'P'
import os, rados, rbd, sys
fmt = {"luks1": rbd.RBD_ENCRYPTION_FORMAT_LUKS1, "luks2": rbd.RBD_ENCRYPTION_FORMAT_LUKS2}[sys.argv[1]]
word = open(sys.argv[2]).read()
c = rados.Rados(conffile=os.environ["CEPH_CONF"]); c.connect()
io = c.open_ioctx("rbd")
text = b"what nobody else reads" * 3000
with rbd.Image(io, sys.argv[1]) as i:
    i.encryption_load(fmt, word)
    i.write(text, 1 << 20)
with rbd.Image(io, sys.argv[1]) as i:
    try:
        i.encryption_load(fmt, "something else")
        sys.exit("a wrong passphrase opens the image")
    except rbd.Error:
        pass
with rbd.Image(io, sys.argv[1]) as i:
    raw = b"".join(i.read(n, 4 << 20) for n in range(0, i.size(), 4 << 20))
    assert text[:64] not in raw
    i.encryption_load(fmt, word)
    assert i.read(1 << 20, len(text)) == text
c.shutdown()
P
  ${CLIENT:-} /usr/bin/python3 "$W/enc.py" $f "$W/pass"
done

echo "-- statistics"
image_counters rbd
(for _ in 1 2 3 4 5 6; do bench rbd/slow 8M; done) &
busy=$!
timeout 40 ${CLIENT:-} rbd perf image iostat --iterations 2 --format json rbd >"$W/iostat" 2>/dev/null ||
  timeout 20 ${CLIENT:-} rbd perf image iostat --format json rbd >"$W/iostat" 2>/dev/null || true
wait $busy
echo "iostat said $(wc -c <"$W/iostat") bytes"

echo "-- the trash purge schedule"
gone() { ! rbd trash ls rbd | grep -q expired; }
wait_for 120 gone
rbd trash ls rbd | grep -q kept
r trash restore -p rbd "$(rbd trash ls rbd | awk '$2 == "kept" {print $1}')"
r info rbd/kept >/dev/null
r trash purge schedule rm -p rbd 1m
r trash mv rbd/kept
r trash purge rbd
expect "the trash" "$(rbd trash ls rbd)" ""
cluster_down
