# Bits on one OSD's disk are flipped: a deep scrub finds the damage, real clients list it, a repair restores it;
# operators' requests, flags and health along the way.
source "$(dirname "$0")/../lib.sh"
cluster_up --osds 3 --osd-size 1G
ceph osd pool create test 4
ceph osd pool application enable test rados
clean() { [ "$(ceph status -f json | jq -r '[.pgmap.pgs_by_state[].state_name] | join(" ")')" = "active+clean" ]; }
wait_for 60 clean
stamp() { ceph pg "$1" query -f json | jq -r ".info.history.$2"; }
# scrubbed KIND PG STAMP: requests a scrub and waits until the stamp has changed.
scrubbed() {
  local before; before=$(stamp "$2" "$3")
  ceph pg "$1" "$2"
  wait_for 30 sh -c "[ \"\$(ceph pg $2 query -f json | jq -r .info.history.$3)\" != '$before' ]"
}
# A pattern that can be found, and thus damaged, in the disks' files.
/usr/bin/python3 - "$W/obj" <<'PY'
import os, sys
b = bytearray(os.urandom(1 << 20))
b[600000:600032] = b"Belemnite-rot-test-0123456789abc"
open(sys.argv[1], "wb").write(b)
PY
rados -p test put victim "$W/obj"
rados -p test setxattr victim colour blue
rados -p test put plain "$W/obj"
rados -p test rm plain
for i in $(seq 20); do rados -p test put "small-$i" /etc/hostname; done
PG=$(ceph osd map test victim -f json | jq -r .pgid)
OSD=$(ceph osd map test victim -f json | jq -r '.acting[1]')
PRIMARY=$(ceph osd map test victim -f json | jq -r .acting_primary)
scrubbed deep-scrub "$PG" last_deep_scrub_stamp
expect "errors before" "$(rados list-inconsistent-obj "$PG" -f json | jq '.inconsistents | length')" 0
expect "inconsistent PGs before" "$(rados list-inconsistent-pg test)" "[]"
spoil() {
  local file=$1 at n=0
  for at in $(LC_ALL=C grep -abo "Belemnite-rot-test-0123456789abc" "$file" | cut -d: -f1); do
    printf 'X' | dd of="$file" bs=1 seek="$at" conv=notrunc,fsync status=none
    n=$((n + 1))
  done
  [ "$n" -gt 0 ]
}
FILE=$W/c/osd.$OSD/block
spoil "$FILE"
scrubbed scrub "$PG" last_scrub_stamp
expect "a scrub does not read data" "$(ceph health -f json | jq -r '.checks | has("PG_DAMAGED")')" false
ceph osd set nodeep-scrub
scrubbed deep-scrub "$PG" last_deep_scrub_stamp
ceph osd unset nodeep-scrub
wait_for 20 sh -c 'ceph health detail | grep -q OSD_SCRUB_ERRORS'
ceph health detail | tee "$W/health"
grep -q "PG_DAMAGED: Possible data damage: 1 pg inconsistent" "$W/health"
grep -q "pg $PG is active+clean+inconsistent" "$W/health"
expect "list-inconsistent-pg" "$(rados list-inconsistent-pg test)" "[\"$PG\"]"
rados list-inconsistent-obj "$PG" -f json-pretty | tee "$W/inc"
expect "which object" "$(jq -r '.inconsistents[].object.name' "$W/inc")" victim
expect "which copy" "$(jq -r '.inconsistents[].shards[] | select(.errors == ["read_error"]) | .osd' "$W/inc")" "$OSD"
expect "what of it" "$(jq -c '[.inconsistents[] | .errors, .union_shard_errors]' "$W/inc")" '[[],["read_error"]]'
expect "the one that counts" "$(jq -r '.inconsistents[].selected_object_info.oid.oid' "$W/inc")" victim
expect "its size" "$(jq -r '.inconsistents[].selected_object_info.size' "$W/inc")" 1048576
expect "digests of the others" "$(jq -r '[.inconsistents[].shards[] | select(.errors == []) | .data_digest] | unique | length' "$W/inc")" 1
expect "list-inconsistent-snapset" "$(rados list-inconsistent-snapset "$PG" -f json | jq '.inconsistents | length')" 0
ceph pg repair "$PG"
wait_for 30 clean
wait_for 30 sh -c 'ceph health detail | grep -q OSD_SCRUB_ERRORS; [ $? = 1 ]'
scrubbed deep-scrub "$PG" last_deep_scrub_stamp
expect "errors after" "$(rados list-inconsistent-obj "$PG" -f json | jq '.inconsistents | length')" 0
wait_for 10 sh -c 'ceph log last 100 debug cluster | grep -q "repair 1 errors, 1 fixed"' || { ceph log last 100 debug cluster; exit 1; }
ceph log last 100 debug cluster | grep -E "$PG (deep-scrub|scrub|repair)" | tail -n 8
rados -p test get victim "$W/back"
cmp "$W/obj" "$W/back"
expect "attribute" "$(rados -p test getxattr victim colour)" blue
# The primary's own copy, which is repaired automatically.
ceph config set osd osd_scrub_auto_repair true
spoil "$W/c/osd.$PRIMARY/block"
ceph osd deep-scrub "$PRIMARY"
wait_for 30 sh -c 'ceph log last 100 debug cluster | grep -q "deep-scrub 1 errors, 1 fixed"' || { ceph log last 100 debug cluster; exit 1; }
wait_for 30 clean
rados -p test get victim "$W/back"
cmp "$W/obj" "$W/back"
# Deep scrubs count omap keys and report large omaps.
ceph config set osd osd_deep_scrub_large_omap_object_key_threshold 5
for k in 1 2 3 4 5 6; do rados -p test setomapval index "key$k" value; done
INDEX=$(ceph osd map test index -f json | jq -r .pgid)
RAW=$(ceph osd map test index -f json | jq -r .raw_pgid)
scrubbed deep-scrub "$INDEX" last_deep_scrub_stamp
wait_for 20 sh -c 'ceph health detail | grep -q LARGE_OMAP_OBJECTS'
expect "who has it" "$(ceph health detail -f json | jq -r '.checks.LARGE_OMAP_OBJECTS.detail[0].message')" "1 large objects found in pool 'test'"
wait_for 10 sh -c "ceph log last 100 warn cluster | grep -q 'Large omap object found. Object: .*:index:head PG: $RAW ($INDEX) Key count: 6 Size (bytes): 30'"
expect "its sums" "$(ceph pg dump pgs -f json 2>/dev/null | jq -c ".pg_stats[] | select(.pgid == \"$INDEX\").stat_sum | [.num_large_omap_objects, .num_omap_keys, .num_omap_bytes]")" '[1,6,30]'
rados -p test rm index
scrubbed deep-scrub "$INDEX" last_deep_scrub_stamp
wait_for 20 sh -c 'ceph health detail | grep -q LARGE_OMAP_OBJECTS; [ $? = 1 ]'
# Scrubs by pool, and scheduled ones, which flags prevent.
ceph osd pool scrub test
ceph osd set noscrub
ceph osd set nodeep-scrub
ceph config set osd osd_scrub_min_interval 1
ceph config set osd osd_scrub_interval_randomize_ratio 0
ceph config set osd osd_scrub_load_threshold 1000
B=$(stamp "$PG" last_scrub_stamp)
ceph osd unset noscrub
wait_for 30 sh -c "[ \"\$(ceph pg $PG query -f json | jq -r .info.history.last_scrub_stamp)\" != '$B' ]"
wait_for 60 clean
cluster_down
