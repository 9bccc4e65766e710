# Many objects of one bucket while gateway and OSDs are killed and the bucket is resharded: the sums in the index equal
# those of its entries at any moment, every object that was acknowledged is there with its contents, and when the buckets
# are removed and the gateway's garbage is collected, nothing is left in the pool of data.
#
# OBJECTS (20000) is the number of objects, OSDS (3) that of OSDs, SEED the seed of the kills. GATEWAY_ROOT, a directory,
# selects the radosgw of the system in it.
source "$(dirname "$0")/../lib.sh"
: "${OBJECTS:=20000}" "${OSDS:=3}" "${SEED:=$RANDOM}" "${WRITERS:=4}"
# Seconds that a command may take: the longest one removes all objects.
PATIENCE=$((300 + OBJECTS / 50))
export S3_MOST=4096
cluster_up --osds "$OSDS" --osd-size 6G --s3 ${GATEWAY_ROOT:+--ceph-root "$GATEWAY_ROOT"}
wait_for 120 grep -q '^secret key' "$W/up.out" || { cat "$W/up.out"; exit 1; }
AK=$(sed -n 's/^access key: //p' "$W/up.out") SK=$(sed -n 's/^secret key: //p' "$W/up.out")
s3() { /usr/bin/python3 "$ROOT/interop/py/s3.py" "127.0.0.1:$((PORT + 5))" "$AK" "$SK" "$@"; }
if [ -n "${GATEWAY_ROOT:-}" ]; then
  admin() { timeout "$PATIENCE" chroot "$GATEWAY_ROOT" radosgw-admin -c "/run/belemnite/$(awk '/^fsid/{print $3}' "$CEPH_CONF")/ceph.conf" -n client.rgw.a "$@" 2>>"$W/admin.err"; }
else
  admin() { timeout "$PATIENCE" radosgw-admin "$@" 2>>"$W/admin.err"; }
fi
consistent() {
  admin bucket check --bucket "$1" >"$W/check"
  exact_usage "$W/check"
}
shards() { admin bucket stats --bucket "$1" | jq .num_shards; }
answers() { curl -sf -o /dev/null "http://127.0.0.1:$((PORT + 5))"; }
data() { rados -p default.rgw.buckets.data ls | wc -l; }

echo "== $OBJECTS objects, gateway and OSDs killed, resharded (seed $SEED)"
RANDOM=$SEED
s3 put many 100000 1
LOADS=() each=$((OBJECTS / WRITERS))
for n in $(seq 0 $((WRITERS - 1))); do
  s3 fill many $((1000 + n * each)) $each >"$W/fill.$n" 2>&1 &
  LOADS+=("$!")
done
# Beside them a client that overwrites and deletes, and knows what may have become of its changes.
s3 load many 3600 "$SEED" small "$W/stop" >"$W/load" 2>"$W/load.err" & MODEL=$!
PIDS+=("${LOADS[@]}" "$MODEL")
filling() { local p; for p in "${LOADS[@]}"; do ! kill -0 "$p" 2>/dev/null || return 0; done; return 1; }
kills=0 reshards=0
while filling; do
  sleep $((3 + RANDOM % 5))
  case $((RANDOM % 4)) in
    0) kill -KILL "$(pgrep -P "$(cat "$W/c/run/rgw.a.pid")")" 2>/dev/null || true; kills=$((kills + 1)) ;;
    1 | 2) kill -KILL "$(cat "$W/c/run/osd.$((RANDOM % OSDS)).pid")" 2>/dev/null || true; kills=$((kills + 1)) ;;
    3) # One that a kill disturbs fails, and the bucket stays as it is.
      if admin bucket reshard --bucket many --num-shards $((11 + RANDOM % 40)) --yes-i-really-mean-it >/dev/null; then reshards=$((reshards + 1)); fi ;;
  esac
done
for p in "${LOADS[@]}"; do wait "$p" || { cat "$W"/fill.*; exit 1; }; done
touch "$W/stop"
wait "$MODEL" || { cat "$W/load.err"; exit 1; }
echo "== $kills kills, $reshards times resharded, $(shards many) shards at the end"
[ $reshards -gt 0 ] || admin bucket reshard --bucket many --num-shards 17 --yes-i-really-mean-it >/dev/null
wait_for 120 answers
consistent many
s3 verify many "$W/load"
for n in $(seq 0 $((WRITERS - 1))); do s3 filled many $((1000 + n * each)) $each; done
consistent many
echo "== $(admin bucket stats --bucket many | jq '.usage["rgw.main"].num_objects') entries, as the statistics say"

echo "== buckets removed, garbage collected"
# Before Reef a gateway leaves the first form of a part that is sent twice.
release=$(${GATEWAY_ROOT:+chroot "$GATEWAY_ROOT"} radosgw --version | sed -E 's/ceph version ([0-9]+).*/\1/')
S3_PART=$((5 << 20)) s3 uploads parts 3 $([ "$release" -lt 18 ] || echo again)
[ "$(data)" -gt 0 ]
# What a killed gateway left prepared is settled by a listing, 120 seconds after it began.
sleep $((SECONDS < 125 ? 125 - SECONDS : 0))
s3 list many >/dev/null
start=$SECONDS
admin bucket rm --bucket many --purge-objects
echo "== removed in $((SECONDS - start)) s"
admin bucket rm --bucket parts --purge-objects
empty() { admin gc process --include-all && [ "$(data)" = 0 ]; }
wait_for 180 empty || { rados -p default.rgw.buckets.data ls | head; exit 1; }
expect "objects in the index pool" "$(rados -p default.rgw.buckets.index ls | wc -l)" 0
cluster_down
