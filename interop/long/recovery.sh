# Effect of an OSD's recovery on clients, and its speed: three OSDs, two copies. A healthy OSD is marked out while a
# client writes and another reads, then in again. Shown are p99 latencies when idle and during recovery, the longest
# operation, and the bytes moved per second, with osd_max_backfills 1 and 4. BIG objects of 4 MiB and SMALL ones of 4
# KiB are moved; each client has DEPTH operations in flight. Nothing else should run on the machine.
source "$(dirname "$0")/../lib.sh"
big=${BIG:-400} small=${SMALL:-30000} depth=${DEPTH:-2}
cluster_up --osds 3 --osd-size 8G --pool-size 2
for p in big small; do belemnite -c "$CEPH_CONF" pool create $p 32; done
for p in writes reads; do belemnite -c "$CEPH_CONF" pool create $p 16; done
belemnite -c "$CEPH_CONF" bench big write --objects "$big" --object-size 4M --depth 4 --secs "${FILL:-15}" --keep
belemnite -c "$CEPH_CONF" bench small write --objects "$small" --object-size 4K --depth 32 --secs "${FILL:-15}" --keep

clean() { ceph pg stat -f json | jq -e '.pg_summary | [.num_pgs] == [.num_pg_by_state[] | select(.name == "active+clean") | .num]'; }
# p99 and maximum in a line of bench.
latency() { sed -E 's/.* p99 ([0-9]+) max ([0-9]+).*/\1 \2/' "$1"; }
# clients NAME SECONDS: runs both at once; their lines go to $W/NAME.writes and .reads.
clients() {
  belemnite -c "$CEPH_CONF" bench writes randwrite --objects 256 --object-size 64K --depth "$depth" --secs "$2" --keep >"$W/$1.writes" &
  local w=$!
  belemnite -c "$CEPH_CONF" bench reads randread --objects 256 --object-size 64K --depth "$depth" --secs "$2" --keep >"$W/$1.reads"
  wait $w
}
used() { ceph osd df -f json | jq '.nodes[] | select(.id == 2) | .kb_used_data'; }
seconds() { awk "BEGIN { print $2 - $1 }"; }

wait_for 120 clean
clients idle "${SECS:-10}"
for backfills in 1 4; do
  ceph config set osd osd_max_backfills $backfills
  sleep 6
  kb=$(used)
  start=$(date +%s.%N)
  ceph osd out 2 2>/dev/null
  clients "busy$backfills" "${SECS:-10}" &
  load=$!
  sleep 6
  wait_for 600 clean
  took=$(seconds "$start" "$(date +%s.%N)")
  wait $load
  for c in writes reads; do
    read -r i_p99 _ < <(latency "$W/idle.$c")
    read -r p99 max < <(latency "$W/busy$backfills.$c")
    echo "== osd_max_backfills $backfills, $c: p99 $i_p99 us idle, $p99 during recovery ($(awk "BEGIN { printf \"%.1f\", $p99 / $i_p99 }") times), longest $max us"
  done
  echo "== osd_max_backfills $backfills, out: $((kb / 1024)) MiB in $took s: $(awk "BEGIN { printf \"%.0f\", $kb / 1024 / $took }") MiB/s, clients there for ${SECS:-10} s of it"
  # Back in again, without clients.
  start=$(date +%s.%N)
  ceph osd in 2 2>/dev/null
  sleep 6
  wait_for 600 clean
  took=$(seconds "$start" "$(date +%s.%N)")
  echo "== osd_max_backfills $backfills, in, no clients: $took s: $(awk "BEGIN { printf \"%.0f\", $kb / 1024 / $took }") MiB/s"
done
cluster_down
