# Writes that wait for space in an OSD: sent before the map called it full. Listings, reads and removals of the same PGs do
# not wait behind them, and with the space that removals give the writes go on.
source "$(dirname "$0")/../lib.sh"
cluster_up --osds 2 --osd-size 1G --pool-size 2
ceph osd pool create p 4 >/dev/null
pool_clean p 4
head -c 1048576 /dev/urandom >"$W/data"
for i in $(seq 0 11); do rados -p p put "o$i" "$W/data"; done
n=12
# Fills until writes have not ended for five seconds.
rados -p p bench 600 write -b 1M -t 16 --no-cleanup >"$W/fill" 2>&1 & fill=$!
PIDS+=("$fill")
held() { for o in 0 1; do ceph daemon "$W/c/run/osd.$o.asok" dump_ops_in_flight; done | jq -s '[.[].ops[] | select(.age > 5)] | length'; }
waits() { [ "$(held)" -ge 1 ]; }
wait_for 240 waits || { tail -n 3 "$W/fill"; ceph df; exit 1; }
for o in 0 1; do ceph daemon "$W/c/run/osd.$o.asok" dump_ops_in_flight | jq -r '.ops[] | .type_data.flag_point' | sort | uniq -c | sed "s/^/== osd.$o: /"; done
ceph health detail | grep -i full | sed 's/^/== /'
start=$(date +%s%N)
timeout 20 rados -p p ls >"$W/names"
[ "$(wc -l <"$W/names")" -ge $n ]
echo "== a listing of $n objects beside writes that wait: $((($(date +%s%N) - start) / 1000000)) ms"
timeout 20 rados -p p get o3 - | cmp - "$W/data"
timeout 20 "$BIN" --conf "$CEPH_CONF" ls p >"$W/names"
[ "$(wc -l <"$W/names")" -ge $n ]
start=$(date +%s%N)
for i in $(seq 0 11); do timeout 20 rados -p p rm "o$i" --force-full; done
echo "== twelve removals: $((($(date +%s%N) - start) / 1000000)) ms"
# Room for what waits, and for the client to end.
done_by_now() { [ "$(held)" = 0 ]; }
timeout 60 rados -p p ls | awk '/benchmark_data/ && n++ < 300' | xargs -P 4 -I{} timeout 60 rados -p p rm {} --force-full
wait_for 60 done_by_now || { echo "writes still wait" >&2; ceph -s; ceph df; exit 1; }
kill -KILL "$fill"
for i in $(seq 12); do timeout 30 rados -p p put "late$i" "$W/data"; timeout 20 rados -p p get "late$i" - | cmp - "$W/data"; done
cluster_down
