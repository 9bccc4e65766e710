# A bucket index of many entries in 64 shards: what a page of its listing costs at a quarter, and at all of them: time,
# pages of metadata and bytes that the OSD reads, size of the reply; and the OSD's memory. MEMORY is the store's budget, of
# which both indexes must be a multiple (an entry takes some 330 bytes). The number of pages read must not grow with the
# index beyond the height of its trees, and the process must not grow beyond the budget and a fixed part.
#
# Entries come from `bi_put_entries` calls, as a resharding gateway of Tentacle makes them; 10^7 take some minutes and
# 8 GB. ENTRIES, SHARDS, PAGES (listed at each size) change the defaults.
source "$(dirname "$0")/../lib.sh"
: "${ENTRIES:=10000000}" "${SHARDS:=64}" "${PAGES:=64}" "${OSD_SIZE:=24G}" "${MEMORY:=64}"
cluster_up --osds 1 --osd-size "$OSD_SIZE"
printf '\n[osd]\nstore_cache_size = %sM\n' "$MEMORY" >>"$CEPH_CONF"
belemnite -c "$CEPH_CONF" pool create test 64
index() { /usr/bin/python3 "$ROOT/interop/py/bucket_index.py" "$CEPH_CONF" test "$SHARDS" "$@"; }
admin=$W/c/run/osd.0.asok
osd() { cat "$W/c/run/osd.0.pid"; }
memory() { awk -v k="$1" '$1 == k ":" { print int($2 / 1024) }' "/proc/$(osd)/status"; }
serves() { ceph --admin-daemon "$admin" perf dump && belemnite -c "$CEPH_CONF" ls test; }
kill -KILL "$(osd)"
sleep 1
wait_for 60 serves
index init
from=0
for to in $((ENTRIES / 4)) "$ENTRIES"; do
  start=$SECONDS
  index fill $from "$to"
  echo "== $((to - from)) entries put in $((SECONDS - start)) s; memory of the OSD $(memory VmRSS) MiB, at most $(memory VmHWM)"
  kill -KILL "$(osd)"
  sleep 1
  wait_for 120 serves
  index page "$admin" "$(osd)" "$to" "$PAGES" >"$W/pages.$to"
  sed "s/^/== $to entries, /" "$W/pages.$to"
  from=$to
done
read -r sums counted <<<"$(index stats)"
expect "entries by the headers" "$sums" "$ENTRIES"
expect "entries counted" "$counted" "$ENTRIES"
pages() { sed -nE 's/^one shard: .* ([0-9.]+) pages read.*/\1/p' "$W/pages.$1"; }
few=$(pages $((ENTRIES / 4))) many=$(pages "$ENTRIES")
awk "BEGIN { exit !($many <= $few + 4) }" || { echo "a page reads $few pages at a quarter, $many with all entries"; exit 1; }
most=$(memory VmHWM)
echo "== memory of the OSD after all: $(memory VmRSS) MiB, at most $most"
[ "$most" -le $((2 * MEMORY + 192)) ] || { echo "more than twice the budget of $MEMORY MiB and 192 MiB"; exit 1; }
cluster_down
