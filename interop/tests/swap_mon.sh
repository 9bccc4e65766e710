# Real ceph-osds with a Belemnite monitor: a pool of one copy, and erasure-coded pools with a missing shard.
source "$(dirname "$0")/../lib.sh"
cluster_up --osd-size 2G --osds 1
ceph osd pool create ours 8
for id in 1 2 3; do real_osd $id; done
PID3=$REAL
ceph osd tree
# Pools on the real OSDs alone: a separate device class with its rules.
ceph osd crush rule create-replicated real default osd real
ceph osd pool create real 16 16 replicated real --size 1
pool_clean real 16
head -c 5000000 /dev/urandom >"$W/f"
rados -p real put f "$W/f"
rados -p real get f "$W/g"
cmp "$W/f" "$W/g"
rados -p real bench 2 write -t 4 --max-objects 256 --no-cleanup >/dev/null
ceph -s
ceph osd df
# The built-in manager role queries the real OSDs for an image's I/O.
rbd pool init real
image_counters real

ceph osd erasure-code-profile set p21 k=2 m=1 crush-failure-domain=osd crush-device-class=real
ceph osd pool create coded 8 8 erasure p21
ceph osd pool application enable coded rbd
pool_clean coded 8
rados -p coded put f "$W/f"
rados -p coded get f "$W/g"
cmp "$W/f" "$W/g"
rados -p coded bench 2 write -t 4 --max-objects 64 --no-cleanup >/dev/null
belemnite put coded own "$W/f"
rados -p coded get own "$W/g"
cmp "$W/f" "$W/g"
belemnite get coded f "$W/g"
cmp "$W/f" "$W/g"
ceph osd pool set coded allow_ec_overwrites true
# Image headers are on Belemnite's OSD, by a separate rule.
ceph osd crush rule create-replicated mine default osd "$(ceph osd crush get-device-class osd.0)"
ceph osd pool create images 4 4 replicated mine
rbd pool init images
rbd create --size 32M --data-pool coded images/image
rbd bench --io-type write --io-size 4K --io-total 4M --io-pattern rand images/image >/dev/null
rbd export images/image "$W/image"
model_begins coded
# A shard is lost: the PGs have a hole and continue to serve.
kill "$PID3"
wait "$PID3" || true
wait_for 60 sh -c 'ceph osd stat | grep -q "3 up"'
wait_for 60 sh -c 'ceph pg ls-by-pool coded -f json | jq -e "[.pg_stats[].state] | all(startswith(\"active+undersized\"))"' || { ceph pg ls-by-pool coded; exit 1; }
ceph pg ls-by-pool coded | grep -q NONE
ceph osd map coded f | grep -q NONE
rados -p coded get f "$W/g"
cmp "$W/f" "$W/g"
rbd export images/image - | cmp - "$W/image"
ceph-osd -c "$W/real.3/ceph.conf" -f -i 3 >"$W/real.3/out" 2>&1 & PIDS+=($!)
pool_clean coded 8
model_ends
stamps() { ceph pg ls-by-pool coded -f json | jq -r '[.pg_stats[].last_deep_scrub_stamp] | min'; }
LATEST=$(ceph pg ls-by-pool coded -f json | jq -r '[.pg_stats[].last_deep_scrub_stamp] | max')
ceph osd pool deep-scrub coded
newer() { [ "$(stamps)" \> "$LATEST" ]; }
wait_for 60 newer
expect "inconsistent PGs" "$(rados list-inconsistent-pg coded)" "[]"
ceph df
