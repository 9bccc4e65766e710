# Compressed pools with real clients: each algorithm, modes and hints, the OSDs' own options, changes of parts, snapshots,
# an erasure-coded pool, an OSD that is killed, deep scrubs; figures of `ceph df detail` and counters.
source "$(dirname "$0")/../lib.sh"
cluster_up --osds 3 --osd-size 2G
text() { head -c "$1" < <(cd "$ROOT" && for _ in 1 2 3 4 5 6 7 8; do cat docs/*.md docs/*/*.md; done 2>/dev/null); }
text 3000000 >"$W/text"
head -c 1000000 /dev/urandom >"$W/noise"
# df_of POOL FIELD: a figure of `ceph df detail`.
df_of() { ceph df detail -f json | jq ".pools[] | select(.name == \"$1\") | .stats.$2"; }
reported() { for i in 0 1 2; do ceph tell osd.$i flush_pg_stats; done >/dev/null; sleep 0.2; }
# compressed POOL MIN MAX: KiB that compressed data takes are between these.
compressed() { reported; local n; n=$(($(df_of "$1" compress_bytes_used) / 1024)); [ "$n" -ge "$2" ] && [ "$n" -le "$3" ]; }
counter() { for i in 0 1 2; do ceph tell osd.$i perf dump bluestore "$1"; done | jq -s "[.[].bluestore.$1] | add"; }

expect "attempts without options" "$(counter compress_success_count)" 0
for a in lz4 snappy zlib zstd; do
  ceph osd pool create $a 4
  ceph osd pool application enable $a rados
  ceph osd pool set $a compression_algorithm $a
  ceph osd pool set $a compression_mode force 2>&1 | { ! grep "no effect"; }
  expect "mode" "$(ceph osd pool get $a compression_mode)" "compression_mode: force"
done
for a in lz4 snappy zlib zstd; do
  rados -p $a put text "$W/text"
  rados -p $a put noise "$W/noise"
  rados -p $a get text - | cmp - "$W/text"
  rados -p $a get noise - | cmp - "$W/noise"
  wait_for 30 compressed $a 2000 7500
  # Whole blocks of three copies; the tail of 1 block and a half is plain.
  under=$(df_of $a compress_under_bytes)
  [ "$under" -ge 8600000 ] && [ "$under" -le 9000000 ] || { echo "$a: $under"; exit 1; }
  echo "== $a: $((under / 1024)) KiB in $(($(df_of $a compress_bytes_used) / 1024)) KiB"
done
[ "$(counter compress_rejected_count)" -ge 100 ]
ceph df detail | grep -E "USED COMPR +UNDER COMPR"
expect "used bytes" "$(df_of zstd stored)" 4000000

of_snapshot() { rados -p zstd -s before get text "$W/out" >/dev/null; cmp "$W/out" "$W/text"; }

# Changes of parts; a snapshot keeps what was.
rados -p zstd mksnap before
cp "$W/text" "$W/changed"
for at in 5 65536 131000 262144 999999 2900000; do
  text 70001 | tail -c $((at % 50000 + 10)) >"$W/part"
  dd if="$W/part" of="$W/changed" bs=1M oflag=seek_bytes seek=$at conv=notrunc status=none
  rados -p zstd put text "$W/part" --offset $at
done
rados -p zstd truncate text 2500001
truncate -s 2500001 "$W/changed"
rados -p zstd get text - | cmp - "$W/changed"
of_snapshot

