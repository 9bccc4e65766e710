# An erasure-coded pool with real clients: profiles, operations with and without overwrites, RBD with a data pool, a
# shard killed under load, another one emptied and rebuilt; then all data is compared and scrubbed.
source "$(dirname "$0")/../lib.sh"
cluster_up --osds 4 --osd-size 2G
ceph config set global osd_heartbeat_grace 5
ceph config set global osd_heartbeat_interval 1
ceph osd erasure-code-profile set p21 k=2 m=1 crush-failure-domain=osd
ceph osd pool create coded 8 8 erasure p21
ceph osd pool application enable coded rbd
expect "size" "$(ceph osd pool get coded size)" "size: 3"
expect "min_size" "$(ceph osd pool get coded min_size)" "min_size: 2"
ceph osd pool ls detail | grep "'coded' erasure profile p21 size 3 min_size 2 .* stripe_width 8192"
pool_clean coded 8
down_of() { ceph osd stat -f json | jq -e ".num_up_osds == $1"; }
active() { ceph pg ls-by-pool coded -f json | jq -e '[.pg_stats[].state] | all(startswith("active"))'; }

# Before overwrites.
head -c 5000000 /dev/urandom >"$W/f"
rados -p coded put f "$W/f"
rados -p coded get f "$W/g"
cmp "$W/f" "$W/g"
/usr/bin/python3 "$ROOT/interop/py/coded_check.py" coded append 8192
belemnite put coded own "$W/f"
belemnite get coded own "$W/g"
cmp "$W/f" "$W/g"
rados -p coded bench 3 write -t 4 --max-objects 32 --no-cleanup >/dev/null
rados -p coded bench 2 seq -t 4 >/dev/null
rados -p coded bench 2 rand -t 4 >/dev/null
rados -p coded cleanup >/dev/null

# With overwrites.
ceph osd pool set coded allow_ec_overwrites true
/usr/bin/python3 "$ROOT/interop/py/coded_check.py" coded overwrite 8192
ceph osd pool create meta 4
rbd pool init meta
rbd create --size 64M --data-pool coded meta/image
rbd info meta/image | grep "data_pool: coded"
(cd "$W" && fio --name=verify --ioengine=rbd --pool=meta --rbdname=image --rw=randwrite --bs=4k --iodepth=16 --size=16M \
  --verify=crc32c --do_verify=1 --verify_fatal=1 --output="$W/fio.out") || { cat "$W/fio.out"; exit 1; }
rbd snap create meta/image@s
rbd bench --io-type write --io-size 4K --io-total 2M --io-pattern rand meta/image >/dev/null
rbd export meta/image "$W/image"
rbd export meta/image@s "$W/snap"

# Objects with known contents; then an OSD is killed under load.
for i in $(seq 12); do
  head -c $((i * 37117)) /dev/urandom >"$W/obj.$i"
  rados -p coded put "obj.$i" "$W/obj.$i"
done
same() {
  for i in $(seq 12); do rados -p coded get "obj.$i" - | cmp - "$W/obj.$i"; done
  rbd export meta/image - 2>/dev/null | cmp - "$W/image"
  rbd export meta/image@s - 2>/dev/null | cmp - "$W/snap"
}
same
model_begins coded
sleep 1
ceph osd set noup
kill -9 "$(cat "$W/c/run/osd.1.pid")"
wait_for 30 down_of 3
wait_for 30 active
ceph osd map coded obj.1
ceph pg ls-by-pool coded | grep NONE
wait_for 30 sh -c 'ceph health detail | grep PG_DEGRADED'
same
rados -p coded put late "$W/f"
ceph osd unset noup
wait_for 30 down_of 4
pool_clean coded 8
rados -p coded get late "$W/g"
cmp "$W/f" "$W/g"

# An OSD is marked out: its shards are rebuilt on other OSDs.
ceph osd out 2
wait_for 60 sh -c 'ceph pg ls-by-osd 2 -f json | jq -e "[.pg_stats[] | select(.up | index(2))] | length == 0"'
pool_clean coded 8
ceph osd in 2
pool_clean coded 8
model_ends
same

# With any shard missing, reads use the rebuilt ones.
for osd in 0 3; do
  ceph osd set noup
  kill -9 "$(cat "$W/c/run/osd.$osd.pid")"
  wait_for 30 down_of 3
  wait_for 30 active
  same
  ceph osd unset noup
  wait_for 30 down_of 4
  pool_clean coded 8
done

stamps() { ceph pg ls-by-pool coded -f json | jq -r "[.pg_stats[].last_deep_scrub_stamp] | $1"; }
LATEST=$(stamps max)
scrubbed() { [ "$(stamps min)" \> "$LATEST" ]; }
ceph osd pool deep-scrub coded
wait_for 60 scrubbed
expect "inconsistent PGs" "$(rados list-inconsistent-pg coded)" "[]"
ceph df
SHARE=$(ceph df -f json | jq '[.pools[] | {(.name): .stats.max_avail}] | add | .coded / .meta')
expect "a coded byte takes half as much as three copies" "$(jq -n "$SHARE | . * 10 | round")" 20


# The pools are removed, after which the profile may be removed.
ceph config set mon mon_allow_pool_delete true
expect "a profile in use" "$(ceph osd erasure-code-profile rm p21 2>&1)" "Error EBUSY: coded pool(s) are using the erasure code profile 'p21'"
ceph osd pool rm coded coded --yes-i-really-really-mean-it
ceph osd erasure-code-profile rm p21
ceph osd crush rule rm coded
cluster_down
