# Ceph's own clients with a Belemnite cluster: ceph, rados, python-rados; in crc and secure mode; across a restart.
source "$(dirname "$0")/../lib.sh"
cluster_up --osd-size 4G

ceph -s | tee "$W/s"
grep -q 'osd: 3 osds: 3 up' "$W/s"
expect "fsid" "$(ceph fsid)" "$(awk '/^fsid/ {print $3}' "$CEPH_CONF")"
ceph osd tree
ceph osd pool create test 32
wait_for 20 sh -c 'ceph pg stat | grep -q "32 active+clean"'
expect "pools" "$(ceph osd pool ls)" test
ceph osd dump -f json >"$W/dump.json"
expect "pool in the map" "$(jq -r '.pools[0].pool_name' "$W/dump.json")" test

echo "== objects"
head -c 10000000 /dev/urandom >"$W/big"
rados -p test put big "$W/big"
rados -p test get big "$W/big2"
cmp "$W/big" "$W/big2"
expect "listing" "$(rados -p test ls)" big
rados -p test setxattr big color blue
expect "xattr" "$(rados -p test getxattr big color)" blue
rados -p test setomapval big k v
rados -p test listomapvals big | grep -q '^k'
if rados -p test get absent "$W/absent" 2>"$W/err"; then echo "an absent object was read" >&2; exit 1; fi
grep -q 'No such file' "$W/err"

echo "== bench"
rados -p test bench 3 write -t 8 --max-objects 256 --no-cleanup >"$W/bench"
grep -q 'Total writes made' "$W/bench"
rados -p test bench 2 seq -t 8 >/dev/null
rados -p test bench 2 rand -t 8 >/dev/null
rados -p test cleanup >/dev/null
rados -p test bench 2 write -t 8 -b 4096 --write-omap >/dev/null

echo "== files"
mkdir "$W/in" "$W/out"
for i in $(seq 16); do head -c $((i * 400000 + i)) /dev/urandom >"$W/in/f$i"; rados -p test put "f$i" "$W/in/f$i"; done
ceph df

echo "== snapshots"
rados -p test mksnap s1
rados -p test put f1 "$W/in/f2"
rados -p test -s s1 get f1 "$W/out/f1.s1"
cmp "$W/in/f1" "$W/out/f1.s1"
rados -p test rollback f1 s1
rados -p test rmsnap s1

echo "== python"
/usr/bin/python3 "$ROOT/interop/py/rados_check.py" test

echo "== a blocklisted range"
ceph osd blocklist range add 127.0.0.0/8 600
if rados -p test stat big 2>"$W/err"; then echo "a client in a blocklisted range was served" >&2; exit 1; fi
ceph osd blocklist ls | grep -q '^cidr:127.0.0.0:0/8 '
ceph osd blocklist range rm 127.0.0.0/8
rados -p test stat big >/dev/null

echo "== fio"
fio --name=x --ioengine=rados --pool=test --clientname=admin --conf="$CEPH_CONF" --rw=randwrite --bs=4k --size=4m --nrfiles=4 \
  --iodepth=16 --time_based --runtime=2 >"$W/fio"
grep -q 'err= 0' "$W/fio"

echo "== restart keeps what was acknowledged"
cluster_down
cluster_up
for i in $(seq 16); do rados -p test get "f$i" "$W/out/f$i"; done
(cd "$W/in" && sha256sum f*) >"$W/sums"
(cd "$W/out" && sha256sum -c --quiet "$W/sums")

echo "== secure mode to OSDs"
CEPH_ARGS="--ms_client_mode=secure" rados -p test get big "$W/big3"
cmp "$W/big" "$W/big3"

echo "== our own commands"
belemnite -c "$CEPH_CONF" status | grep -q 'osd: 3 osds: 3 up'
belemnite -c "$CEPH_CONF" pool create own 8
belemnite -c "$CEPH_CONF" put own a "$W/big"
belemnite -c "$CEPH_CONF" get own a "$W/big4"
cmp "$W/big" "$W/big4"
expect "own listing" "$(belemnite -c "$CEPH_CONF" ls own)" a
belemnite -c "$CEPH_CONF" bench own randwrite --secs 1 --objects 4
belemnite -c "$CEPH_CONF" rm own a
expect "removed" "$(belemnite -c "$CEPH_CONF" ls own)" ""
belemnite -c "$CEPH_CONF" pool rm own --yes-i-really-mean-it

echo "== a wrong key is refused"
printf '[client.admin]\n\tkey = AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA==\n' >"$W/bad.keyring"
if timeout 20 ceph --keyring "$W/bad.keyring" -s 2>"$W/err"; then echo "a wrong key was let in" >&2; exit 1; fi
cluster_down
