# A full OSD's file is enlarged, the OSD is told to grow, and waiting writes continue; the new size survives a restart.
source "$(dirname "$0")/../lib.sh"
cluster_up --osds 1 --osd-size 1G

ceph osd pool create test 8
ceph osd pool set test size 1
ceph osd pool set test min_size 1
wait_for 20 sh -c 'ceph pg stat | grep -q "8 active+clean"'
size() { ceph osd df -f json | jq -r '.nodes[0].kb'; }
before=$(size)

echo "== full"
head -c 24000000 /dev/urandom >"$W/f"
n=0
# Clients wait while the pool is full: a write that does not finish in time shows this.
while timeout 15 rados -p test put "o$n" "$W/f" 2>"$W/err"; do
  n=$((n + 1))
  [ "$n" -lt 100 ]
done
echo "$n objects of 24 MB before it was full"
[ "$n" -gt 20 ]

echo "== grow"
block=$(ls "$W"/c/osd*/block)
if belemnite store grow "$block" 2>"$W/err"; then echo "grown behind the daemon's back" >&2; exit 1; fi
grep -q 'ceph tell osd.N grow' "$W/err"
expect "a device as large as before" "$(ceph tell osd.0 grow | jq -r '.size')" "$(stat -c %s "$block")"
truncate -s 2G "$block"
rados -p test put waiting "$W/f" &
waiting=$!
expect "bytes" "$(ceph tell osd.0 grow | jq -r '.size')" $((2 << 30))
wait $waiting
wait_for 20 sh -c '[ "$(ceph osd df -f json | jq -r ".nodes[0].kb")" -gt '"$((before + 900000))"' ]'
wait_for 20 sh -c 'ceph health detail | grep -qv "full"'
for i in $(seq 200 220); do rados -p test put "o$i" "$W/f"; done

echo "== the size stays"
cluster_down
cluster_up
wait_for 20 sh -c 'ceph pg stat | grep -q "8 active+clean"'
[ "$(size)" -gt "$((before + 900000))" ]
for i in 0 $((n - 1)) 200 220; do rados -p test get "o$i" "$W/g"; cmp "$W/f" "$W/g"; done
rados -p test get waiting "$W/g"
cmp "$W/f" "$W/g"