# Hints: passive compresses only what the client says is compressible, aggressive all but what is not.
ceph osd pool create hints 4
rbd pool init hints
ceph osd pool set hints compression_mode passive
export_of() { rm -f "$W/out"; rbd export "hints/$1" "$W/out" 2>/dev/null; cmp -n 3000000 "$W/out" "$W/text"; }
truncate -s 32M "$W/text.image"
dd if="$W/text" of="$W/text.image" bs=1M conv=notrunc status=none
rbd import --image-feature layering "$W/text.image" hints/plain 2>/dev/null
compressed hints 0 0
rbd import --image-feature layering --rbd-compression-hint=compressible "$W/text.image" hints/soft 2>/dev/null
wait_for 30 compressed hints 500 7500
before=$(df_of hints compress_bytes_used)
ceph osd pool set hints compression_mode aggressive
rbd import --image-feature layering --rbd-compression-hint=incompressible "$W/text.image" hints/hard 2>/dev/null
reported
expect "after incompressible data" "$(df_of hints compress_bytes_used)" "$before"
for i in plain soft hard; do export_of $i; done
rbd bench --io-type write --io-size 16K --io-total 8M --io-pattern rand --rbd-compression-hint=compressible hints/soft >/dev/null
rbd bench --io-type write --io-size 4K --io-total 4M --io-pattern rand hints/soft >/dev/null
rbd export hints/soft "$W/soft" 2>/dev/null
rbd snap create hints/soft@s
rbd bench --io-type write --io-size 4K --io-total 4M --io-pattern rand hints/soft >/dev/null
rbd export hints/soft@s - 2>/dev/null | cmp - "$W/soft"

# The OSDs' options hold for pools without any, and `unset` makes a pool one.
ceph osd pool create own 4
ceph osd pool application enable own rados
rados -p own put a "$W/text"
reported
expect "without options" "$(df_of own compress_bytes_used)" 0
ceph config set osd bluestore_compression_mode force
ceph config set osd bluestore_compression_algorithm zstd
compressing() { rados -p own put "b$RANDOM" "$W/text" && compressed own 500 100000; }
wait_for 30 compressing
ceph osd pool set own compression_mode none
before=$(counter compress_success_count)
not_compressing() { local n; n=$(counter compress_success_count); rados -p own put c "$W/text"; [ "$(counter compress_success_count)" = "$n" ]; }
wait_for 30 not_compressing
ceph config rm osd bluestore_compression_mode

# An erasure-coded pool compresses its shards.
ceph osd erasure-code-profile set p21 k=2 m=1 crush-failure-domain=osd
ceph osd pool create coded 4 4 erasure p21
ceph osd pool set coded compression_mode force
ceph osd pool set coded allow_ec_overwrites true
text 3145728 >"$W/even"
rados -p coded put text "$W/even"
wait_for 30 compressed coded 500 4500
printf 'xyz' >"$W/part"
rados -p coded put text "$W/part" --offset 100000
dd if="$W/part" of="$W/even" bs=1M oflag=seek_bytes seek=100000 conv=notrunc status=none
rados -p coded get text - | cmp - "$W/even"

# An OSD is killed; after its return all copies are the same.
same() {
  rados -p zstd get text - | cmp - "$W/changed"
  of_snapshot
  for a in lz4 snappy zlib; do rados -p $a get text - | cmp - "$W/text"; done
  rados -p coded get text - | cmp - "$W/even"
  rbd export hints/soft@s - 2>/dev/null | cmp - "$W/soft"
}
clean() { [ "$(ceph status -f json | jq -r '[.pgmap.pgs_by_state[].state_name] | join(" ")')" = "active+clean" ]; }
kill -9 "$(cat "$W/c/run/osd.1.pid")"
same
wait_for 60 clean
same
scrubbed() { ceph pg dump pgs -f json 2>/dev/null | jq -e "[.pg_stats[].last_deep_scrub_stamp] | min > \"$1\""; }
now=$(date -u +%Y-%m-%dT%H:%M:%S)
for i in 0 1 2; do ceph osd deep-scrub $i; done >/dev/null
wait_for 60 scrubbed "$now"
ceph health detail | { ! grep -i inconsistent; }

# Removed data is not counted any more.
for a in lz4 snappy zlib; do rados -p $a rm text; done
gone() { compressed lz4 0 0 && compressed snappy 0 0 && compressed zlib 0 0; }
wait_for 30 gone
expect "under" "$(df_of lz4 compress_under_bytes)" 0
cluster_down
for i in 0 1 2; do belemnite store fsck --deep "$W/c/osd.$i/block" | tail -n 3; done
